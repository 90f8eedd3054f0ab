// Validation, encoding and parsing of OrderSpec. The encoding is canonical, so parameters that a
// mode does not use must be zero, and a first_epoch_shape that equals `shape` is refused: otherwise
// two specs of one order would have two fingerprints. docs/order.md, section 1, has the layout.
#include "proto/contract/order_spec.h"

#include <algorithm>
#include <string>

#include "proto/contract/byte_cursor.h"
#include "proto/contract/check.h"
#include "proto/contract/limits.h"
#include "proto/contract/order_mix.h"

namespace forebay {
namespace {

constexpr std::uint32_t kMagic = 0x534F'4246;  // "FBOS"
constexpr std::uint64_t kFingerprintTag = 0x3130'5046'534F'4246ULL;  // "FBOSFP01"

// Names the field as "OrderSpec.<field>", so that the error can be found in the user's options.
Error FieldError(ErrorCode code, std::string_view field, const std::string& what) {
  return Error(code, "OrderSpec." + std::string(field) + " " + what);
}

Status CheckRange(std::string_view field, std::uint64_t value) {
  if (value >= 1 && value <= limits::kSampleCountMax) return {};
  return FieldError(ErrorCode::kOutOfRange, field,
                    "is " + std::to_string(value) + ", outside [1, " +
                        std::to_string(limits::kSampleCountMax) + "]");
}

// Refuses a parameter that the mode does not have.
Status CheckUnused(std::string_view field, std::uint64_t value, OrderMode mode) {
  if (value == 0) return {};
  return FieldError(ErrorCode::kInvalidArgument, field,
                    "is " + std::to_string(value) + ", but mode " +
                        std::string(OrderModeName(mode)) + " has no such parameter; set it to 0");
}

// `prefix` is "shape." or "first_epoch_shape.", for error messages.
Status ValidateShape(const OrderShape& shape, std::string_view prefix) {
  const std::string path(prefix);
  switch (shape.mode) {
    case OrderMode::kBlock:
      FOREBAY_TRY(CheckRange(path + "block_samples", shape.block_samples));
      return CheckRange(path + "window_runs", shape.window_runs);
    case OrderMode::kGlobal:
    case OrderMode::kSequential:
      FOREBAY_TRY(CheckUnused(path + "block_samples", shape.block_samples, shape.mode));
      return CheckUnused(path + "window_runs", shape.window_runs, shape.mode);
    case OrderMode::kPartial:
    case OrderMode::kWeighted:
      return FieldError(ErrorCode::kUnimplemented, path + "mode",
                        std::string(OrderModeName(shape.mode)) +
                            " is reserved and not part of version 1");
  }
  return FieldError(ErrorCode::kInvalidArgument, path + "mode",
                    "is the unknown number " +
                        std::to_string(static_cast<unsigned>(shape.mode)));
}

Error UnknownName(std::string_view what, std::string_view name, std::string_view known) {
  return Error(ErrorCode::kInvalidArgument, "unknown " + std::string(what) + " '" +
                                                std::string(name) + "' (one of " +
                                                std::string(known) + ")");
}

}  // namespace

std::string_view OrderModeName(OrderMode mode) {
  switch (mode) {
    case OrderMode::kGlobal: return "global";
    case OrderMode::kBlock: return "block";
    case OrderMode::kSequential: return "sequential";
    case OrderMode::kPartial: return "partial";
    case OrderMode::kWeighted: return "weighted";
  }
  return "unknown";
}

std::string_view TailPolicyName(TailPolicy policy) {
  switch (policy) {
    case TailPolicy::kDrop: return "drop";
    case TailPolicy::kPad: return "pad";
    case TailPolicy::kShort: return "short";
  }
  return "unknown";
}

Result<OrderMode> ParseOrderMode(std::string_view name) {
  for (const OrderMode mode : {OrderMode::kGlobal, OrderMode::kBlock, OrderMode::kSequential}) {
    if (OrderModeName(mode) == name) return mode;
  }
  return UnknownName("order mode", name, "global, block, sequential");
}

Result<TailPolicy> ParseTailPolicy(std::string_view name) {
  for (const TailPolicy policy : {TailPolicy::kDrop, TailPolicy::kPad, TailPolicy::kShort}) {
    if (TailPolicyName(policy) == name) return policy;
  }
  return UnknownName("tail policy", name, "drop, pad, short");
}

Status OrderSpec::Validate() const {
  FOREBAY_TRY(CheckRange("sample_count", sample_count));
  // The number may come from the wire, so it need not be one of the enumerators.
  if (TailPolicyName(tail) == "unknown") {
    return FieldError(ErrorCode::kInvalidArgument, "tail",
                      "is the unknown number " + std::to_string(static_cast<unsigned>(tail)));
  }
  FOREBAY_TRY(ValidateShape(shape, "shape."));
  if (first_epoch_shape) {
    FOREBAY_TRY(ValidateShape(*first_epoch_shape, "first_epoch_shape."));
    if (*first_epoch_shape == shape) {
      return FieldError(ErrorCode::kInvalidArgument, "first_epoch_shape",
                        "equals shape; leave it out, so that equal orders have equal specs");
    }
  }
  return {};
}

std::array<std::byte, kOrderSpecBytes> OrderSpec::Encode() const {
  FOREBAY_CHECK(Validate().has_value());
  // Mode 0 does not exist, so it encodes "no first_epoch_shape".
  const OrderShape first = first_epoch_shape.value_or(OrderShape{.mode = OrderMode{0}});
  ByteWriter writer;
  writer.Le(kMagic);
  writer.Le(kOrderSpecVersion);
  writer.Le(static_cast<std::uint8_t>(tail));
  writer.Le(static_cast<std::uint8_t>(0));
  writer.Le(seed);
  writer.Le(sample_count);
  writer.Le(selection_fingerprint);
  writer.Le(static_cast<std::uint32_t>(shape.mode));
  writer.Le(static_cast<std::uint32_t>(first.mode));
  writer.Le(shape.block_samples);
  writer.Le(shape.window_runs);
  writer.Le(first.block_samples);
  writer.Le(first.window_runs);
  std::array<std::byte, kOrderSpecBytes> bytes;
  // The layout is written down twice, here and in kOrderSpecBytes; they must agree.
  FOREBAY_CHECK(writer.size() == bytes.size());
  std::ranges::copy(writer.bytes(), bytes.begin());
  return bytes;
}

namespace {

// Turns a number from outside into a mode; `prefix` names the shape in errors. Reserved modes pass,
// because Validate has the better error for them.
Result<OrderMode> ModeFromNumber(std::uint32_t number, std::string_view prefix) {
  if (number < 1 || number > 5) {
    return FieldError(ErrorCode::kInvalidArgument, std::string(prefix) + "mode",
                      "is the unknown number " + std::to_string(number));
  }
  return static_cast<OrderMode>(number);
}

}  // namespace

Result<OrderSpec> OrderSpec::Parse(std::span<const std::byte> bytes) {
  if (bytes.size() != kOrderSpecBytes) {
    return Error(ErrorCode::kDataLoss, "OrderSpec has " + std::to_string(bytes.size()) +
                                           " bytes, expected " +
                                           std::to_string(kOrderSpecBytes));
  }
  ByteReader reader(bytes);
  if (reader.ReadLe<std::uint32_t>() != kMagic) {
    return FieldError(ErrorCode::kInvalidArgument, "magic", "is not FBOS");
  }
  if (const auto version = reader.ReadLe<std::uint16_t>(); version != kOrderSpecVersion) {
    return FieldError(ErrorCode::kFailedPrecondition, "version",
                      "is " + std::to_string(version) + ", this build reads version " +
                          std::to_string(kOrderSpecVersion));
  }
  OrderSpec spec;
  spec.tail = static_cast<TailPolicy>(reader.ReadLe<std::uint8_t>());
  if (reader.ReadLe<std::uint8_t>() != 0) {
    return FieldError(ErrorCode::kInvalidArgument, "reserved", "is not zero");
  }
  spec.seed = reader.ReadLe<std::uint64_t>();
  spec.sample_count = reader.ReadLe<std::uint64_t>();
  spec.selection_fingerprint = reader.ReadLe<std::uint64_t>();
  FOREBAY_ASSIGN(spec.shape.mode, ModeFromNumber(reader.ReadLe<std::uint32_t>(), "shape."));
  const auto first_mode = reader.ReadLe<std::uint32_t>();
  spec.shape.block_samples = reader.ReadLe<std::uint64_t>();
  spec.shape.window_runs = reader.ReadLe<std::uint64_t>();
  OrderShape first;
  first.block_samples = reader.ReadLe<std::uint64_t>();
  first.window_runs = reader.ReadLe<std::uint64_t>();
  // Mode 0 with parameters would be a second encoding of "no first_epoch_shape".
  if (first_mode != 0) {
    FOREBAY_ASSIGN(first.mode, ModeFromNumber(first_mode, "first_epoch_shape."));
    spec.first_epoch_shape = first;
  } else if (first.block_samples != 0 || first.window_runs != 0) {
    return FieldError(ErrorCode::kInvalidArgument, "first_epoch_shape",
                      "has parameters, but its mode is 0 (absent)");
  }
  // The length was checked first, so the reads above cannot have failed.
  FOREBAY_CHECK(reader.ok() && reader.remaining() == 0);
  FOREBAY_TRY(spec.Validate());
  return spec;
}

// A hash of the encoding and not of the members, so that any language computes it from the bytes.
std::uint64_t OrderSpec::Fingerprint() const { return FoldWords(kFingerprintTag, Encode()); }

std::uint64_t FoldWords(std::uint64_t tag, std::span<const std::byte> bytes) {
  FOREBAY_CHECK(bytes.size() % sizeof(std::uint64_t) == 0);
  ByteReader reader(bytes);
  // The length is hashed first, so that a text and its extension by zeros differ.
  std::uint64_t state = Absorb64(tag, bytes.size());
  while (reader.remaining() > 0) state = Absorb64(state, reader.ReadLe<std::uint64_t>());
  return state;
}

}  // namespace forebay

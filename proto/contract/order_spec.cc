// Validation, encoding and parsing of OrderSpec. The encoding is canonical, so parameters that a
// mode does not use must be zero, and a first_epoch_shape that equals `shape` is refused: otherwise
// two specs of one order would have two fingerprints. docs/order.md, section 8, has the layout.
#include "proto/contract/order_spec.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "proto/contract/byte_cursor.h"
#include "proto/contract/check.h"
#include "proto/contract/limits.h"
#include "proto/contract/order_mix.h"

namespace forebay {
namespace {

constexpr std::uint32_t kSpecMagic = 0x534F'4246;  // "FBOS"
constexpr std::uint64_t kFingerprintTag = 0x3130'5046'534F'4246ULL;  // "FBOSFP01"

// Names the field as "OrderSpec.<field>", so that the error can be found in the user's options.
Error FieldError(ErrorCode code, std::string_view field, const std::string& what) {
  return Error(code, "OrderSpec." + std::string(field) + " " + what);
}

struct Bounds {
  std::uint64_t least = 1;
  std::uint64_t most = limits::kSampleCountMax;
};

Status CheckRange(std::string_view field, std::uint64_t value, const Bounds& bounds = {}) {
  if (value >= bounds.least && value <= bounds.most) return {};
  return FieldError(ErrorCode::kOutOfRange, field,
                    "is " + std::to_string(value) + ", outside [" + std::to_string(bounds.least) +
                        ", " + std::to_string(bounds.most) + "]");
}

// Refuses a parameter that the mode does not have.
Status CheckUnused(std::string_view field, std::uint64_t value, OrderMode mode) {
  if (value == 0) return {};
  return FieldError(ErrorCode::kInvalidArgument, field,
                    "is " + std::to_string(value) + ", but mode " +
                        std::string(OrderModeName(mode)) + " has no such parameter; set it to 0");
}

Status ValidatePartial(const OrderShape& shape, std::uint64_t sample_count,
                       const std::string& path) {
  FOREBAY_TRY(CheckRange(path + "block_samples", shape.block_samples,
                         {.most = std::numeric_limits<std::uint32_t>::max()}));
  FOREBAY_TRY(CheckUnused(path + "window_runs", shape.window_runs, shape.mode));
  FOREBAY_TRY(CheckRange(path + "exchange_millionths", shape.exchange_millionths,
                         {.least = 0, .most = kExchangeMillionths}));
  FOREBAY_TRY(
      CheckRange(path + "global_batch", shape.global_batch, {.most = limits::kGlobalBatchMax}));
  FOREBAY_TRY(
      CheckRange(path + "canonical_nodes", shape.canonical_nodes, {.most = shape.global_batch}));
  // Part c of a global batch is node c's, so all parts have one size.
  if (shape.global_batch % shape.canonical_nodes != 0) {
    return FieldError(ErrorCode::kInvalidArgument, path + "canonical_nodes",
                      "is " + std::to_string(shape.canonical_nodes) +
                          ", which does not divide the global batch " +
                          std::to_string(shape.global_batch));
  }
  if (shape.canonical_nodes > sample_count) {
    return FieldError(ErrorCode::kInvalidArgument, path + "canonical_nodes",
                      "is " + std::to_string(shape.canonical_nodes) + ", but there are only " +
                          std::to_string(sample_count) + " samples: each node needs one");
  }
  return {};
}

// `path` is "shape." or "first_epoch_shape.", for error messages.
Status ValidateShape(const OrderShape& shape, std::uint64_t sample_count,
                     const std::string& path) {
  const auto unused = [&](std::string_view field, std::uint64_t value) {
    return CheckUnused(path + std::string(field), value, shape.mode);
  };
  if (shape.mode != OrderMode::kPartial) {
    FOREBAY_TRY(unused("canonical_nodes", shape.canonical_nodes));
    FOREBAY_TRY(unused("exchange_millionths", shape.exchange_millionths));
    FOREBAY_TRY(unused("global_batch", shape.global_batch));
  }
  switch (shape.mode) {
    case OrderMode::kBlock:
      FOREBAY_TRY(CheckRange(path + "block_samples", shape.block_samples));
      return CheckRange(path + "window_runs", shape.window_runs);
    case OrderMode::kPartial:
      return ValidatePartial(shape, sample_count, path);
    case OrderMode::kGlobal:
    case OrderMode::kSequential:
      FOREBAY_TRY(unused("block_samples", shape.block_samples));
      return unused("window_runs", shape.window_runs);
    case OrderMode::kWeighted:
      return FieldError(ErrorCode::kUnimplemented, path + "mode",
                        std::string(OrderModeName(shape.mode)) + " is reserved");
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

bool NeedsWholeSet(OrderMode mode) {
  return mode == OrderMode::kGlobal || mode == OrderMode::kPartial;
}

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
  for (const OrderMode mode : {OrderMode::kGlobal, OrderMode::kBlock, OrderMode::kSequential,
                               OrderMode::kPartial}) {
    if (OrderModeName(mode) == name) return mode;
  }
  return UnknownName("order mode", name, "global, block, sequential, partial");
}

Result<TailPolicy> ParseTailPolicy(std::string_view name) {
  for (const TailPolicy policy : {TailPolicy::kDrop, TailPolicy::kPad, TailPolicy::kShort}) {
    if (TailPolicyName(policy) == name) return policy;
  }
  return UnknownName("tail policy", name, "drop, pad, short");
}

Result<std::uint32_t> ExchangeMillionths(double fraction) {
  // In this form, because every comparison with "not a number" is false.
  if (!(fraction >= 0 && fraction <= 1)) {
    return Error(ErrorCode::kOutOfRange, "the exchanged fraction is " + std::to_string(fraction) +
                                             ", outside [0, 1]");
  }
  return static_cast<std::uint32_t>(std::lround(fraction * kExchangeMillionths));
}

std::uint16_t OrderSpec::Version() const {
  const bool partial = shape.mode == OrderMode::kPartial ||
                       (first_epoch_shape && first_epoch_shape->mode == OrderMode::kPartial);
  return partial ? 2 : 1;
}

Status OrderSpec::CheckGlobalBatch(std::uint64_t global_batch) const {
  for (const OrderShape* checked : {&shape, first_epoch_shape ? &*first_epoch_shape : &shape}) {
    if (checked->mode != OrderMode::kPartial || checked->global_batch == global_batch) continue;
    return FieldError(ErrorCode::kInvalidArgument, "global_batch",
                      "is " + std::to_string(checked->global_batch) +
                          ", but the stream's is " + std::to_string(global_batch) +
                          ": in mode partial the order depends on it");
  }
  return {};
}

Status OrderSpec::Validate() const {
  FOREBAY_TRY(CheckRange("sample_count", sample_count));
  // The number may come from the wire, so it need not be one of the enumerators.
  if (TailPolicyName(tail) == "unknown") {
    return FieldError(ErrorCode::kInvalidArgument, "tail",
                      "is the unknown number " + std::to_string(static_cast<unsigned>(tail)));
  }
  FOREBAY_TRY(ValidateShape(shape, sample_count, "shape."));
  if (first_epoch_shape) {
    FOREBAY_TRY(ValidateShape(*first_epoch_shape, sample_count, "first_epoch_shape."));
    if (*first_epoch_shape == shape) {
      return FieldError(ErrorCode::kInvalidArgument, "first_epoch_shape",
                        "equals shape; leave it out, so that equal orders have equal specs");
    }
    // A stream has one global batch.
    if (shape.mode == OrderMode::kPartial && first_epoch_shape->mode == OrderMode::kPartial &&
        shape.global_batch != first_epoch_shape->global_batch) {
      return FieldError(ErrorCode::kInvalidArgument, "first_epoch_shape.global_batch",
                        "is " + std::to_string(first_epoch_shape->global_batch) +
                            ", but shape.global_batch is " + std::to_string(shape.global_batch));
    }
  }
  return {};
}

namespace {

// The 16 bytes of a mode's parameters.
void WriteParameters(const OrderShape& shape, ByteWriter& writer) {
  if (shape.mode == OrderMode::kPartial) {
    writer.Le(static_cast<std::uint32_t>(shape.block_samples));
    writer.Le(shape.exchange_millionths);
    writer.Le(shape.canonical_nodes);
    writer.Le(shape.global_batch);
    return;
  }
  writer.Le(shape.block_samples);
  writer.Le(shape.window_runs);
}

// Reads them for the mode that `shape` has.
void ReadParameters(ByteReader& reader, OrderShape& shape) {
  if (shape.mode == OrderMode::kPartial) {
    shape.block_samples = reader.ReadLe<std::uint32_t>();
    shape.exchange_millionths = reader.ReadLe<std::uint32_t>();
    shape.canonical_nodes = reader.ReadLe<std::uint32_t>();
    shape.global_batch = reader.ReadLe<std::uint32_t>();
    return;
  }
  shape.block_samples = reader.ReadLe<std::uint64_t>();
  shape.window_runs = reader.ReadLe<std::uint64_t>();
}

}  // namespace

std::array<std::byte, kOrderSpecBytes> OrderSpec::Encode() const {
  FOREBAY_CHECK(Validate().has_value());
  // Mode 0 does not exist, so it encodes "no first_epoch_shape".
  const OrderShape first = first_epoch_shape.value_or(OrderShape{.mode = OrderMode{0}});
  ByteWriter writer;
  writer.Le(kSpecMagic);
  writer.Le(Version());
  writer.Le(static_cast<std::uint8_t>(tail));
  writer.Le(static_cast<std::uint8_t>(0));
  writer.Le(seed);
  writer.Le(sample_count);
  writer.Le(selection_fingerprint);
  writer.Le(static_cast<std::uint32_t>(shape.mode));
  writer.Le(static_cast<std::uint32_t>(first.mode));
  WriteParameters(shape, writer);
  WriteParameters(first, writer);
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
  if (reader.ReadLe<std::uint32_t>() != kSpecMagic) {
    return FieldError(ErrorCode::kInvalidArgument, "magic", "is not FBOS");
  }
  const auto version = reader.ReadLe<std::uint16_t>();
  if (version < 1 || version > kOrderSpecVersion) {
    return FieldError(ErrorCode::kFailedPrecondition, "version",
                      "is " + std::to_string(version) + ", this build reads versions 1 to " +
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
  ReadParameters(reader, spec.shape);
  OrderShape first;
  if (first_mode != 0) {
    FOREBAY_ASSIGN(first.mode, ModeFromNumber(first_mode, "first_epoch_shape."));
  }
  ReadParameters(reader, first);
  // Mode 0 with parameters would be a second encoding of "no first_epoch_shape".
  if (first_mode != 0) {
    spec.first_epoch_shape = first;
  } else if (first.block_samples != 0 || first.window_runs != 0) {
    return FieldError(ErrorCode::kInvalidArgument, "first_epoch_shape",
                      "has parameters, but its mode is 0 (absent)");
  }
  // The length was checked first, so the reads above cannot have failed.
  FOREBAY_CHECK(reader.ok() && reader.remaining() == 0);
  FOREBAY_TRY(spec.Validate());
  // Otherwise one order would have two encodings, and a reader of version 1 would be refused orders
  // that it knows.
  if (version != spec.Version()) {
    return FieldError(ErrorCode::kInvalidArgument, "version",
                      "is " + std::to_string(version) + ", but its modes belong to version " +
                          std::to_string(spec.Version()));
  }
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

// Encoding and parsing of position tokens. The checksum is FoldWords and not XXH3, so that an
// auditor needs 64-bit multiplication and nothing else (docs/order.md, section 8).
#include "proto/contract/order_token.h"

#include <algorithm>
#include <string>

#include "proto/contract/byte_cursor.h"
#include "proto/contract/check.h"
#include "proto/contract/order_steps.h"

namespace forebay {
namespace {

constexpr std::uint32_t kTokenMagic = 0x4B54'4246;             // "FBTK"
constexpr std::uint64_t kTokenTag = 0x314E'454B'4F54'4246ULL;  // "FBTOKEN1"
constexpr std::size_t kChecksumBytes = 8;

Error FieldError(ErrorCode code, const std::string& what) {
  return Error(code, "PositionToken." + what);
}

}  // namespace

Status PositionToken::Validate() const {
  FOREBAY_TRY(order.Validate());
  // Steps do not depend on the number of ranks, so one rank serves to count them.
  const auto plan = StepPlan::Create({.sample_count = order.sample_count,
                                      .global_batch = global_batch,
                                      .ranks = 1,
                                      .tail = order.tail});
  if (!plan) {
    return FieldError(ErrorCode::kOutOfRange,
                      "global_batch is " + std::to_string(global_batch) + ", outside [1, " +
                          std::to_string(limits::kGlobalBatchMax) + "]");
  }
  FOREBAY_TRY(order.CheckGlobalBatch(global_batch));
  // Equal is valid: the epoch is over, and the stream goes on with the next one.
  if (next_step.value() > plan->steps()) {
    return FieldError(ErrorCode::kOutOfRange,
                      "next_step is " + std::to_string(next_step.value()) +
                          ", but an epoch has " + std::to_string(plan->steps()) + " steps");
  }
  return {};
}

std::array<std::byte, kPositionTokenBytes> PositionToken::Encode() const {
  FOREBAY_CHECK(Validate().has_value());
  ByteWriter writer;
  writer.Le(kTokenMagic);
  writer.Le(kPositionTokenVersion);
  writer.Le(static_cast<std::uint16_t>(0));
  writer.Le(catalog_fingerprint);
  writer.Bytes(order.Encode());
  writer.Le(global_batch);
  writer.Le(next_epoch.value());
  writer.Le(next_step.value());
  writer.Le(FoldWords(kTokenTag, writer.bytes()));  // over all bytes before it
  std::array<std::byte, kPositionTokenBytes> bytes;
  FOREBAY_CHECK(writer.size() == bytes.size());
  std::ranges::copy(writer.bytes(), bytes.begin());
  return bytes;
}

Result<PositionToken> PositionToken::Parse(std::span<const std::byte> bytes) {
  if (bytes.size() != kPositionTokenBytes) {
    return Error(ErrorCode::kDataLoss, "PositionToken has " + std::to_string(bytes.size()) +
                                           " bytes, expected " +
                                           std::to_string(kPositionTokenBytes));
  }
  ByteReader reader(bytes);
  if (reader.ReadLe<std::uint32_t>() != kTokenMagic) {
    return FieldError(ErrorCode::kInvalidArgument, "magic is not FBTK");
  }
  if (const auto version = reader.ReadLe<std::uint16_t>(); version != kPositionTokenVersion) {
    return FieldError(ErrorCode::kFailedPrecondition,
                      "version is " + std::to_string(version) + ", this build reads version " +
                          std::to_string(kPositionTokenVersion));
  }
  // The version comes before the checksum, whose definition belongs to the version. The checksum
  // comes before the fields, so that damage is reported as damage and not as a field out of range.
  const std::size_t body_bytes = bytes.size() - kChecksumBytes;
  ByteReader tail(bytes.subspan(body_bytes));
  if (tail.ReadLe<std::uint64_t>() != FoldWords(kTokenTag, bytes.first(body_bytes))) {
    return FieldError(ErrorCode::kDataLoss, "checksum does not match");
  }
  if (reader.ReadLe<std::uint16_t>() != 0) {
    return FieldError(ErrorCode::kInvalidArgument, "reserved is not zero");
  }
  PositionToken token;
  token.catalog_fingerprint = reader.ReadLe<std::uint64_t>();
  FOREBAY_ASSIGN(token.order, OrderSpec::Parse(reader.Take(kOrderSpecBytes)));
  token.global_batch = reader.ReadLe<std::uint32_t>();
  token.next_epoch = EpochId(reader.ReadLe<std::uint32_t>());
  token.next_step = StepId(reader.ReadLe<std::uint64_t>());
  FOREBAY_CHECK(reader.ok() && reader.remaining() == kChecksumBytes);
  FOREBAY_TRY(token.Validate());
  return token;
}

}  // namespace forebay

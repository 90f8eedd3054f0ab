// PositionToken: where a stream stands, as it lies in a trainer's checkpoint (design 6).
// Valid once the batches before `next_step` are consumed. It does not name a number of
// ranks: a job resumes on any number that divides the global batch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "proto/contract/ids.h"
#include "proto/contract/limits.h"
#include "proto/contract/order_spec.h"
#include "proto/contract/result.h"

namespace forebay {

inline constexpr std::uint16_t kPositionTokenVersion = 1;
inline constexpr std::size_t kPositionTokenBytes = 112;
static_assert(kPositionTokenBytes <= limits::kPositionTokenBytesMax);

// A value type. `next_step` is at most the steps of an epoch; equal to it, the epoch is over.
struct PositionToken {
  std::uint64_t catalog_fingerprint = 0;
  OrderSpec order;
  std::uint32_t global_batch = 0;  // [1, limits::kGlobalBatchMax]
  EpochId next_epoch;
  StepId next_step;

  bool operator==(const PositionToken&) const = default;

  // The message of an error begins with "PositionToken." or "OrderSpec." and the field.
  Status Validate() const;

  // Fixed length, little-endian, checksummed (docs/order.md, section 8). Requires a valid
  // token.
  std::array<std::byte, kPositionTokenBytes> Encode() const;

  // The inverse of Encode. Bytes are untrusted: kDataLoss for a wrong length or checksum,
  // kInvalidArgument for a wrong magic or reserved bytes, kFailedPrecondition for another
  // version (both are named), else as Validate.
  static Result<PositionToken> Parse(std::span<const std::byte> bytes);
};

}  // namespace forebay

// PositionToken: the position of a stream, as a trainer's checkpoint holds it (docs/design.md, 6).
// It is valid when all batches before `next_step` have been consumed. It has no number of ranks,
// because a job may resume on any number that divides the global batch.
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

// A value type. `next_step` is at most the number of steps of an epoch; then the epoch is over.
struct PositionToken {
  std::uint64_t catalog_fingerprint = 0;
  OrderSpec order;
  std::uint32_t global_batch = 0;  // [1, limits::kGlobalBatchMax]
  EpochId next_epoch;
  StepId next_step;

  bool operator==(const PositionToken&) const = default;

  // Errors begin with "PositionToken." or "OrderSpec." and the name of the field.
  Status Validate() const;

  // Fixed length, little-endian, checksummed (docs/order.md, section 8). Requires a valid
  // token.
  std::array<std::byte, kPositionTokenBytes> Encode() const;

  // The inverse of Encode, for untrusted bytes. Errors: kDataLoss for a wrong length or checksum,
  // kInvalidArgument for a wrong magic or reserved bytes, kFailedPrecondition for another
  // version (both are named), and those of Validate.
  static Result<PositionToken> Parse(std::span<const std::byte> bytes);
};

}  // namespace forebay

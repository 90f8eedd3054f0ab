// OrderSpec v1: the published description of a stream's order (docs/order.md). Two processes
// that hold equal specs agree on every sample of every epoch; nothing else enters the order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"

namespace forebay {

inline constexpr std::uint16_t kOrderSpecVersion = 1;
inline constexpr std::size_t kOrderSpecBytes = 72;

// Persisted and sent by number; never renumber.
enum class OrderMode : std::uint8_t {
  kGlobal = 1,      // one permutation of all samples
  kBlock = 2,       // runs of b indices, permuted; samples permuted within windows of w runs
  kSequential = 3,  // position p is index p
  kPartial = 4,     // reserved: Validate answers kUnimplemented
  kWeighted = 5,    // reserved: Validate answers kUnimplemented
};

// What happens to an epoch's last step if the global batch does not divide the number of samples.
// In each policy every rank makes the same number of steps.
enum class TailPolicy : std::uint8_t {
  kDrop = 1,   // the step is left out
  kPad = 2,    // the step is filled up from the start of the order; padded positions are flagged
  kShort = 3,  // the step is smaller; ranks may get unequal, even empty, slices of it
};

std::string_view OrderModeName(OrderMode mode);      // "global", "block", "sequential", ...
std::string_view TailPolicyName(TailPolicy policy);  // "drop", "pad", "short"
Result<OrderMode> ParseOrderMode(std::string_view name);
Result<TailPolicy> ParseTailPolicy(std::string_view name);

// How an epoch is ordered. `block_samples` (b) and `window_runs` (w) are in
// [1, limits::kSampleCountMax] for kBlock and 0 for every other mode.
struct OrderShape {
  OrderMode mode = OrderMode::kGlobal;
  std::uint64_t block_samples = 0;
  std::uint64_t window_runs = 0;

  bool operator==(const OrderShape&) const = default;
};

// The order of all epochs of a stream; Order(spec, epoch) is one epoch. A value type.
struct OrderSpec {
  std::uint64_t seed = 0;
  std::uint64_t sample_count = 0;           // n, of the selection; [1, limits::kSampleCountMax]
  std::uint64_t selection_fingerprint = 0;  // which samples; compared, never interpreted
  TailPolicy tail = TailPolicy::kDrop;
  OrderShape shape = {};
  std::optional<OrderShape> first_epoch_shape = std::nullopt;  // epoch 0, if it differs

  bool operator==(const OrderSpec&) const = default;

  const OrderShape& ShapeOf(EpochId epoch) const {
    return epoch == EpochId(0) && first_epoch_shape ? *first_epoch_shape : shape;
  }

  // Succeeds if this is a valid OrderSpec v1. Errors begin with "OrderSpec." and the name of the
  // field: kInvalidArgument for an unknown number, kOutOfRange for a value outside its bounds
  // (which are named), kUnimplemented for a reserved mode.
  Status Validate() const;

  // The published encoding: fixed length, little-endian, canonical (specs are equal exactly if
  // their bytes are). Requires a valid spec.
  std::array<std::byte, kOrderSpecBytes> Encode() const;

  // The inverse of Encode, for untrusted bytes. Errors: kDataLoss for a wrong length,
  // kInvalidArgument for a wrong magic or non-zero reserved bytes, kFailedPrecondition for
  // another version (both are named), and those of Validate.
  static Result<OrderSpec> Parse(std::span<const std::byte> bytes);

  // A hash of Encode(), for comparisons and logs.
  std::uint64_t Fingerprint() const;
};

// FoldWords(tag, bytes): the hash of docs/order.md, section 2, over little-endian 64-bit
// words. bytes.size() is a multiple of 8.
std::uint64_t FoldWords(std::uint64_t tag, std::span<const std::byte> bytes);

}  // namespace forebay

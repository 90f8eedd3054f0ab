// OrderSpec: the published description of a stream's order (docs/order.md). Two processes that
// hold equal specs agree on every sample of every epoch; nothing else enters the order. Version 2
// adds mode kPartial; all other specs are version 1, with the bytes that version 1 defines.
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

inline constexpr std::uint16_t kOrderSpecVersion = 2;  // the newest that this build knows
inline constexpr std::size_t kOrderSpecBytes = 72;

// Persisted and sent by number; never renumber.
enum class OrderMode : std::uint8_t {
  kGlobal = 1,      // one permutation of all samples
  kBlock = 2,       // runs of b indices, permuted; samples permuted within windows of w runs
  kSequential = 3,  // position p is index p
  kPartial = 4,     // fixed shares of samples, a fraction of which is exchanged in each epoch
  kWeighted = 5,    // reserved: Validate answers kUnimplemented
};

// What happens to an epoch's last step if the global batch does not divide the number of samples.
// In each policy every rank makes the same number of steps.
enum class TailPolicy : std::uint8_t {
  kDrop = 1,   // the step is left out
  kPad = 2,    // the step is filled up from the start of the order; padded positions are flagged
  kShort = 3,  // the step is smaller; ranks may get unequal, even empty, slices of it
};

// Whether an epoch of this mode takes samples from the whole data set all the time. Beyond the
// tiers such an order would read the GFS at random, so a daemon refuses it there, and
// `forebay tune` does not recommend it.
bool NeedsWholeSet(OrderMode mode);

std::string_view OrderModeName(OrderMode mode);      // "global", "block", "sequential", ...
std::string_view TailPolicyName(TailPolicy policy);  // "drop", "pad", "short"
Result<OrderMode> ParseOrderMode(std::string_view name);
Result<TailPolicy> ParseTailPolicy(std::string_view name);

// q of kPartial is a whole number of these, so that no rounding of a fraction enters the order.
inline constexpr std::uint32_t kExchangeMillionths = 1'000'000;

// The nearest number of millionths. kOutOfRange if `fraction` is outside of [0, 1] or not a number.
Result<std::uint32_t> ExchangeMillionths(double fraction);

// How an epoch is ordered. A parameter that the mode does not have is 0.
struct OrderShape {
  OrderMode mode = OrderMode::kGlobal;
  // kBlock and kPartial: b, the samples of a run. In [1, limits::kSampleCountMax] for kBlock; below
  // 2^32 for kPartial.
  std::uint64_t block_samples = 0;
  std::uint64_t window_runs = 0;  // kBlock: w, in [1, limits::kSampleCountMax]
  // kPartial: M, in [1, n] and a divisor of B; q in millionths, in [0, kExchangeMillionths]; and B,
  // the stream's global batch, in [1, limits::kGlobalBatchMax].
  std::uint32_t canonical_nodes = 0;
  std::uint32_t exchange_millionths = 0;
  std::uint32_t global_batch = 0;

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

  // 2 if a shape is kPartial, else 1.
  std::uint16_t Version() const;

  // Succeeds if this is a valid OrderSpec. Errors begin with "OrderSpec." and the name of the
  // field: kInvalidArgument for an unknown number or for parameters that contradict each other,
  // kOutOfRange for a value outside its bounds (which are named), kUnimplemented for a reserved
  // mode.
  Status Validate() const;

  // kInvalidArgument if a shape is kPartial and made for another global batch. The other modes suit
  // any. Requires a valid spec.
  Status CheckGlobalBatch(std::uint64_t global_batch) const;

  // The published encoding: fixed length, little-endian, canonical (specs are equal exactly if
  // their bytes are). Requires a valid spec.
  std::array<std::byte, kOrderSpecBytes> Encode() const;

  // The inverse of Encode, for untrusted bytes. Errors: kDataLoss for a wrong length,
  // kInvalidArgument for a wrong magic, non-zero reserved bytes or a version that the modes do
  // not have, kFailedPrecondition for an unknown version (both are named), and those of Validate.
  static Result<OrderSpec> Parse(std::span<const std::byte> bytes);

  // A hash of Encode(), for comparisons and logs.
  std::uint64_t Fingerprint() const;
};

// FoldWords(tag, bytes): the hash of docs/order.md, section 2, over little-endian 64-bit
// words. bytes.size() is a multiple of 8.
std::uint64_t FoldWords(std::uint64_t tag, std::span<const std::byte> bytes);

}  // namespace forebay

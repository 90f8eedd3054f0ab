// Derives the keys of an epoch from the seed, and dispatches to the engine of its mode: identity,
// keyed permutation, block order or partial order. A variant, and not a virtual base, keeps an
// Order a plain value that allocates nothing.
#include "proto/contract/order.h"

#include <algorithm>
#include <numeric>

#include "proto/contract/check.h"
#include "proto/contract/order_mix.h"

namespace forebay {
namespace {

// Eight ASCII characters read as a little-endian word: the root of each family of keys.
constexpr std::uint64_t kOrderTag = 0x3152'4544'524F'4246ULL;      // "FBORDER1"
constexpr std::uint64_t kHomesTag = 0x3153'454D'4F48'4246ULL;      // "FBHOMES1"
constexpr std::uint64_t kTransformTag = 0x3144'4545'5354'4246ULL;  // "FBTSEED1"

// The purpose of a key. The numbers are part of the specification; distinct purposes get unrelated
// keys.
enum class Purpose : std::uint64_t {
  kGlobal = 1,
  kRuns = 2,
  kShortRun = 3,
  kWindows = 4,
  kDraws = 5,
  kExchange = 6,
  kLists = 7
};

}  // namespace

Order::Engine Order::MakeEngine(const OrderSpec& spec, EpochId epoch) {
  FOREBAY_CHECK(spec.Validate().has_value());
  // n is part of the key. Without it, selections of similar size would get nearly equal orders.
  const std::uint64_t root = Absorb64(
      Absorb64(Absorb64(kOrderTag, spec.seed), epoch.value()), spec.sample_count);
  const auto key = [root](Purpose purpose) {
    return Absorb64(root, static_cast<std::uint64_t>(purpose));
  };
  const OrderShape& shape = spec.ShapeOf(epoch);
  if (shape.mode == OrderMode::kGlobal) {
    return KeyedPermutation(spec.sample_count, key(Purpose::kGlobal));
  }
  if (shape.mode == OrderMode::kBlock) {
    return BlockOrder({.sample_count = spec.sample_count,
                       .block_samples = shape.block_samples,
                       .window_runs = shape.window_runs,
                       .runs_key = key(Purpose::kRuns),
                       .short_run_key = key(Purpose::kShortRun),
                       .windows_key = key(Purpose::kWindows)});
  }
  if (shape.mode == OrderMode::kPartial) {
    return PartialOrder({.sample_count = spec.sample_count,
                         .run_samples = shape.block_samples,
                         .canonical_nodes = shape.canonical_nodes,
                         .global_batch = shape.global_batch,
                         .exchange_millionths = shape.exchange_millionths,
                         // Without the epoch: a node keeps its share from one to the next.
                         .home_key = Absorb64(Absorb64(kHomesTag, spec.seed), spec.sample_count),
                         .draws_key = key(Purpose::kDraws),
                         .exchange_key = key(Purpose::kExchange),
                         .lists_key = key(Purpose::kLists)});
  }
  return Identity{};
}

Order::Order(const OrderSpec& spec, EpochId epoch)
    : sample_count_(spec.sample_count),
      epoch_(epoch),
      mode_(spec.ShapeOf(epoch).mode),
      engine_(MakeEngine(spec, epoch)) {}

std::uint64_t Order::Forward(Position position) const {
  FOREBAY_CHECK(position.value() < sample_count_);
  if (const auto* global = std::get_if<KeyedPermutation>(&engine_)) {
    return global->Forward(position.value());
  }
  if (const auto* block = std::get_if<BlockOrder>(&engine_)) {
    return block->Forward(position.value());
  }
  if (const auto* partial = std::get_if<PartialOrder>(&engine_)) {
    return partial->Forward(position.value());
  }
  return position.value();
}

Position Order::Inverse(std::uint64_t index) const {
  FOREBAY_CHECK(index < sample_count_);
  if (const auto* global = std::get_if<KeyedPermutation>(&engine_)) {
    return Position(global->Inverse(index));
  }
  if (const auto* block = std::get_if<BlockOrder>(&engine_)) {
    return Position(block->Inverse(index));
  }
  if (const auto* partial = std::get_if<PartialOrder>(&engine_)) {
    return Position(partial->Inverse(index));
  }
  return Position(index);
}

void Order::Forward(Position first, std::span<std::uint64_t> indices) const {
  FOREBAY_CHECK(first.value() <= sample_count_);
  FOREBAY_CHECK(indices.size() <= sample_count_ - first.value());
  if (const auto* block = std::get_if<BlockOrder>(&engine_)) {
    block->Forward(first.value(), indices);
    return;
  }
  if (const auto* partial = std::get_if<PartialOrder>(&engine_)) {
    partial->Forward(first.value(), indices);
    return;
  }
  std::iota(indices.begin(), indices.end(), first.value());
  if (const auto* global = std::get_if<KeyedPermutation>(&engine_)) global->Forward(indices);
}

void Order::Inverse(std::span<std::uint64_t> values) const {
  // One pass of checks before the batched form, which has none of its own.
  FOREBAY_CHECK(std::ranges::all_of(values, [n = sample_count_](std::uint64_t index) {
    return index < n;
  }));
  if (const auto* global = std::get_if<KeyedPermutation>(&engine_)) {
    global->Inverse(values);
  } else if (const auto* block = std::get_if<BlockOrder>(&engine_)) {
    block->Inverse(values);
  } else if (const auto* partial = std::get_if<PartialOrder>(&engine_)) {
    partial->Inverse(values);
  }
}

std::uint64_t TransformSeed(std::uint64_t seed, EpochId epoch, SampleId sample) {
  return Absorb64(Absorb64(Absorb64(kTransformTag, seed), epoch.value()), sample.value());
}

}  // namespace forebay

// The steps of one epoch of a block-wise order are alike only on average, because each window has
// the runs that chance gave it. So steps are taken from several epochs, and evenly from each of
// them. The number of steps falls as the batch grows, which bounds the work for any batch.
#include "client/cli/tune/shuffle_quality.h"

#include <algorithm>
#include <string>
#include <vector>

#include "proto/contract/check.h"
#include "proto/contract/order.h"
#include "proto/contract/order_steps.h"

namespace forebay::cli {
namespace {

constexpr std::uint64_t kEpochs = 8;
constexpr std::uint64_t kStepsPerEpoch = 64;
constexpr std::uint64_t kPositionsMax = std::uint64_t{1} << 22;

// Counts the classes of some samples and forgets them again, without touching all classes: there
// may be far more of them than samples in a batch.
class ClassCounter {
 public:
  explicit ClassCounter(const ClassLayout& classes)
      : classes_(classes), counts_(classes.class_count()), set_entropy_(classes.Entropy()) {}

  // The entropy of these samples over that of the set.
  double RelativeEntropy(std::span<const std::uint64_t> indices) {
    // With one class there is nothing to mix, and every batch is as mixed as the set.
    if (set_entropy_ == 0) return 1;
    seen_.clear();
    for (const std::uint64_t index : indices) {
      const std::uint32_t number = classes_.ClassOf(index);
      if (counts_[number]++ == 0) seen_.push_back(number);
    }
    found_.clear();
    for (const std::uint32_t number : seen_) {
      found_.push_back(counts_[number]);
      counts_[number] = 0;
    }
    return EntropyOf(found_) / set_entropy_;
  }

 private:
  const ClassLayout& classes_;
  std::vector<std::uint64_t> counts_;
  std::vector<std::uint32_t> seen_;
  std::vector<std::uint64_t> found_;
  double set_entropy_;
};

struct MixSums {
  double distance = 0;  // in samples
  double batch_entropy = 0, part_entropy = 0;
  std::uint64_t steps = 0, positions = 0, pairs = 0, neighbours = 0;
};

void AddStep(std::span<const std::uint64_t> indices, std::uint64_t first, std::uint64_t parts,
             ClassCounter& counter, MixSums& sums) {
  for (std::uint64_t i = 0; i < indices.size(); ++i) {
    const std::uint64_t position = first + i;
    sums.distance += static_cast<double>(std::max(position, indices[i]) -
                                         std::min(position, indices[i]));
    if (i == 0) continue;
    const std::uint64_t before = indices[i - 1];
    ++sums.pairs;
    if (indices[i] == before + 1 || before == indices[i] + 1) ++sums.neighbours;
  }
  sums.batch_entropy += counter.RelativeEntropy(indices);
  const std::uint64_t length = indices.size() / parts;
  double of_parts = 0;
  for (std::uint64_t part = 0; part < parts; ++part) {
    of_parts += counter.RelativeEntropy(indices.subspan(part * length, length));
  }
  sums.part_entropy += of_parts / static_cast<double>(parts);
  sums.positions += indices.size();
  ++sums.steps;
}

}  // namespace

Result<ShuffleQuality> MeasureShuffleQuality(const OrderSpec& spec, const BatchShape& batch,
                                             const ClassLayout& classes) {
  FOREBAY_CHECK(classes.sample_count() == spec.sample_count);
  // The tail is left out whatever the stream does with it: a shorter step has another entropy.
  FOREBAY_ASSIGN(const StepPlan plan, StepPlan::Create({.sample_count = spec.sample_count,
                                                        .global_batch = batch.global_batch,
                                                        .ranks = batch.parts,
                                                        .tail = TailPolicy::kDrop}));
  if (plan.steps() == 0) {
    return Error(ErrorCode::kInvalidArgument,
                 std::to_string(spec.sample_count) + " samples do not fill a global batch of " +
                     std::to_string(batch.global_batch));
  }
  const std::uint64_t affordable = kPositionsMax / kEpochs / batch.global_batch;
  const std::uint64_t steps =
      std::min({plan.steps(), kStepsPerEpoch, std::max<std::uint64_t>(1, affordable)});
  ClassCounter counter(classes);
  MixSums sums;
  std::vector<std::uint64_t> indices(batch.global_batch);
  for (std::uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
    // From epoch 1 on, because epoch 0 may have a mode of its own.
    const Order order(spec, EpochId(static_cast<std::uint32_t>(epoch + 1)));
    for (std::uint64_t i = 0; i < steps; ++i) {
      const std::uint64_t first = i * plan.steps() / steps * batch.global_batch;
      order.Forward(Position(first), indices);
      AddStep(indices, first, batch.parts, counter, sums);
    }
  }
  const auto n = static_cast<double>(spec.sample_count);
  const double random_distance = (n - 1 / n) / 3;
  const auto mean = [](double sum, std::uint64_t count) {
    return count == 0 ? 0 : sum / static_cast<double>(count);
  };
  return ShuffleQuality{
      // One sample has one place, and no order can move it.
      .displacement =
          random_distance == 0 ? 0 : mean(sums.distance, sums.positions) / random_distance,
      .batch_entropy = mean(sums.batch_entropy, sums.steps),
      .part_entropy = mean(sums.part_entropy, sums.steps),
      .repeated_neighbours = mean(static_cast<double>(sums.neighbours), sums.pairs),
      .positions = sums.positions};
}

EntropyLoss EntropyLossOf(const ShuffleQuality& quality, const ShuffleQuality& global) {
  // Parts of one sample have no entropy under any order, so there is none to lose.
  const auto loss = [](double value, double best) {
    return best == 0 ? 0 : std::max(0.0, 1 - value / best);
  };
  return {.batch = loss(quality.batch_entropy, global.batch_entropy),
          .part = loss(quality.part_entropy, global.part_entropy)};
}

}  // namespace forebay::cli

// Feeds over sample sets in memory. Steps, shares and tokens follow the published order, as the
// daemon's do, and each fault that the probe asks for happens at its step.
#include "trainer/testing/memory_feed.h"

#include <algorithm>
#include <span>
#include <utility>

#include "proto/contract/order.h"
#include "proto/contract/order_steps.h"
#include "proto/contract/order_token.h"

namespace forebay::train::testing {
namespace {

struct FeedSetup {
  const SampleSet& set;
  OrderSpec order;
  StepPlan plan;
  FeedShare share;
  std::uint32_t epoch = 0;  // where it starts
  std::uint64_t step = 0;
  std::uint32_t epochs_end = 1;
  bool training = true;
};

class MemoryFeed final : public Feed {
 public:
  MemoryFeed(FeedSetup setup, MemoryFeedProbe& probe)
      : setup_(std::move(setup)), probe_(probe), epoch_(setup_.epoch), step_(setup_.step) {}

  Result<std::unique_ptr<FeedBatch>> Next() override {
    if (step_ == setup_.plan.steps()) {
      step_ = 0;
      ++epoch_;
    }
    if (epoch_ == setup_.epochs_end) {
      if (!setup_.training || !probe_.go_on_beyond_last_epoch) return std::unique_ptr<FeedBatch>();
      ++probe_.faults;
    }
    if (setup_.training) FOREBAY_TRY(Fault());
    FOREBAY_ASSIGN(FeedBatch batch, Assemble());
    ++step_;
    return std::make_unique<FeedBatch>(std::move(batch));
  }

  std::uint64_t steps_per_epoch() const override { return setup_.plan.steps(); }
  std::uint64_t sample_count() const override { return setup_.plan.sample_count(); }
  std::uint64_t global_batch() const override { return setup_.plan.global_batch(); }
  Status Finish() override {
    ++probe_.finished;
    return {};
  }

 private:
  struct Pixels {
    std::vector<std::byte> images;
    std::vector<std::byte> labels;
  };

  bool Strikes(const std::optional<std::uint64_t>& at) {
    const bool strikes = at && *at == epoch_ * setup_.plan.steps() + step_;
    if (strikes) ++probe_.faults;
    return strikes;
  }

  Status Fault() {
    if (Strikes(probe_.fail_at_global_step)) {
      return Error(ErrorCode::kUnavailable, "injected: the daemon is gone");
    }
    if (Strikes(probe_.skip_at_global_step)) ++step_;
    return {};
  }

  Result<FeedBatch> Assemble() {
    FOREBAY_ASSIGN(StepSlice slice, setup_.plan.RankSlice(StepId(step_), setup_.share.replica));
    if (setup_.training && Strikes(probe_.shrink_at_global_step)) --slice.count;
    if (!setup_.training && probe_.lose_validation_sample && step_ == 0) {
      ++probe_.faults;
      --slice.count;
    }
    const Order order(setup_.order, EpochId(epoch_));
    const auto pixels = std::make_shared<Pixels>();
    for (std::uint64_t i = 0; i < slice.count; ++i) {
      const std::uint64_t sample = order.Forward(Position(slice.first + i));
      const std::span image =
          std::span(setup_.set.images).subspan(sample * kImageBytes, kImageBytes);
      pixels->images.insert(pixels->images.end(), image.begin(), image.end());
      pixels->labels.push_back(setup_.set.labels[sample]);
      (setup_.training ? probe_.trained : probe_.validated).push_back(sample);
    }
    FeedBatch batch;
    batch.epoch = epoch_;
    batch.step = step_;
    batch.sample_count = static_cast<std::uint32_t>(slice.count);
    if (setup_.share.input) {
      batch.input = {pixels->images.data(), pixels->images.size(), Dtype::kU8,
                     {slice.count, 28, 28}};
    }
    if (setup_.share.target) {
      batch.target = {pixels->labels.data(), pixels->labels.size(), Dtype::kU8, {slice.count}};
    }
    PositionToken token;
    token.order = setup_.order;
    token.global_batch = static_cast<std::uint32_t>(setup_.plan.global_batch());
    token.next_epoch = EpochId(epoch_);
    token.next_step = StepId(step_ + 1);
    batch.token = token;
    batch.hold = pixels;
    return batch;
  }

  FeedSetup setup_;
  MemoryFeedProbe& probe_;
  std::uint32_t epoch_;
  std::uint64_t step_;
};

// Behind an epoch's last step a token still names that epoch.
Status CheckPlace(const PositionToken& token, const FeedPosition& from) {
  const bool next_epoch = from.step == 0 && token.next_epoch.value() + 1 == from.epoch;
  if (next_epoch ||
      (token.next_epoch.value() == from.epoch && token.next_step.value() == from.step)) {
    return {};
  }
  return Error(ErrorCode::kFailedPrecondition, "the token stands elsewhere");
}

}  // namespace

Result<std::unique_ptr<Feed>> MemorySource::OpenTraining(const FeedShare& share,
                                                         const FeedPosition& from,
                                                         std::uint32_t epochs) {
  probe_.opened.push_back(share);
  OrderSpec order;
  order.seed = options_.seed;
  order.sample_count = training_.size();
  order.tail = TailPolicy::kDrop;
  if (!from.token.empty()) {
    FOREBAY_ASSIGN(const PositionToken token, PositionToken::Parse(from.token));
    if (token.order != order) return Error(ErrorCode::kFailedPrecondition, "another order");
    FOREBAY_TRY(CheckPlace(token, from));
  }
  FOREBAY_ASSIGN(StepPlan plan, StepPlan::Create({.sample_count = training_.size(),
                                                  .global_batch = options_.global_batch,
                                                  .ranks = share.replicas,
                                                  .tail = TailPolicy::kDrop}));
  return std::unique_ptr<Feed>(std::make_unique<MemoryFeed>(
      FeedSetup{training_, order, plan, share, from.epoch, from.step,
                from.epoch + epochs, true},
      probe_));
}

Result<std::unique_ptr<Feed>> MemorySource::OpenValidation(const FeedShare& share,
                                                           std::uint32_t epochs) {
  OrderSpec order;
  order.sample_count = validation_.size();
  order.tail = TailPolicy::kShort;
  order.shape.mode = OrderMode::kSequential;
  FOREBAY_ASSIGN(StepPlan plan, StepPlan::Create({.sample_count = validation_.size(),
                                                  .global_batch = options_.validation_batch,
                                                  .ranks = share.replicas,
                                                  .tail = TailPolicy::kShort}));
  return std::unique_ptr<Feed>(std::make_unique<MemoryFeed>(
      FeedSetup{validation_, order, plan, share, 0, 0, epochs, false}, probe_));
}

}  // namespace forebay::train::testing

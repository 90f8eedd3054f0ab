// Tensors over the feed's memory: they stay where they are, last as long as they are needed, and
// are never written to. The pages of these tests cannot be, as those of the daemon cannot.
#include <sys/mman.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/contract/check.h"
#include "trainer/exec/model_task.h"
#include "trainer/exec/torch_engine.h"

namespace forebay::train::feed_memory_test {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr std::uint64_t kSamples = 4;
constexpr std::int64_t kWidth = 1000;
constexpr std::size_t kInputBytes = kSamples * kWidth * sizeof(float);
constexpr std::size_t kTargetBytes = kSamples * 2 * sizeof(float);

// Inputs, then targets, from `offset` on: 0, or 2, where no float lies so that it can be read.
class FeedPages {
 public:
  FeedPages()
      : bytes_(static_cast<std::byte*>(mmap(nullptr, kMapped, PROT_READ | PROT_WRITE,
                                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    FOREBAY_CHECK(bytes_ != MAP_FAILED);
  }
  ~FeedPages() { munmap(bytes_, kMapped); }
  FeedPages(const FeedPages&) = delete;
  FeedPages& operator=(const FeedPages&) = delete;

  FeedBatch Fill(std::uint64_t step, std::size_t offset) {
    std::vector<float> values((kInputBytes + kTargetBytes) / sizeof(float));
    for (std::size_t at = 0; at < values.size(); ++at) {
      values[at] = static_cast<float>((at * 31 + step * 7) % 101) / 50.0F - 1.0F;
    }
    FOREBAY_CHECK(mprotect(bytes_, kMapped, PROT_READ | PROT_WRITE) == 0);
    std::memcpy(bytes_ + offset, values.data(), kInputBytes + kTargetBytes);
    FOREBAY_CHECK(mprotect(bytes_, kMapped, PROT_READ) == 0);
    FeedBatch batch;
    batch.step = step;
    batch.sample_count = kSamples;
    batch.input = {bytes_ + offset, kInputBytes, Dtype::kF32, {kSamples, kWidth}};
    batch.target = {bytes_ + offset + kInputBytes, kTargetBytes, Dtype::kF32, {kSamples, 2}};
    batch.hold = std::make_shared<int>(0);
    return batch;
  }
  bool Contains(const void* at) const {
    const auto* const byte = static_cast<const std::byte*>(at);
    return byte >= bytes_ && byte < bytes_ + kMapped;
  }

 private:
  static constexpr std::size_t kMapped = kInputBytes + kTargetBytes + 8;
  std::byte* bytes_;
};

// Shows its input to the test, then multiplies it.
class WatchedPart final : public Part {
 public:
  using Watch = std::function<void(const torch::Tensor&)>;
  explicit WatchedPart(Watch watch) : watch_(std::move(watch)) {
    weight_ = register_parameter("weight", torch::rand({kWidth, 2}) / kWidth);
  }
  torch::Tensor Forward(const std::vector<torch::Tensor>& inputs, Pass&) override {
    if (watch_) watch_(inputs[0]);
    return inputs[0].matmul(weight_);
  }

 private:
  Watch watch_;
  torch::Tensor weight_;
};

class SquaredLoss final : public Loss {
 public:
  explicit SquaredLoss(WatchedPart::Watch watch) : watch_(std::move(watch)) {}
  torch::Tensor Sum(const torch::Tensor& output, const torch::Tensor& target) const override {
    if (watch_) watch_(target);
    return (output - target).square().sum();
  }
  Score Evaluate(const torch::Tensor& output, const torch::Tensor& target) const override {
    if (watch_) watch_(target);
    return {.sum = (output - target).abs().sum().item<double>(), .samples = kSamples};
  }

 private:
  WatchedPart::Watch watch_;
};

// With true, batches are prepared before their step.
class FeedMemoryTest : public ::testing::TestWithParam<bool> {
 protected:
  std::unique_ptr<Engine> Build() {
    auto task = std::make_shared<ModelTask>();
    task->model.name = "watched";
    task->model.parts = {
        {.name = "only", .make = [this] { return std::make_shared<WatchedPart>(on_input_); }}};
    task->model.loss = std::make_shared<SquaredLoss>(on_target_);
    task->input_shape = {kWidth};
    task->target_shape = {2};
    TrainConfig config;
    config.train.global_batch = kSamples;
    config.layout.micro_batch = 2;
    auto engine = MakeTorchEngine(config, task, communicator_, {});
    EXPECT_TRUE(engine.has_value()) << engine.error().ToString();
    return *std::move(engine);
  }

  FeedBatch BatchFor(const Engine& engine, std::uint64_t step, std::size_t offset = 0) {
    FeedBatch batch = pages_.Fill(step, offset);
    held_ = batch.hold;
    if (GetParam()) engine.Prepare(batch);
    EXPECT_EQ(batch.prepared != nullptr, GetParam());
    return batch;
  }

  // The weights after three steps.
  std::uint64_t DigestWith(std::size_t offset) {
    const auto engine = Build();
    for (std::uint64_t step = 0; step < 3; ++step) {
      FeedBatch batch = BatchFor(*engine, step, offset);
      EXPECT_FALSE(held_.expired());
      const auto outcome = engine->TrainStep(batch, 0.01);
      EXPECT_TRUE(outcome.has_value()) << outcome.error().ToString();
      EXPECT_TRUE(held_.expired()) << "nothing may borrow beyond the step";
    }
    return engine->Digest().value();
  }

  FeedPages pages_;
  std::weak_ptr<const void> held_;  // of the last batch
  Communicator communicator_ = Communicator::Alone();
  WatchedPart::Watch on_input_;
  WatchedPart::Watch on_target_;
};

TEST_P(FeedMemoryTest, FloatsStayWhereTheyAreOnceAStepHasWrittenToNone) {
  std::vector<bool> borrowed;
  const auto watch = [&](const torch::Tensor& tensor) {
    borrowed.push_back(pages_.Contains(tensor.data_ptr()));
  };
  on_input_ = on_target_ = watch;
  const auto engine = Build();
  for (std::uint64_t step = 0; step < 2; ++step) {
    borrowed.clear();
    FeedBatch batch = BatchFor(*engine, step);
    ASSERT_TRUE(engine->TrainStep(batch, 0.01).has_value());
    EXPECT_THAT(borrowed, AllOf(SizeIs(Ge(4U)), Each(step > 0)));  // two micro-batches
  }
  for (std::uint64_t step = 0; step < 2; ++step) {
    borrowed.clear();
    FeedBatch batch = BatchFor(*engine, step);
    ASSERT_TRUE(engine->EvaluateStep(batch).has_value());
    EXPECT_THAT(borrowed, AllOf(SizeIs(Ge(2U)), Each(step > 0)));
  }
}

TEST_P(FeedMemoryTest, TheBatchIsHeldAsLongAsItsTensors) {
  std::vector<bool> alive;
  on_input_ = [&](const torch::Tensor&) { alive.push_back(!held_.expired()); };
  const auto engine = Build();
  for (std::uint64_t step = 0; step < 2; ++step) {
    alive.clear();
    FeedBatch batch = BatchFor(*engine, step);
    ASSERT_TRUE(engine->TrainStep(batch, 0.01).has_value());
    EXPECT_THAT(alive, AllOf(SizeIs(Ge(2U)), Each(step > 0)))
        << "a copy gives the memory back at once";
    EXPECT_TRUE(held_.expired());
  }
}

TEST_P(FeedMemoryTest, WeightsAreTheSameWithAndWithoutCopies) {
  const std::uint64_t borrowed = DigestWith(0);
  EXPECT_EQ(borrowed, DigestWith(2));
}

TEST_P(FeedMemoryTest, AModelThatWritesToItsInputIsRefused) {
  on_input_ = [](const torch::Tensor& input) { torch::Tensor(input).mul_(2); };
  const auto engine = Build();
  FeedBatch batch = BatchFor(*engine, 0);
  const auto outcome = engine->TrainStep(batch, 0.01);
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(outcome.error().message(), HasSubstr("first part modified the input"));
}

TEST_P(FeedMemoryTest, ALossThatWritesToItsTargetIsRefused) {
  on_target_ = [](const torch::Tensor& target) { torch::Tensor(target).add_(1); };
  const auto engine = Build();
  FeedBatch batch = BatchFor(*engine, 0);
  const auto outcome = engine->EvaluateStep(batch);
  ASSERT_FALSE(outcome.has_value());
  EXPECT_THAT(outcome.error().message(), HasSubstr("loss modified the target"));
}

INSTANTIATE_TEST_SUITE_P(Prepared, FeedMemoryTest, ::testing::Bool());

}  // namespace forebay::train::feed_memory_test

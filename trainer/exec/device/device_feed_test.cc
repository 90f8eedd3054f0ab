// The way of batches to a GPU, taken to a processor: what is registered, when memory is let go, and
// what comes out. FOREBAY_TEST_DEVICE=cuda takes it to a GPU.
#include "trainer/exec/device/device_feed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "trainer/exec/device/device.h"
#include "trainer/exec/step_source.h"

namespace forebay::train::device_feed_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::uint32_t kSamples = 4;
constexpr Layout kAlone = {.replicas = 1, .stages = 1};

torch::Device TestDevice() {
  const char* const name = std::getenv("FOREBAY_TEST_DEVICE");
  return ChooseDevice(name == nullptr ? "cpu" : name, 0).value();
}

// Whole pages, as a daemon's memory is.
class Pages {
 public:
  Pages() : bytes_(static_cast<std::byte*>(std::aligned_alloc(kPage, kPage))) {}
  ~Pages() { std::free(bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  std::byte* data() const { return bytes_; }
  std::span<const std::byte> bytes() const { return {bytes_, kPage}; }

 private:
  static constexpr std::size_t kPage = 4096;
  std::byte* bytes_;
};

class DeviceFeedTest : public ::testing::Test {
 protected:
  DeviceFeedTest() {
    task_.input_shape = {1, 2, 2};
    task_.target_shape = {};
    task_.input_mean = {0.5};
    task_.input_stddev = {0.5};
  }

  // Images of bytes, then labels, in memory that `hold` keeps.
  FeedBatch BatchIn(const Pages& pages, std::shared_ptr<const void> hold) {
    constexpr std::size_t kImages = kSamples * 4;
    for (std::size_t at = 0; at < kImages; ++at) pages.data()[at] = static_cast<std::byte>(at * 17);
    auto* const labels = reinterpret_cast<std::int32_t*>(pages.data() + kImages);
    for (std::uint32_t at = 0; at < kSamples; ++at) labels[at] = static_cast<std::int32_t>(3 - at);
    const FeedMapping mapping{.bytes = pages.bytes(), .hold = std::move(hold)};
    FeedBatch batch;
    batch.sample_count = kSamples;
    batch.input = {.data = pages.data(), .bytes = kImages, .dtype = Dtype::kU8,
                   .shape = {kSamples, 2, 2}, .mapping = mapping};
    batch.target = {.data = pages.data() + kImages, .bytes = kSamples * sizeof(std::int32_t),
                    .dtype = Dtype::kI32, .shape = {kSamples}, .mapping = mapping};
    batch.hold = std::make_shared<int>(0);
    return batch;
  }

  Result<StepSource> Make(FeedBatch& batch) {
    return StepSource::Make(task_, cut_, &feed_, batch, false);
  }

  ModelTask task_;
  const StepCut cut_{kAlone, 0, {2, 2}};
  std::vector<std::string> printed_;
  Pages pages_;
  Pages others_;
  DeviceFeed feed_{TestDevice(), [this](const std::string& line) { printed_.push_back(line); }};
};

TEST_F(DeviceFeedTest, ABatchIsOnTheDeviceBeforeItsStepAndItsMemoryFree) {
  FeedBatch batch = BatchIn(pages_, std::make_shared<int>(0));
  FeedBatch same = BatchIn(pages_, batch.input.mapping.hold);
  const std::weak_ptr<const void> held = batch.hold;
  StepSource::Prepare(task_, &feed_, batch);
  EXPECT_TRUE(held.expired());
  for (FeedBatch* const made : {&batch, &same}) {  // prepared, and in the step
    auto source = Make(*made);
    ASSERT_TRUE(source.has_value()) << source.error().ToString();
    EXPECT_EQ(made->hold, nullptr);
    const torch::Tensor input = source->Input(1).value();
    EXPECT_EQ(input.device().type(), feed_.device().type());
    EXPECT_THAT(input.sizes(), ElementsAre(2, 1, 2, 2));
    EXPECT_FLOAT_EQ(input[0][0][0][1].item<float>(), (9 * 17 / 255.0F - 0.5F) / 0.5F);
    EXPECT_EQ(source->Target(1).value()[0].item<std::int64_t>(), 1);
  }
}

TEST_F(DeviceFeedTest, WhatCannotBeMadeIsTheStepsError) {
  FeedBatch batch = BatchIn(pages_, std::make_shared<int>(0));
  batch.input.dtype = Dtype::kF64;
  StepSource::Prepare(task_, &feed_, batch);
  EXPECT_EQ(batch.prepared, nullptr);
  EXPECT_NE(batch.hold, nullptr) << "the step reads it once more";
  const auto source = Make(batch);
  ASSERT_FALSE(source.has_value());
  EXPECT_EQ(source.error().code(), ErrorCode::kUnimplemented);
  EXPECT_THAT(source.error().message(), HasSubstr("f64"));
}

TEST_F(DeviceFeedTest, AMappingIsKnownOnceAndForgottenWithItsConnection) {
  std::weak_ptr<const void> first;
  {
    const auto connection = std::make_shared<int>(0);
    first = connection;
    for (int step = 0; step < 3; ++step) {
      FeedBatch batch = BatchIn(pages_, connection);
      StepSource::Prepare(task_, &feed_, batch);
    }
    EXPECT_EQ(connection.use_count(), 2) << "the feed's, one for two tensors and three steps";
  }
  EXPECT_FALSE(first.expired()) << "it must be unregistered before it is unmapped";
  FeedBatch next = BatchIn(others_, std::make_shared<int>(0));
  StepSource::Prepare(task_, &feed_, next);
  EXPECT_TRUE(first.expired());
  if (!feed_.device().is_cpu()) return;
  ASSERT_EQ(printed_.size(), 1U) << "once, for two mappings that were refused";
  EXPECT_THAT(printed_[0], HasSubstr("pageable memory"));
}

}  // namespace forebay::train::device_feed_test

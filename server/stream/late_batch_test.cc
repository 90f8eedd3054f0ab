// Batches that wait for too long, for the GFS or for memory: their readers are told for what, and
// may ask for them again.
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/contract/limits.h"
#include "server/io/testing/fault_injector.h"
#include "server/io/testing/faulty_backend.h"
#include "server/io/testing/manual_clock.h"
#include "server/io/testing/memory_backend.h"
#include "server/stream/testing/serve_fixture.h"

namespace forebay::stream::late_batch_test {

using ::testing::HasSubstr;

constexpr std::size_t kRecordBytes = 1000;
constexpr std::uint64_t kSamples = 192;  // three extents
constexpr std::int64_t kLateNs = (limits::kPullDeadlineMs + 1) * 1'000'000;

// Waits for what other threads are about to do.
template <typename Condition>
bool Soon(Condition condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

class LateBatchTest : public ::testing::Test {
 protected:
  LateBatchTest() {
    EXPECT_TRUE(memory_
                    .AddFile("/gfs/data.bin", ServeFixture::RecordFile(kSamples, kRecordBytes))
                    .has_value());
  }
  ~LateBatchTest() override {
    injector_.Disarm();
    injector_.ReleaseStalls();
  }

  void Start(ServeOptions options) {
    options.clock = &clock_;
    auto made = ServeFixture::Create(backend_, kRecordBytes, options);
    ASSERT_TRUE(made.has_value()) << made.error().ToString();
    serve_ = std::move(*made);
    ASSERT_TRUE(serve_->StageAll().has_value());
    sink_ = serve_->MakeSink();
  }

  // Time passes until the sink has `count` batches and errors; false after a while.
  bool ExpireUntil(std::size_t count) {
    return Soon([&] {
      clock_.AdvanceNs(kLateNs);
      serve_->registry().ExpireWaiting();
      return sink_->batches().size() + sink_->errors().size() >= count;
    });
  }

  io::MemoryBackend memory_;
  io::FaultInjector injector_;
  io::FaultyBackend backend_{memory_, injector_};
  io::ManualClock clock_;
  std::unique_ptr<ServeFixture> serve_;
  std::unique_ptr<CollectingSink> sink_;
};

TEST_F(LateBatchTest, WhatTheGfsDoesNotBringIsNamedAndMayBeAskedForAgain) {
  Start({});
  for (std::uint32_t i = 0; i < serve_->dataset().catalog()->extent_count(); ++i) {
    ASSERT_TRUE(serve_->cache().Evict(serve_->dataset().key(ExtentId(i)), {}).has_value());
  }
  auto session = serve_->Open({.credits = 2}, *sink_);
  ASSERT_TRUE(session.has_value()) << session.error().ToString();
  injector_.Arm({.kind = io::FaultKind::kStall, .call = io::IoCall::kRead, .is_persistent = true});
  ASSERT_TRUE((*session)->Pull({.first = {}}).has_value());
  ASSERT_TRUE(Soon([&] { return injector_.faults_injected() > 0; }));
  ASSERT_TRUE(ExpireUntil(1));
  ASSERT_EQ(sink_->errors().size(), 1U);
  const Error late = sink_->errors().front();
  EXPECT_EQ(late.code(), ErrorCode::kUnavailable);
  EXPECT_THAT(late.message(), HasSubstr("'data.bin'"));
  EXPECT_THAT(late.message(), HasSubstr("of 'data'"));

  ASSERT_TRUE((*session)->Pull({.first = {}}).has_value()) << "its credit is back";
  injector_.Disarm();
  injector_.ReleaseStalls();
  ASSERT_TRUE(sink_->WaitFor(2));
  ASSERT_EQ(sink_->batches().size(), 1U) << "the batch that was given up is not sent as well";
  EXPECT_EQ(sink_->batches().front().payload[0],
            ServeFixture::RecordOf(sink_->batches().front().sample_ids[0], kRecordBytes));
  (*session)->Close();
  EXPECT_EQ(serve_->registry().open_count(), 0U);
  EXPECT_EQ(serve_->slots().used_bytes(), 0U);
}

TEST_F(LateBatchTest, WantOfSlotMemoryIsNotFinal) {
  catalog::DatasetSource files;  // batches of a size that nobody knows beforehand
  files.format = catalog::Format::kImageFolder;
  for (std::uint64_t i = 0; i < 64; ++i) {
    const std::string text = ServeFixture::RecordOf(i, 4000);
    ASSERT_TRUE(memory_
                    .AddFile("/gfs/files/a/" + std::to_string(i) + ".bin",
                             std::as_bytes(std::span(text)))
                    .has_value());
  }
  Start({.slot_bytes = 128 << 10, .source = files});
  auto session = serve_->Open({.credits = 8}, *sink_);
  ASSERT_TRUE(session.has_value()) << session.error().ToString();
  ASSERT_TRUE((*session)->Pull({.first = {}, .count = 8}).has_value());
  ASSERT_TRUE(ExpireUntil(8));
  const auto held = sink_->TakeBatches();
  ASSERT_GT(held.size(), 0U);
  ASSERT_GT(sink_->errors().size(), 0U) << "memory was not short";
  EXPECT_EQ(sink_->errors().front().code(), ErrorCode::kUnavailable);
  EXPECT_THAT(sink_->errors().front().message(), HasSubstr("slots.capacity"));
  std::vector<std::uint64_t> ids;
  for (const CollectingSink::Taken& batch : held) ids.push_back(batch.id);
  ASSERT_TRUE((*session)->Release(ids).has_value());
  const std::size_t errors = sink_->errors().size();
  ASSERT_TRUE((*session)->Pull({.first = {.step = StepId(7)}}).has_value());
  ASSERT_TRUE(sink_->WaitFor(errors + 1));
  EXPECT_EQ(sink_->errors().size(), errors);
  (*session)->Close();
}

}  // namespace forebay::stream::late_batch_test

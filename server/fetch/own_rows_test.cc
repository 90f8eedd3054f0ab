// Rows of this node come into the slot when their extents have arrived. A request that is given up
// before that is ended at once, and its memory is not written to afterwards.
#include "server/fetch/own_rows.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/contract/limits.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/manual_clock.h"
#include "server/io/testing/memory_backend.h"
#include "server/stage/testing/stage_rig.h"

namespace forebay::fetch::own_rows_test {

using io::testing::Pattern;
using io::testing::Take;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::uint64_t kRecords = 512;
constexpr std::uint64_t kRecordBytes = 1000;
constexpr std::int64_t kDeadlineNs = 1'000'000'000;
const std::vector<std::uint64_t> kSamples = {511, 0, 64, 65, 0};

// A data set whose extents are on no tier any more, and whose GFS answers only when the test says
// so.
class OwnRowsTest : public ::testing::Test {
 protected:
  OwnRowsTest()
      : file_(Pattern(kRecords * kRecordBytes, 1)), memory_(kSamples.size() * kRecordBytes) {
    EXPECT_TRUE(backend_.AddDirectory("/ssd").has_value());
    EXPECT_TRUE(backend_.AddFile("/gfs/data.bin", file_).has_value());
    FOREBAY_EXPECT_OK(rig_.Start(stage::RecordDataset()));
    FOREBAY_EXPECT_OK(rig_.StageAll());
    fetcher_.emplace(rig_.cache(), rig_.stager(), nodes_);
    executor_ = Take(io::ThreadExecutor::Create(rig_.backend(), 2, 4));
    local_.emplace(LocalRowsParts{.stager = rig_.stager(),
                                  .fetcher = *fetcher_,
                                  .decoded = decoded_,
                                  .executor = *executor_,
                                  .clock = rig_.clock()});
    own_.emplace(*local_, clock_);
    for (const tier::ExtentKey& key : rig_.cache().Resident(tier::TierKind::kRam)) {
      EXPECT_TRUE(rig_.cache().Evict(key, std::nullopt).has_value());
    }
    rig_.gfs_faults.Arm({.kind = io::FaultKind::kStall, .call = io::IoCall::kRead,
                         .is_persistent = true});
  }
  ~OwnRowsTest() override {
    LetGfsAnswer();
    // Requests that were given up may still wait for extents. Their callbacks use the executor, and
    // its tasks use the stager, so the stager's threads end first and the stager goes last.
    rig_.stager().BeginStop();
    EXPECT_TRUE(rig_.stager().AwaitStopped(std::chrono::seconds(60)));
    executor_.reset();
    rig_.Stop();
  }

  void LetGfsAnswer() {
    rig_.gfs_faults.Disarm();
    rig_.gfs_faults.ReleaseStalls();
  }
  std::future<Status> Begin() {
    auto request = std::make_shared<RowRequest>();
    request->node = nodes_.self();
    request->dataset = &rig_.dataset();
    request->reader.unwanted = unwanted_.get_token();
    request->deadline_ns = kDeadlineNs;
    for (std::size_t i = 0; i < kSamples.size(); ++i) {
      request->rows.push_back(
          {.sample = SampleId(kSamples[i]),
           .field = FieldId(0),
           .memory = std::span(memory_).subspan(i * kRecordBytes, kRecordBytes)});
    }
    const auto outcome = std::make_shared<std::promise<Status>>();
    own_->Read(std::move(request), [outcome](const Status& status) { outcome->set_value(status); });
    return outcome->get_future();
  }
  static bool IsReady(const std::future<Status>& outcome) {
    return outcome.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }
  void ExpectRows() {
    for (std::size_t i = 0; i < kSamples.size(); ++i) {
      EXPECT_TRUE(std::ranges::equal(
          std::span(memory_).subspan(i * kRecordBytes, kRecordBytes),
          std::span(file_).subspan(kSamples[i] * kRecordBytes, kRecordBytes)))
          << "sample " << kSamples[i];
    }
  }

  const std::vector<std::byte> file_;
  std::vector<std::byte> memory_;
  io::MemoryBackend backend_;
  stage::StageRig rig_{backend_, ""};
  plan::Membership nodes_;
  std::optional<Fetcher> fetcher_;
  std::unique_ptr<io::ThreadExecutor> executor_;
  DecodedCache decoded_{/*capacity_bytes=*/1 << 20,
                        [](const UnitSamples&) { return kNeverUsed; }};
  std::optional<LocalRows> local_;
  io::ManualClock clock_;
  std::stop_source unwanted_;
  std::optional<OwnRows> own_;
};

TEST_F(OwnRowsTest, RowsComeWhenTheGfsAnswers) {
  std::future<Status> outcome = Begin();
  EXPECT_FALSE(IsReady(outcome));
  own_->Expire();
  EXPECT_FALSE(IsReady(outcome)) << "its time is not over";
  LetGfsAnswer();
  FOREBAY_EXPECT_OK(outcome.get());
  ExpectRows();
  clock_.AdvanceNs(kDeadlineNs);
  own_->Expire();  // it has ended, and is not ended a second time
}

TEST_F(OwnRowsTest, ARequestThatIsLateIsGivenUpAndItsMemoryLeftAlone) {
  std::future<Status> outcome = Begin();
  while (rig_.gfs_faults.candidates_seen() == 0) std::this_thread::yield();  // it is asked
  clock_.AdvanceNs(kDeadlineNs);
  own_->Expire();
  ASSERT_TRUE(IsReady(outcome));
  const Status late = outcome.get();
  ASSERT_FALSE(late.has_value());
  EXPECT_EQ(late.error().code(), ErrorCode::kUnavailable);
  EXPECT_THAT(late.error().message(),
              AllOf(HasSubstr("5 rows of 'data'"), HasSubstr("from the GFS"),
                    HasSubstr("extent 7 (object 'data.bin')")));
  const std::vector<std::byte> untouched(memory_.size());
  memory_ = untouched;
  LetGfsAnswer();
  while (rig_.cache().stats(tier::TierKind::kRam).extents < 3) std::this_thread::yield();
  // Another request for the same extents ends after what LocalRows still had to do for this one.
  std::vector<std::byte> other(memory_.size());
  memory_.swap(other);
  FOREBAY_EXPECT_OK(Begin().get());
  memory_.swap(other);
  EXPECT_EQ(memory_, untouched);
}

TEST_F(OwnRowsTest, RequestsAreAskedOfOthersWhenTheNodeBeginsToYield) {
  std::future<Status> outcome = Begin();
  own_->AskElsewhere();
  ASSERT_TRUE(IsReady(outcome));
  const Status ended = outcome.get();
  ASSERT_FALSE(ended.has_value());
  EXPECT_TRUE(stage::IsAskNext(ended.error()));
  own_->AskElsewhere();  // it has ended
  LetGfsAnswer();
}

TEST_F(OwnRowsTest, ARequestThatNobodyWantsIsGivenUpAtOnce) {
  std::future<Status> outcome = Begin();
  unwanted_.request_stop();
  ASSERT_TRUE(IsReady(outcome));
  EXPECT_EQ(outcome.get().error().code(), ErrorCode::kCancelled);
  std::future<Status> next = Begin();
  ASSERT_TRUE(IsReady(next)) << "nobody wants it from the beginning";
  EXPECT_EQ(next.get().error().code(), ErrorCode::kCancelled);
}

TEST_F(OwnRowsTest, AnErrorOfTheGfsIsThatOfTheRows) {
  LetGfsAnswer();
  rig_.gfs_faults.Arm({.kind = io::FaultKind::kEio, .call = io::IoCall::kRead,
                       .is_persistent = true});
  const Status failed = Begin().get();
  ASSERT_FALSE(failed.has_value());
  EXPECT_THAT(failed.error().message(), HasSubstr("data.bin"));
}

}  // namespace forebay::fetch::own_rows_test

// Streams over extents that lie on no tier any more, whose samples are read from the GFS one by
// one: what the GFS fails is told with its own code, and costs nothing that is known already.
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "server/io/testing/fault_injector.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/memory_backend.h"
#include "server/stage/testing/split_backend.h"
#include "server/stream/testing/serve_fixture.h"

namespace forebay::stream::piece_stream_test {

using io::FaultKind;
using io::IoCall;

constexpr std::size_t kRecordBytes = 1000;
constexpr std::uint64_t kSamples = 512;

// A stream in global order whose SSD is lost after it was opened, with half of the data set.
class PieceStreamTest : public ::testing::Test {
 protected:
  PieceStreamTest() {
    EXPECT_TRUE(memory_.AddDirectory("/ssd").has_value());
    EXPECT_TRUE(memory_
                    .AddFile("/gfs/data.bin", ServeFixture::RecordFile(kSamples, kRecordBytes))
                    .has_value());
  }
  ~PieceStreamTest() override {
    if (session_) session_->Close();
  }

  void SetUp() override {
    auto made = ServeFixture::Create(backend_, kRecordBytes,
                                     {.ram_bytes = 384 << 10, .ssd_bytes = 64 << 20});
    ASSERT_TRUE(made.has_value()) << made.error().ToString();
    serve_ = std::move(*made);
    FOREBAY_EXPECT_OK(serve_->StageAll());
    sink_ = serve_->MakeSink();
    auto opened = serve_->Open({}, *sink_);
    ASSERT_TRUE(opened.has_value()) << opened.error().ToString();
    session_ = std::move(*opened);
    ssd_faults_.Arm({.kind = FaultKind::kEio, .is_persistent = true});
    PullEpoch(0);  // finds out that the SSD is lost
    ASSERT_TRUE(serve_->cache().stats(tier::TierKind::kSsd).retired);
    ASSERT_GT(serve_->dataset().progress().gfs_pieces, 0U);
  }

  // Pulls one step, which succeeds or fails.
  void Pull(std::uint32_t epoch, std::uint64_t step) {
    const std::size_t had = sink_->batches().size();
    const std::size_t errors = sink_->errors().size();
    FOREBAY_EXPECT_OK(session_->Pull({.first = {.epoch = EpochId(epoch), .step = StepId(step)}}));
    ASSERT_TRUE(sink_->WaitFor(had + errors + 1)) << "a pull hangs";
    if (sink_->batches().size() == had) return;
    const CollectingSink::Taken batch = sink_->batches().back();
    for (std::size_t i = 0; i < batch.sample_ids.size(); ++i) {
      EXPECT_EQ(batch.payload[i], ServeFixture::RecordOf(batch.sample_ids[i], kRecordBytes));
    }
    FOREBAY_EXPECT_OK(session_->Release({&batch.id, 1}));
  }
  void PullEpoch(std::uint32_t epoch) {
    for (std::uint64_t step = 0; step < session_->spec().plan.steps(); ++step) Pull(epoch, step);
    ASSERT_TRUE(sink_->errors().empty()) << sink_->errors().front().ToString();
  }

  // Returns the step that failed.
  std::uint64_t PullUntilAnError(std::uint32_t epoch) {
    std::uint64_t step = 0;
    for (; sink_->errors().empty() && step < session_->spec().plan.steps(); ++step) {
      Pull(epoch, step);
    }
    EXPECT_FALSE(sink_->errors().empty()) << "no piece was read from the GFS";
    return step - 1;
  }

  io::MemoryBackend memory_;
  io::FaultInjector gfs_faults_;
  io::FaultInjector ssd_faults_;
  stage::SplitBackend backend_{memory_, "/gfs", gfs_faults_, ssd_faults_};
  std::unique_ptr<ServeFixture> serve_;
  std::unique_ptr<CollectingSink> sink_;
  std::shared_ptr<StreamSession> session_;
};

TEST_F(PieceStreamTest, AReadThatTheGfsFailsIsToldAtOnceAndNothingIsReadAgainForIt) {
  gfs_faults_.Arm({.kind = FaultKind::kEio, .call = IoCall::kRead});
  const std::uint64_t before_fault = gfs_faults_.faults_injected();
  const std::uint64_t step = PullUntilAnError(1);
  EXPECT_EQ(gfs_faults_.faults_injected(), before_fault + 1);
  EXPECT_NE(sink_->errors().front().system_errno(), 0) << sink_->errors().front().ToString();
  gfs_faults_.Disarm();
  const stage::DatasetProgress before = serve_->dataset().progress();
  const std::size_t had = sink_->batches().size();
  Pull(1, step);
  EXPECT_EQ(sink_->batches().size(), had + 1) << "asked again, it comes";
  const stage::DatasetProgress after = serve_->dataset().progress();
  EXPECT_EQ(after.gfs_bytes - before.gfs_bytes, after.gfs_piece_bytes - before.gfs_piece_bytes)
      << "an extent was read as a whole again, although its checksums are known";
}

TEST_F(PieceStreamTest, AnObjectThatHasChangedIsToldAsSuch) {
  {
    // In place: a handle that is open sees it.
    const auto root = io::testing::Take(memory_.OpenDirectory("/gfs"));
    const auto file = io::testing::Take(root->Open("data.bin", io::OpenMode::kAppend));
    FOREBAY_EXPECT_OK(file->Truncate(kSamples * kRecordBytes));
  }
  PullUntilAnError(1);
  EXPECT_EQ(sink_->errors().front().code(), ErrorCode::kFailedPrecondition)
      << sink_->errors().front().ToString();
}

TEST_F(PieceStreamTest, PiecesFromTheGfsAreNoHitsOfTheSsd) {
  const SessionStats before = session_->stats();
  const std::uint64_t pieces = serve_->dataset().progress().gfs_pieces;
  PullEpoch(1);
  const SessionStats after = session_->stats();
  const std::uint64_t from_gfs = serve_->dataset().progress().gfs_pieces - pieces;
  EXPECT_EQ(after.ssd_samples, before.ssd_samples);
  EXPECT_EQ(after.ssd_bytes, before.ssd_bytes);
  EXPECT_EQ(after.ram_samples - before.ram_samples + from_gfs, kSamples);
}

}  // namespace forebay::stream::piece_stream_test

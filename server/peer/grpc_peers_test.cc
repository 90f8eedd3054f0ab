// One node asks another one over loopback TCP: what arrives, and what the asking node is told when
// the answer does not come, comes in part, or is not what was sent.
#include "server/peer/grpc_peers.h"

#include <atomic>
#include <cstring>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/contract/limits.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/peer/answer_times.h"
#include "server/peer/link_watch.h"
#include "server/peer/testing/peer_rig.h"
#include "server/peer/testing/tcp_relay.h"
#include "server/plan/membership.h"
#include "server/stage/extent_source.h"
#include "server/tier/ssd/segment_format.h"

namespace forebay::peer {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class GrpcPeersTest : public ::testing::Test {
 protected:
  void Start(const PeerRigOptions& options = {}) {
    auto made = PeerRig::Create(options);
    ASSERT_TRUE(made.has_value()) << made.error().ToString();
    rig_ = std::move(*made);
    FOREBAY_EXPECT_OK(rig_->Connect(rig_->address()));
  }
  // A node with four long rows behind a relay: one answer takes several chunks and many packets.
  void StartBehindRelay() {
    Start({.records = 4,
           .record_bytes = kLongBytes,
           .stage = {.ram_bytes = 64 << 20, .request_bytes = 1 << 20}});
    relay_ = std::make_unique<TcpRelay>(rig_->address());
    FOREBAY_EXPECT_OK(rig_->Connect(relay_->address()));
  }
  void TearDown() override {
    rig_.reset();  // the relay is needed until then
  }
  void ExpectRows(const std::vector<std::uint64_t>& samples) {
    PeerRig::Rows rows = rig_->Ask(samples);
    FOREBAY_EXPECT_OK(rows.outcome.get());
    EXPECT_TRUE(rig_->AreRight(rows));
  }
  static Error ErrorOf(PeerRig::Rows& rows) {
    const Status outcome = rows.outcome.get();
    EXPECT_FALSE(outcome.has_value());
    return outcome.has_value() ? Error(ErrorCode::kUnknown, "no error") : outcome.error();
  }

  static constexpr std::uint64_t kLongBytes = 2'500'000;
  std::unique_ptr<TcpRelay> relay_;
  std::unique_ptr<PeerRig> rig_;
};

TEST_F(GrpcPeersTest, RowsArriveInTheirMemoryInTheOrderAskedForAndMoreThanOnce) {
  Start();
  ExpectRows({511, 0, 64, 65, 0, 300});
  ExpectRows({});
}

TEST_F(GrpcPeersTest, TinyRowsArrive) {
  Start({.records = 4096, .record_bytes = 16});
  std::vector<std::uint64_t> samples;
  for (std::uint64_t i = 0; i < 4096; ++i) samples.push_back(i * 7 % 4096);
  ExpectRows(samples);
}

TEST_F(GrpcPeersTest, MoreRowsThanOneCallTakesArrive) {
  Start();
  std::vector<std::uint64_t> samples;
  for (std::uint64_t i = 0; i < 2 * limits::kPeerRowsMax + 10; ++i) samples.push_back(i * 5 % 512);
  ExpectRows(samples);
}

TEST_F(GrpcPeersTest, MoreBytesThanMayBeInFlightArrive) {
  Start({.records = 4,
         .record_bytes = kLongBytes,
         .stage = {.ram_bytes = 64 << 20, .request_bytes = 1 << 20}});
  // Each row lies in 39 extents; 30 of them are more than what may be asked for at a time.
  std::vector<std::uint64_t> samples;
  for (std::uint64_t i = 0; i < 30; ++i) samples.push_back(i % 4);
  ExpectRows(samples);
}

TEST_F(GrpcPeersTest, RowsFromSsdArrive) {
  Start({.stage = {.ram_bytes = 512 << 10, .reserve_bytes = 480 << 10, .ssd_bytes = 8 << 20}});
  ASSERT_EQ(rig_->rig().cache().Find(rig_->dataset().key(ExtentId(1)))->tier,
            tier::TierKind::kSsd);
  ExpectRows({511, 0, 70, 70, 300});
}

TEST_F(GrpcPeersTest, ExtentsArriveFromRamAndSsdWithTheChecksumOfTheirFirstRead) {
  Start({.stage = {.ram_bytes = 512 << 10, .reserve_bytes = 480 << 10, .ssd_bytes = 8 << 20}});
  for (const ExtentId extent : {ExtentId(0), ExtentId(1), ExtentId(7)}) {
    const auto supplied = rig_->ReadExtent(extent);
    ASSERT_TRUE(supplied.has_value()) << supplied.error().ToString();
    FOREBAY_EXPECT_OK(stage::VerifySupplied(rig_->dataset(), *rig_->dataset().catalog(), extent,
                                            *supplied));
  }
}

TEST_F(GrpcPeersTest, PackedExtentsTravelPackedAndTheirRowsDecoded) {
  Start({.compression = stage::Compression::kFast});
  const auto supplied = rig_->ReadExtent(ExtentId(3));
  ASSERT_TRUE(supplied.has_value()) << supplied.error().ToString();
  EXPECT_TRUE(supplied->is_packed);
  FOREBAY_EXPECT_OK(stage::VerifySupplied(rig_->dataset(), *rig_->dataset().catalog(),
                                          ExtentId(3), *supplied));
  ExpectRows({0, 511, 70, 71, 70});
}

TEST_F(GrpcPeersTest, SizesOfFilesArriveUpToTheFirstFileThatIsMissing) {
  Start();
  const std::vector<std::string> paths = {"data.bin", "missing", "data.bin"};
  const auto sizes = rig_->peers().Stat(
      {.node = PeerRig::kNode, .dataset = rig_->dataset(), .paths = paths});
  ASSERT_TRUE(sizes.has_value()) << sizes.error().ToString();
  ASSERT_EQ(sizes->size(), 1U);
  EXPECT_EQ(sizes->front().bytes, rig_->dataset().catalog()->total_bytes());
  EXPECT_TRUE(sizes->front().is_regular);
}

TEST_F(GrpcPeersTest, ANodeThatIsGoneOrUnknownSuppliesNoSizes) {
  Start();
  rig_->StopServer();
  const std::vector<std::string> paths = {"data.bin"};
  for (const NodeRank node : {PeerRig::kNode, NodeRank(9)}) {
    const auto sizes =
        rig_->peers().Stat({.node = node, .dataset = rig_->dataset(), .paths = paths});
    ASSERT_FALSE(sizes.has_value());
    EXPECT_TRUE(stage::IsNoAnswer(sizes.error())) << sizes.error().ToString();
  }
}

TEST_F(GrpcPeersTest, ARequestForSizesEndsWhenThisNodeStopsToAsk) {
  Start();
  rig_->rig().gfs_faults.Arm({.kind = io::FaultKind::kStall, .call = io::IoCall::kStat});
  const std::vector<std::string> paths = {"data.bin"};
  std::jthread stop([this] {
    while (rig_->rig().gfs_faults.faults_injected() == 0) std::this_thread::yield();
    rig_->peers().Stop();
    rig_->rig().gfs_faults.ReleaseStalls();
  });
  const auto sizes = rig_->peers().Stat(
      {.node = PeerRig::kNode, .dataset = rig_->dataset(), .paths = paths});
  ASSERT_FALSE(sizes.has_value());
  // What gRPC says of a call that was cancelled here: as of a connection that was lost.
  EXPECT_TRUE(stage::IsNoAnswer(sizes.error())) << sizes.error().ToString();
}

TEST_F(GrpcPeersTest, ARowThatDoesNotExistIsNamedAndTheOthersArrive) {
  Start();
  PeerRig::Rows rows = rig_->Ask({3, 512, 4});
  const Error error = ErrorOf(rows);
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message(), HasSubstr("node " + rig_->address() + ": field 0 of sample 512"));
  rows.request->rows.erase(rows.request->rows.begin() + 1);
  EXPECT_TRUE(rig_->AreRight(rows));
  EXPECT_EQ(rig_->ReadExtent(ExtentId(8)).error().code(), ErrorCode::kInvalidArgument);
}

TEST_F(GrpcPeersTest, AnErrorOfTheOtherNodesGfsIsNotTakenForSilence) {
  Start();
  FOREBAY_EXPECT_OK(rig_->rig().cache().Evict(rig_->dataset().key(ExtentId(0)), std::nullopt));
  rig_->rig().gfs_faults.Arm({.call = io::IoCall::kRead, .is_persistent = true});
  PeerRig::Rows rows = rig_->Ask({0});
  const Error error = ErrorOf(rows);
  EXPECT_FALSE(stage::IsNoAnswer(error)) << error.ToString();
  EXPECT_THAT(error.message(), HasSubstr("injected fault"));
  const Error of_extent = rig_->ReadExtent(ExtentId(0)).error();
  EXPECT_FALSE(stage::IsNoAnswer(of_extent)) << of_extent.ToString();
  EXPECT_THAT(of_extent.message(), HasSubstr("injected fault"));
}

TEST_F(GrpcPeersTest, ANodeOfAnotherJobIsRefusedWithBothSidesNamed) {
  Start();
  PeerIdentity other = PeerRig::AskingIdentity();
  other.job_id = "another";
  FOREBAY_EXPECT_OK(rig_->Connect(rig_->address(), other));
  PeerRig::Rows rows = rig_->Ask({0});
  const Error error = ErrorOf(rows);
  EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(error.message(), HasSubstr("node " + rig_->address() +
                                         " has job 'job', node '127.0.0.1:1' has 'another'"));
  EXPECT_EQ(rig_->ReadExtent(ExtentId(0)).error().code(), ErrorCode::kFailedPrecondition);
}

TEST_F(GrpcPeersTest, APingIsAnsweredUntilTheNodeIsGone) {
  Start();
  const auto ping = [this] {
    const auto outcome = std::make_shared<std::promise<Result<NodeReport>>>();
    rig_->peers().Ping(PeerRig::kNode, rig_->rig().clock().NowNs() + 20'000'000'000,
                       [outcome](Result<NodeReport> report) { outcome->set_value(report); });
    return outcome->get_future().get();
  };
  const Result<NodeReport> report = ping();
  ASSERT_TRUE(report.has_value()) << report.error().ToString();
  EXPECT_EQ(report->samples, PeerRig::kReportedSamples);
  rig_->StopServer();
  EXPECT_EQ(ping().error().code(), ErrorCode::kUnavailable);
}

TEST_F(GrpcPeersTest, WhatANodeHasSentIsCounted) {
  Start();
  ExpectRows({0, 1, 2});
  ASSERT_TRUE(rig_->ReadExtent(ExtentId(0)).has_value());
  PeerRig::Rows missing = rig_->Ask({1'000'000});
  EXPECT_EQ(ErrorOf(missing).code(), ErrorCode::kInvalidArgument);
  const LinkFigures figures = rig_->peers().figures(PeerRig::kNode);
  EXPECT_EQ(figures.received_bytes,
            3 * 1000 + rig_->dataset().catalog()->extent(ExtentId(0)).bytes);
  EXPECT_EQ(figures.calls, 3U);
  EXPECT_EQ(figures.failed, 1U);
  EXPECT_EQ(figures.wrong, 0U) << "an error of the other node is no wrong answer";
  EXPECT_GT(figures.busy_ns, 0U);
  rig_->peers().ReportWrong(PeerRig::kNode);
  rig_->peers().ReportWrong(NodeRank(9));
  EXPECT_EQ(rig_->peers().figures(PeerRig::kNode).wrong, 1U);
}

TEST_F(GrpcPeersTest, ANodeThatIsGoneOrUnknownDoesNotAnswer) {
  Start();
  ExpectRows({0});
  rig_->StopServer();
  PeerRig::Rows rows = rig_->Ask({0});
  EXPECT_EQ(ErrorOf(rows).code(), ErrorCode::kUnavailable);
  EXPECT_EQ(rig_->ReadExtent(ExtentId(0)).error().code(), ErrorCode::kUnavailable);
  rows = rig_->Ask({0}, /*wait_ms=*/-1);
  EXPECT_TRUE(stage::IsNoAnswer(ErrorOf(rows)));
  const auto elsewhere = std::make_shared<fetch::RowRequest>(*rows.request);
  elsewhere->node = NodeRank(9);
  const auto outcome = std::make_shared<std::promise<Status>>();
  rig_->peers().Read(elsewhere, [outcome](const Status& status) { outcome->set_value(status); });
  EXPECT_EQ(outcome->get_future().get().error().code(), ErrorCode::kUnavailable);
}

TEST_F(GrpcPeersTest, AConnectionThatIsLostInTheMiddleOfAnAnswerIsNoAnswer) {
  StartBehindRelay();
  relay_->CutAfter(3'000'000);
  PeerRig::Rows rows = rig_->Ask({0, 1, 2, 3});
  const Error error = ErrorOf(rows);
  EXPECT_EQ(error.code(), ErrorCode::kUnavailable) << error.ToString();
  EXPECT_EQ(relay_->answered_bytes(), 3'000'000U) << "it was in the middle";
  // The node answers again.
  relay_->CutAfter(~std::uint64_t{0});
  Status again;
  do {
    rows = rig_->Ask({0, 1, 2, 3});
    again = rows.outcome.get();
  } while (!again.has_value() && again.error().code() == ErrorCode::kUnavailable);
  FOREBAY_EXPECT_OK(again);
  EXPECT_TRUE(rig_->AreRight(rows));
}

TEST_F(GrpcPeersTest, AConnectionThatWasLostWhileNobodyUsedItIsMadeAgain) {
  StartBehindRelay();
  ExpectRows({0});
  relay_->CutAtNextQuestion();
  ExpectRows({1, 2});
  relay_->CutAtNextQuestion();
  const Result<stage::SuppliedExtent> extent = rig_->ReadExtent(ExtentId(0));
  ASSERT_TRUE(extent.has_value()) << extent.error().ToString();
  EXPECT_EQ(rig_->peers().figures(PeerRig::kNode).failed, 0U);
}

TEST_F(GrpcPeersTest, AFlippedBitIsFoundByTheReceiver) {
  StartBehindRelay();
  // In the middle of the payload of the second chunk.
  relay_->FlipBitOf(1'600'000);
  PeerRig::Rows rows = rig_->Ask({2, 3});
  const Error error = ErrorOf(rows);
  EXPECT_EQ(error.code(), ErrorCode::kDataLoss) << error.ToString();
  EXPECT_THAT(error.message(), HasSubstr("node " + relay_->address() + ": field 0 of sample 2"));
  const LinkFigures figures = rig_->peers().figures(PeerRig::kNode);
  EXPECT_EQ(figures.wrong, 1U);
  EXPECT_EQ(figures.failed, 1U);
}

TEST_F(GrpcPeersTest, AnAnswerThatStopsEndsWithTheDeadline) {
  StartBehindRelay();
  PeerRig::Rows first = rig_->Ask({0});
  FOREBAY_EXPECT_OK(first.outcome.get());
  relay_->HoldAnswers(true);
  PeerRig::Rows rows = rig_->Ask({1, 2}, /*wait_ms=*/100);
  EXPECT_EQ(ErrorOf(rows).code(), ErrorCode::kDeadlineExceeded);
}

// As when the GFS answers nobody: requests that wait for it take all places of the connection.
TEST_F(GrpcPeersTest, ARequestThatWaitsHereUntilItsDeadlineIsNoSilenceOfTheNode) {
  Start();
  relay_ = std::make_unique<TcpRelay>(rig_->address());
  FOREBAY_EXPECT_OK(rig_->Connect(relay_->address()));
  ExpectRows({0});
  relay_->HoldAnswers(true);
  std::vector<PeerRig::Rows> before;
  for (int i = 0; i < limits::kRpcStreamsPerConnectionMax; ++i) before.push_back(rig_->Ask({1}));
  PeerRig::Rows rows = rig_->Ask({2}, /*wait_ms=*/1);
  const Error error = ErrorOf(rows);
  EXPECT_FALSE(stage::IsNoAnswer(error)) << error.ToString();
  EXPECT_TRUE(stage::IsTooBusy(error)) << error.ToString();
  EXPECT_TRUE(stage::IsNotSent(error)) << error.ToString();
  relay_->HoldAnswers(false);
  for (PeerRig::Rows& each : before) FOREBAY_EXPECT_OK(each.outcome.get());
  const LinkFigures figures = rig_->peers().figures(PeerRig::kNode);
  EXPECT_EQ(figures.failed, 0U);
  EXPECT_EQ(figures.late, 0U);
}

// As AnAnswerThatStopsEndsWithTheDeadline, with a watch in place of the deadline.
class WatchedPeersTest : public GrpcPeersTest {
 protected:
  void Watch(std::int64_t late_ms) {
    for (std::uint64_t i = 0; i < AnswerTimes::kAnswersMin; ++i) ExpectRows({0});
    rig_->peers().Watch({.nodes = membership_,
                         .clock = clock_,
                         .is_suspected =
                             [this](NodeRank node) {
                               if (node == PeerRig::kNode) has_said_that_it_waits_ = true;
                               has_said_that_it_waits_.notify_all();
                               return false;
                             },
                         .name = [](NodeRank) { return std::string("the node"); },
                         .late_ms = late_ms});
  }

  // The node says that it waits before it asks the GFS.
  void AwaitStall() {
    while (rig_->rig().gfs_faults.faults_injected() == 0) std::this_thread::yield();
  }

  io::SteadyClock clock_;
  plan::Membership membership_{NodeRank(0),
                               {{.rank = NodeRank(0), .identity = 1},
                                {.rank = PeerRig::kNode, .identity = 2}}};
  std::atomic<bool> has_said_that_it_waits_ = false;
};

TEST_F(WatchedPeersTest, AnAnswerThatStopsIsLate) {
  StartBehindRelay();
  Watch(/*late_ms=*/200);
  relay_->HoldAnswers(true);
  PeerRig::Rows rows = rig_->Ask({1, 2});
  const Error error = ErrorOf(rows);
  EXPECT_EQ(error.code(), ErrorCode::kUnavailable) << error.ToString();
  EXPECT_TRUE(membership_.IsResting(PeerRig::kNode, clock_.NowNs()));
  // An extent, too.
  EXPECT_EQ(rig_->ReadExtent(ExtentId(0)).error().code(), ErrorCode::kUnavailable);
  EXPECT_GE(rig_->peers().figures(PeerRig::kNode).late, 2U);
}

// Its GFS stands still. The node says that it waits, so it is not late: is_suspected is asked for
// such requests only.
TEST_F(WatchedPeersTest, ANodeThatWaitsForTheGfsIsNotLate) {
  Start();
  Watch(/*late_ms=*/30'000);
  FOREBAY_EXPECT_OK(rig_->rig().cache().Evict(rig_->dataset().key(ExtentId(0)), std::nullopt));
  FOREBAY_EXPECT_OK(rig_->rig().cache().Evict(rig_->dataset().key(ExtentId(1)), std::nullopt));
  rig_->rig().gfs_faults.Arm({.kind = io::FaultKind::kStall, .call = io::IoCall::kRead});
  PeerRig::Rows rows = rig_->Ask({0});
  has_said_that_it_waits_.wait(false);
  AwaitStall();
  rig_->rig().gfs_faults.ReleaseStalls();
  FOREBAY_EXPECT_OK(rows.outcome.get());
  EXPECT_TRUE(rig_->AreRight(rows));
  const auto extent = rig_->ReadExtent(ExtentId(1));
  EXPECT_TRUE(extent.has_value());
  EXPECT_EQ(rig_->peers().figures(PeerRig::kNode).late, 0U);
  EXPECT_TRUE(membership_.Lives(PeerRig::kNode));
}

TEST_F(WatchedPeersTest, ANodeThatBeginsToYieldRefusesWhatWaitsForItsGfs) {
  Start();
  Watch(/*late_ms=*/30'000);
  FOREBAY_EXPECT_OK(rig_->rig().cache().Evict(rig_->dataset().key(ExtentId(0)), std::nullopt));
  rig_->rig().gfs_faults.Arm({.kind = io::FaultKind::kStall, .call = io::IoCall::kRead});
  PeerRig::Rows rows = rig_->Ask({0});
  has_said_that_it_waits_.wait(false);
  AwaitStall();
  rig_->RefuseWaiting();
  const Error error = ErrorOf(rows);
  EXPECT_TRUE(stage::IsAskNext(error)) << error.ToString();
  ExpectRows({400});  // of another extent, which is there
  rig_->RefuseWaiting();  // nothing waits
  rig_->rig().gfs_faults.ReleaseStalls();
  ExpectRows({0});
  EXPECT_TRUE(membership_.Lives(PeerRig::kNode));
}

TEST_F(GrpcPeersTest, ARequestThatNobodyWantsEndsInTheMiddleOfItsAnswer) {
  StartBehindRelay();
  PeerRig::Rows first = rig_->Ask({0});
  FOREBAY_EXPECT_OK(first.outcome.get());
  relay_->HoldAnswers(true);
  std::stop_source unwanted;
  const std::uint64_t before = relay_->asked_bytes();
  // More than may be under way, so some calls have not begun.
  PeerRig::Rows rows = rig_->Ask(std::vector<std::uint64_t>(30, 1), 60'000, unwanted.get_token());
  EXPECT_TRUE(relay_->AwaitAsked(before + 40));
  unwanted.request_stop();
  EXPECT_EQ(ErrorOf(rows).code(), ErrorCode::kCancelled);
  rows = rig_->Ask({2}, 60'000, unwanted.get_token());
  EXPECT_EQ(ErrorOf(rows).code(), ErrorCode::kCancelled);
  relay_->HoldAnswers(false);
  ExpectRows({3, 2, 1});
  EXPECT_EQ(rig_->peers().figures(PeerRig::kNode).failed, 0U);
}

TEST_F(GrpcPeersTest, SeveralRequestsAreUnderWayAtTheSameTime) {
  StartBehindRelay();
  PeerRig::Rows first = rig_->Ask({0});
  FOREBAY_EXPECT_OK(first.outcome.get());
  relay_->HoldAnswers(true);
  const std::uint64_t before = relay_->asked_bytes();
  std::vector<PeerRig::Rows> requests;
  for (std::uint64_t i = 0; i < 8; ++i) requests.push_back(rig_->Ask({i % 4, (i + 1) % 4}));
  // A request has the fingerprints, 24 bytes, and its headers, so these are at least eight.
  EXPECT_TRUE(relay_->AwaitAsked(before + 8 * 40));
  relay_->HoldAnswers(false);
  for (PeerRig::Rows& rows : requests) {
    FOREBAY_EXPECT_OK(rows.outcome.get());
    EXPECT_TRUE(rig_->AreRight(rows));
  }
}

TEST_F(GrpcPeersTest, StopEndsWhatIsUnderWay) {
  StartBehindRelay();
  PeerRig::Rows first = rig_->Ask({0});
  FOREBAY_EXPECT_OK(first.outcome.get());
  relay_->HoldAnswers(true);
  PeerRig::Rows rows = rig_->Ask({1, 2});
  rig_->peers().Stop();
  const Error error = ErrorOf(rows);
  EXPECT_TRUE(error.code() == ErrorCode::kCancelled || error.code() == ErrorCode::kUnavailable)
      << error.ToString();
}

TEST_F(GrpcPeersTest, AServerThatEndsInTheMiddleOfAnAnswerLetsGoOfItsExtents) {
  StartBehindRelay();
  PeerRig::Rows first = rig_->Ask({0});
  FOREBAY_EXPECT_OK(first.outcome.get());
  relay_->HoldAnswers(true);
  const std::uint64_t before = relay_->asked_bytes();
  PeerRig::Rows rows = rig_->Ask({0, 1, 2, 3});
  EXPECT_TRUE(relay_->AwaitAsked(before + 40));
  rig_->StopServer();  // returns when no slice points into an extent any more
  EXPECT_EQ(rig_->rig().cache().stats(tier::TierKind::kRam).pinned_bytes, 0U);
  relay_->HoldAnswers(false);
  EXPECT_TRUE(stage::IsNoAnswer(ErrorOf(rows)));
}

TEST_F(GrpcPeersTest, AddressesOfOtherMachinesAreRefused) {
  Start();
  const Status refused = rig_->Connect("10.0.0.2:4000");
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), HasSubstr("no secret"));
}

}  // namespace
}  // namespace forebay::peer

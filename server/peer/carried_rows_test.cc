// Rows whose bytes are moved by a PayloadCarrier: what arrives where, what goes over gRPC all the
// same, and how a request ends whose bytes are altered, fail, or do not come.
#include "server/peer/carried_rows.h"

#include <chrono>
#include <future>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/io/testing/io_test_fixture.h"
#include "server/peer/testing/in_process_carrier.h"
#include "server/peer/testing/peer_rig.h"

namespace forebay::peer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Way = InProcessCarrier::Way;

std::vector<std::size_t> MessageEnds(const std::vector<std::size_t>& row_bytes) {
  std::vector<std::vector<std::byte>> memory;
  std::vector<fetch::Row> rows;
  for (const std::size_t bytes : row_bytes) {
    memory.emplace_back(bytes);
    rows.push_back({.sample = SampleId(0), .field = FieldId(0), .memory = memory.back()});
  }
  return MemoryToFill(rows).ends;
}

TEST(CarriedRowsTest, LongRowsHaveMessagesOfTheirOwnAndShortOnesShareThem) {
  EXPECT_THAT(MessageEnds({100'000, 100'000}), ElementsAre(1, 2));
  EXPECT_THAT(MessageEnds({1000, 1000, 1000}), ElementsAre(3));
  EXPECT_THAT(MessageEnds({1000, 100'000, 1000, 1000}), ElementsAre(1, 2, 4));
  // A message is full with 256 KiB.
  EXPECT_THAT(MessageEnds(std::vector<std::size_t>(20, 30'000)), ElementsAre(9, 18, 20));
}

TEST(CarriedRowsTest, RowsWithoutBytesCostNoMessage) {
  EXPECT_THAT(MessageEnds({0, 0}), IsEmpty());
  EXPECT_THAT(MessageEnds({0, 100'000, 0, 5, 0}), ElementsAre(2, 5));
}

class CarrierTest : public ::testing::Test {
 protected:
  void Start(PeerRigOptions options = {}) {
    options.carrier = &carrier_;
    auto made = PeerRig::Create(options);
    ASSERT_TRUE(made.has_value()) << made.error().ToString();
    rig_ = std::move(*made);
    FOREBAY_EXPECT_OK(rig_->Connect(rig_->address()));
  }
  // Starts nodes with rows that lie in many extents each.
  void StartWithLongRows() {
    Start({.records = 4,
           .record_bytes = kLongBytes,
           .stage = {.ram_bytes = 64 << 20, .request_bytes = 1 << 20}});
  }
  static std::vector<std::uint64_t> Samples(std::size_t count) {
    std::vector<std::uint64_t> samples;
    for (std::uint64_t i = 0; i < count; ++i) samples.push_back(i * 7 % 512);
    return samples;
  }
  static Error ErrorOf(PeerRig::Rows& rows) {
    const Status outcome = rows.outcome.get();
    EXPECT_FALSE(outcome.has_value());
    return outcome.has_value() ? Error(ErrorCode::kUnknown, "no error") : outcome.error();
  }
  // Waits until the node that answers has sent what the carrier holds back.
  void AwaitHeld() const {
    while (carrier_.held() == 0) std::this_thread::yield();
  }
  std::uint64_t CarriedBytes() const {
    return rig_->peers().figures(PeerRig::kNode).carried_bytes;
  }

  static constexpr std::uint64_t kLongBytes = 2'500'000;
  InProcessCarrier carrier_;
  std::unique_ptr<PeerRig> rig_;
};

TEST_F(CarrierTest, RowsArriveInTheirMemory) {
  Start();
  PeerRig::Rows rows = rig_->Ask(Samples(2000));
  FOREBAY_EXPECT_OK(rows.outcome.get());
  EXPECT_TRUE(rig_->AreRight(rows));
  EXPECT_EQ(CarriedBytes(), 2'000'000U);
  EXPECT_EQ(carrier_.delivered_bytes(), 2'000'000U);
}

TEST_F(CarrierTest, RowsOfManyExtentsAndCallsArrive) {
  StartWithLongRows();
  PeerRig::Rows rows = rig_->Ask({3, 0, 1, 2, 3, 0, 1, 2, 0});
  FOREBAY_EXPECT_OK(rows.outcome.get());
  EXPECT_TRUE(rig_->AreRight(rows));
  EXPECT_EQ(CarriedBytes(), 9 * kLongBytes);
}

TEST_F(CarrierTest, FewBytesComeWithTheAnswer) {
  Start();
  PeerRig::Rows rows = rig_->Ask(Samples(65));
  FOREBAY_EXPECT_OK(rows.outcome.get());
  EXPECT_TRUE(rig_->AreRight(rows));
  EXPECT_EQ(CarriedBytes(), 0U);
}

TEST_F(CarrierTest, ANodeWithoutACarrierAnswersOverGrpc) {
  Start({.answers_by_carrier = false});
  PeerRig::Rows rows = rig_->Ask(Samples(200));
  FOREBAY_EXPECT_OK(rows.outcome.get());
  EXPECT_TRUE(rig_->AreRight(rows));
  EXPECT_EQ(CarriedBytes(), 0U);
  EXPECT_EQ(carrier_.cancelled_messages(), 1U) << "nobody sends to the receive";
}

TEST_F(CarrierTest, RowsOfWhichOneDoesNotExistComeOverGrpcWithItsError) {
  Start();
  std::vector<std::uint64_t> samples = Samples(200);
  samples[100] = 512;
  PeerRig::Rows rows = rig_->Ask(samples);
  const Error error = ErrorOf(rows);
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message(), HasSubstr("field 0 of sample 512"));
  rows.request->rows.erase(rows.request->rows.begin() + 100);
  EXPECT_TRUE(rig_->AreRight(rows));
  EXPECT_EQ(carrier_.delivered_bytes(), 0U);
}

TEST_F(CarrierTest, AFlippedBitIsFoundByTheReceiver) {
  StartWithLongRows();
  carrier_.SetWay(Way::kFlipBit);
  PeerRig::Rows rows = rig_->Ask({2, 3});
  const Error error = ErrorOf(rows);
  EXPECT_EQ(error.code(), ErrorCode::kDataLoss) << error.ToString();
  EXPECT_THAT(error.message(), HasSubstr("node " + rig_->address() + ": field 0 of sample 2"));
  EXPECT_GE(rig_->peers().figures(PeerRig::kNode).wrong, 1U);
}

// The answer with the checksums may come before the bytes or after them.
TEST_F(CarrierTest, BytesThatComeAfterTheAnswerAreVerified) {
  StartWithLongRows();
  for (const Way way : {Way::kDeliver, Way::kFlipBit}) {
    carrier_.SetWay(Way::kHold);
    PeerRig::Rows rows = rig_->Ask({2, 3});
    AwaitHeld();
    carrier_.Release(way);
    const Status outcome = rows.outcome.get();
    EXPECT_EQ(outcome.has_value(), way == Way::kDeliver);
    EXPECT_EQ(rig_->AreRight(rows), way == Way::kDeliver);
  }
}

// IsNoAnswer makes RowRouter ask the next node.
// The node still answers, so its rows come over gRPC.
TEST_F(CarrierTest, WithoutItsCarrierACallIsMadeOnceMore) {
  StartWithLongRows();
  carrier_.SetWay(Way::kFail);
  PeerRig::Rows rows = rig_->Ask({0, 1, 2});  // three messages, each of which fails
  FOREBAY_EXPECT_OK(rows.outcome.get());
  EXPECT_TRUE(rig_->AreRight(rows));
  EXPECT_EQ(CarriedBytes(), 0U);
  carrier_.SetWay(Way::kDeliver);
  PeerRig::Rows again = rig_->Ask({0, 1});
  FOREBAY_EXPECT_OK(again.outcome.get());
  EXPECT_GT(CarriedBytes(), 0U) << "the next call has its carrier";
}

TEST_F(CarrierTest, BytesThatDoNotComeEndWithTheDeadlineAndAreThrownAwayLater) {
  StartWithLongRows();
  carrier_.SetWay(Way::kHold);
  PeerRig::Rows rows = rig_->Ask({0, 1}, /*wait_ms=*/2'000);
  AwaitHeld();
  const Error error = ErrorOf(rows);
  EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded) << error.ToString();
  EXPECT_EQ(carrier_.cancelled_messages(), 2U);
  EXPECT_EQ(CarriedBytes(), 0U);
  carrier_.Release();
  EXPECT_EQ(carrier_.thrown_away(), 1U);
}

TEST_F(CarrierTest, MemoryIsWaitedForWhileBytesArriveInIt) {
  StartWithLongRows();
  carrier_.SetWay(Way::kHoldMatched);
  PeerRig::Rows rows = rig_->Ask({0, 1}, /*wait_ms=*/2'000);
  AwaitHeld();
  // The deadline passes meanwhile, and the receive cannot be cancelled any more.
  EXPECT_EQ(rows.outcome.wait_for(std::chrono::seconds(3)), std::future_status::timeout);
  EXPECT_EQ(carrier_.cancelled_messages(), 0U);
  carrier_.Release();
  EXPECT_EQ(ErrorOf(rows).code(), ErrorCode::kDeadlineExceeded);
}

// Many times, because the answer, or the end of gRPC's call, may come at the same moment.
TEST_F(CarrierTest, ARequestThatNobodyWantsEndsAlsoAfterItsAnswer) {
  constexpr std::uint64_t kRounds = 30;
  StartWithLongRows();
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    carrier_.SetWay(Way::kHold);
    std::stop_source unwanted;
    PeerRig::Rows rows = rig_->Ask({0, 1}, 60'000, unwanted.get_token());
    AwaitHeld();
    unwanted.request_stop();
    ASSERT_EQ(ErrorOf(rows).code(), ErrorCode::kCancelled) << round;
    EXPECT_EQ(carrier_.cancelled_messages(), 2 * round);
    carrier_.Release();
  }
  EXPECT_EQ(rig_->peers().figures(PeerRig::kNode).failed, 0U);
}

TEST_F(CarrierTest, AnswersThatWaitForOneBeforeThemAreSentAfterIt) {
  StartWithLongRows();
  carrier_.SetWay(Way::kHold);
  std::vector<PeerRig::Rows> requests;
  for (std::uint64_t i = 0; i < 5; ++i) requests.push_back(rig_->Ask({i % 4, (i + 1) % 4}));
  AwaitHeld();
  carrier_.Release();
  for (PeerRig::Rows& rows : requests) {
    FOREBAY_EXPECT_OK(rows.outcome.get());
    EXPECT_TRUE(rig_->AreRight(rows));
  }
}

TEST_F(CarrierTest, StopEndsWhatIsUnderWay) {
  StartWithLongRows();
  carrier_.SetWay(Way::kHold);
  PeerRig::Rows rows = rig_->Ask({0, 1});
  AwaitHeld();
  rig_->peers().Stop();
  EXPECT_FALSE(rows.outcome.get().has_value());
  EXPECT_EQ(carrier_.cancelled_messages(), 2U);
  carrier_.Release();
}

TEST_F(CarrierTest, TheServerWaitsForBytesThatAreStillSent) {
  StartWithLongRows();
  carrier_.SetWay(Way::kHold);
  PeerRig::Rows rows = rig_->Ask({0, 1});
  AwaitHeld();
  std::future<void> stopped = std::async(std::launch::async, [this] { rig_->StopServer(); });
  EXPECT_EQ(stopped.wait_for(std::chrono::milliseconds(200)), std::future_status::timeout);
  carrier_.Release();
  stopped.get();
  rows.outcome.wait();
}

}  // namespace
}  // namespace forebay::peer

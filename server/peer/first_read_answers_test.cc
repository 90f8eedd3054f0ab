// Checksums of first reads that other nodes give wait for a thread that writes a file. What waits
// is bounded, and what is kept makes room.
#include "server/peer/first_read_answers.h"

#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/contract/limits.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/peer/testing/peer_rig.h"
#include "server/stage/extent_source.h"

namespace forebay::peer::first_read_answers_test {

using ::testing::HasSubstr;

class FirstReadAnswersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = PeerRig::Create({});
    ASSERT_TRUE(made.has_value()) << made.error().ToString();
    rig_ = std::move(*made);
    stage::StageRig& stage = rig_->rig();
    auto directory = stage.backend().OpenDirectory("/ssd");
    ASSERT_TRUE(directory.has_value());
    directory_ = std::move(*directory);
    FOREBAY_EXPECT_OK(rig_->dataset().first_reads().Open(stage.backend(), *directory_, "first",
                                                         /*forget=*/false));
    rig_->dataset().first_reads().Forget();  // its own, so that the first request writes
    answers_ = std::move(*FirstReadAnswers::Create(rig_->parts().first_reads, stage.backend()));
    // The thread stands still as soon as it writes.
    stage.ssd_faults.Arm(
        {.kind = io::FaultKind::kStall, .call = io::IoCall::kWrite, .is_persistent = true});
  }
  void TearDown() override {
    GoOn();
    answers_.reset();
  }

  void GoOn() {
    rig_->rig().ssd_faults.Disarm();
    rig_->rig().ssd_faults.ReleaseStalls();
  }
  // Gives the checksum of an extent so many times, in a request of so many bytes.
  Status Give(std::uint64_t bytes, std::size_t reads = 1) {
    const auto reply = std::make_shared<grpc::ByteBuffer>();
    replies_.push_back(reply);
    return answers_->Answer(
        rig_->dataset(),
        {.request = {.catalog_fingerprint = rig_->dataset().catalog()->fingerprint()},
         .from = NodeRank(0),
         .reads = std::vector<stage::FirstRead>(
             reads, {.key = rig_->dataset().key(ExtentId(1)), .checksum = 1})},
        bytes, std::make_shared<UnaryAnswer>(*reply, [](const auto&) {}));
  }
  // Gives until it is refused, and returns how often it was not.
  std::size_t GiveWhatFits(std::uint64_t bytes, std::size_t reads = 1) {
    for (std::size_t given = 0;; ++given) {
      const Status status = Give(bytes, reads);
      if (status.has_value()) continue;
      EXPECT_TRUE(stage::IsTooBusy(status.error())) << status.error().ToString();
      EXPECT_THAT(status.error().message(), HasSubstr("wait to be kept"));
      return given;
    }
  }

  std::unique_ptr<PeerRig> rig_;
  std::unique_ptr<io::Directory> directory_;
  std::unique_ptr<FirstReadAnswers> answers_;
  std::vector<std::shared_ptr<grpc::ByteBuffer>> replies_;
};

TEST_F(FirstReadAnswersTest, RequestsWaitUpToTheirBytes) {
  EXPECT_EQ(GiveWhatFits(limits::kPeerMessageBytesMax),
            limits::kPeerFirstReadsWaitingBytesMax / limits::kPeerMessageBytesMax);
}

// The shortest form of a checksum in a request has 17 bytes, and 32 in memory.
TEST_F(FirstReadAnswersTest, RequestsWaitUpToTheMemoryOfTheirReads) {
  const std::uint64_t held = limits::kPeerFirstReadsMax * sizeof(stage::FirstRead);
  EXPECT_EQ(GiveWhatFits(limits::kPeerFirstReadsMax * 17UL, limits::kPeerFirstReadsMax),
            limits::kPeerFirstReadsWaitingBytesMax / held);
}

TEST_F(FirstReadAnswersTest, NoMoreRequestsWaitThanCallsAreAnsweredHoweverShortTheyAre) {
  EXPECT_EQ(GiveWhatFits(1), limits::kPeerCallsMax);
}

TEST_F(FirstReadAnswersTest, WhatIsKeptMakesRoom) {
  GiveWhatFits(limits::kPeerMessageBytesMax);
  GoOn();
  // There is room for this one when all others have been kept.
  while (!Give(limits::kPeerFirstReadsWaitingBytesMax).has_value()) std::this_thread::yield();
  EXPECT_EQ(rig_->dataset().first_reads().Find(rig_->dataset().key(ExtentId(1))), 1U);
}

}  // namespace forebay::peer::first_read_answers_test

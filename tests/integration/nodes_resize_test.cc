// A job that is started again with another number of daemons, or with other ranks, on machines on
// whose SSDs an earlier job of the same id has left its extents. A trainer does this after nodes
// were lost or taken away: it goes on from the token in its checkpoint. What it gets must not
// depend on the nodes, and what lies on the SSD of its owner must not be read from the GFS again.
#include <barrier>
#include <csignal>
#include <cstdint>
#include <future>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "proto/contract/order_token.h"
#include "tests/integration/nodes_fixture.h"

namespace forebay::integration {
namespace {

class NodesResizeTest : public NodesTest {
 protected:
  NodesResizeTest() : NodesTest({.records = 8192, .ram = "24MiB"}) {}  // 32 MiB

  // Starts a daemon on each of these machines. The first one has rank 0.
  void StartOn(const std::vector<std::uint32_t>& machines) {
    const auto node_count = static_cast<std::uint32_t>(machines.size());
    for (std::uint32_t rank = 0; rank < node_count; ++rank) {
      daemons_.push_back(rig_.StartNode(
          {.machine = machines[rank], .rank = rank, .node_count = node_count}));
    }
    for (std::uint32_t rank = 0; rank < node_count; ++rank) {
      ASSERT_FALSE(daemons_[rank]->ready_line().empty()) << ReadText(rig_.node_log(machines[rank]));
    }
  }
  void SignalAll() {
    for (const auto& daemon : daemons_) daemon->Signal(SIGTERM);
  }
  void AwaitTheEndOfAll() {
    for (std::uint32_t rank = 0; rank < daemons_.size(); ++rank) EXPECT_EQ(Outcome(rank), "0");
    daemons_.clear();
  }
  // What a trainer's checkpoint has of a stream, as the daemon of this machine knows the data set.
  PositionToken TokenAt(std::uint32_t machine, std::uint32_t epoch, std::uint64_t step) {
    const v1::StreamRequest request =
        GoodOpen(ClientOf(machine)->Describe(kDataset), kGlobalBatch, shape_);
    const v1::OpenStream& open = request.open();
    return {.catalog_fingerprint = open.catalog_fingerprint(),
            .order = OrderSpec::Parse(std::as_bytes(std::span(open.order_spec()))).value(),
            .global_batch = kGlobalBatch,
            .next_epoch = EpochId(epoch),
            .next_step = StepId(step)};
  }
  // A reader on each of these machines reads on from the token, and the daemons are told to end
  // when all readers have got some batches. Nobody consumes these: the checkpoint is older.
  void EndInTheMiddleOfReading(const std::vector<std::uint32_t>& machines,
                               const PositionToken& token) {
    constexpr std::uint64_t kBatchesBefore = 5;
    const auto ranks = static_cast<std::uint32_t>(machines.size());
    std::barrier all_read(static_cast<std::ptrdiff_t>(ranks), [this]() noexcept { SignalAll(); });
    std::vector<std::future<EpochCounts>> readers;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      EpochPart part{.epoch = token.next_epoch.value(), .ranks = ranks, .rank = rank,
                     .global_batch = token.global_batch, .first_step = token.next_step.value()};
      part.after_batch = [&all_read](std::uint64_t batches) {
        if (batches == kBatchesBefore) all_read.arrive_and_wait();
      };
      readers.push_back(std::async(std::launch::async, [this, part, machine = machines[rank]] {
        const auto client = ClientOf(machine);
        return ReadEpoch(*client, "train", shape_, part);
      }));
    }
    for (auto& reader : readers) {
      const EpochCounts counts = reader.get();
      EXPECT_EQ(counts.wrong, 0U);
      EXPECT_NE(counts.error, "") << "the daemon ended before the stream did";
    }
    AwaitTheEndOfAll();
  }
};

TEST_F(NodesResizeTest, ThreeDaemonsGoOnInTheMiddleOfAnEpochAndFourFindWhatTheyHad) {
  const std::map<std::uint64_t, std::uint64_t> expected = DeliveredByOneNode(1);
  StartOn({0, 1, 2, 3});
  ExpectExact(ReadTogether({0, 1, 2, 3}, 0));
  AwaitStagedEverywhere();
  const std::uint64_t lost = GfsBytes(1);
  EXPECT_GT(lost, 0U);
  EpochCounts before = ReadTogether({0, 1, 2, 3}, {.epoch = 1, .end_step = steps_ / 2});
  EXPECT_EQ(before.samples, steps_ / 2 * kGlobalBatch);
  const PositionToken token = TokenAt(0, 1, steps_ / 2);
  EndInTheMiddleOfReading({0, 1, 2, 3}, token);

  // Machine 1 is gone, and machines 0 and 3 have other ranks than before.
  const std::vector<std::uint32_t> left = {3, 0, 2};
  StartOn(left);
  EXPECT_EQ(TokenAt(3, 1, steps_ / 2), token) << "the data set and its order are the same";
  EpochCounts after = ReadTogether(left, {.epoch = token.next_epoch.value(),
                                          .first_step = token.next_step.value()});
  EXPECT_EQ(before.samples + after.samples, records_);
  EXPECT_EQ(before.wrong + after.wrong, 0U);
  before.by_position.merge(after.by_position);
  EXPECT_EQ(before.by_position, expected);
  for (const std::uint32_t machine : left) AwaitStaged(*ClientOf(machine));
  std::uint64_t read_again = 0;
  for (const std::uint32_t machine : left) read_again += GfsBytes(machine);
  EXPECT_GE(read_again, lost) << "nobody else had the share of machine 1";
  // The shares of three nodes are larger, and some groups move so that they are even.
  EXPECT_LT(read_again - lost, (rig_.dataset_bytes() - lost) / 2)
      << "most of what lies on the other machines is found there";
  SignalAll();
  AwaitTheEndOfAll();

  // All four are back, and each has another rank than at first. A node is named by its job, its
  // host and the directory of its SSD, so each machine has its first share again.
  StartOn({1, 2, 3, 0});
  AwaitStagedEverywhere();
  ExpectExact(ReadTogether({2, 1, 0, 3}, 2));
  EXPECT_EQ(GfsBytesOfAll(), 0U);
}

}  // namespace
}  // namespace forebay::integration

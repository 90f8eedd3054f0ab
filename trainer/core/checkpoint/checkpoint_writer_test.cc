// Checkpoints that several ranks write together, ranks being threads: the run goes on meanwhile,
// one failure fails all, and nothing half-written is left.
#include "trainer/core/checkpoint/checkpoint_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "trainer/comm/transport/local_transport.h"
#include "trainer/core/checkpoint/checkpoint_reader.h"
#include "trainer/testing/stored_checkpoint.h"
#include "trainer/testing/temp_folder.h"

namespace forebay::train {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

using Outcomes = std::vector<CheckpointWriter::Outcome>;

Checkpoint Of(std::uint64_t step, const std::vector<std::string>& names) {
  Checkpoint checkpoint;
  checkpoint.model = "m";
  checkpoint.global_step = step;
  for (const std::string& name : names) {
    CheckpointTensor tensor{.name = name, .dtype = "U8", .shape = {1000}, .bytes = {}};
    tensor.bytes.assign(1000, static_cast<std::byte>(name[0]));
    checkpoint.tensors.push_back(std::move(tensor));
  }
  return checkpoint;
}

class CheckpointWriterTest : public ::testing::Test {
 protected:
  // Every rank on a thread; its writer and its place.
  void OnRanks(std::uint32_t ranks,
               const std::function<void(std::uint32_t rank, CheckpointWriter&, CheckpointPlace)>&
                   work,
               std::uint64_t kept = 2) {
    auto folder = CheckpointFolder::Open(temp_.path(), kept);
    ASSERT_TRUE(folder.has_value());
    std::vector<std::unique_ptr<Transport>> transports = MakeLocalTransports(ranks);
    std::vector<std::thread> threads;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        Communicator communicator(std::move(transports[rank]));
        CheckpointWriter writer(communicator);
        work(rank, writer, {.folder = temp_.path(), .publisher = rank == 0 ? &*folder : nullptr});
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  testing::TempFolder temp_;
};

TEST_F(CheckpointWriterTest, EveryRankThatHoldsTensorsWritesItsOwn) {
  const std::vector<std::vector<std::string>> names = {{"a", "b"}, {}, {"c"}, {}};
  Outcomes outcomes(4);
  OnRanks(4, [&](std::uint32_t rank, CheckpointWriter& writer, const CheckpointPlace& place) {
    ASSERT_TRUE(writer.Begin(Of(8, names[rank]), place).has_value());
    EXPECT_TRUE(writer.busy());
    const auto outcome = writer.Finish();
    ASSERT_TRUE(outcome.has_value() && outcome->has_value());
    outcomes[rank] = **outcome;
    EXPECT_FALSE(writer.busy());
  });
  for (const CheckpointWriter::Outcome& outcome : outcomes) {
    EXPECT_FALSE(outcome.error.has_value());
    EXPECT_EQ(outcome.global_step, 8U);
  }
  const auto manifest = ReadManifest(outcomes[0].path);
  ASSERT_TRUE(manifest.has_value()) << manifest.error().ToString();
  EXPECT_EQ(manifest->shards.size(), 2U);
  const auto whole = testing::ReadWhole(outcomes[0].path);
  ASSERT_TRUE(whole.has_value()) << whole.error().ToString();
  ASSERT_EQ(whole->tensors.size(), 3U);
  EXPECT_EQ(whole->tensors[2].bytes[999], std::byte{'c'});
}

TEST_F(CheckpointWriterTest, TrainingGoesOnUntilAllRanksAreDone) {
  int steps = 0;
  OnRanks(1, [&](std::uint32_t, CheckpointWriter& writer, const CheckpointPlace& place) {
    ASSERT_TRUE(writer.Begin(Of(3, {"a"}), place).has_value());
    // As the training loop does, between steps. A vote that says so is not gone on from.
    const auto held = writer.Advance({.unfinished = 1, .failed = 0});
    ASSERT_TRUE(held.has_value());
    EXPECT_FALSE(held->has_value());
    EXPECT_TRUE(writer.busy());
    for (; writer.busy(); ++steps) {
      const auto outcome = writer.Advance(writer.Ask());
      ASSERT_TRUE(outcome.has_value());
      EXPECT_EQ(outcome->has_value(), !writer.busy());
      std::this_thread::yield();
    }
  });
  EXPECT_GE(steps, 2);
  EXPECT_TRUE(VerifyCheckpoint(temp_.path() / "step-000000000003").has_value());
}

TEST_F(CheckpointWriterTest, ShardThatCannotBeWrittenFailsAllAndLeavesNothing) {
  Outcomes outcomes(2);
  OnRanks(2, [&](std::uint32_t rank, CheckpointWriter& writer, const CheckpointPlace& place) {
    // Rank 1's shard has the name of a folder.
    if (rank == 1) fs::create_directories(UnpublishedFolder(temp_.path(), 5) / ShardName(1) / "x");
    ASSERT_TRUE(writer.Begin(Of(5, {rank == 0 ? "a" : "b"}), place).has_value());
    const auto outcome = writer.Finish();
    ASSERT_TRUE(outcome.has_value() && outcome->has_value());
    outcomes[rank] = **outcome;
  });
  ASSERT_TRUE(outcomes[0].error && outcomes[1].error);
  EXPECT_EQ(outcomes[0].error->code(), ErrorCode::kAborted);
  EXPECT_THAT(outcomes[1].error->message(), HasSubstr(ShardName(1)));
  EXPECT_TRUE(fs::is_empty(temp_.path()));
}

TEST_F(CheckpointWriterTest, FoldersThatAreNotSharedAreFoundOut) {
  const testing::TempFolder elsewhere;
  Outcomes outcomes(2);
  OnRanks(2, [&](std::uint32_t rank, CheckpointWriter& writer, CheckpointPlace place) {
    if (rank == 1) place.folder = elsewhere.path();
    ASSERT_TRUE(writer.Begin(Of(5, {rank == 0 ? "a" : "b"}), place).has_value());
    const auto outcome = writer.Finish();
    ASSERT_TRUE(outcome.has_value() && outcome->has_value());
    outcomes[rank] = **outcome;
  });
  ASSERT_TRUE(outcomes[0].error && outcomes[1].error);
  EXPECT_THAT(outcomes[0].error->message(), HasSubstr("where all ranks share files"));
  EXPECT_TRUE(fs::is_empty(temp_.path()));
}

TEST_F(CheckpointWriterTest, OlderOnesGo) {
  OnRanks(1, [&](std::uint32_t, CheckpointWriter& writer, const CheckpointPlace& place) {
    for (const std::uint64_t step : {1U, 2U, 3U}) {
      ASSERT_TRUE(writer.Begin(Of(step, {"a"}), place).has_value());
      ASSERT_TRUE(writer.Finish().has_value());
    }
  });
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(temp_.path())) {
    names.push_back(entry.path().filename().string());
  }
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("step-000000000002", "step-000000000003"));
}

TEST_F(CheckpointWriterTest, EndOfTheWriterWaitsForWhatIsBeingWritten) {
  OnRanks(1, [&](std::uint32_t, CheckpointWriter& writer, const CheckpointPlace& place) {
    ASSERT_TRUE(writer.Begin(Of(4, {"a"}), place).has_value());
  });
  // Whole, but never published: no reader takes it for a checkpoint.
  EXPECT_TRUE(fs::exists(UnpublishedFolder(temp_.path(), 4) / ShardName(0)));
  std::vector<std::string> skipped;
  EXPECT_FALSE(NewestCheckpoint(temp_.path(), skipped).value().has_value());
}

}  // namespace
}  // namespace forebay::train

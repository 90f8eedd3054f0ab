// Chunks of other nodes are asked for once, and charged once, whoever wants them at the same time.
// If a node sends other bytes than the chunk, this node finds out and asks the next one. Chunks of
// one node do not wait for another node. Only the call that has asked gets an error; other calls
// may ask again. A call that leaves early takes nothing from those that stay.
#include "server/fetch/packed/remote_chunks.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "compress/encode/testing/pack_test_model.h"
#include "server/fetch/packed/chunk_rows.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/manual_clock.h"
#include "server/io/testing/memory_backend.h"
#include "server/stage/testing/stage_rig.h"

namespace forebay::fetch::remote_chunks_test {

// Keeps requests until the test answers them.
class HeldRequests final : public RowSource {
 public:
  struct Held {
    std::shared_ptr<const RowRequest> request;
    Done done;
  };
  void Read(std::shared_ptr<const RowRequest> request, Done done) override {
    rows_asked += request->rows.size();
    held.push_back({std::move(request), std::move(done)});
  }
  void ReportWrong(NodeRank node) override { wrong.push_back(node); }

  std::vector<Held> held;
  std::size_t rows_asked = 0;
  std::vector<NodeRank> wrong;
};

constexpr std::uint64_t kBytesMax = 12 << 10;
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
Error Cancelled() { return Error(ErrorCode::kCancelled, "nobody wants the rows"); }

using Outcome = std::optional<Result<std::vector<SentChunk>>>;

class RemoteChunksTest : public ::testing::Test {
 protected:
  RemoteChunksTest() : pack_(compress::WritePack(compress::MakeModel(32, 5), folder_)) {
    EXPECT_TRUE(memory_.AddFile("/gfs/data.pack", pack_).has_value());
    stage::DatasetOptions dataset;
    dataset.source.name = "data";
    dataset.source.format = catalog::Format::kPack;
    FOREBAY_EXPECT_OK(rig_.Start(dataset));
    FOREBAY_EXPECT_OK(rig_.StageAll());
    // Two other nodes are first in the ranking of the group of all chunks.
    group_key_ = GroupOf(NodeRank(1), NodeRank(2));
  }
  ~RemoteChunksTest() override { rig_.Stop(); }

  const catalog::Catalog& catalog() { return *rig_.dataset().catalog(); }
  std::span<const std::byte> InPack(std::uint64_t number) {
    const catalog::PackChunk chunk = catalog().packs()->chunk(number);
    return std::span(pack_).subspan(chunk.entry.offset, chunk.bytes());
  }
  // A group with these nodes first in its ranking.
  std::uint64_t GroupOf(NodeRank owner, NodeRank next) {
    for (std::uint64_t group = 0;; ++group) {
      const std::uint64_t key = plan::GroupKey(rig_.dataset().hash(), group);
      const std::vector<NodeRank> ranked = nodes_.Ranked(key);
      if (ranked[0] == owner && ranked[1] == next) return key;
    }
  }
  WantedRemote Wanted(std::uint64_t number) {
    const catalog::PackChunk chunk = catalog().packs()->chunk(number);
    const SampleId sample(chunk.first_sample());
    const std::uint64_t first = catalog().packs()->GroupOf(chunk.entry.field, sample).first;
    return {.number = number,
            .bytes = chunk.bytes(),
            .group_key = group_key_,
            .row = {.sample = sample,
                    .field = FieldId(chunk.entry.field),
                    .memory = {},
                    .chunk = static_cast<std::uint32_t>(number - first + 1)}};
  }
  // The outcome is empty until the call ends; null if the chunks take too much memory.
  std::shared_ptr<Outcome> Ask(const std::vector<WantedRemote>& wanted,
                               std::stop_token unwanted = {},
                               std::int64_t deadline_ns = kNever) {
    const auto outcome = std::make_shared<Outcome>();
    const bool are_asked = chunks_.Bring(
        rig_.dataset(), wanted, {.unwanted = std::move(unwanted)}, deadline_ns,
        [outcome](Result<std::vector<SentChunk>> sent) {
          EXPECT_FALSE(outcome->has_value()) << "called twice";
          outcome->emplace(std::move(sent));
        });
    return are_asked ? outcome : nullptr;
  }
  std::shared_ptr<Outcome> Bring(const std::vector<std::uint64_t>& numbers,
                                 std::stop_token unwanted = {},
                                 std::int64_t deadline_ns = kNever) {
    std::vector<WantedRemote> wanted;
    for (const std::uint64_t number : numbers) wanted.push_back(Wanted(number));
    return Ask(wanted, std::move(unwanted), deadline_ns);
  }
  // Answers the oldest request: with the chunks, or with one wrong bit, or with an error.
  void Answer(HeldRequests& source, bool flips_bit = false, const Status& status = {}) {
    ASSERT_FALSE(source.held.empty());
    const HeldRequests::Held held = std::move(source.held.front());
    source.held.erase(source.held.begin());
    for (const Row& row : held.request->rows) {
      const auto chunk = ChunkNamedBy(catalog(), row);
      ASSERT_TRUE(chunk.has_value());
      ASSERT_EQ(row.memory.size(), chunk->bytes());
      std::ranges::copy(std::span(pack_).subspan(chunk->entry.offset, chunk->bytes()),
                        row.memory.begin());
    }
    if (flips_bit) held.request->rows.back().memory.back() ^= std::byte{1};
    held.done(status);
  }
  void ExpectChunks(const Outcome& outcome, const std::vector<std::uint64_t>& numbers) {
    ASSERT_TRUE(outcome.has_value());
    ASSERT_TRUE(outcome->has_value()) << outcome->error().ToString();
    ASSERT_EQ((*outcome)->size(), numbers.size());
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      ASSERT_NE((**outcome)[i], nullptr);
      EXPECT_TRUE(std::ranges::equal((**outcome)[i]->span(), InPack(numbers[i])));
    }
  }

  compress::TestFolder folder_;
  const std::vector<std::byte> pack_;
  io::MemoryBackend memory_;
  stage::StageRig rig_{memory_, ""};
  io::ManualClock clock_;
  plan::Membership nodes_{NodeRank(0), {{NodeRank(0), 1}, {NodeRank(1), 1}, {NodeRank(2), 1}}};
  HeldRequests peers_, own_;
  RowRouter router_{peers_, own_, nodes_, clock_};
  RemoteChunks chunks_{router_, kBytesMax};
  std::uint64_t group_key_ = 0;
};

TEST_F(RemoteChunksTest, BatchesThatWantAChunkAtTheSameTimeGetItOnce) {
  const auto first = Bring({0, 1});
  const auto second = Bring({1, 2});
  EXPECT_EQ(peers_.rows_asked, 3U);
  ASSERT_EQ(peers_.held.size(), 2U);
  Answer(peers_);
  ExpectChunks(*first, {0, 1});
  EXPECT_FALSE(second->has_value()) << "its own request is under way";
  Answer(peers_);
  ExpectChunks(*second, {1, 2});
  EXPECT_EQ((***first)[1], (***second)[0]);
}

TEST_F(RemoteChunksTest, AChunkThatIsInUseIsNotAskedForAgain) {
  auto first = Bring({4});
  Answer(peers_);
  ExpectChunks(*Bring({4}), {4});
  EXPECT_EQ(peers_.rows_asked, 1U);
  first->reset();
  const auto later = Bring({4});
  EXPECT_EQ(peers_.rows_asked, 2U) << "nobody has kept it";
  EXPECT_FALSE(later->has_value());
  Answer(peers_);
  ExpectChunks(*later, {4});
}

TEST_F(RemoteChunksTest, NothingIsAskedForNothing) { ExpectChunks(*Bring({}), {}); }

TEST_F(RemoteChunksTest, WrongBytesAreFoundOutAndTheNextNodeIsAsked) {
  const auto outcome = Bring({0, 1});
  ASSERT_EQ(peers_.held.size(), 1U);
  const NodeRank owner = peers_.held.front().request->node;
  Answer(peers_, /*flips_bit=*/true);
  EXPECT_FALSE(outcome->has_value());
  EXPECT_EQ(peers_.wrong, std::vector<NodeRank>{owner});
  ASSERT_EQ(peers_.held.size(), 1U);
  EXPECT_EQ(peers_.held.front().request->node, nodes_.Ranked(group_key_)[1]);
  Answer(peers_, /*flips_bit=*/true);
  // This node is the last that can be asked.
  ASSERT_EQ(own_.held.size(), 1U);
  Answer(own_);
  ExpectChunks(*outcome, {0, 1});
}

TEST_F(RemoteChunksTest, AnErrorIsThatOfTheCallThatHasAskedAlone) {
  const auto asks = Bring({0, 1});
  const auto joins = Bring({1});
  EXPECT_EQ(peers_.held.size(), 1U);
  Answer(peers_, false, Error(ErrorCode::kFailedPrecondition, "another catalog"));
  ASSERT_TRUE(asks->has_value());
  ASSERT_FALSE((*asks)->has_value());
  EXPECT_EQ((*asks)->error().code(), ErrorCode::kFailedPrecondition);
  ASSERT_TRUE(joins->has_value());
  ASSERT_TRUE((*joins)->has_value()) << (*joins)->error().ToString();
  EXPECT_EQ((***joins)[0], nullptr) << "it may ask for itself";
  const auto again = Bring({1});
  Answer(peers_);
  ExpectChunks(*again, {1});
}

TEST_F(RemoteChunksTest, AChunkIsChargedOnceHoweverManyBatchesUseIt) {
  std::vector<std::uint64_t> numbers;
  std::uint64_t bytes = Wanted(0).bytes;
  for (std::uint64_t next = 0; bytes <= kBytesMax; bytes += Wanted(++next).bytes) {
    ASSERT_LT(next + 1, catalog().packs()->chunk_count()) << "the pack has too few bytes";
    numbers.push_back(next);
  }
  // The chunk behind them is one too many.
  const std::uint64_t another = numbers.size();
  auto first = Bring(numbers);
  ASSERT_NE(first, nullptr);
  auto second = Bring(numbers);
  ASSERT_NE(second, nullptr) << "it joins";
  EXPECT_EQ(Bring({another, 0}), nullptr);
  EXPECT_EQ(peers_.rows_asked, numbers.size()) << "who is refused asks for nothing";
  Answer(peers_);
  ExpectChunks(*first, numbers);
  ExpectChunks(*Bring(numbers), numbers);
  first->reset();
  EXPECT_EQ(Bring({another}), nullptr) << "the second batch still has them";
  second->reset();
  const auto later = Bring({another});
  ASSERT_NE(later, nullptr) << "the memory is free";
  Answer(peers_);
  ExpectChunks(*later, {another});
}

TEST_F(RemoteChunksTest, AnErrorGivesTheMemoryBack) {
  const auto outcome = Bring({0, 1});
  Answer(peers_, false, Error(ErrorCode::kFailedPrecondition, "another catalog"));
  ASSERT_TRUE(outcome->has_value());
  for (int again = 0; again < 2 * static_cast<int>(kBytesMax / Wanted(0).bytes); ++again) {
    ASSERT_NE(Bring({0}), nullptr) << again;
    Answer(peers_, false, Error(ErrorCode::kFailedPrecondition, "another catalog"));
  }
}

TEST_F(RemoteChunksTest, ChunksOfOneNodeDoNotWaitForAnotherNode) {
  WantedRemote of_second = Wanted(1);
  of_second.group_key = GroupOf(NodeRank(2), NodeRank(1));
  const auto both = Ask({Wanted(0), of_second});
  const auto one = Ask({of_second});
  ASSERT_EQ(peers_.held.size(), 2U);
  EXPECT_EQ(peers_.held.front().request->node, NodeRank(1));
  EXPECT_EQ(peers_.held.back().request->node, NodeRank(2));
  std::swap(peers_.held.front(), peers_.held.back());
  Answer(peers_);
  ExpectChunks(*one, {1});
  EXPECT_FALSE(both->has_value()) << "the first node is silent";
  Answer(peers_, false, Error(ErrorCode::kFailedPrecondition, "another catalog"));
  ASSERT_TRUE(both->has_value());
  EXPECT_FALSE((*both)->has_value());
  ExpectChunks(*Ask({of_second}), {1});
}

TEST_F(RemoteChunksTest, AChunkSaysWhetherThisNodeHasReadItItself) {
  const auto of_peer = Bring({0});
  Answer(peers_);
  ExpectChunks(*of_peer, {0});
  EXPECT_FALSE((***of_peer)[0]->is_own());
  nodes_.SetLives(NodeRank(1), false);
  nodes_.SetLives(NodeRank(2), false);
  const auto own = Bring({1});
  Answer(own_);
  ExpectChunks(*own, {1});
  EXPECT_TRUE((***own)[0]->is_own());
}

TEST_F(RemoteChunksTest, AStreamThatIsClosedLeavesItsRequestToTheOthers) {
  std::stop_source unwanted;
  const auto closed = Bring({0}, unwanted.get_token());
  const auto open = Bring({0});
  unwanted.request_stop();
  ASSERT_TRUE(closed->has_value()) << "it waits for nobody";
  ASSERT_FALSE((*closed)->has_value());
  EXPECT_EQ((*closed)->error().code(), ErrorCode::kCancelled);
  EXPECT_FALSE(open->has_value());
  ASSERT_EQ(peers_.held.size(), 1U);
  EXPECT_FALSE(peers_.held.front().request->reader.unwanted.stop_requested());
  Answer(peers_);
  ExpectChunks(*open, {0});
}

TEST_F(RemoteChunksTest, AStreamThatIsClosedDoesNotWaitForTheRequestsOfOthers) {
  std::stop_source unwanted;
  const auto open = Bring({0});
  const auto closed = Bring({0}, unwanted.get_token());
  unwanted.request_stop();
  ASSERT_TRUE(closed->has_value());
  EXPECT_EQ((*closed)->error().code(), ErrorCode::kCancelled);
  Answer(peers_);
  ExpectChunks(*open, {0});
}

TEST_F(RemoteChunksTest, TheLastThatLeavesCancelsTheRequestAndEndsWithIt) {
  std::stop_source unwanted;
  const auto asks = Bring({0}, unwanted.get_token());
  const auto joins = Bring({0}, unwanted.get_token());
  ASSERT_EQ(peers_.held.size(), 1U);
  unwanted.request_stop();
  EXPECT_TRUE(peers_.held.front().request->reader.unwanted.stop_requested());
  EXPECT_NE(asks->has_value(), joins->has_value()) << "one waits until the request has ended";
  // Whoever comes now has nothing to do with it.
  const auto later = Bring({0});
  ASSERT_EQ(peers_.held.size(), 2U);
  Answer(peers_, false, Cancelled());
  for (const auto& left : {asks, joins}) {
    ASSERT_TRUE(left->has_value());
    ASSERT_FALSE((*left)->has_value());
    EXPECT_EQ((*left)->error().code(), ErrorCode::kCancelled);
  }
  EXPECT_FALSE(later->has_value());
  Answer(peers_);
  ExpectChunks(*later, {0});
}

TEST_F(RemoteChunksTest, AStreamThatIsClosedAlreadyAsksForNothing) {
  std::stop_source unwanted;
  unwanted.request_stop();
  const auto closed = Bring({0}, unwanted.get_token());
  ASSERT_TRUE(closed->has_value());
  EXPECT_EQ((*closed)->error().code(), ErrorCode::kCancelled);
  EXPECT_EQ(peers_.rows_asked, 0U);
}

TEST_F(RemoteChunksTest, ACallEndsAtItsDeadlineAlthoughALaterOneGoesOn) {
  const auto early = Bring({0, 1}, {}, 100);
  const auto late = Bring({1}, {}, 200);
  chunks_.Expire(99);
  EXPECT_FALSE(early->has_value());
  chunks_.Expire(100);
  ASSERT_TRUE(early->has_value());
  ASSERT_FALSE((*early)->has_value());
  EXPECT_EQ((*early)->error().code(), ErrorCode::kUnavailable);
  EXPECT_FALSE(late->has_value());
  chunks_.Expire(200);
  EXPECT_TRUE(peers_.held.front().request->reader.unwanted.stop_requested());
  Answer(peers_, false, Cancelled());
  ASSERT_TRUE(late->has_value());
  ASSERT_FALSE((*late)->has_value());
  EXPECT_EQ((*late)->error().code(), ErrorCode::kUnavailable);
}

}  // namespace forebay::fetch::remote_chunks_test

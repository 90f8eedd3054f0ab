// Chunks of other nodes are asked for once, whoever wants them at the same time. What a node sends
// in place of a chunk is found out, and the next node is asked. An error is that of the call which
// has asked, and others may ask again.
#include "server/fetch/packed/remote_chunks.h"

#include <algorithm>
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
    for (std::uint64_t group = 0;; ++group) {
      group_key_ = plan::GroupKey(rig_.dataset().hash(), group);
      const std::vector<NodeRank> ranked = nodes_.Ranked(group_key_);
      if (ranked[0] != nodes_.self() && ranked[1] != nodes_.self()) break;
    }
  }
  ~RemoteChunksTest() override { rig_.Stop(); }

  const catalog::Catalog& catalog() { return *rig_.dataset().catalog(); }
  std::span<const std::byte> InPack(std::uint64_t number) {
    const catalog::PackChunk chunk = catalog().packs()->chunk(number);
    return std::span(pack_).subspan(chunk.entry.offset, chunk.bytes());
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
  // The outcome is empty until the call ends.
  std::shared_ptr<Outcome> Bring(const std::vector<std::uint64_t>& numbers,
                                 std::stop_token unwanted = {}) {
    std::vector<WantedRemote> wanted;
    for (const std::uint64_t number : numbers) wanted.push_back(Wanted(number));
    const auto outcome = std::make_shared<Outcome>();
    chunks_.Bring(rig_.dataset(), wanted, {.unwanted = std::move(unwanted)},
                  [outcome](Result<std::vector<SentChunk>> sent) {
                    EXPECT_FALSE(outcome->has_value()) << "called twice";
                    outcome->emplace(std::move(sent));
                  });
    return outcome;
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
  RemoteChunks chunks_{router_};
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

TEST_F(RemoteChunksTest, AClosedStreamTakesNoChunkFromAnotherOne) {
  std::stop_source unwanted;
  const auto closed = Bring({0}, unwanted.get_token());
  const auto open = Bring({0});
  unwanted.request_stop();
  Answer(peers_, false, Error(ErrorCode::kCancelled, "nobody wants the rows"));
  ASSERT_TRUE(closed->has_value());
  EXPECT_EQ((*closed)->error().code(), ErrorCode::kCancelled);
  ASSERT_TRUE(open->has_value() && (*open)->has_value());
  EXPECT_EQ((***open)[0], nullptr);
}

}  // namespace forebay::fetch::remote_chunks_test

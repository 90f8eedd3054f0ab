// A job of four nodes in one process whose beliefs about each other contradict: one takes another
// for dead that takes it for dead, a third one thinks that both live, nodes leave only for some,
// and yield. Each node has a reader, and together they deliver each epoch exactly, by position and
// byte. What each node reads from the GFS is bounded by a model of the views that shares no code
// with plan::Membership. Each test runs over both transports.
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "proto/contract/mix64.h"
#include "proto/contract/order.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/stream/testing/node_group.h"

namespace forebay::stream::node_views_test {

constexpr std::uint32_t kNodes = 4;
constexpr std::size_t kRecordBytes = 1000;
constexpr std::uint64_t kSamples = 512;
constexpr std::uint64_t kFileBytes = kSamples * kRecordBytes;
constexpr std::uint64_t kExtentBytes = 16 << 10;  // 32 extents, each of which is a group
constexpr std::uint32_t kBatch = 32;              // of all four readers
constexpr std::uint64_t kSteps = kSamples / kBatch;
constexpr std::uint32_t kRows = kBatch / kNodes;  // of one reader in a step

// What one node believes.
struct View {
  std::set<std::uint32_t> dead = {};
  std::set<std::uint32_t> leave = {};
  bool yields = false;  // this node itself
};
using Views = std::array<View, kNodes>;

// The model: whether a node may, or must, read a group from the GFS. It follows from one rule: a
// node asks the nodes before it in the ranking, and those behind it only while it yields.
class ViewModel {
 public:
  explicit ViewModel(const Views& views) : views_(views) {}

  // Only if it is sure of no node before it: each is dead to it, leaves, or may refuse.
  bool MayRead(std::uint32_t self, const std::vector<NodeRank>& ranked) const {
    return AllBefore(self, ranked, [&](std::uint32_t node) {
      return views_[self].dead.contains(node) || views_[self].leave.contains(node) ||
             views_[node].yields;
    });
  }
  // Whether its own staging reads it, whatever the others do: it has nobody to ask.
  bool MustRead(std::uint32_t self, const std::vector<NodeRank>& ranked) const {
    return !views_[self].yields && AllBefore(self, ranked, [&](std::uint32_t node) {
      return views_[self].dead.contains(node);
    });
  }

 private:
  static bool AllBefore(std::uint32_t self, const std::vector<NodeRank>& ranked,
                        const std::function<bool(std::uint32_t)>& is_out) {
    for (const NodeRank node : ranked) {
      if (node == NodeRank(self)) return true;
      if (!is_out(node.value())) return false;
    }
    return false;
  }

  const Views& views_;
};

class NodeViewsTest : public ::testing::TestWithParam<peer::TransportKind> {
 protected:
  NodeViewsTest() {
    EXPECT_TRUE(backend_
                    .AddFile("/gfs/data.bin", ServeFixture::RecordFile(kSamples, kRecordBytes))
                    .has_value());
  }

  // A job that has read nothing yet. Its tiers hold the data set on each node, so a node reads
  // nothing twice.
  void Start(const Views& views) {
    group_.reset();
    auto made = NodeGroup::Create(backend_, kNodes, kRecordBytes,
                                  {.extent_bytes = kExtentBytes}, GetParam());
    ASSERT_TRUE(made.has_value()) << made.error().ToString();
    group_ = std::move(*made);
    for (std::uint32_t self = 0; self < kNodes; ++self) SetView(self, views[self]);
  }
  void SetView(std::uint32_t self, const View& view) {
    for (std::uint32_t node = 0; node < kNodes; ++node) {
      group_->membership(self).SetLives(NodeRank(node), !view.dead.contains(node));
      group_->membership(self).SetLeaves(NodeRank(node), view.leave.contains(node));
    }
    group_->membership(self).SetYields(plan::YieldReason::kSlowGfs, view.yields);
  }
  void StageEach() {
    for (std::uint32_t rank = 0; rank < kNodes; ++rank) {
      const Status staged = group_->node(rank).StageAll();
      ASSERT_TRUE(staged.has_value()) << staged.error().ToString();
    }
  }
  // Begins to stage, and waits for the catalogs only.
  void BeginToStage() {
    for (std::uint32_t rank = 0; rank < kNodes; ++rank) {
      group_->node(rank).stager().Stage(group_->node(rank).dataset());
    }
    for (std::uint32_t rank = 0; rank < kNodes; ++rank) {
      const auto told = std::make_shared<std::promise<Status>>();
      group_->node(rank).dataset().WhenCatalogued(
          [told](const Status& status) { told->set_value(status); });
      FOREBAY_EXPECT_OK(told->get_future().get());
    }
  }

  // One reader on each node takes its share of an epoch, all at the same time. `at_step` is called
  // while batches of that reader are under way. Expects that each position of the order has its
  // sample, with that sample's bytes.
  void ExpectEpoch(EpochId epoch, Delivery delivery, const std::function<void()>& at_step = {}) {
    const ServeFixture::Ask ask{.batch = kBatch, .delivery = delivery, .ranks = kNodes};
    std::vector<std::int64_t> at_position(kSamples, -1);  // each is written by one thread, once
    {
      std::vector<std::jthread> readers;
      for (std::uint32_t rank = 0; rank < kNodes; ++rank) {
        readers.emplace_back([&, rank] { ReadShare(rank, epoch, ask, at_step, at_position); });
      }
    }
    // The published order, of which the nodes are no part.
    OrderSpec spec;
    spec.seed = ask.seed;
    spec.sample_count = kSamples;
    const Order order(spec, epoch);
    for (std::uint64_t i = 0; i < kSamples; ++i) {
      ASSERT_EQ(at_position[i], static_cast<std::int64_t>(order.Forward(Position(i))))
          << "position " << i;
    }
  }

  // Bytes that one node has read from the GFS.
  std::uint64_t GfsBytes(std::uint32_t rank) {
    return group_->node(rank).dataset().progress().gfs_bytes;
  }
  // Bytes of all groups of which `reads` says that they are read.
  std::uint64_t BytesWhere(const std::function<bool(const std::vector<NodeRank>&)>& reads) {
    const auto catalog = group_->node(0).dataset().catalog();
    std::uint64_t bytes = 0;
    for (std::uint32_t i = 0; i < catalog->extent_count(); ++i) {
      if (reads(group_->Ranked(ExtentId(i)))) bytes += catalog->extent(ExtentId(i)).bytes;
    }
    return bytes;
  }
  // Expects that no node has read more, nor less, than the model says.
  void ExpectGfsBytes(const Views& views) {
    const ViewModel model(views);
    for (std::uint32_t rank = 0; rank < kNodes; ++rank) {
      EXPECT_LE(GfsBytes(rank),
                BytesWhere([&](const auto& ranked) { return model.MayRead(rank, ranked); }))
          << "node " << rank;
      EXPECT_GE(GfsBytes(rank),
                BytesWhere([&](const auto& ranked) { return model.MustRead(rank, ranked); }))
          << "node " << rank;
    }
    EXPECT_GE(group_->GfsBytes(), kFileBytes);
  }

  io::MemoryBackend backend_;
  std::unique_ptr<NodeGroup> group_;

 private:
  // On a thread of its own. Where something fails, it ends, and the positions that are left fail.
  void ReadShare(std::uint32_t rank, EpochId epoch, const ServeFixture::Ask& shared,
                 const std::function<void()>& at_step, std::vector<std::int64_t>& at_position) {
    ServeFixture::Ask ask = shared;
    ask.rank = rank;
    const auto sink = group_->node(rank).MakeSink();
    const auto session = group_->node(rank).Open(ask, *sink);
    ASSERT_TRUE(session.has_value()) << session.error().ToString();
    for (std::uint64_t step = 0; step < kSteps; step += 2) {
      FOREBAY_EXPECT_OK((*session)->Pull({.first = {.epoch = epoch, .step = StepId(step)},
                                          .count = 2}));
      if (at_step) at_step();
      ASSERT_TRUE(sink->WaitFor(2));
      ASSERT_TRUE(sink->errors().empty()) << sink->errors().front().ToString();
      for (const CollectingSink::Taken& batch : sink->TakeBatches()) {
        ASSERT_EQ(batch.sample_ids.size(), kRows);
        for (std::uint32_t i = 0; i < kRows; ++i) {
          const std::uint64_t sample = batch.sample_ids[i];
          ASSERT_EQ(batch.payload[i], ServeFixture::RecordOf(sample, kRecordBytes));
          std::int64_t& at = at_position[batch.name.step.value() * kBatch + rank * kRows + i];
          ASSERT_EQ(at, -1) << "delivered twice";
          at = static_cast<std::int64_t>(sample);
        }
        FOREBAY_EXPECT_OK((*session)->Release({&batch.id, 1}));
      }
    }
    (*session)->Close();
  }
};

TEST_P(NodeViewsTest, TwoTakeEachOtherForDeadAThirdSeesBothAndTheFourthYields) {
  const Views views = {View{.dead = {1}}, View{.dead = {0}}, View{}, View{.yields = true}};
  Start(views);
  StageEach();
  for (const Delivery delivery : {Delivery::kContiguous, Delivery::kViews}) {
    ExpectEpoch(EpochId(0), delivery);
    ExpectEpoch(EpochId(1), delivery);
  }
  ExpectGfsBytes(views);
  EXPECT_GT(group_->GfsBytes(), kFileBytes) << "nodes 0 and 1 read what both think is theirs";
  EXPECT_EQ(GfsBytes(3), 0U) << "others read for it";
}

// Nobody leaves or yields, so the model has one answer: each node has read exactly the groups of
// which all nodes before it are dead to it.
TEST_P(NodeViewsTest, WithAnyViewsOfTheDeadTheEpochIsExactAndEachNodeReadsWhatItsViewSays) {
  std::uint64_t state = 20'261'130;
  for (int i = 0; i < 12; ++i) {
    Views views;
    for (std::uint32_t self = 0; self < kNodes; ++self) {
      const std::uint64_t drawn = NextWord64(state);
      for (std::uint32_t node = 0; node < kNodes; ++node) {
        if (node != self && (drawn >> node & 1) != 0) views[self].dead.insert(node);
      }
    }
    SCOPED_TRACE("views " + std::to_string(i));
    Start(views);
    StageEach();
    ExpectEpoch(EpochId(0), i % 2 == 0 ? Delivery::kContiguous : Delivery::kViews);
    const ViewModel model(views);
    std::uint64_t all = 0;
    for (std::uint32_t rank = 0; rank < kNodes; ++rank) {
      const std::uint64_t bytes =
          BytesWhere([&](const auto& ranked) { return model.MustRead(rank, ranked); });
      EXPECT_EQ(GfsBytes(rank), bytes) << "node " << rank;
      all += bytes;
    }
    EXPECT_GE(all, kFileBytes);
  }
}

TEST_P(NodeViewsTest, WithAnyViewsOfWhoLivesLeavesAndYieldsTheEpochIsExact) {
  std::uint64_t state = 31;
  for (int i = 0; i < 12; ++i) {
    Views views;
    for (std::uint32_t self = 0; self < kNodes; ++self) {
      const std::uint64_t drawn = NextWord64(state);
      for (std::uint32_t node = 0; node < kNodes; ++node) {
        if (node == self) continue;
        if ((drawn >> (2 * node) & 3) == 0) views[self].dead.insert(node);
        if ((drawn >> (2 * node) & 3) == 1) views[self].leave.insert(node);
      }
      views[self].yields = (drawn >> 32 & 3) == 0;
    }
    SCOPED_TRACE("views " + std::to_string(i));
    Start(views);
    StageEach();
    ExpectEpoch(EpochId(0), i % 2 == 0 ? Delivery::kContiguous : Delivery::kViews);
    ExpectGfsBytes(views);
  }
}

// Each reader changes what a random node believes while its batches are under way, in cold jobs
// that are still being staged. No node reads an extent twice, whatever it has believed.
TEST_P(NodeViewsTest, ViewsThatChangeInTheMiddleOfAnEpochCostNoSample) {
  for (const std::uint64_t seed : {1U, 2U, 3U, 4U}) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Start({});
    BeginToStage();
    std::mutex mutex;
    std::uint64_t state = seed;
    std::uint64_t changes = 0;
    const auto change = [&] {
      const std::scoped_lock lock(mutex);
      const std::uint64_t drawn = NextWord64(state);
      plan::Membership& view = group_->membership(drawn & 3);
      const NodeRank other(drawn >> 2 & 3);
      switch (drawn >> 4 & 3) {
        case 0: view.SetLeaves(other, (drawn >> 6 & 1) != 0); break;
        case 1: view.SetYields(plan::YieldReason::kSlowGfs, !view.Yields()); break;
        default: view.SetLives(other, !view.Lives(other)); break;
      }
      ++changes;
    };
    ExpectEpoch(EpochId(0), Delivery::kContiguous, change);
    ExpectEpoch(EpochId(1), Delivery::kViews, change);
    EXPECT_EQ(changes, 2 * kNodes * kSteps / 2);
    for (std::uint32_t rank = 0; rank < kNodes; ++rank) {
      EXPECT_LE(GfsBytes(rank), kFileBytes) << "node " << rank;
    }
    EXPECT_GT(group_->GfsBytes(), kFileBytes) << "no change had an effect";
  }
}

// Node 0 has been asked by a node that yields, and gets to the extent only when that node has ended
// to yield. It asks the owner then, which waits for it, so they must not wait for each other.
TEST_P(NodeViewsTest, ANodeThatHasYieldedRefusesUntilItsSubstitutesHaveAnswered) {
  Start({});
  StageEach();
  const auto catalog = group_->node(0).dataset().catalog();
  // The owner is `yielding`, and node 0 its first substitute.
  std::vector<ExtentId> own;  // of node 0
  std::optional<ExtentId> wanted;
  std::uint32_t yielding = 0;
  for (std::uint32_t i = 0; i < catalog->extent_count(); ++i) {
    const std::vector<NodeRank> ranked = group_->Ranked(ExtentId(i));
    if (ranked[0] == NodeRank(0)) own.push_back(ExtentId(i));
    if (ranked[1] != NodeRank(0)) continue;
    wanted = ExtentId(i);
    yielding = ranked[0].value();
  }
  ASSERT_TRUE(wanted.has_value());
  ASSERT_GE(own.size(), 3U);
  ServeFixture& substitute = group_->node(0);
  ServeFixture& owner = group_->node(yielding);
  const auto evict = [](ServeFixture& node, ExtentId extent) {
    FOREBAY_EXPECT_OK(node.cache().Evict(node.dataset().key(extent), std::nullopt));
  };
  evict(owner, *wanted);
  // All threads of node 0 wait for the GFS: its readers, and the one that asks no other node.
  group_->faults().Arm({.kind = io::FaultKind::kStall, .call = io::IoCall::kRead,
                        .is_persistent = true, .path = "data.bin"});
  for (std::size_t i = 0; i < 3; ++i) {
    evict(substitute, own[i]);
    substitute.stager().Demand(substitute.dataset(), own[i], [](const Status&) {});
  }
  while (group_->faults().faults_injected() < 3) std::this_thread::yield();
  group_->membership(yielding).SetYields(plan::YieldReason::kSlowGfs, true);
  const auto told = std::make_shared<std::promise<Status>>();
  owner.stager().Demand(owner.dataset(), *wanted,
                        [told](const Status& status) { told->set_value(status); });
  while (group_->transport().extents_asked(NodeRank(0)) == 0) std::this_thread::yield();
  group_->membership(yielding).SetYields(plan::YieldReason::kSlowGfs, false);
  group_->faults().Disarm();
  group_->faults().ReleaseStalls();
  std::future<Status> outcome = told->get_future();
  ASSERT_EQ(outcome.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  FOREBAY_EXPECT_OK(outcome.get());
  EXPECT_EQ(group_->transport().extents_asked(NodeRank(yielding)), 1U) << "it has refused";
}

INSTANTIATE_TEST_SUITE_P(
    Transports, NodeViewsTest,
    ::testing::Values(peer::TransportKind::kInProcess, peer::TransportKind::kGrpc),
    [](const auto& tested) { return peer::TransportName(tested.param); });

}  // namespace forebay::stream::node_views_test

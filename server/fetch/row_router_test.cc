// Rows go to the owners of their extents, in one request per node. If an owner does not answer, its
// next substitute is asked. This node supplies rows itself if it is the first that is alive.
#include "server/fetch/row_router.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/contract/limits.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/manual_clock.h"
#include "server/io/testing/memory_backend.h"
#include "server/stage/extent_source.h"
#include "server/stage/testing/stage_rig.h"

namespace forebay::fetch {
namespace {

using io::testing::Take;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::uint32_t kGroups = 96;

// Keeps requests until the test answers them.
class HeldRows final : public RowSource {
 public:
  struct Held {
    std::shared_ptr<const RowRequest> request;
    Done done;
  };
  void Read(std::shared_ptr<const RowRequest> request, Done done) override {
    held.push_back({std::move(request), std::move(done)});
  }
  // Takes out the first request to `node`.
  Held Take(NodeRank node) {
    const auto is_it = [node](const Held& each) { return each.request->node == node; };
    EXPECT_GE(std::ranges::count_if(held, is_it), 1);
    const auto found = std::ranges::find_if(held, is_it);
    if (found == held.end()) return {.request = nullptr, .done = [](const Status&) {}};
    Held taken = std::move(*found);
    held.erase(found);
    return taken;
  }
  void Answer(NodeRank node, const Status& status = {}) { Take(node).done(status); }

  std::vector<Held> held;
};

class RowRouterTest : public ::testing::Test {
 protected:
  RowRouterTest() {
    EXPECT_TRUE(memory_.AddDirectory("/gfs").has_value());
    dataset_ = std::make_unique<stage::Dataset>(stage::RecordDataset(), memory_,
                                                Take(memory_.OpenDirectory("/gfs")));
  }

  std::vector<NodeRank> Ranked(std::uint64_t group_key) const { return nodes_.Ranked(group_key); }
  // One row of each group that has another owner; the row's sample is the group's key.
  std::vector<RoutedRow> RowsOfOthers() const {
    std::vector<RoutedRow> rows;
    for (std::uint64_t group = 0; group < kGroups; ++group) {
      const std::uint64_t key = plan::GroupKey(dataset_->hash(), group);
      if (Ranked(key).front() == nodes_.self()) continue;
      rows.push_back({.group_key = key,
                      .row = {.sample = SampleId(key), .field = FieldId(0), .memory = {}}});
    }
    return rows;
  }
  // Likewise of the groups whose ranking begins so.
  std::vector<RoutedRow> RowsRanked(const std::vector<NodeRank>& ranked) const {
    std::vector<RoutedRow> rows;
    for (std::uint64_t group = 0; group < kGroups; ++group) {
      const std::uint64_t key = plan::GroupKey(dataset_->hash(), group);
      const std::vector<NodeRank> all = Ranked(key);
      if (!std::equal(ranked.begin(), ranked.end(), all.begin())) continue;
      rows.push_back({.group_key = key,
                      .row = {.sample = SampleId(key), .field = FieldId(0), .memory = {}}});
    }
    EXPECT_FALSE(rows.empty());
    return rows;
  }
  void Fill(std::vector<RoutedRow> rows) {
    router_.Fill(*dataset_, std::move(rows), {.unwanted = unwanted_.get_token()},
                 [this](Result<RowRouter::Filled> outcome) {
                   EXPECT_FALSE(outcome_.has_value()) << "called twice";
                   outcome_.emplace(std::move(outcome));
                 });
  }
  void ExpectFilled(std::size_t own_samples) {
    ASSERT_TRUE(outcome_.has_value());
    ASSERT_TRUE(outcome_->has_value()) << outcome_->error().ToString();
    EXPECT_EQ((*outcome_)->own_samples, own_samples);
  }
  // Answers the only request to this node, and returns the number of its rows.
  std::size_t AnswerOwn(const Status& status = {}) {
    EXPECT_EQ(own_.held.size(), 1U);
    const HeldRows::Held held = own_.Take(nodes_.self());
    const std::size_t rows = held.request != nullptr ? held.request->rows.size() : 0;
    held.done(status);
    return rows;
  }
  static Error NoAnswer() { return Error(ErrorCode::kUnavailable, "no answer"); }

  io::MemoryBackend memory_;
  std::unique_ptr<stage::Dataset> dataset_;
  io::ManualClock clock_;
  plan::Membership nodes_{NodeRank(0),
                          {{NodeRank(0), 1}, {NodeRank(1), 1}, {NodeRank(2), 1}, {NodeRank(3), 1}}};
  HeldRows peers_, own_;
  RowRouter router_{peers_, own_, nodes_, clock_};
  std::stop_source unwanted_;
  std::optional<Result<RowRouter::Filled>> outcome_;
};

TEST_F(RowRouterTest, EachOwnerGetsOneRequestWithAllItsRows) {
  Fill(RowsOfOthers());
  ASSERT_EQ(peers_.held.size(), 3U);
  std::size_t rows = 0;
  for (const HeldRows::Held& held : peers_.held) {
    EXPECT_EQ(held.request->dataset, dataset_.get());
    rows += held.request->rows.size();
    for (const Row& row : held.request->rows) {
      EXPECT_EQ(Ranked(row.sample.value()).front(), held.request->node);
    }
  }
  EXPECT_EQ(rows, RowsOfOthers().size());
  peers_.Answer(NodeRank(2));
  peers_.Answer(NodeRank(1));
  EXPECT_FALSE(outcome_.has_value()) << "one request is under way";
  peers_.Answer(NodeRank(3));
  ExpectFilled(0);
}

TEST_F(RowRouterTest, EachNodeBeginsWithTheNodeThatFollowsIt) {
  for (const std::uint32_t self : {0U, 1U, 2U, 3U}) {
    plan::Membership nodes(NodeRank(self), {nodes_.nodes().begin(), nodes_.nodes().end()});
    RowRouter router(peers_, own_, nodes, clock_);
    std::vector<RoutedRow> rows;
    for (std::uint64_t group = 0; group < kGroups; ++group) {
      const std::uint64_t key = plan::GroupKey(dataset_->hash(), group);
      if (nodes.Ranked(key).front() != nodes.self()) rows.push_back({.group_key = key, .row = {}});
    }
    peers_.held.clear();
    router.Fill(*dataset_, std::move(rows), {}, [](const Result<RowRouter::Filled>&) {});
    std::vector<NodeRank> asked;
    for (const HeldRows::Held& held : peers_.held) asked.push_back(held.request->node);
    EXPECT_THAT(asked, ElementsAre(NodeRank((self + 1) % 4), NodeRank((self + 2) % 4),
                                   NodeRank((self + 3) % 4)));
  }
}

TEST_F(RowRouterTest, ASampleWithSeveralFieldsCountsOnce) {
  nodes_.SetLives(NodeRank(1), false);
  std::vector<RoutedRow> rows = RowsOfOthers();
  std::erase_if(rows, [&](const RoutedRow& row) { return !nodes_.Reads(row.group_key); });
  const std::size_t samples = rows.size();
  ASSERT_GT(samples, 0U);
  for (std::size_t i = 0; i < samples; ++i) {
    rows.push_back(rows[i]);
    rows.back().row.field = FieldId(1);
  }
  EXPECT_EQ(CountSamples(rows), samples);
  EXPECT_EQ(CountSamples({}), 0U);
  Fill(rows);
  EXPECT_EQ(AnswerOwn(), 2 * samples);
  ExpectFilled(samples);
}

TEST_F(RowRouterTest, NoRowsAreFilledAtOnce) {
  Fill({});
  ExpectFilled(0);
}

TEST_F(RowRouterTest, TheSubstitutesOfASilentNodeGetItsRows) {
  std::vector<RoutedRow> rows = RowsOfOthers();
  // Only rows of node 1 for which this node is not the next in the ranking.
  std::erase_if(rows, [&](const RoutedRow& row) {
    const std::vector<NodeRank> ranked = Ranked(row.group_key);
    return ranked[0] != NodeRank(1) || ranked[1] == NodeRank(0);
  });
  ASSERT_FALSE(rows.empty());
  Fill(rows);
  peers_.Answer(NodeRank(1), NoAnswer());
  EXPECT_FALSE(nodes_.Lives(NodeRank(1)));
  EXPECT_FALSE(outcome_.has_value());
  std::size_t asked = 0;
  while (!peers_.held.empty()) {
    const HeldRows::Held held = peers_.Take(peers_.held.front().request->node);
    asked += held.request->rows.size();
    for (const Row& row : held.request->rows) {
      EXPECT_EQ(Ranked(row.sample.value())[1], held.request->node);
    }
    held.done(Status());
  }
  EXPECT_EQ(asked, rows.size());
  ExpectFilled(0);
}

TEST_F(RowRouterTest, RowsOfThisNodeAreAskedForAtTheSameTime) {
  std::vector<RoutedRow> rows = RowsOfOthers();
  const std::size_t of_others = rows.size();
  std::size_t own_rows = 0;
  for (std::uint64_t group = 0; group < kGroups; ++group) {
    const std::uint64_t key = plan::GroupKey(dataset_->hash(), group);
    if (Ranked(key).front() != nodes_.self()) continue;
    rows.push_back({.group_key = key,
                    .row = {.sample = SampleId(key), .field = FieldId(0), .memory = {}}});
    ++own_rows;
  }
  ASSERT_GT(own_rows, 0U);
  Fill(rows);
  EXPECT_EQ(peers_.held.size(), 3U) << "nothing has been answered";
  ASSERT_EQ(own_.held.size(), 1U);
  EXPECT_EQ(own_.held.front().request->deadline_ns,
            clock_.NowNs() + limits::kPullDeadlineMs * 1'000'000);
  EXPECT_EQ(AnswerOwn(), own_rows);
  std::size_t asked = 0;
  for (const std::uint32_t rank : {1U, 2U, 3U}) {
    EXPECT_FALSE(outcome_.has_value());
    const HeldRows::Held held = peers_.Take(NodeRank(rank));
    asked += held.request->rows.size();
    held.done(Status());
  }
  EXPECT_EQ(asked, of_others);
  ExpectFilled(own_rows);
}

TEST_F(RowRouterTest, AnErrorOfThisNodeWaitsForTheOthers) {
  std::vector<RoutedRow> rows = RowsOfOthers();
  nodes_.SetLives(NodeRank(1), false);
  Fill(rows);
  AnswerOwn(Error(ErrorCode::kUnavailable, "its GFS does not respond"));
  EXPECT_FALSE(outcome_.has_value()) << "others may still write into the slot";
  peers_.Answer(NodeRank(2));
  peers_.Answer(NodeRank(3));
  ASSERT_TRUE(outcome_.has_value() && !outcome_->has_value());
  EXPECT_EQ(outcome_->error().message(), "its GFS does not respond");
  EXPECT_TRUE(own_.held.empty()) << "nobody is asked in its place";
}

TEST_F(RowRouterTest, TheFirstThatLivesReadsAndAsksNobody) {
  std::vector<RoutedRow> rows = RowsOfOthers();
  Fill(rows);
  peers_.Answer(NodeRank(1));
  peers_.Answer(NodeRank(2), Error(ErrorCode::kDeadlineExceeded, "too late"));
  EXPECT_FALSE(outcome_.has_value());
  peers_.Answer(NodeRank(3), NoAnswer());
  // Two nodes do not answer. For some of their rows, this node is now the first that is alive.
  while (!peers_.held.empty()) peers_.Answer(peers_.held.front().request->node);
  ASSERT_FALSE(own_.held.empty());
  std::size_t own_rows = 0;
  while (!own_.held.empty()) {
    const HeldRows::Held held = own_.Take(nodes_.self());
    for (const Row& row : held.request->rows) {
      EXPECT_TRUE(nodes_.Reads(row.sample.value()));
    }
    own_rows += held.request->rows.size();
    EXPECT_FALSE(outcome_.has_value());
    held.done(Status());
  }
  ExpectFilled(own_rows);

  outcome_.reset();
  std::erase_if(rows, [&](const RoutedRow& row) { return !nodes_.Reads(row.group_key); });
  Fill(rows);
  EXPECT_TRUE(peers_.held.empty());
  ExpectFilled(AnswerOwn());
}

TEST_F(RowRouterTest, AnErrorOfTheOwnerIsNamedAndOthersAreNotAsked) {
  Fill(RowsOfOthers());
  peers_.Answer(NodeRank(1), Error(ErrorCode::kAborted, "its GFS does not respond"));
  EXPECT_FALSE(outcome_.has_value()) << "others may still write into the slot";
  peers_.Answer(NodeRank(2), Error(ErrorCode::kNotFound, "no such data set"));
  peers_.Answer(NodeRank(3));
  ASSERT_TRUE(outcome_.has_value() && !outcome_->has_value());
  EXPECT_EQ(outcome_->error().code(), ErrorCode::kUnavailable) << "the first error counts";
  EXPECT_THAT(outcome_->error().message(), HasSubstr("'data'"));
  EXPECT_THAT(outcome_->error().message(), HasSubstr("node 1"));
  EXPECT_TRUE(nodes_.Lives(NodeRank(1)));
  EXPECT_TRUE(peers_.held.empty());
}

TEST_F(RowRouterTest, TheNextNodeIsAskedInPlaceOfOneThatSendsWrongBytesIsTooBusyOrYields) {
  std::vector<RoutedRow> rows = RowsOfOthers();
  std::erase_if(rows, [&](const RoutedRow& row) {
    const std::vector<NodeRank> ranked = Ranked(row.group_key);
    return ranked[0] != NodeRank(1) || ranked[1] != NodeRank(2) || ranked[2] != NodeRank(0);
  });
  ASSERT_FALSE(rows.empty());
  for (const Error& error : {Error(ErrorCode::kDataLoss, "wrong bytes"),
                             stage::TooBusy("it answers other calls"),
                             stage::NotSent("others went before it"),
                             stage::AskNext("its GFS is slow")}) {
    outcome_.reset();
    Fill(rows);
    peers_.Answer(NodeRank(1), error);
    EXPECT_FALSE(outcome_.has_value());
    ASSERT_EQ(peers_.held.size(), 1U);
    EXPECT_EQ(peers_.held.front().request->rows.size(), rows.size());
    peers_.Answer(NodeRank(2));
    ExpectFilled(0);

    outcome_.reset();
    Fill(rows);
    peers_.Answer(NodeRank(1), error);
    peers_.Answer(NodeRank(2), error);
    EXPECT_TRUE(peers_.held.empty()) << "node 3 comes after this one";
    EXPECT_EQ(AnswerOwn(), rows.size());
    ExpectFilled(rows.size());
    for (const std::uint32_t rank : {1U, 2U}) {
      EXPECT_TRUE(nodes_.Lives(NodeRank(rank))) << "only these rows are affected";
    }
  }
}

TEST_F(RowRouterTest, ANodeThatYieldsAsksItsSubstitutesForItsOwnRows) {
  const std::vector<RoutedRow> rows = RowsRanked({nodes_.self(), NodeRank(2), NodeRank(1)});
  nodes_.SetYields(plan::YieldReason::kSlowGfs, true);
  Fill(rows);
  peers_.Answer(NodeRank(2));
  ExpectFilled(0);

  // If all others yield, too, it reads all the same.
  outcome_.reset();
  Fill(rows);
  for (const std::uint32_t rank : {2U, 1U, 3U}) {
    peers_.Answer(NodeRank(rank), stage::AskNext("its GFS is slow"));
  }
  EXPECT_EQ(AnswerOwn(), rows.size());
  ExpectFilled(rows.size());
}

// As where only this node has rebuilt the data set.
TEST_F(RowRouterTest, WhatAllOthersRefuseIsReadHereAfterEachWasAskedOnce) {
  const std::vector<RoutedRow> rows = RowsRanked({NodeRank(3), NodeRank(1), NodeRank(2)});
  Fill(rows);
  for (const std::uint32_t rank : {3U, 1U, 2U}) {
    EXPECT_FALSE(outcome_.has_value());
    peers_.Answer(NodeRank(rank), stage::AskNext("it lacks a rebuild"));
    EXPECT_TRUE(nodes_.Lives(NodeRank(rank)));
  }
  EXPECT_TRUE(peers_.held.empty());
  EXPECT_EQ(AnswerOwn(), rows.size());
  ExpectFilled(rows.size());
}

TEST_F(RowRouterTest, RowsThatWaitedForTheGfsWhenTheNodeBeganToYieldAreAskedOfOthers) {
  const std::vector<RoutedRow> rows = RowsRanked({nodes_.self(), NodeRank(2), NodeRank(1)});
  Fill(rows);
  EXPECT_TRUE(peers_.held.empty());
  nodes_.SetYields(plan::YieldReason::kSlowGfs, true);
  EXPECT_EQ(AnswerOwn(stage::AskNext("the GFS is slow")), rows.size());
  EXPECT_FALSE(outcome_.has_value());
  peers_.Answer(NodeRank(2));
  ExpectFilled(0);
}

// Its substitutes would wait for the GFS, too.
TEST_F(RowRouterTest, ANodeThatWaitsUntilTheDeadlineIsNeitherLostNorReplaced) {
  Fill(RowsOfOthers());
  peers_.Answer(NodeRank(1), Error(ErrorCode::kAborted, "it waits for the GFS"));
  peers_.Answer(NodeRank(2));
  peers_.Answer(NodeRank(3));
  ASSERT_TRUE(outcome_.has_value() && !outcome_->has_value());
  EXPECT_EQ(outcome_->error().code(), ErrorCode::kUnavailable) << "readers ask again";
  EXPECT_TRUE(nodes_.Lives(NodeRank(1)));
  EXPECT_TRUE(peers_.held.empty());
}

// The requests before it waited for the GFS, for which its substitutes would wait, too.
TEST_F(RowRouterTest, ANodeThatCouldNotBeAskedUntilTheDeadlineIsNeitherLostNorReplaced) {
  Fill(RowsOfOthers());
  clock_.AdvanceNs(limits::kPullDeadlineMs * 1'000'000);
  for (const std::uint32_t rank : {1U, 2U, 3U}) {
    peers_.Answer(NodeRank(rank), stage::NotSent("others went before it"));
    EXPECT_TRUE(nodes_.Lives(NodeRank(rank)));
  }
  EXPECT_TRUE(peers_.held.empty());
  EXPECT_TRUE(own_.held.empty());
  ASSERT_TRUE(outcome_.has_value() && !outcome_->has_value());
  EXPECT_EQ(outcome_->error().code(), ErrorCode::kUnavailable) << "readers ask again";
}

// Only the refusal of a call is repeated: memory that is short on the other node is its answer.
TEST_F(RowRouterTest, AnExhaustedTierOfTheOwnerIsAnErrorOfTheRows) {
  Fill(RowsOfOthers());
  peers_.Answer(NodeRank(1), Error(ErrorCode::kResourceExhausted, "the tiers are too small"));
  peers_.Answer(NodeRank(2));
  peers_.Answer(NodeRank(3));
  ASSERT_TRUE(outcome_.has_value() && !outcome_->has_value());
  EXPECT_EQ(outcome_->error().code(), ErrorCode::kResourceExhausted);
  EXPECT_TRUE(peers_.held.empty());
}

TEST_F(RowRouterTest, ABusyNodeIsAnErrorThatPassesWhenTheTimeIsOver) {
  Fill(RowsOfOthers());
  clock_.AdvanceNs(limits::kPullDeadlineMs * 1'000'000);
  for (const std::uint32_t rank : {1U, 2U, 3U}) {
    peers_.Answer(NodeRank(rank), stage::TooBusy("it answers other calls"));
  }
  ASSERT_TRUE(outcome_.has_value() && !outcome_->has_value());
  EXPECT_EQ(outcome_->error().code(), ErrorCode::kUnavailable);
  EXPECT_THAT(outcome_->error().message(), HasSubstr("answers other calls"));
}

// Whether it is silent is found by others long before (peer/link_watch.h, probe/node_prober.h).
TEST_F(RowRouterTest, ANodeHasAllTheTimeAndNobodyIsAskedAfterIt) {
  Fill(RowsOfOthers());
  for (const auto& held : peers_.held) {
    EXPECT_EQ(held.request->deadline_ns - clock_.NowNs(), limits::kPullDeadlineMs * 1'000'000);
  }
  clock_.AdvanceNs(limits::kPullDeadlineMs * 1'000'000);
  for (const std::uint32_t rank : {1U, 2U, 3U}) peers_.Answer(NodeRank(rank), NoAnswer());
  ASSERT_TRUE(outcome_.has_value() && !outcome_->has_value());
  EXPECT_EQ(outcome_->error().code(), ErrorCode::kUnavailable);
}

TEST_F(RowRouterTest, RowsThatNobodyWantsAreNotAskedOfOthers) {
  const std::vector<RoutedRow> rows = RowsOfOthers();
  Fill(rows);
  unwanted_.request_stop();
  for (const HeldRows::Held& held : peers_.held) {
    EXPECT_TRUE(held.request->reader.unwanted.stop_requested());
  }
  peers_.Answer(NodeRank(1), Error(ErrorCode::kCancelled, "cancelled"));
  peers_.Answer(NodeRank(2), NoAnswer());
  EXPECT_FALSE(outcome_.has_value()) << "node 3 may still write";
  peers_.Answer(NodeRank(3), Error(ErrorCode::kDataLoss, "wrong bytes"));
  EXPECT_TRUE(peers_.held.empty());
  ASSERT_TRUE(outcome_.has_value() && !outcome_->has_value());
  EXPECT_EQ(outcome_->error().code(), ErrorCode::kCancelled);
  EXPECT_TRUE(nodes_.Lives(NodeRank(2))) << "its request was ended by this node";
}

// Each look at the time is a moment in which another thread takes every node for alive again.
class RevivingClock final : public io::Clock {
 public:
  explicit RevivingClock(plan::Membership& nodes) : nodes_(nodes) {}
  std::int64_t NowNs() const override {
    for (const plan::Node& node : nodes_.nodes()) nodes_.SetLives(node.rank, true);
    return 0;
  }

 private:
  plan::Membership& nodes_;
};

TEST_F(RowRouterTest, NodesThatAreTakenForAliveAgainAreNotAskedForEver) {
  RevivingClock clock(nodes_);
  RowRouter router(peers_, own_, nodes_, clock);
  std::vector<RoutedRow> rows = RowsOfOthers();
  std::erase_if(rows,
                [&](const RoutedRow& row) { return Ranked(row.group_key)[0] != NodeRank(1); });
  ASSERT_FALSE(rows.empty());
  router.Fill(
      *dataset_, std::move(rows), RowReader{},
      [this](Result<RowRouter::Filled> outcome) { outcome_.emplace(std::move(outcome)); });
  std::size_t requests = 0;
  while (!peers_.held.empty() && requests < 100) {
    ++requests;
    peers_.Answer(NodeRank(1), NoAnswer());
  }
  EXPECT_EQ(requests, nodes_.nodes().size());
  ASSERT_TRUE(outcome_.has_value() && !outcome_->has_value());
  EXPECT_EQ(outcome_->error().code(), ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace forebay::fetch

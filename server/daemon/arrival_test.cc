// A node that joins tells all others until they know it, and the others give it a place that is
// free.
#include "server/daemon/arrival.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/contract/limits.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/manual_clock.h"
#include "server/rendezvous/node_file.h"

namespace forebay::daemon::arrival_test {

using rendezvous::NodeEntry;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

constexpr std::int64_t kSecondNs = 1'000'000'000;
constexpr std::int64_t kHeldNs = 60 * kSecondNs;
constexpr std::uint32_t kSelf = 1;

// A node as it starts: it knows no place.
NodeEntry NewNode(const std::string& host, std::uint16_t port) {
  const rendezvous::NodeIdentity identity = {.job = "4711", .host = host, .ssd_directory = "/ssd"};
  return {.identity = identity,
          .place = identity,
          .rank = NodeRank(0),
          .address = {.host = "10.0.0.9", .port = port},
          .capacity_bytes = 1 << 30,
          .nonce = port,
          .agreed = {{"configuration", "a"}}};
}

std::vector<NodeEntry> Nodes(std::uint32_t count) {
  std::vector<NodeEntry> nodes;
  for (std::uint32_t rank = 0; rank < count; ++rank) {
    nodes.push_back(
        NewNode("n" + std::to_string(rank), static_cast<std::uint16_t>(rank + 1)));
    nodes.back().rank = NodeRank(rank);
  }
  return nodes;
}

std::vector<std::byte> FileOf(const NodeEntry& node) {
  return rendezvous::Encode({.kind = rendezvous::NodeFileKind::kAnswer, .nodes = {node}});
}

class ArrivalTest : public ::testing::Test {
 protected:
  // Node 1 of a job with so many nodes, and free places after them.
  void Start(std::uint32_t node_count, std::uint32_t free_places = 0) {
    auto places = rendezvous::WithFreePlaces(Nodes(node_count), free_places);
    ASSERT_TRUE(places.has_value()) << places.error().ToString();
    Start(*places);
  }
  void Start(const std::vector<NodeEntry>& places) {
    std::vector<plan::Node> members;
    for (const NodeEntry& place : places) members.push_back({.rank = place.rank});
    nodes_.emplace(NodeRank(kSelf), std::move(members));
    table_.Set(places);
    arrival_.emplace(ArrivalParts{
        .nodes = *nodes_,
        .table = table_,
        .clock = clock_,
        .tell =
            [this](NodeRank to, const NodeEntry& node, const ArrivalParts::Told& told) {
              told_.push_back(to.value());
              EXPECT_EQ(node, table_.At(NodeRank(kSelf)));
              if (stay_open_) {
                open_.emplace_back(to.value(), told);
              } else {
                told(silent_.contains(to.value())
                         ? Status(Error(ErrorCode::kUnavailable, "no answer"))
                         : Status());
              }
            },
        .is_dead = [this](NodeRank node) { return dead_.contains(node.value()); },
        .replaced = [this](const NodeEntry& node) { replaced_by_.push_back(node); },
        .taken =
            [this](const NodeEntry& node) -> Status {
              if (!may_be_taken_.has_value()) return may_be_taken_;
              taken_.push_back(node);
              table_.Put(node);
              return {};
            }});
  }
  // Which nodes are told in a Tick after this time.
  std::vector<std::uint32_t> TickAfter(std::int64_t ns) {
    clock_.AdvanceNs(ns);
    told_.clear();
    arrival_->Tick();
    return told_;
  }
  // Answers the calls that are open.
  void EndCalls(std::size_t count, const Status& status) {
    for (std::size_t i = 0; i < count; ++i) {
      const ArrivalParts::Told told = std::move(open_.front().second);
      open_.erase(open_.begin());
      told(status);
    }
  }
  // All others refuse this node for so many seconds. Returns whether it says so, and once.
  bool SaysThatItIsRefused(int seconds) {
    stay_open_ = true;
    ::testing::internal::CaptureStdout();
    for (int second = 0; second < seconds; ++second) {
      TickAfter(kSecondNs);
      EndCalls(open_.size(), Error(ErrorCode::kFailedPrecondition, "another node is there"));
    }
    const std::string log = ::testing::internal::GetCapturedStdout();
    const std::string said = "does not take this one for the node in its place";
    const std::size_t first = log.find(said);
    EXPECT_EQ(first == log.npos ? first : log.find(said, first + 1), log.npos) << log;
    return first != log.npos;
  }

  // The free places, as a node that wants to join hears of them.
  std::vector<NodeRank> FreeFor(const NodeEntry& node) {
    const auto answer = arrival_->Hear({.entry = FileOf(node)});
    EXPECT_TRUE(answer.has_value()) << answer.error().ToString();
    return answer.has_value() ? answer->free : std::vector<NodeRank>();
  }
  // The entry of `node` in that place.
  NodeEntry InPlace(std::uint32_t rank, const NodeEntry& node) const {
    return rendezvous::TakePlace(table_.At(NodeRank(rank)), node);
  }
  // A node takes a place, and is refused, or is in it then.
  Status Take(const NodeEntry& taken) {
    const std::vector<NodeEntry> before = table_.All();
    const auto answer = arrival_->Hear({.entry = FileOf(taken), .takes_place = true});
    if (!answer.has_value()) {
      EXPECT_EQ(table_.All(), before);
      return answer.error();
    }
    EXPECT_EQ(*answer, peer::JoinAnswer());
    EXPECT_EQ(table_.At(taken.rank), taken);
    return {};
  }
  void ExpectRefused(const NodeEntry& taken, const ::testing::Matcher<std::string>& why) {
    const std::size_t before = taken_.size();
    const Status outcome = Take(taken);
    ASSERT_FALSE(outcome.has_value());
    EXPECT_EQ(outcome.error().code(), ErrorCode::kFailedPrecondition);
    EXPECT_THAT(outcome.error().message(), why);
    EXPECT_EQ(taken_.size(), before);
  }

  io::ManualClock clock_{5 * kSecondNs};
  std::optional<plan::Membership> nodes_;
  NodeTable table_;
  std::vector<std::uint32_t> told_;
  std::set<std::uint32_t> silent_;  // nodes that do not answer
  bool stay_open_ = false;          // nobody answers yet
  std::vector<std::pair<std::uint32_t, ArrivalParts::Told>> open_;
  std::set<std::uint32_t> dead_;
  std::vector<NodeEntry> taken_;
  Status may_be_taken_;
  std::vector<NodeEntry> replaced_by_;
  std::optional<Arrival> arrival_;
};

TEST_F(ArrivalTest, ANodeThatHasNotJoinedTellsNobody) {
  Start(3);
  EXPECT_THAT(TickAfter(kSecondNs), IsEmpty());
  EXPECT_FALSE(nodes_->Yields());
}

TEST_F(ArrivalTest, AllOthersAreToldAndThenOneOfThemInEachSecond) {
  Start(4);
  arrival_->Begin([] { return false; });
  EXPECT_THAT(TickAfter(0), UnorderedElementsAre(0, 2, 3));
  EXPECT_THAT(TickAfter(kSecondNs - 1), IsEmpty());
  TickAfter(1);
  std::map<std::uint32_t, int> again;
  for (int second = 0; second < 8; ++second) {
    const std::vector<std::uint32_t> told = TickAfter(kSecondNs);
    EXPECT_LE(told.size(), 1U) << second;
    for (const std::uint32_t node : told) ++again[node];
  }
  EXPECT_EQ(again, (std::map<std::uint32_t, int>{{0, 2}, {2, 2}, {3, 2}}));
}

TEST_F(ArrivalTest, ANodeThatDoesNotAnswerIsToldUntilItDoes) {
  Start(10);
  silent_ = {7, 8};
  arrival_->Begin([] { return false; });
  EXPECT_EQ(TickAfter(0).size(), 9U);
  EXPECT_THAT(TickAfter(kSecondNs), UnorderedElementsAre(2, 7, 8));
  silent_ = {7};
  EXPECT_THAT(TickAfter(kSecondNs), UnorderedElementsAre(3, 7, 8));
  EXPECT_THAT(TickAfter(kSecondNs), UnorderedElementsAre(4, 7));
}

TEST_F(ArrivalTest, ANodeIsNotToldAgainBeforeTheCallToItHasEnded) {
  Start(3);
  stay_open_ = true;
  arrival_->Begin([] { return false; });
  EXPECT_THAT(TickAfter(0), UnorderedElementsAre(0, 2));
  for (int second = 0; second < 4; ++second) EXPECT_THAT(TickAfter(kSecondNs), IsEmpty());
  EndCalls(2, Error(ErrorCode::kDeadlineExceeded, "no answer"));
  EXPECT_THAT(TickAfter(kSecondNs), UnorderedElementsAre(0, 2));
}

// It may be another daemon, which does not know this node.
TEST_F(ArrivalTest, ANodeThatWasDeadIsToldOnceItAnswersAgain) {
  Start(10);
  dead_ = {5, 6};
  arrival_->Begin([] { return false; });
  EXPECT_THAT(TickAfter(0), UnorderedElementsAre(0, 2, 3, 4, 7, 8, 9));
  dead_ = {5, 7};
  EXPECT_THAT(TickAfter(kSecondNs), UnorderedElementsAre(2, 6));
  dead_ = {};
  EXPECT_THAT(TickAfter(kSecondNs), UnorderedElementsAre(3, 5, 7));
  EXPECT_THAT(TickAfter(kSecondNs), UnorderedElementsAre(4));
}

TEST_F(ArrivalTest, TheNodesOfALargeJobAreToldSomeAtATime) {
  constexpr std::size_t kAtATime = 256;
  Start(1'000);
  stay_open_ = true;
  arrival_->Begin([] { return false; });
  EXPECT_EQ(TickAfter(0).size(), kAtATime);
  EXPECT_THAT(TickAfter(kSecondNs), IsEmpty());
  EndCalls(10, {});
  // One of them may be a node that knows it already, and is told again.
  const std::vector<std::uint32_t> next = TickAfter(kSecondNs);
  EXPECT_EQ(next.size(), 10U);
  EXPECT_GE(std::ranges::count_if(next, [](std::uint32_t node) { return node > kAtATime; }), 9);
  std::set<std::uint32_t> all(next.begin(), next.end());
  for (int round = 0; round < 5; ++round) {
    EXPECT_LE(open_.size(), kAtATime) << round;
    EndCalls(open_.size(), {});
    for (const std::uint32_t node : TickAfter(kSecondNs)) all.insert(node);
  }
  for (std::uint32_t node = kAtATime + 1; node < 1'000; ++node) ASSERT_TRUE(all.contains(node));
}

TEST_F(ArrivalTest, ItYieldsUntilItHasStagedWhatItsPlaceOwns) {
  Start(3);
  bool has_staged = false;
  int looks = 0;
  nodes_->SetYields(plan::YieldReason::kSlowGfs, true);
  ::testing::internal::CaptureStdout();
  arrival_->Begin([&] {
    ++looks;
    return has_staged;
  });
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              HasSubstr("this node has joined the job, as n1:/ssd (job 4711) (rank 1)"));
  EXPECT_TRUE(nodes_->YieldsFor(plan::YieldReason::kArrives)) << "before the first Tick";
  TickAfter(0);
  TickAfter(kSecondNs);
  EXPECT_TRUE(nodes_->YieldsFor(plan::YieldReason::kArrives));
  has_staged = true;
  ::testing::internal::CaptureStdout();
  TickAfter(kSecondNs / 2);  // it looks at each Tick, also between the rounds
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              HasSubstr("this node has taken over the part of its place"));
  EXPECT_FALSE(nodes_->YieldsFor(plan::YieldReason::kArrives));
  EXPECT_TRUE(nodes_->Yields()) << "its GFS is slow all the same";
  has_staged = false;  // as in a later epoch
  TickAfter(kSecondNs);
  EXPECT_FALSE(nodes_->YieldsFor(plan::YieldReason::kArrives));
  EXPECT_EQ(looks, 3);
}

TEST_F(ArrivalTest, TheListHasAllPlacesAndNamesThoseThatAreFree) {
  Start(4, 2);
  dead_ = {3};
  const auto answer = arrival_->Hear({.entry = FileOf(NewNode("new", 99))});
  ASSERT_TRUE(answer.has_value()) << answer.error().ToString();
  EXPECT_EQ(answer->node_count, 6U);
  EXPECT_THAT(answer->free, ElementsAre(NodeRank(3), NodeRank(4), NodeRank(5)));
  const auto page = rendezvous::Decode(answer->nodes);
  ASSERT_TRUE(page.has_value()) << page.error().ToString();
  EXPECT_EQ(page->kind, rendezvous::NodeFileKind::kComplete);
  EXPECT_EQ(page->node_count, 6U);
  EXPECT_EQ(page->nodes, table_.All());
  EXPECT_THAT(taken_, IsEmpty()) << "it has only asked";
}

TEST_F(ArrivalTest, OnlyThePlaceOfANodeThatCountsAsDeadIsOffered) {
  Start(3);
  nodes_->SetLives(NodeRank(2), false);  // it was silent once
  EXPECT_THAT(FreeFor(NewNode("new", 99)), IsEmpty());
  dead_ = {2};
  EXPECT_THAT(FreeFor(NewNode("new", 99)), ElementsAre(NodeRank(2)));
}

// As two daemons without an SSD on one host have the same identity.
TEST_F(ArrivalTest, ADaemonWithTheIdentityOfANodeThatAnswersGetsNoPlace) {
  Start(3);
  ASSERT_TRUE(nodes_->Lives(NodeRank(2)));
  EXPECT_THAT(FreeFor(NewNode("n2", 99)), IsEmpty());
  ExpectRefused(InPlace(2, NewNode("n2", 99)), HasSubstr("which answers"));
  dead_ = {2};
  nodes_->SetLives(NodeRank(2), false);
  EXPECT_THAT(FreeFor(NewNode("n2", 99)), ElementsAre(NodeRank(2)));
  FOREBAY_EXPECT_OK(Take(InPlace(2, NewNode("n2", 99))));
}

TEST_F(ArrivalTest, ANodeThatCannotBeReachedIsRefused) {
  Start(3, 1);
  const NodeEntry before = table_.At(NodeRank(3));
  const NodeEntry taken = InPlace(3, NewNode("new", 99));
  may_be_taken_ = Error(ErrorCode::kInvalidArgument, "not an address of loopback");
  const auto refused = arrival_->Hear({.entry = FileOf(taken), .takes_place = true});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message(), "not an address of loopback");
  EXPECT_EQ(table_.At(NodeRank(3)), before);
  may_be_taken_ = {};
  FOREBAY_EXPECT_OK(Take(taken));
}

TEST_F(ArrivalTest, AListFromAPlaceThatDoesNotExistIsRefused) {
  Start(3);
  const auto answer = arrival_->Hear({.entry = FileOf(NewNode("new", 99)), .first = 3});
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code(), ErrorCode::kInvalidArgument);
}

TEST_F(ArrivalTest, ANodeThatAnotherOneRefusesAgainAndAgainSaysSoOnce) {
  Start(2);
  arrival_->BeginToTell();
  EXPECT_FALSE(nodes_->Yields());
  EXPECT_FALSE(SaysThatItIsRefused(19));
  EXPECT_TRUE(SaysThatItIsRefused(1));
  EXPECT_FALSE(SaysThatItIsRefused(50));
}

// Until they have found out that the node before is lost, each of them refuses a few times.
TEST_F(ArrivalTest, ANodeThatManyOthersRefuseAFewTimesDoesNotSaySo) {
  Start(200);
  arrival_->BeginToTell();
  EXPECT_FALSE(SaysThatItIsRefused(19));
  TickAfter(kSecondNs);
  EndCalls(open_.size(), {});
  EXPECT_FALSE(SaysThatItIsRefused(19)) << "in between it was taken for the node in its place";
}

TEST_F(ArrivalTest, ANodeThatOthersRefuseAfterTheyHaveTakenItSaysSo) {
  Start(200);
  arrival_->BeginToTell();
  TickAfter(kSecondNs);
  EXPECT_FALSE(SaysThatItIsRefused(19));
  EXPECT_TRUE(SaysThatItIsRefused(1)) << "one that refuses it is told again in each second";
}

TEST_F(ArrivalTest, ALongListIsReadPageByPage) {
  constexpr std::uint32_t kNodes = 16'384;
  std::vector<NodeEntry> nodes = Nodes(kNodes - 3);
  for (NodeEntry& node : nodes) {
    node.identity.host += std::string(200, 'h');
    node.identity.ssd_directory += std::string(200, 'd');
    node.place = node.identity;
    node.agreed = {{std::string(100, 'n'), std::string(100, 'v')}};
  }
  Start(*rendezvous::WithFreePlaces(nodes, 3));
  dead_ = {0, 8'000};
  std::vector<NodeEntry> read;
  std::vector<NodeRank> free;
  int pages = 0;
  while (read.size() < kNodes) {
    const auto answer = arrival_->Hear({.entry = FileOf(NewNode("new", 99)),
                                        .first = static_cast<std::uint32_t>(read.size())});
    ASSERT_TRUE(answer.has_value()) << answer.error().ToString();
    EXPECT_EQ(answer->node_count, kNodes);
    EXPECT_LE(answer->nodes.size(), limits::kJoinPageBytes);
    auto page = rendezvous::Decode(answer->nodes);
    ASSERT_TRUE(page.has_value()) << page.error().ToString();
    ASSERT_FALSE(page->nodes.empty()) << read.size();
    EXPECT_EQ(page->node_count, kNodes);
    for (const NodeRank rank : answer->free) {
      EXPECT_GE(rank, page->nodes.front().rank);
      EXPECT_LE(rank, page->nodes.back().rank);
    }
    std::ranges::move(page->nodes, std::back_inserter(read));
    free.insert(free.end(), answer->free.begin(), answer->free.end());
    ++pages;
  }
  EXPECT_GT(pages, 4) << "one page would have had room for all";
  EXPECT_TRUE(read == table_.All());
  EXPECT_THAT(free, ElementsAre(NodeRank(0), NodeRank(8'000), NodeRank(kNodes - 3),
                                NodeRank(kNodes - 2), NodeRank(kNodes - 1)));
}

TEST_F(ArrivalTest, ANodeTakesAPlaceThatIsFree) {
  Start(3, 1);
  ::testing::internal::CaptureStdout();
  const NodeEntry taken = InPlace(3, NewNode("new", 99));
  FOREBAY_EXPECT_OK(Take(taken));
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              AllOf(HasSubstr("new:/ssd (job 4711) (rank 3) joins the job at 10.0.0.9:99"),
                    HasSubstr("in the place of place 3")));
  EXPECT_THAT(taken_, ElementsAre(taken));
  EXPECT_THAT(FreeFor(NewNode("other", 98)), IsEmpty());
}

// The node that joins has asked another one whether the place is free.
TEST_F(ArrivalTest, ANodeTakesThePlaceOfOneThatDoesNotAnswerThisOne) {
  Start(3);
  nodes_->SetLives(NodeRank(2), false);
  const NodeEntry taken = InPlace(2, NewNode("new", 99));
  FOREBAY_EXPECT_OK(Take(taken));
  EXPECT_THAT(taken_, ElementsAre(taken));
}

TEST_F(ArrivalTest, AnAnnouncementThatIsRepeatedHasNoEffect) {
  Start(3, 1);
  const NodeEntry taken = InPlace(3, NewNode("new", 99));
  FOREBAY_EXPECT_OK(Take(taken));
  nodes_->SetLives(NodeRank(3), true);
  for (int i = 0; i < 3; ++i) {
    clock_.AdvanceNs(kHeldNs);
    FOREBAY_EXPECT_OK(Take(taken));
  }
  EXPECT_EQ(taken_.size(), 1U);
}

TEST_F(ArrivalTest, APlaceThatWasTakenJustNowIsHeldForItsNode) {
  Start(3, 1);
  const NodeEntry first = InPlace(3, NewNode("first", 98));
  const NodeEntry second = InPlace(3, NewNode("second", 99));
  FOREBAY_EXPECT_OK(Take(first));
  // It does not answer before it serves.
  dead_ = {3};
  nodes_->SetLives(NodeRank(3), false);
  clock_.AdvanceNs(kHeldNs - 1);
  EXPECT_THAT(FreeFor(second), IsEmpty());
  ExpectRefused(second,
                AllOf(HasSubstr("second:/ssd (job 4711) cannot join the job in the place of first"),
                      HasSubstr("has only just joined, as is known to n1:/ssd")));
  // Its daemon was started again, at another address.
  EXPECT_THAT(FreeFor(NewNode("first", 97)), ElementsAre(NodeRank(3)));
  FOREBAY_EXPECT_OK(Take(InPlace(3, NewNode("first", 97))));
  clock_.AdvanceNs(kHeldNs - 1);
  ExpectRefused(second, HasSubstr("has only just joined"));
  clock_.AdvanceNs(1);
  EXPECT_THAT(FreeFor(second), ElementsAre(NodeRank(3)));
  FOREBAY_EXPECT_OK(Take(second));
  EXPECT_EQ(taken_.size(), 3U);
}

TEST_F(ArrivalTest, ThePlaceOfANodeThatAnswersIsNotGivenAway) {
  Start(3);
  ExpectRefused(InPlace(2, NewNode("new", 99)),
                HasSubstr("new:/ssd (job 4711) cannot join the job in the place of n2:/ssd (job "
                          "4711) (rank 2), which answers n1:/ssd (job 4711) (rank 1)"));
}

// It did not answer, another one has joined in its place, and it goes on.
TEST_F(ArrivalTest, ANodeThatHearsThatItWasReplacedSaysSo) {
  Start(3);
  const NodeEntry own = table_.At(NodeRank(kSelf));
  const auto refused = arrival_->Hear({.entry = FileOf(own), .takes_place = true});
  EXPECT_TRUE(refused.has_value()) << "its own entry";
  EXPECT_THAT(replaced_by_, IsEmpty());
  const NodeEntry other = InPlace(kSelf, NewNode("new", 99));
  EXPECT_TRUE(arrival_->Hear({.entry = FileOf(other), .takes_place = true}).has_value());
  EXPECT_THAT(replaced_by_, ElementsAre(other));
  EXPECT_THAT(taken_, IsEmpty());
  EXPECT_EQ(table_.At(NodeRank(kSelf)), own);
}

TEST_F(ArrivalTest, TheNodeThatWasInThePlaceIsToldUntilItAnswers) {
  for (const bool has_returned : {false, true}) {
    Start(2);
    silent_ = {kSelf};  // the one before is told by the rank of this one
    if (has_returned) {
      arrival_->BeginToTell(/*had_node=*/true);
    } else {
      arrival_->Begin([] { return true; }, /*had_node=*/true);
    }
    EXPECT_THAT(TickAfter(0), Contains(kSelf));
    EXPECT_THAT(TickAfter(10 * kSecondNs - 1), Not(Contains(kSelf)));
    EXPECT_THAT(TickAfter(1), Contains(kSelf));
    EXPECT_FALSE(arrival_->HasToldTheOneBefore());
    silent_.clear();
    EXPECT_THAT(TickAfter(10 * kSecondNs), Contains(kSelf));
    EXPECT_TRUE(arrival_->HasToldTheOneBefore());
    EXPECT_THAT(TickAfter(10 * kSecondNs), Not(Contains(kSelf)));
  }
}

TEST_F(ArrivalTest, WhereNoNodeWasBeforeNoneIsTold) {
  Start(2);
  arrival_->Begin([] { return true; }, /*had_node=*/false);
  EXPECT_THAT(TickAfter(0), Not(Contains(kSelf)));
  EXPECT_FALSE(arrival_->HasToldTheOneBefore());
}

TEST_F(ArrivalTest, AnEntryThatDoesNotFitThePlaceIsRefused) {
  Start(3, 1);
  const NodeEntry right = InPlace(3, NewNode("new", 99));
  NodeEntry wrong = right;
  wrong.rank = NodeRank(4);
  ExpectRefused(wrong, HasSubstr("a place that a job of 4 places does not have"));
  wrong = right;
  wrong.identity.job = wrong.place.job = "4712";
  ExpectRefused(wrong, HasSubstr("belong to different jobs"));
  wrong = right;
  ++wrong.nonce;
  ExpectRefused(wrong, HasSubstr("the lists of nodes of two launches"));
  wrong = right;
  wrong.address.port = 0;
  ExpectRefused(wrong, HasSubstr("takes a place without an address"));
  wrong = right;
  wrong.identity = table_.At(NodeRank(2)).identity;
  ExpectRefused(wrong, AllOf(HasSubstr("n2:/ssd"), HasSubstr("are the same node")));
  wrong = right;
  wrong.address = table_.At(NodeRank(2)).address;
  ExpectRefused(wrong, AllOf(HasSubstr("n2:/ssd"), HasSubstr("listen on the same address")));
  FOREBAY_EXPECT_OK(Take(right));
}

TEST_F(ArrivalTest, WhatIsNotTheEntryOfOneNodeIsRefused) {
  Start(3, 1);
  const NodeEntry node = InPlace(3, NewNode("new", 99));
  const std::pair<std::vector<std::byte>, ErrorCode> files[] = {
      {{}, ErrorCode::kDataLoss},
      {std::vector<std::byte>(100), ErrorCode::kDataLoss},
      {rendezvous::Encode({.nodes = {}}), ErrorCode::kInvalidArgument},
      {rendezvous::Encode({.nodes = {node, node}}), ErrorCode::kInvalidArgument},
      {rendezvous::Encode({.kind = rendezvous::NodeFileKind::kComplete, .nodes = {node}}),
       ErrorCode::kInvalidArgument},
  };
  for (const auto& [file, code] : files) {
    for (const bool takes_place : {false, true}) {
      const auto answer = arrival_->Hear({.entry = file, .takes_place = takes_place});
      ASSERT_FALSE(answer.has_value()) << file.size();
      EXPECT_EQ(answer.error().code(), code) << answer.error().ToString();
    }
  }
  EXPECT_THAT(taken_, IsEmpty());
}

}  // namespace forebay::daemon::arrival_test

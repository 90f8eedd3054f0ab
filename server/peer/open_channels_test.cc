// Tests which links have a channel: a link has none before its first call, and no more links than
// allowed have one if some of them are not in use. All requests are answered nevertheless.
#include "server/peer/open_channels.h"

#include <atomic>
#include <cstdint>
#include <latch>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "proto/contract/limits.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/manual_clock.h"
#include "server/peer/grpc_peers.h"
#include "server/peer/peer_link.h"
#include "server/peer/testing/peer_link_fixture.h"
#include "server/peer/testing/peer_rig.h"
#include "server/peer/testing/tcp_relay.h"

namespace forebay::peer::open_channels_test {

using io::testing::Take;
using peer_link_test::HelloNode;
using peer_link_test::NotedCall;

constexpr std::int64_t kIdleNs = limits::kPeerIdleMs * std::int64_t{1'000'000};

class OpenChannelsTest : public peer_link_test::PeerLinkTest {
 protected:
  std::unique_ptr<PeerLink> MakeLink(const std::string& address, OpenChannels& channels) {
    return std::make_unique<PeerLink>(PeerIdentity{.address = "127.0.0.1:1", .job_id = "job"},
                                      address, time_, nullptr, &channels);
  }
  std::vector<std::unique_ptr<PeerLink>> MakeLinks(std::size_t count, OpenChannels& channels) {
    std::vector<std::unique_ptr<PeerLink>> links;
    while (links.size() < count) links.push_back(MakeLink(node_.address(), channels));
    return links;
  }
  // Begins a call, which then is under way. It begins without Hello, so the test needs no other
  // thread.
  std::shared_ptr<NotedCall> Begin(PeerLink& link) {
    const auto call = Make(link, "call", 0, 60'000);
    link.StartAtOnce(call);
    EXPECT_TRUE(call->has_begun());
    return call;
  }
  // Makes a call a second after the last one, and ends it.
  void Use(PeerLink& link) {
    time_.AdvanceNs(1'000'000'000);
    link.Ended(*Begin(link));
  }
  static bool IsOpen(const PeerLink& link) { return link.channel_use().is_open; }

  io::ManualClock time_;
};

TEST_F(OpenChannelsTest, TheFirstCallMakesTheChannel) {
  EXPECT_FALSE(IsOpen(link_));
  const auto call = Start(link_, "a", 1);
  EXPECT_TRUE(IsOpen(link_));
  EXPECT_EQ(journal_.AwaitLines(1).back(), "a begins");
  link_.Ended(*call);
  EXPECT_TRUE(IsOpen(link_));
}

TEST_F(OpenChannelsTest, TheLinkThatWasNotUsedForTheLongestTimeGivesItsChannelUp) {
  OpenChannels channels(2, time_);
  const auto links = MakeLinks(3, channels);
  Use(*links[0]);
  Use(*links[1]);
  Use(*links[0]);
  EXPECT_TRUE(IsOpen(*links[1]));
  Use(*links[2]);
  EXPECT_TRUE(IsOpen(*links[0]));
  EXPECT_FALSE(IsOpen(*links[1]));
  EXPECT_EQ(channels.count(), 2U);
  // The link that has given its channel up makes another one for its next call, which says Hello.
  const auto again = Start(*links[1], "again", 1);
  journal_.AwaitLast("again begins");
  EXPECT_FALSE(IsOpen(*links[0]));
  links[1]->Ended(*again);
}

TEST_F(OpenChannelsTest, ALinkOfWhichTheNodeHasAgreedDoesNotSayHelloAgain) {
  OpenChannels channels(1, time_);
  const auto links = MakeLinks(2, channels);
  {
    const auto call = Start(*links[0], "first", 1);
    journal_.AwaitLast("first begins");
    links[0]->Ended(*call);
  }
  // The thread that has brought the answer may still refer to the channel for a moment.
  while (links[0]->channel_use().is_needed) std::this_thread::yield();
  Use(*links[1]);
  ASSERT_FALSE(IsOpen(*links[0]));
  const auto call = Start(*links[0], "second", 1);
  EXPECT_TRUE(call->has_begun());
  EXPECT_EQ(node_.hellos(), 1);
  links[0]->Ended(*call);
}

TEST_F(OpenChannelsTest, ALinkWithACallKeepsItsChannelAlsoBeyondTheBound) {
  OpenChannels channels(1, time_);
  const TcpRelay silent("");
  const auto waits = MakeLink(silent.address(), channels);
  const auto links = MakeLinks(2, channels);
  const auto waiting = Start(*waits, "waiting", 1);
  const auto call = Begin(*links[0]);
  Use(*links[1]);
  EXPECT_FALSE(waiting->has_begun());
  EXPECT_TRUE(IsOpen(*waits));
  EXPECT_TRUE(IsOpen(*links[0]));
  EXPECT_EQ(channels.count(), 3U);
  links[0]->Ended(*call);
  waits->Stop();
}

TEST_F(OpenChannelsTest, AfterTheCallsTheBoundHoldsAgain) {
  OpenChannels channels(1, time_);
  const auto links = MakeLinks(2, channels);
  {
    const auto a = Begin(*links[0]);
    const auto b = Begin(*links[1]);
    EXPECT_EQ(channels.count(), 2U);
    EXPECT_TRUE(channels.is_crowded());
    links[0]->Ended(*a);
    links[1]->Ended(*b);
  }
  // This call makes no channel, but while too many links have one, each call looks at them.
  Use(*links[1]);
  EXPECT_FALSE(channels.is_crowded());
  EXPECT_EQ(channels.count(), 1U);
  EXPECT_FALSE(IsOpen(*links[0]));
  EXPECT_TRUE(IsOpen(*links[1]));
}

// The context of a call refers to the channel, and its reference must not be the last one.
TEST_F(OpenChannelsTest, ACallThatHasEndedAndIsStillHeldKeepsTheChannel) {
  OpenChannels channels(1, time_);
  const auto links = MakeLinks(2, channels);
  auto held = Begin(*links[0]);
  links[0]->Ended(*held);
  EXPECT_TRUE(links[0]->channel_use().is_needed);
  EXPECT_EQ(links[0]->TakeUnusedChannel(), nullptr);
  held.reset();
  EXPECT_FALSE(links[0]->channel_use().is_needed);
  EXPECT_NE(links[0]->TakeUnusedChannel(), nullptr);
  EXPECT_EQ(links[0]->TakeUnusedChannel(), nullptr) << "there is none any more";
}

TEST_F(OpenChannelsTest, ASixteenthOfThePlacesIsMadeFreeAtOnce) {
  OpenChannels channels(32, time_);
  const auto links = MakeLinks(33, channels);
  for (std::size_t i = 0; i < 32; ++i) Use(*links[i]);
  EXPECT_EQ(channels.count(), 32U);
  Use(*links[32]);
  EXPECT_EQ(channels.count(), 30U);
  for (std::size_t i = 0; i < 33; ++i) EXPECT_EQ(IsOpen(*links[i]), i >= 3) << i;
}

TEST_F(OpenChannelsTest, AChannelThatWasNotUsedForLongGoes) {
  OpenChannels channels(8, time_);
  const auto links = MakeLinks(3, channels);
  Use(*links[0]);
  time_.AdvanceNs(kIdleNs - 2'000'000'000);
  Use(*links[1]);
  EXPECT_TRUE(IsOpen(*links[0]));
  time_.AdvanceNs(kIdleNs / 4);
  Use(*links[2]);
  EXPECT_FALSE(IsOpen(*links[0]));
  EXPECT_TRUE(IsOpen(*links[1]));
  EXPECT_EQ(channels.count(), 2U);
}

TEST_F(OpenChannelsTest, ALinkThatWasRedirectedCountsOnce) {
  OpenChannels channels(2, time_);
  const HelloNode other;
  const auto links = MakeLinks(2, channels);
  Use(*links[0]);
  Use(*links[1]);
  EXPECT_TRUE(links[0]->Redirect(other.address()));
  EXPECT_FALSE(IsOpen(*links[0]));
  Use(*links[0]);
  EXPECT_TRUE(IsOpen(*links[0]));
  EXPECT_TRUE(IsOpen(*links[1]));
  EXPECT_EQ(channels.count(), 2U);
}

// A node that may have two channels asks eight other nodes, all of which are the same server.
class BusyChannelsTest : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kNodes = 8;
  static constexpr std::uint32_t kThreads = 4;
  static constexpr std::uint32_t kRequests = 60;  // that each thread makes

  void SetUp() override {
    std::map<NodeRank, std::string> addresses;
    for (std::uint32_t node = 0; node < kNodes; ++node) {
      addresses[NodeRank(node)] = rig_->address();
    }
    peers_ = Take(GrpcPeers::Create({.identity = PeerRig::AskingIdentity(),
                                     .addresses = std::move(addresses),
                                     .channels_max = 2},
                                    rig_->rig().clock()));
  }
  static NodeRank NodeOf(std::uint32_t request) { return NodeRank(request * 5 % kNodes); }

  // Pings nodes one after another, all but the first one from the thread that brings the answer.
  void PingOn(std::uint32_t left, std::latch& done) {
    const std::int64_t deadline_ns = rig_->rig().clock().NowNs() + 60'000'000'000;
    peers_->Ping(NodeOf(left), deadline_ns, [this, left, &done](const auto& report) {
      if (report.has_value()) ++answered_;
      if (left > 1) return PingOn(left - 1, done);
      done.count_down();
    });
  }
  void ReadExtent(NodeRank node) {
    const auto queue = Take(rig_->rig().backend().CreateQueue({.depth = 4}));
    const auto catalog = rig_->dataset().catalog();
    const stage::Priority priority{1};
    const auto extent = peers_->Read(
        {.node = node,
         .dataset = rig_->dataset(),
         .catalog = *catalog,
         .extent = ExtentId(0),
         .priority = priority},
        [this](std::uint64_t bytes) { return rig_->rig().arena().Allocate(bytes); }, *queue);
    EXPECT_TRUE(extent.has_value()) << extent.error().ToString();
    if (extent.has_value()) ++answered_;
  }

  std::unique_ptr<PeerRig> rig_ = Take(PeerRig::Create({}));
  std::unique_ptr<GrpcPeers> peers_;
  std::atomic<std::uint32_t> answered_ = 0;
};

TEST_F(BusyChannelsTest, EveryRequestIsAnswered) {
  std::latch pings(kThreads);
  {
    std::vector<std::jthread> threads;
    for (std::uint32_t i = 0; i < kThreads; ++i) {
      PingOn(kRequests + i, pings);
      threads.emplace_back([this, i] {
        for (std::uint32_t k = 0; k < kRequests; ++k) ReadExtent(NodeOf(i + k));
      });
    }
  }
  pings.wait();
  // The chains of pings have as many requests as the threads, and 0, 1, 2 and 3 more.
  EXPECT_EQ(answered_, 2 * kThreads * kRequests + 6);
  // When one thread asks one node after another, the bound holds again.
  for (std::uint32_t i = 0; peers_->open_channels() > 2; ++i) ReadExtent(NodeOf(i));
  peers_->Stop();
}

// This test does not see what gRPC does when the last channel of a process is closed, because the
// server in this process keeps gRPC's threads.
TEST_F(BusyChannelsTest, AThreadThatBringsAnAnswerMayCloseAChannel) {
  do {
    std::latch pings(1);
    PingOn(kRequests, pings);
    pings.wait();
  } while (peers_->open_channels() == kNodes);  // no thread was in time to close one
  EXPECT_EQ(answered_ % kRequests, 0U);
  EXPECT_GT(answered_, 0U);
  peers_->Stop();
}

}  // namespace forebay::peer::open_channels_test

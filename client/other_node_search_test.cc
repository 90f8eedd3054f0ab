// The search for a daemon: by calls with short deadlines, past a daemon that refuses the program,
// and until the stream is cancelled.
#include <atomic>
#include <cstdint>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/testing/other_node_fixture.h"
#include "proto/contract/wire_layout.h"

namespace forebay::other_node_search_test {

using testing::FakeDaemon;
using testing::FakeStream;
using testing::kTestClient;
using testing::LongStream;
using testing::Open;
using testing::OtherNodeTest;
using testing::SilentNode;
using testing::Soon;
using ::testing::HasSubstr;

class OtherNodeSearchTest : public OtherNodeTest {
 protected:
  // From now on the home daemon takes connections, and refuses this program in the handshake.
  void StartHomeThatRefuses() {
    home_.faults.server_hello = [this](ServerHello& hello) {
      hello.status = static_cast<std::uint32_t>(ErrorCode::kFailedPrecondition);
      ++refused_;
    };
    home_.Start();
  }
  std::atomic<int> refused_ = 0;  // how often
};

// A handshake with a daemon that hangs takes longer than each of these calls.
TEST_F(OtherNodeSearchTest, AReaderThatPollsLeavesADaemonThatHangs) {
  const SilentNode silent;
  home_.NameOtherNodes({silent.address(), other_.node_address()}, kTestClient);
  const auto client = Connect(/*other_node_after_ms=*/200);
  const auto stream = Open(*client, FakeStream(1));
  home_.Stop();
  home_.faults.stall_handshake = true;
  home_.Start();
  ReadByPolling(*stream, [&] { return stream->stats().other_node_batches > 0; });
}

TEST_F(OtherNodeSearchTest, AReaderThatPollsGoesBackToo) {
  home_.NameOtherNodes({other_.node_address()}, kTestClient);
  const auto client = Connect();
  const auto stream = Open(*client, LongStream());
  home_.Stop();
  ReadByPolling(*stream, [&] { return stream->stats().other_node_batches > 0; });
  home_.Start();
  ReadByPolling(*stream, [&] { return notices_.size() == 2; });
  EXPECT_THAT(notices_[1], HasSubstr("is back"));
  Finish(*stream);
}

// Another job's daemon may have its socket now, or one with another configuration.
TEST_F(OtherNodeSearchTest, ItStaysAwayWhereItsDaemonComesBackAndRefusesTheProgram) {
  home_.NameOtherNodes({other_.node_address()}, kTestClient);
  const auto client = Connect();
  const auto stream = Open(*client, LongStream());
  ReadOn(*stream, 10);
  home_.Stop();
  ReadOn(*stream, 20);
  StartHomeThatRefuses();
  ReadUntil(*stream, [this] { return refused_ >= 2; });
  ASSERT_EQ(notices_.size(), 2U) << "it is said once";
  EXPECT_THAT(notices_[1], HasSubstr("refuses this program"));
  EXPECT_THAT(notices_[1], HasSubstr("FAILED_PRECONDITION"));
  // Nor is the refusal an error where the other node ends its call.
  other_.Stop();
  other_.Start();
  ReadUntil(*stream, [&] { return stream->stats().reconnects >= 2; });
  EXPECT_EQ(notices_.size(), 2U);
  Finish(*stream);
}

TEST_F(OtherNodeSearchTest, ADaemonThatRefusesTheProgramIsPassedOver) {
  home_.NameOtherNodes({other_.node_address()}, kTestClient);
  const auto client = Connect();
  const auto stream = Open(*client, FakeStream(4));
  ReadOn(*stream, 10);
  home_.Stop();
  StartHomeThatRefuses();
  ReadToEnd(*stream);
  EXPECT_GT(stream->stats().other_node_batches, 0U);
}

TEST_F(OtherNodeSearchTest, ARefusalIsNoErrorOfAReaderThatPolls) {
  home_.NameOtherNodes({other_.node_address()}, kTestClient);
  const auto client = Connect(/*other_node_after_ms=*/1'000);
  const auto stream = Open(*client, FakeStream(1));
  home_.Stop();
  StartHomeThatRefuses();
  ReadByPolling(*stream, [&] { return stream->stats().other_node_batches > 0; });
}

TEST_F(OtherNodeSearchTest, WhereNobodyServesTheProgramTheErrorNamesTheRefusal) {
  std::string lost;
  {
    const FakeDaemon gone({.is_other_node = true});
    lost = gone.node_address();
  }
  home_.NameOtherNodes({lost}, kTestClient);
  const auto client = Connect(/*other_node_after_ms=*/0, /*connect_timeout_ms=*/500);
  const auto stream = Open(*client, FakeStream(1));
  home_.Stop();
  StartHomeThatRefuses();
  auto batch = stream->Next();
  while (batch.has_value()) batch = stream->Next();  // what had arrived
  EXPECT_EQ(batch.error().code(), ErrorCode::kUnavailable);
  EXPECT_THAT(batch.error().message(), HasSubstr("FAILED_PRECONDITION"));
  EXPECT_THAT(batch.error().message(), HasSubstr(lost));
}

// The search would go on for as long as the client may connect.
class OtherNodeCancelTest : public OtherNodeTest {
 protected:
  // Cancels a stream whose reader waits in Next, once `is_searching` holds.
  template <typename Condition>
  void ExpectThatCancelEndsIt(BatchStream& stream, Condition is_searching) {
    std::atomic<bool> has_ended = false;
    std::jthread reader([&] {
      auto batch = stream.Next();
      while (batch.has_value()) batch = stream.Next();  // what had arrived
      EXPECT_EQ(batch.error().code(), ErrorCode::kCancelled) << batch.error().ToString();
      has_ended = true;
    });
    EXPECT_TRUE(Soon(is_searching));
    stream.Cancel();
    EXPECT_TRUE(Soon([&] { return has_ended.load(); }));
  }
  static constexpr std::int64_t kHourMs = 3'600'000;
};

TEST_F(OtherNodeCancelTest, WhileNobodyIsThere) {
  const auto client = Connect(/*other_node_after_ms=*/-1, kHourMs);
  const auto stream = Open(*client, FakeStream(1));
  home_.Stop();
  ExpectThatCancelEndsIt(*stream, [] { return true; });
}

TEST_F(OtherNodeCancelTest, WhileTheDaemonHangs) {
  const auto client = Connect(/*other_node_after_ms=*/-1, kHourMs);
  const auto stream = Open(*client, FakeStream(1));
  home_.Stop();
  home_.faults.stall_handshake = true;
  const std::uint64_t before = home_.counters.connections;
  home_.Start();
  ExpectThatCancelEndsIt(*stream, [&] { return home_.counters.connections > before; });
}

TEST_F(OtherNodeCancelTest, WhileAnotherNodeIsSilent) {
  const SilentNode silent;
  home_.NameOtherNodes({silent.address()}, kTestClient);
  const auto client = Connect(/*other_node_after_ms=*/0, kHourMs);
  const auto stream = Open(*client, FakeStream(1));
  home_.Stop();
  ExpectThatCancelEndsIt(*stream, [&] { return silent.HasConnection(); });
}

TEST_F(OtherNodeCancelTest, WhileAnotherStreamSearches) {
  const auto client = Connect(/*other_node_after_ms=*/-1, kHourMs);
  const auto first = Open(*client, FakeStream(1));
  StreamOptions options = FakeStream(1);
  options.stream_name = "second";
  const auto second = Open(*client, options);
  home_.Stop();
  home_.faults.stall_handshake = true;
  const std::uint64_t before = home_.counters.connections;
  home_.Start();
  std::jthread searching([&] {
    auto batch = first->Next();
    while (batch.has_value()) batch = first->Next();
    EXPECT_EQ(batch.error().code(), ErrorCode::kCancelled);
  });
  EXPECT_TRUE(Soon([&] { return home_.counters.connections > before; }));
  ExpectThatCancelEndsIt(*second, [] { return true; });
  first->Cancel();
}

}  // namespace forebay::other_node_search_test

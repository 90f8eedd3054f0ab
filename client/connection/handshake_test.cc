// Connecting to a daemon that is not there, is another one, lies or stalls.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/connection/region_map.h"
#include "client/testing/client_test_fixture.h"
#include "forebay/v1/data.pb.h"

namespace forebay {
namespace {

using ::testing::HasSubstr;
using testing::ExpectDataLoss;
using testing::FakeDaemon;
using testing::TryConnect;

TEST(Handshake, NobodyThereNamesAddressAndRemedy) {
  auto client = Client::Connect(
      {.address = "unix:/nonexistent/forebayd.sock", .connect_timeout_ms = 100});
  ASSERT_FALSE(client.has_value());
  EXPECT_EQ(client.error().code(), ErrorCode::kUnavailable);
  EXPECT_THAT(client.error().message(), HasSubstr("unix:/nonexistent/forebayd.sock"));
  EXPECT_THAT(client.error().message(), HasSubstr("FOREBAY_ADDRESS"));
}

TEST(Handshake, AddressesThatAreNone) {
  for (const std::string address : {"tcp:localhost:1", "unix:", "/path"}) {
    EXPECT_EQ(Client::Connect({.address = address}).error().code(), ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(Client::Connect({.address = "unix:/" + std::string(200, 'p')}).error().code(),
            ErrorCode::kInvalidArgument);
}

TEST(Handshake, WrongMagic) {
  FakeDaemon daemon;
  daemon.faults.server_hello = [](ServerHello& hello) { hello.magic ^= 1; };
  ExpectDataLoss(TryConnect(daemon).error(), "not a Forebay daemon");
}

TEST(Handshake, VersionMismatchNamesBothSides) {
  FakeDaemon daemon;
  daemon.faults.server_hello = [](ServerHello& hello) { hello.layout_version = 9; };
  Error error = TryConnect(daemon).error();
  EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(error.message(), HasSubstr("layout version 1 of this client, version 9"));

  daemon.faults.server_hello = nullptr;
  daemon.faults.hello_reply = [](v1::HelloReply& reply) { reply.set_protocol_version(7); };
  error = TryConnect(daemon).error();
  EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(error.message(), HasSubstr("protocol version " + std::to_string(kProtocolVersion) +
                                         " of this client, version 7"));

  daemon.faults.hello_reply = [](v1::HelloReply& reply) { reply.set_catalog_version(3); };
  EXPECT_THAT(TryConnect(daemon).error().message(), HasSubstr("catalog version 1"));
  EXPECT_EQ(daemon.counters.connections, 3U) << "trying again changes nothing";
}

TEST(Handshake, AnotherJobNamesBothSides) {
  FakeDaemon daemon;
  auto client = Client::Connect({.address = daemon.address(), .job_id = "job-2"});
  ASSERT_FALSE(client.has_value());
  EXPECT_EQ(client.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(client.error().message(), HasSubstr("job 'job-2'"));
  EXPECT_THAT(client.error().message(), HasSubstr("job 'job-1'"));
}

TEST(Handshake, RefusalCarriesTheDaemonsCode) {
  FakeDaemon daemon;
  daemon.faults.server_hello = [](ServerHello& hello) {
    hello.status = static_cast<std::uint32_t>(ErrorCode::kResourceExhausted);
  };
  EXPECT_EQ(TryConnect(daemon).error().code(), ErrorCode::kResourceExhausted);
  daemon.faults.server_hello = [](ServerHello& hello) { hello.status = 77; };
  EXPECT_EQ(TryConnect(daemon).error().code(), ErrorCode::kUnknown);
  EXPECT_EQ(daemon.counters.connections, 2U) << "trying again changes nothing";
}

TEST(Handshake, UnsealedMemoryIsRefused) {
  FakeDaemon daemon;
  daemon.faults.unsealed_regions = true;
  const Error error = TryConnect(daemon).error();
  EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(error.message(), HasSubstr("not sealed"));
}

TEST(Handshake, RegionsThatLie) {
  const auto with = [](std::function<void(RegionEntry&)> change) {
    FakeDaemon daemon;
    daemon.faults.region_entry = std::move(change);
    return TryConnect(daemon).error();
  };
  ExpectDataLoss(with([](RegionEntry& entry) { entry.bytes = 1ULL << 40; }), "announced");
  ExpectDataLoss(with([](RegionEntry& entry) { entry.generation ^= 1; }), "generation");
  EXPECT_EQ(with([](RegionEntry& entry) { entry.id = 4096; }).code(),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(with([](RegionEntry& entry) { entry.id = 1; }).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(with([](RegionEntry& entry) { entry.bytes = 0; }).code(),
            ErrorCode::kInvalidArgument);
}

// A region that may still shrink turns a read into a SIGBUS.
TEST(Handshake, MemoryThatMayStillShrinkOrGrowIsRefused) {
  for (const int seals : {0, F_SEAL_GROW, F_SEAL_SHRINK, F_SEAL_SHRINK | F_SEAL_GROW}) {
    const UniqueFd memfd(memfd_create("region", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(ftruncate(memfd.get(), 4096), 0);
    if (seals != 0) {
      ASSERT_EQ(fcntl(memfd.get(), F_ADD_SEALS, seals), 0);
    }
    RegionEntry entry;
    entry.bytes = 4096;
    const Status added = internal::RegionMap().Add(entry, memfd);
    EXPECT_EQ(added.has_value(), seals == (F_SEAL_SHRINK | F_SEAL_GROW)) << seals;
  }
}

TEST(Handshake, MissingDescriptorIsDetected) {
  FakeDaemon daemon;
  daemon.faults.too_few_descriptors = true;
  ExpectDataLoss(TryConnect(daemon).error(), "2 regions came with 1 descriptors");
}

TEST(Handshake, TooManyRegions) {
  FakeDaemon daemon;
  daemon.faults.server_hello = [](ServerHello& hello) { hello.region_count = 4097; };
  EXPECT_EQ(TryConnect(daemon).error().code(), ErrorCode::kResourceExhausted);
}

TEST(Handshake, AStallEndsAtTheDeadline) {
  FakeDaemon daemon;
  daemon.faults.stall_handshake = true;
  // Without a deadline it would hang: the daemon never answers.
  auto client = Client::Connect({.address = daemon.address(), .connect_timeout_ms = 200});
  ASSERT_FALSE(client.has_value());
  EXPECT_EQ(client.error().code(), ErrorCode::kDeadlineExceeded);
  EXPECT_THAT(client.error().message(), HasSubstr("does not answer in time"));
  EXPECT_EQ(daemon.counters.connections, 1U);
}

TEST(Handshake, HangUpsUntilTheDeadlineAreUnavailable) {
  FakeDaemon daemon;
  daemon.faults.drop_handshake = true;
  auto client = Client::Connect({.address = daemon.address(), .connect_timeout_ms = 2000});
  ASSERT_FALSE(client.has_value());
  EXPECT_EQ(client.error().code(), ErrorCode::kUnavailable);
  EXPECT_THAT(client.error().message(), HasSubstr("hung up"));
  EXPECT_GT(daemon.counters.connections, 1U);
}

// As a daemon that ends while a program starts, and is started again.
TEST(Handshake, ADaemonThatHangsUpForAWhileIsTriedAgain) {
  FakeDaemon daemon;
  daemon.faults.drop_handshake = true;
  std::jthread restart([&daemon](const std::stop_token& stop) {
    while (daemon.counters.connections < 2 && !stop.stop_requested()) std::this_thread::yield();
    daemon.faults.drop_handshake = false;
  });
  auto client = TryConnect(daemon);
  EXPECT_TRUE(client.has_value()) << client.error().ToString();
  // The second one may come before or after the restart, which follows it.
  EXPECT_GE(daemon.counters.connections, 2U);
}

// As a daemon that is asked to stop between the handshake and the first call.
TEST(Handshake, ADaemonThatCancelsTheFirstCallIsTriedAgain) {
  FakeDaemon daemon;
  daemon.faults.cancel_hello = true;
  auto client = Client::Connect({.address = daemon.address(), .connect_timeout_ms = 2000});
  ASSERT_FALSE(client.has_value());
  EXPECT_EQ(client.error().code(), ErrorCode::kUnavailable);
  EXPECT_THAT(client.error().message(), HasSubstr("cancelled by the daemon"));
  const std::uint64_t before = daemon.counters.connections;
  EXPECT_GT(before, 1U);
  std::jthread restart([&](const std::stop_token& stop) {
    while (daemon.counters.connections < before + 2 && !stop.stop_requested()) {
      std::this_thread::yield();
    }
    daemon.faults.cancel_hello = false;
  });
  client = TryConnect(daemon);
  EXPECT_TRUE(client.has_value()) << client.error().ToString();
}

TEST(Handshake, ADaemonThatStartsLaterIsFound) {
  FakeDaemon daemon;
  daemon.Stop();
  const std::jthread start([&daemon] { daemon.Start(); });
  auto client = TryConnect(daemon);
  EXPECT_TRUE(client.has_value()) << client.error().ToString();
}

}  // namespace
}  // namespace forebay

// Readers whose daemon is killed while the other nodes of their job go on: they read on at another
// node, over encrypted connections, and their epochs are exact. And strangers who try the same.
#include <sys/stat.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include "forebay/client.h"
#include "proto/contract/checksum.h"
#include "server/peer/channel_settings.h"
#include "server/peer/job_certificates.h"
#include "tests/integration/nodes_fixture.h"

namespace forebay::integration {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using std::chrono::steady_clock;

constexpr std::int64_t kDayS = 86'400;

class NodesLostDaemonTest : public NodesTest {
 protected:
  NodesLostDaemonTest() : NodesTest({.records = 8192, .ram = "24MiB", .ssd = true}) {}  // 32 MiB

  // As the options of each node have it.
  static std::string Secret(char letter) { return std::string(32, letter); }
  std::vector<std::string> WithSecret(std::vector<std::string> more = {}) const {
    const std::string path = rig_.folder() + "/secret";
    std::ofstream(path) << Secret('a');
    EXPECT_EQ(chmod(path.c_str(), 0600), 0);
    more.insert(more.end(), {"--set", "peer.secret=file:" + path});
    return more;
  }
  std::string AddressOf(std::uint32_t rank) { return NodesSeenBy(rank)[rank].address(); }

  // What one rank got, by position in the epoch's order.
  struct Epoch {
    std::uint64_t samples = 0;
    std::uint64_t wrong = 0;
    std::map<std::uint64_t, std::uint64_t> by_position = {};
    StreamStats stats = {};
    std::vector<std::string> notices = {};
    std::string error = {};
  };
  struct Reading {
    std::uint32_t node = 0;
    std::uint32_t ranks = 1;
    std::uint32_t rank = 0;
    std::int64_t other_node_after_ms = 0;
    std::int64_t connect_timeout_ms = 60'000;
    std::function<void(std::uint64_t)> after_batch = {};  // with the number of batches so far
  };
  // Reads epoch 1 with the client library.
  Epoch Read(const Reading& reading) const {
    Epoch epoch;
    const auto client = Client::Connect(
        {.address = "unix:" + rig_.node_socket(reading.node),
         .connect_timeout_ms = reading.connect_timeout_ms,
         .other_node_after_ms = reading.other_node_after_ms,
         .notice = [&epoch](const std::string& line) { epoch.notices.push_back(line); }});
    if (!client) return {.error = client.error().ToString()};
    StreamOptions options;
    options.dataset = kDataset;
    options.global_batch = kGlobalBatch;
    options.ranks = reading.ranks;
    options.rank = reading.rank;
    options.first_epoch = 1;
    options.seed = 7;
    options.tail = TailPolicy::kShort;
    const auto stream = (*client)->Open(options);
    if (!stream) return {.error = stream.error().ToString()};
    for (std::uint64_t batches = 0;;) {
      const auto batch = (*stream)->Next();
      if (!batch) epoch.error = batch.error().ToString();
      if (!batch || !*batch) break;
      Count(**batch, epoch);
      if (reading.after_batch) reading.after_batch(++batches);
    }
    epoch.stats = (*stream)->stats();
    if (epoch.error.empty()) {
      if (const Status finished = (*stream)->Finish(); !finished) {
        epoch.error = finished.error().ToString();
      }
    }
    return epoch;
  }
  static void Count(const Batch& batch, Epoch& epoch) {
    for (std::uint32_t i = 0; i < batch.sample_count(); ++i) {
      const std::uint64_t id = batch.sample_ids()[i].value();
      const auto spans = batch.Spans(FieldId(0), i);
      const bool is_right = spans.size() == 1 && IsRecord(id, spans[0]);
      epoch.wrong += is_right ? 0 : 1;
      ++epoch.samples;
      // As ReadEpoch does it.
      if (!is_right) continue;
      epoch.by_position[batch.first_position() + i] = Checksum(spans[0]) * (2 * id + 1);
    }
  }
};

TEST_F(NodesLostDaemonTest, AReaderGoesOnAtAnotherNodeAndItsEpochIsExact) {
  const auto expected = DeliveredByOneNode(1);
  StartAll(WithSecret());
  const Epoch epoch = Read({.node = 2, .after_batch = [this](std::uint64_t batches) {
                              if (batches == 20) daemons_[2]->Kill();
                            }});
  EXPECT_EQ(epoch.error, "");
  EXPECT_EQ(epoch.wrong, 0U);
  EXPECT_EQ(epoch.samples, records_);
  EXPECT_EQ(epoch.by_position, expected);
  EXPECT_EQ(epoch.stats.reconnects, 1U);
  EXPECT_GT(epoch.stats.other_node_batches, 0U);
  EXPECT_LT(epoch.stats.other_node_batches, epoch.stats.batches);
  ASSERT_EQ(epoch.notices.size(), 1U);
  EXPECT_THAT(epoch.notices[0], HasSubstr("reads from another node of the job"));
  // Rank 0 begins at the node behind the lost one.
  EXPECT_THAT(ReadText(rig_.node_log(3)), HasSubstr("is served in place of its own daemon"));
}

TEST_F(NodesLostDaemonTest, ItGoesBackToItsDaemonWhenThatIsStartedAgain) {
  const auto expected = DeliveredByOneNode(1);
  StartAll(WithSecret());
  std::uint64_t started_at = 0;
  const Epoch epoch = Read({.node = 1, .after_batch = [this, &started_at](std::uint64_t batches) {
                              if (batches == 20) daemons_[1]->Kill();
                              if (batches != 60) return;
                              // The reader looks once a second, and may just have looked.
                              const auto looks_at = steady_clock::now() + std::chrono::seconds(1);
                              daemons_[1] = StartNode(1, WithSecret());
                              EXPECT_FALSE(daemons_[1]->ready_line().empty());
                              AwaitStaged(*ClientOf(1));
                              EXPECT_TRUE(Eventually([looks_at] {
                                return steady_clock::now() > looks_at;
                              }));
                              started_at = batches;
                            }});
  EXPECT_EQ(started_at, 60U);
  EXPECT_EQ(epoch.error, "");
  EXPECT_EQ(epoch.samples, records_);
  EXPECT_EQ(epoch.by_position, expected);
  EXPECT_EQ(epoch.stats.reconnects, 2U);
  // The reader has its own daemon before the kill and at the end again. In between it reads from
  // another node, and looks for its daemon meanwhile.
  EXPECT_LT(epoch.stats.other_node_batches, epoch.stats.batches - 20);
  ASSERT_EQ(epoch.notices.size(), 2U);
  EXPECT_THAT(epoch.notices[1], HasSubstr("is back"));
}

TEST_F(NodesLostDaemonTest, TheRanksOfALostNodeSpreadOverTheOthers) {
  const auto expected = DeliveredByOneNode(1);
  StartAll(WithSecret());
  std::once_flag killed;
  std::vector<std::future<Epoch>> readers;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    readers.push_back(std::async(std::launch::async, [this, rank, &killed] {
      return Read({.node = 0, .ranks = 2, .rank = rank, .after_batch = [&](std::uint64_t batches) {
                     if (batches == 20) {
                       std::call_once(killed, [this] { daemons_[0]->Kill(); });
                     }
                   }});
    }));
  }
  std::map<std::uint64_t, std::uint64_t> by_position;
  std::uint64_t samples = 0;
  for (auto& reader : readers) {
    Epoch epoch = reader.get();
    EXPECT_EQ(epoch.error, "");
    EXPECT_GT(epoch.stats.other_node_batches, 0U);
    samples += epoch.samples;
    by_position.merge(epoch.by_position);
  }
  EXPECT_EQ(samples, records_);
  EXPECT_EQ(by_position, expected);
  for (const std::uint32_t node : {1U, 2U}) {
    EXPECT_THAT(ReadText(rig_.node_log(node)), HasSubstr("of another node, at")) << node;
  }
}

// Its connection stays open, and nothing comes.
TEST_F(NodesLostDaemonTest, AReaderOfADaemonThatStandsStillGoesOnAndComesBack) {
  const auto expected = DeliveredByOneNode(1);
  StartAll(WithSecret());
  bool is_stopped = false;
  const Epoch epoch = Read({.node = 2, .after_batch = [&](std::uint64_t batches) {
                              if (batches == 20) {
                                daemons_[2]->Signal(SIGSTOP);
                                is_stopped = true;
                              }
                              const std::string log = ReadText(rig_.node_log(3));
                              const bool has_left =
                                  is_stopped && log.find("in place of its own") != log.npos;
                              if (has_left) daemons_[2]->Signal(SIGCONT);
                              is_stopped = is_stopped && !has_left;
                            }});
  EXPECT_FALSE(is_stopped);
  EXPECT_EQ(epoch.error, "");
  EXPECT_EQ(epoch.samples, records_);
  EXPECT_EQ(epoch.by_position, expected);
  EXPECT_GT(epoch.stats.other_node_batches, 0U);
}

// The other nodes still supply what such a reader needs, so they do not end before it.
TEST_F(NodesLostDaemonTest, NodesThatHaveFinishedWaitForTheReaderOfALostOne) {
  StartAll(WithSecret({"--set", "nodes.lost_readers_s=0"}));
  const Epoch epoch = Read({.node = 3, .after_batch = [this](std::uint64_t batches) {
                              if (batches == 20) daemons_[3]->Kill();
                              if (batches != 40) return;
                              for (const std::uint32_t rank : {0U, 1U, 2U}) Finish(rank);
                              // The one that serves the reader would end now.
                              EXPECT_TRUE(Eventually([this] {
                                return ReadText(rig_.node_log(0)).find("all nodes have finished") !=
                                       std::string::npos;
                              }));
                            }});
  EXPECT_EQ(epoch.error, "");
  EXPECT_EQ(epoch.samples, records_);
  EXPECT_EQ(epoch.wrong, 0U);
  EXPECT_EQ(epoch.stats.reconnects, 1U) << "it had to look for another node again";
  for (const std::uint32_t rank : {0U, 1U, 2U}) EXPECT_EQ(Outcome(rank), "0");
}

// They have ended their readers' last epoch when its daemon dies, and know of no other reader.
TEST_F(NodesLostDaemonTest, NodesThatHaveFinishedStayForTheReaderOfOneThatIsLostThen) {
  StartAll(WithSecret({"--set", "nodes.lost_readers_s=20"}));
  // The reader looks for its daemon for so long that the others have asked each other meanwhile.
  const Epoch epoch = Read({.node = 3,
                            .other_node_after_ms = 5'000,
                            .after_batch = [this](std::uint64_t batches) {
                              if (batches != 20) return;
                              for (const std::uint32_t rank : {0U, 1U, 2U}) Finish(rank);
                              daemons_[3]->Kill();
                            }});
  EXPECT_EQ(epoch.error, "");
  EXPECT_EQ(epoch.samples, records_);
  EXPECT_EQ(epoch.wrong, 0U);
  EXPECT_GT(epoch.stats.other_node_batches, 0U);
  EXPECT_TRUE(LogSays(0, 3, "has not said that it has finished"));
  for (const std::uint32_t rank : {0U, 1U, 2U}) EXPECT_EQ(Outcome(rank), "0");
}

TEST_F(NodesLostDaemonTest, TheyStayNoLongerThanTheyAreTold) {
  StartAll(WithSecret({"--set", "nodes.lost_readers_s=0"}));
  daemons_[3]->Kill();
  for (const std::uint32_t rank : {0U, 1U, 2U}) Finish(rank);
  for (const std::uint32_t rank : {0U, 1U, 2U}) EXPECT_EQ(Outcome(rank), "0");
  EXPECT_TRUE(LogSays(0, 3, "this node does not wait for it"));
}

TEST_F(NodesLostDaemonTest, AReaderOfADaemonThatIsDrainedGoesOnToo) {
  StartAll(WithSecret());
  const Epoch epoch = Read({.node = 1, .after_batch = [this](std::uint64_t batches) {
                              if (batches == 20) daemons_[1]->Signal(SIGTERM);
                            }});
  EXPECT_EQ(epoch.error, "");
  EXPECT_EQ(epoch.samples, records_);
  EXPECT_EQ(Outcome(1), "0");
}

TEST_F(NodesLostDaemonTest, WhereOtherNodesServeNobodyTheReaderGetsAnError) {
  StartAll(WithSecret({"--set", "peer.remote_clients=false"}));
  const Epoch epoch = Read({.node = 2, .connect_timeout_ms = 500,
                            .after_batch = [this](std::uint64_t batches) {
                              if (batches == 20) daemons_[2]->Kill();
                            }});
  EXPECT_THAT(epoch.error, AllOf(HasSubstr("UNAVAILABLE"),
                                 HasSubstr("unix:" + rig_.node_socket(2))));
  EXPECT_EQ(epoch.stats.other_node_batches, 0U);
  EXPECT_TRUE(epoch.notices.empty());
}

// In plaintext, anybody could come.
TEST_F(NodesLostDaemonTest, WithoutASecretOtherNodesServeNobody) {
  StartAll();
  const auto channel = grpc::CreateChannel(AddressOf(1), grpc::InsecureChannelCredentials());
  v1::HelloReply reply;
  const auto context = NewContext();
  const grpc::Status refused =
      v1::Data::NewStub(channel)->Hello(context.get(), ClientOf(1)->GoodHello(), &reply);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  v1::HelloReply own;
  const auto client = ClientOf(1);
  ASSERT_TRUE(client->Hello(client->GoodHello(), own).ok());
  EXPECT_FALSE(own.has_remote_daemons());
}

// Clients that a test makes by hand, at the address of node 1 for other nodes.
class NodesRemoteClientTest : public NodesLostDaemonTest {
 protected:
  void SetUp() override {
    StartAll(WithSecret());
    ASSERT_FALSE(HasFailure());
    address_ = AddressOf(1);
  }
  static peer::NodeCertificates Certificates(char secret, const std::string& job = "job-1",
                                             std::int64_t until_s = kDayS) {
    const std::int64_t now_s = std::time(nullptr);
    auto made = peer::MakeNodeCertificates(
        Secret(secret), job, {.from_s = now_s - 2 * kDayS, .until_s = now_s + until_s});
    EXPECT_TRUE(made.has_value());
    // What a client has.
    made->node = made->client;
    made->key = made->client_key;
    return *made;
  }
  std::shared_ptr<grpc::Channel> ChannelWith(const peer::NodeCertificates& certificates) const {
    return peer::ConnectionTo(address_, certificates);
  }
  grpc::Status SayHello(const std::shared_ptr<grpc::Channel>& channel,
                        const std::string& job = "job-1") {
    v1::HelloRequest request = ClientOf(0)->GoodHello();
    request.set_job_id(job);
    request.set_session(0);
    const auto context = NewContext();
    hello_ = {};
    return v1::Data::NewStub(channel)->Hello(context.get(), request, &hello_);
  }
  void ExpectStranger(const peer::NodeCertificates& certificates) {
    const grpc::Status refused = SayHello(ChannelWith(certificates));
    EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAVAILABLE) << refused.error_message();
    // Those of the job are served as before.
    const grpc::Status served = SayHello(ChannelWith(Certificates('a')));
    EXPECT_TRUE(served.ok()) << served.error_message();
  }

  std::string address_;
  v1::HelloReply hello_;
};

TEST_F(NodesRemoteClientTest, StrangersAreRefusedAndLogged) {
  ExpectStranger(Certificates('b'));                   // another secret
  ExpectStranger(Certificates('a', "job-2"));          // another job
  ExpectStranger(Certificates('a', "job-1", -kDayS));  // expired
  ExpectStranger({});                                  // in plaintext
  peer::NodeCertificates forged = Certificates('b');
  forged.authority = Certificates('a').authority;
  ExpectStranger(forged);
  EXPECT_THAT(ReadText(rig_.node_log(1)), HasSubstr("andshake failed"));
}

TEST_F(NodesRemoteClientTest, AClientOfTheJobGetsDataAndNothingElse) {
  const auto channel = ChannelWith(Certificates('a'));
  ASSERT_TRUE(SayHello(channel).ok());
  EXPECT_EQ(hello_.job_id(), "job-1");
  EXPECT_FALSE(hello_.has_remote_daemons()) << "no private key leaves its node";
  EXPECT_EQ(SayHello(channel, "job-2").error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  v1::StatusReply status;
  const auto context = NewContext();
  EXPECT_EQ(v1::Admin::NewStub(channel)->Status(context.get(), {}, &status).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(NodesRemoteClientTest, AClientThatComesAgainAndAgainLeavesFewLines) {
  const auto channel = ChannelWith(Certificates('a'));
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(SayHello(channel).ok());
  std::istringstream lines(ReadText(rig_.node_log(1)));
  int about_it = 0;
  for (std::string line; std::getline(lines, line);) {
    about_it += line.find("in place of its own daemon") != line.npos ? 1 : 0;
  }
  EXPECT_GE(about_it, 1);
  EXPECT_LE(about_it, 2 * 16) << "a minute may have ended meanwhile";
}

TEST_F(NodesRemoteClientTest, AStreamInSharedMemoryIsRefused) {
  const v1::DescribeReply dataset = ClientOf(1)->Describe(kDataset);
  const auto stub = v1::Data::NewStub(ChannelWith(Certificates('a')));
  const auto context = NewContext();
  const auto call = stub->Stream(context.get());
  call->Write(GoodOpen(dataset, 16));
  const grpc::Status refused = call->Finish();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(refused.error_message(), HasSubstr("inline_payload"));
}

TEST_F(NodesRemoteClientTest, AMessageBeyondTheLimitEndsItsCallOnly) {
  const auto stub = v1::Data::NewStub(ChannelWith(Certificates('a')));
  v1::DescribeRequest request;
  request.set_dataset(std::string(8 << 20, 'x'));
  v1::DescribeReply reply;
  const auto context = NewContext();
  EXPECT_EQ(stub->Describe(context.get(), request, &reply).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  request.set_dataset(kDataset);
  const auto again = NewContext();
  EXPECT_TRUE(stub->Describe(again.get(), request, &reply).ok());
}

// Each has the place of a client that needs it.
TEST_F(NodesRemoteClientTest, ACallThatOpensNothingIsEnded) {
  const auto stub = v1::Data::NewStub(ChannelWith(Certificates('a')));
  const auto context = NewContext();
  const auto call = stub->Stream(context.get());
  v1::StreamReply reply;
  EXPECT_FALSE(call->Read(&reply));
  const grpc::Status ended = call->Finish();
  EXPECT_EQ(ended.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(ended.error_message(), HasSubstr("has opened no stream"));
}

// What a client leaves behind that is gone without a word.
TEST_F(NodesRemoteClientTest, TheMemoryOfAClientThatVanishesIsFree) {
  v1::StreamRequest open = GoodOpen(ClientOf(1)->Describe(kDataset), 16);
  open.mutable_open()->set_inline_payload(true);
  open.mutable_open()->set_reader(4711);
  *open.add_pulls() = PullOf(0, 4).pulls(0);
  {
    const auto channel = ChannelWith(Certificates('a'));
    const auto stub = v1::Data::NewStub(channel);
    const auto context = NewContext();
    const auto call = stub->Stream(context.get());
    ASSERT_TRUE(call->Write(open));
    v1::StreamReply reply;
    ASSERT_TRUE(call->Read(&reply));
    EXPECT_EQ(ClientOf(1)->Status().streams_size(), 1);
    context->TryCancel();
    while (call->Read(&reply)) {
    }
    call->Finish();
  }
  EXPECT_TRUE(Eventually([&] {
    const v1::StatusReply status = ClientOf(1)->Status();
    return status.streams_size() == 0 && status.slot_bytes_used() == 0;
  }));
}

}  // namespace
}  // namespace forebay::integration

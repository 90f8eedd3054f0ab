// A node gets requests that no node of this version sends. It answers each with a clear error, and
// goes on answering others.
#include "server/peer/peer_server.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <future>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>

#include "forebay/v1/peer.grpc.pb.h"
#include "proto/contract/limits.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/manual_clock.h"
#include "server/peer/member_requests.h"
#include "server/peer/peer_requests.h"
#include "server/peer/testing/lone_prober.h"
#include "server/peer/testing/peer_rig.h"
#include "server/stage/extent_source.h"

namespace forebay::peer {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// One call of a node that says what it likes.
class RawCall final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  RawCall(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
          grpc::ByteBuffer request)
      : request_(std::move(request)) {
    // ThreadSanitizer does not see gRPC's own synchronisation, so it is told by this mutex that the
    // object was complete before gRPC called it.
    const std::lock_guard lock(begun_);
    grpc::GenericStub(channel).PrepareBidiStreamingCall(
        &context_, "/forebay.v1.Peer/" + method, {}, this);
    StartWriteLast(&request_, grpc::WriteOptions());
    StartRead(&reply_);
    StartCall();
  }
  void OnReadDone(bool ok) override {
    if (!ok) return;
    ++messages_;
    last_.Swap(&reply_);
    StartRead(&reply_);
  }
  void OnDone(const grpc::Status& status) override {
    begun_.lock();
    begun_.unlock();
    // This object may be destroyed before set_value returns.
    const std::shared_ptr<std::promise<grpc::Status>> ended = ended_;
    ended->set_value(status);
  }
  grpc::Status Await() { return status_.get(); }
  // Before Await.
  bool HasEnded() const {
    return status_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }
  // To be called after Await.
  std::size_t messages() const { return messages_; }
  const grpc::ByteBuffer& last() const { return last_; }

 private:
  std::mutex begun_;
  grpc::ClientContext context_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer reply_;
  grpc::ByteBuffer last_;
  std::size_t messages_ = 0;
  const std::shared_ptr<std::promise<grpc::Status>> ended_ =
      std::make_shared<std::promise<grpc::Status>>();
  std::future<grpc::Status> status_ = ended_->get_future();
};

class PeerServerTest : public ::testing::Test {
 protected:
  explicit PeerServerTest(bool has_returned = false) {
    auto made = PeerRig::Create({.serves = false});
    EXPECT_TRUE(made.has_value());
    rig_ = std::move(*made);
    rig_->has_returned = has_returned;
    throttle_.Begin({.caps = {8e6, 0}, .node_count = 2, .self = PeerRig::kNode});
    rig_->prober = &lone_.prober();
    rig_->throttle = &throttle_;
    FOREBAY_EXPECT_OK(rig_->Serve());
    grpc::ChannelArguments unbounded;
    unbounded.SetMaxSendMessageSize(-1);
    channel_ = grpc::CreateCustomChannel(rig_->address(), grpc::InsecureChannelCredentials(),
                                         unbounded);
    const PeerRequest head{.identity = DigestOf(PeerRig::AskingIdentity()),
                           .dataset = rig_->dataset().hash(),
                           .catalog_fingerprint = rig_->dataset().catalog()->fingerprint()};
    rows_.set_identity(head.identity);
    rows_.set_dataset(head.dataset);
    rows_.set_catalog_fingerprint(head.catalog_fingerprint);
    extent_.set_identity(head.identity);
    extent_.set_dataset(head.dataset);
    extent_.set_catalog_fingerprint(head.catalog_fingerprint);
  }
  ~PeerServerTest() override {
    FOREBAY_EXPECT_OK(rig_->Connect(rig_->address()));
    PeerRig::Rows rows = rig_->Ask({1, 2, 3});
    FOREBAY_EXPECT_OK(rows.outcome.get());
    EXPECT_TRUE(rig_->AreRight(rows)) << "it answers others as before";
  }

  grpc::Status Call(const std::string& method, const std::string& request) {
    const grpc::Slice slice(request);
    RawCall call(channel_, method, grpc::ByteBuffer(&slice, 1));
    return call.Await();
  }
  void ExpectRefused(const grpc::Status& status, grpc::StatusCode code, const std::string& text) {
    EXPECT_EQ(status.error_code(), code) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr(text));
  }
  void AddRows(std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) {
      rows_.add_samples(i % 512);
      rows_.add_fields(0);
    }
  }

  static std::string TextOf(const grpc::ByteBuffer& message) {
    std::vector<grpc::Slice> slices;
    EXPECT_TRUE(message.Dump(&slices).ok());
    std::string text;
    for (const grpc::Slice& slice : slices) text.append(slice.begin(), slice.end());
    return text;
  }
  // The checksum of an extent, as another node gives it.
  FirstReadsGiven FirstReadOf(ExtentId extent) const {
    return {.request = {.identity = rows_.identity(),
                        .dataset = rows_.dataset(),
                        .catalog_fingerprint = rows_.catalog_fingerprint()},
            .from = NodeRank(0),
            .reads = {{.key = rig_->dataset().key(extent), .checksum = 1}}};
  }

  // Makes so many calls which wait on the node that it refuses some of them.
  void BeginCalls(const std::string& method, const std::string& text) {
    constexpr std::size_t kRefused = 64;
    const grpc::Slice request(text);
    for (std::size_t i = 0; i < limits::kPeerCallsMax + kRefused; ++i) {
      // Without an argument of its own, a channel would share the connection of the one before.
      if (i % limits::kRpcStreamsPerConnectionMax == 0) {
        grpc::ChannelArguments own;
        own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
        channels_.push_back(grpc::CreateCustomChannel(
            rig_->address(), grpc::InsecureChannelCredentials(), own));
      }
      waiting_.push_back(std::make_unique<RawCall>(channels_.back(), method,
                                                   grpc::ByteBuffer(&request, 1)));
    }
    // When that many have been refused, the others wait, and the node refuses such calls.
    const auto has_ended = [](const std::unique_ptr<RawCall>& call) { return call->HasEnded(); };
    while (std::ranges::count_if(waiting_, has_ended) < std::ptrdiff_t{kRefused}) {
      std::this_thread::yield();
    }
  }
  void AwaitCalls() {
    std::size_t answered = 0;
    for (const auto& call : waiting_) answered += call->Await().ok() ? 1 : 0;
    EXPECT_EQ(answered, limits::kPeerCallsMax);
    waiting_.clear();
  }

  io::ManualClock clock_;
  stage::GfsThrottle throttle_{clock_};
  LoneProber lone_;
  std::unique_ptr<PeerRig> rig_;
  std::shared_ptr<grpc::Channel> channel_;
  v1::SamplesRequest rows_;
  v1::ExtentRequest extent_;
  std::vector<std::shared_ptr<grpc::Channel>> channels_;
  std::vector<std::unique_ptr<RawCall>> waiting_;
};

TEST_F(PeerServerTest, ARequestAsOtherNodesSendItIsAnswered) {
  AddRows(3);
  EXPECT_TRUE(Call("Samples", rows_.SerializeAsString()).ok());
  EXPECT_TRUE(Call("Extent", extent_.SerializeAsString()).ok());
}

TEST_F(PeerServerTest, TruncatedMessagesAreRefused) {
  AddRows(3);
  const std::string rows = rows_.SerializeAsString();
  ExpectRefused(Call("Samples", rows.substr(0, rows.size() - 1)),
                grpc::StatusCode::INVALID_ARGUMENT, "no request");
  ExpectRefused(Call("Samples", ""), grpc::StatusCode::INVALID_ARGUMENT, "0 samples");
  const std::string extent = extent_.SerializeAsString();
  ExpectRefused(Call("Extent", extent.substr(0, extent.size() - 1)),
                grpc::StatusCode::INVALID_ARGUMENT, "no request");
  ExpectRefused(Call("Extent", ""), grpc::StatusCode::FAILED_PRECONDITION, "another job");
}

TEST_F(PeerServerTest, OversizedMessagesAreRefused) {
  const std::string large(limits::kPeerMessageBytesMax + 1, '\0');
  for (const char* method : {"Samples", "Extent", "FirstReads", "ObjectStats", "Hello", "Ping",
                             "Borrow"}) {
    ExpectRefused(Call(method, large), grpc::StatusCode::RESOURCE_EXHAUSTED, "larger than max");
  }
}

TEST_F(PeerServerTest, TooManyRowsAreRefused) {
  AddRows(limits::kPeerRowsMax + 1);
  ExpectRefused(Call("Samples", rows_.SerializeAsString()), grpc::StatusCode::RESOURCE_EXHAUSTED,
                "at most 4096");
}

TEST_F(PeerServerTest, RowsWithoutAFieldEachAreRefused) {
  AddRows(3);
  rows_.add_samples(1);
  ExpectRefused(Call("Samples", rows_.SerializeAsString()), grpc::StatusCode::INVALID_ARGUMENT,
                "4 samples and 3 fields");
}

TEST_F(PeerServerTest, FirstReadsThatNoNodeGivesAreRefused) {
  FirstReadsGiven given = FirstReadOf(ExtentId(1));
  const std::string whole = TextOf(WriteRequest(given));
  EXPECT_TRUE(Call("FirstReads", whole).ok());
  ExpectRefused(Call("FirstReads", whole.substr(0, whole.size() - 1)),
                grpc::StatusCode::INVALID_ARGUMENT, "no request");
  std::string altered = whole;
  altered.back() = static_cast<char>(altered.back() ^ 1);
  ExpectRefused(Call("FirstReads", altered), grpc::StatusCode::DATA_LOSS, "digest");
  given.reads.front().key.extent = ExtentId(9);
  ExpectRefused(Call("FirstReads", TextOf(WriteRequest(given))), grpc::StatusCode::INVALID_ARGUMENT,
                "no extent 9");
  ++given.request.identity;
  ExpectRefused(Call("FirstReads", TextOf(WriteRequest(given))),
                grpc::StatusCode::FAILED_PRECONDITION, "another job");
}

TEST_F(PeerServerTest, RequestsForSizesThatNoNodeSendsAreRefused) {
  const auto text_of = [this](const std::vector<std::string>& paths, std::uint64_t identity,
                              std::uint64_t dataset) {
    return TextOf(WriteStatsRequest({.identity = rows_.identity() + identity,
                                     .dataset = rows_.dataset() + dataset},
                                    paths));
  };
  const std::string whole = text_of({"data.bin"}, 0, 0);
  EXPECT_TRUE(Call("ObjectStats", whole).ok());
  EXPECT_TRUE(Call("ObjectStats", text_of({"missing"}, 0, 0)).ok()) << "an answer without sizes";
  ExpectRefused(Call("ObjectStats", whole.substr(0, whole.size() - 1)),
                grpc::StatusCode::INVALID_ARGUMENT, "no request");
  ExpectRefused(Call("ObjectStats", ""), grpc::StatusCode::INVALID_ARGUMENT, "of 0 files");
  ExpectRefused(Call("ObjectStats", text_of({"../secret"}, 0, 0)),
                grpc::StatusCode::INVALID_ARGUMENT, "'../secret' is not a canonical path");
  ExpectRefused(Call("ObjectStats", text_of({"data.bin"}, 1, 0)),
                grpc::StatusCode::FAILED_PRECONDITION, "another job");
  ExpectRefused(Call("ObjectStats", text_of({"data.bin"}, 0, 1)), grpc::StatusCode::NOT_FOUND,
                "no data set");
}

TEST_F(PeerServerTest, FirstReadsThatWaitForAFileTakeNoPlacesOfOtherCalls) {
  stage::StageRig& stage = rig_->rig();
  const auto directory = std::move(*stage.backend().OpenDirectory("/ssd"));
  FOREBAY_EXPECT_OK(rig_->dataset().first_reads().Open(stage.backend(), *directory, "first",
                                                       /*forget=*/false));
  rig_->dataset().first_reads().Forget();  // its own, so that the first call writes
  stage.ssd_faults.Arm(
      {.kind = io::FaultKind::kStall, .call = io::IoCall::kWrite, .is_persistent = true});
  const std::string given = TextOf(WriteRequest(FirstReadOf(ExtentId(1))));
  BeginCalls("FirstReads", given);
  AddRows(1);
  EXPECT_TRUE(Call("Samples", rows_.SerializeAsString()).ok());
  ExpectRefused(Call("FirstReads", given), grpc::StatusCode::RESOURCE_EXHAUSTED,
                "daemon.state_dir is slow");
  stage.ssd_faults.Disarm();
  stage.ssd_faults.ReleaseStalls();
  AwaitCalls();
}

// Calls for an extent that the GFS does not give wait on the node until it answers no further ones.
class BusyPeerServerTest : public PeerServerTest {
 protected:
  BusyPeerServerTest() {
    rig_->rig().gfs_faults.Arm(
        {.kind = io::FaultKind::kStall, .call = io::IoCall::kRead, .is_persistent = true});
    FOREBAY_EXPECT_OK(
        rig_->rig().cache().Evict(rig_->dataset().key(ExtentId(0)), std::nullopt));
    extent_.set_extent(0);
    BeginCalls("Extent", extent_.SerializeAsString());
  }
  ~BusyPeerServerTest() override { EndCalls(); }

  // The GFS gives the extent, so the node answers the calls that wait.
  void EndCalls() {
    if (waiting_.empty()) return;
    rig_->rig().gfs_faults.Disarm();
    rig_->rig().gfs_faults.ReleaseStalls();
    AwaitCalls();
  }
  static bool IsUnderWay(std::future<Status>& outcome) {
    return outcome.wait_for(std::chrono::milliseconds(100)) == std::future_status::timeout;
  }

  static constexpr std::uint64_t kRowThatIsThere = 511;  // of the last extent
};

TEST_F(BusyPeerServerTest, RefusesRowsAndExtentsAndHasNodesAskAgainForCatalogParts) {
  AddRows(1);
  for (const auto& [method, request] : {std::pair{"Samples", rows_.SerializeAsString()},
                                        std::pair{"Extent", extent_.SerializeAsString()}}) {
    const grpc::Status refused = Call(method, request);
    ExpectRefused(refused, grpc::StatusCode::RESOURCE_EXHAUSTED, "answers 1024 calls");
    EXPECT_EQ(refused.error_details(), "too busy");
  }
  v1::CatalogPartRequest part;
  part.set_identity(rows_.identity());
  part.set_dataset(rows_.dataset());
  const grpc::Slice slice(part.SerializeAsString());
  RawCall call(channel_, "CatalogPart", grpc::ByteBuffer(&slice, 1));
  EXPECT_TRUE(call.Await().ok());
  EXPECT_EQ(call.messages(), 1U);
  EXPECT_EQ(call.last().Length(), 0U) << "not there yet";
}

// Without the loan or the lease a node's caps would fall, and without keepers the extents of a node
// are served all the same.
TEST_F(BusyPeerServerTest, KeepsFirstReadsAndLendsItsShareAllTheSame) {
  ExpectRefused(Call("Extent", extent_.SerializeAsString()), grpc::StatusCode::RESOURCE_EXHAUSTED,
                "answers 1024 calls");
  rig_->dataset().first_reads().Forget();
  EXPECT_TRUE(Call("FirstReads", TextOf(WriteRequest(FirstReadOf(ExtentId(1))))).ok());
  EXPECT_TRUE(rig_->dataset().first_reads().Find(rig_->dataset().key(ExtentId(1))).has_value());
  for (const stage::ShareAsk& ask :
       {stage::ShareAsk{.wanted = {1e6, 0}}, stage::ShareAsk{.lease = NodeRank(0)}}) {
    EXPECT_TRUE(Call("Borrow", TextOf(WriteRequest(BorrowAsked{
                                   .identity = rows_.identity(), .from = NodeRank(0), .ask = ask})))
                    .ok());
  }
}

TEST_F(BusyPeerServerTest, RowsAreAskedForAgainUntilTheyCome) {
  FOREBAY_EXPECT_OK(rig_->Connect(rig_->address()));
  PeerRig::Rows rows = rig_->Ask({kRowThatIsThere});
  EXPECT_TRUE(IsUnderWay(rows.outcome));
  EndCalls();
  FOREBAY_EXPECT_OK(rows.outcome.get());
  EXPECT_TRUE(rig_->AreRight(rows));
  const LinkFigures figures = rig_->peers().figures(PeerRig::kNode);
  EXPECT_EQ(figures.calls, 1U) << "refused calls are not counted";
  EXPECT_EQ(figures.failed, 0U);
}

TEST_F(BusyPeerServerTest, AnExtentIsAskedForAgainUntilItComes) {
  FOREBAY_EXPECT_OK(rig_->Connect(rig_->address()));
  std::future<Status> outcome = std::async(std::launch::async, [this]() -> Status {
    FOREBAY_ASSIGN(const stage::SuppliedExtent supplied, rig_->ReadExtent(ExtentId(7)));
    FOREBAY_TRY(stage::VerifySupplied(rig_->dataset(), *rig_->dataset().catalog(), ExtentId(7),
                                      supplied));
    return {};
  });
  EXPECT_TRUE(IsUnderWay(outcome));
  EndCalls();
  FOREBAY_EXPECT_OK(outcome.get());
}

TEST_F(BusyPeerServerTest, AfterTheDeadlineTheNodeCountsAsBusyAndNotAsDead) {
  FOREBAY_EXPECT_OK(rig_->Connect(rig_->address()));
  PeerRig::Rows rows = rig_->Ask({kRowThatIsThere}, /*wait_ms=*/3000);
  const Status outcome = rows.outcome.get();
  ASSERT_FALSE(outcome.has_value());
  EXPECT_TRUE(stage::IsTooBusy(outcome.error())) << outcome.error().ToString();
  EXPECT_FALSE(stage::IsNoAnswer(outcome.error()));
  EXPECT_THAT(outcome.error().message(), HasSubstr("node " + rig_->address()));
}

TEST_F(BusyPeerServerTest, ARequestThatNobodyWantsIsNotMadeAgain) {
  FOREBAY_EXPECT_OK(rig_->Connect(rig_->address()));
  std::stop_source unwanted;
  PeerRig::Rows rows = rig_->Ask({kRowThatIsThere}, 60'000, unwanted.get_token());
  EXPECT_TRUE(IsUnderWay(rows.outcome));
  unwanted.request_stop();
  const Status outcome = rows.outcome.get();
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code(), ErrorCode::kCancelled);
}

// The node that asks for sizes of files goes on with the next node.
TEST_F(BusyPeerServerTest, SizesOfFilesAreRefused) {
  FOREBAY_EXPECT_OK(rig_->Connect(rig_->address()));
  const std::vector<std::string> paths = {"data.bin"};
  const auto sizes = rig_->peers().Stat(
      {.node = PeerRig::kNode, .dataset = rig_->dataset(), .paths = paths});
  ASSERT_FALSE(sizes.has_value());
  EXPECT_EQ(sizes.error().code(), ErrorCode::kResourceExhausted);
  EXPECT_FALSE(stage::IsNoAnswer(sizes.error()));
}

TEST_F(PeerServerTest, NodesThatHaveNotTheSameIdentityAreRefusedWithoutHello) {
  AddRows(1);
  rows_.set_identity(rows_.identity() + 1);
  ExpectRefused(Call("Samples", rows_.SerializeAsString()), grpc::StatusCode::FAILED_PRECONDITION,
                "another job");
  extent_.set_identity(extent_.identity() + 1);
  ExpectRefused(Call("Extent", extent_.SerializeAsString()),
                grpc::StatusCode::FAILED_PRECONDITION, "another job");
}

// The catalogs have the same fingerprint, because only bytes of objects have changed.
TEST_F(PeerServerTest, NodesThatHaveNotRebuiltTheDataSetAsOftenAreRefused) {
  AddRows(1);
  const std::string rows_before = rows_.SerializeAsString();
  rows_.set_rebuilds(1);
  ExpectRefused(Call("Samples", rows_.SerializeAsString()), grpc::StatusCode::FAILED_PRECONDITION,
                "rebuilt 0 times on node " + rig_->address());
  rig_->dataset().version().SetRebuilds(1);
  EXPECT_TRUE(Call("Samples", rows_.SerializeAsString()).ok());
  ExpectRefused(Call("Samples", rows_before), grpc::StatusCode::FAILED_PRECONDITION,
                "0 times on the node that asks");
  extent_.set_extent(0);
  ExpectRefused(Call("Extent", extent_.SerializeAsString()),
                grpc::StatusCode::FAILED_PRECONDITION, "0 times on the node that asks");
  ExpectRefused(Call("FirstReads", TextOf(WriteRequest(FirstReadOf(ExtentId(1))))),
                grpc::StatusCode::FAILED_PRECONDITION, "0 times on the node that asks");
}

class ReturnedPeerServerTest : public PeerServerTest {
 protected:
  ReturnedPeerServerTest() : PeerServerTest(/*has_returned=*/true) {}
};

// It is neither lost nor late: others ask the next node, without a second try and without a mark.
TEST_F(ReturnedPeerServerTest, ANodeThatLacksARebuildIsPassedOver) {
  AddRows(1);
  extent_.set_extent(0);
  rows_.set_rebuilds(1);
  extent_.set_rebuilds(1);
  FirstReadsGiven given = FirstReadOf(ExtentId(1));
  given.request.rebuilds = 1;
  const auto expect_passed_over = [&](const grpc::Status& status) {
    const Error error = FromGrpcStatus(status, "x");
    EXPECT_TRUE(stage::IsAskNext(error)) << error.ToString();
    EXPECT_THAT(error.message(), HasSubstr("rebuilt 1 times on another node, and 0 times on node " +
                                           rig_->address() +
                                           ": call 'forebay stage --rebuild data' on node "));
  };
  expect_passed_over(Call("Samples", rows_.SerializeAsString()));
  expect_passed_over(Call("Extent", extent_.SerializeAsString()));
  expect_passed_over(Call("FirstReads", TextOf(WriteRequest(given))));
  rig_->dataset().version().SetRebuilds(1);
  EXPECT_TRUE(Call("Samples", rows_.SerializeAsString()).ok());
  EXPECT_TRUE(Call("FirstReads", TextOf(WriteRequest(given))).ok());
}

// So that its readers are told, and do not get bytes of before from the GFS instead.
TEST_F(ReturnedPeerServerTest, ANodeThatAsksAndLacksARebuildItselfIsRefused) {
  AddRows(1);
  rig_->dataset().version().SetRebuilds(1);
  ExpectRefused(Call("Samples", rows_.SerializeAsString()), grpc::StatusCode::FAILED_PRECONDITION,
                "0 times on the node that asks: call 'forebay stage --rebuild data' on the node");
  extent_.set_extent(0);
  ExpectRefused(Call("Extent", extent_.SerializeAsString()),
                grpc::StatusCode::FAILED_PRECONDITION, "0 times on the node that asks");
}

TEST_F(ReturnedPeerServerTest, ARebuildThatItLacksIsLoggedOnce) {
  AddRows(1);
  const auto log_of_call = [&](std::uint32_t rebuilds) {
    rows_.set_rebuilds(rebuilds);
    ::testing::internal::CaptureStdout();
    EXPECT_FALSE(Call("Samples", rows_.SerializeAsString()).ok());
    return ::testing::internal::GetCapturedStdout();
  };
  EXPECT_THAT(log_of_call(1), HasSubstr("until then this node supplies nothing of it"));
  EXPECT_THAT(log_of_call(1), Not(HasSubstr("until then")));
  EXPECT_THAT(log_of_call(2), HasSubstr("rebuilt 2 times on another node, and 0 times on node "));
  EXPECT_THAT(log_of_call(1), Not(HasSubstr("until then"))) << "it lacks the second one, too";
}

TEST_F(PeerServerTest, UnknownDataSetsAndOtherCatalogsAreRefused) {
  AddRows(1);
  rows_.set_dataset(5);
  ExpectRefused(Call("Samples", rows_.SerializeAsString()), grpc::StatusCode::NOT_FOUND,
                "name hash 0000000000000005");
  extent_.set_dataset(5);
  ExpectRefused(Call("Extent", extent_.SerializeAsString()), grpc::StatusCode::NOT_FOUND,
                "name hash 0000000000000005");
  extent_.set_dataset(rig_->dataset().hash());
  extent_.set_catalog_fingerprint(1);
  ExpectRefused(Call("Extent", extent_.SerializeAsString()),
                grpc::StatusCode::FAILED_PRECONDITION, "configured alike");
}

TEST_F(PeerServerTest, AnExtentOutOfRangeIsRefused) {
  extent_.set_extent(~std::uint32_t{0});
  ExpectRefused(Call("Extent", extent_.SerializeAsString()), grpc::StatusCode::INVALID_ARGUMENT,
                "no extent 4294967295");
}

TEST_F(PeerServerTest, HelloComparesVersionsAndSaysWhichDiffer) {
  const auto stub = v1::Peer::NewStub(channel_);
  grpc::ClientContext context;
  v1::PeerHelloRequest hello;
  hello.set_address("127.0.0.1:7\x1b[31m");
  hello.set_protocol_version(kPeerProtocolVersion);
  hello.set_order_version(kOrderSpecVersion);
  hello.set_catalog_version(kCatalogVersion + 1);
  hello.set_job_id("job");
  v1::PeerHelloReply reply;
  const grpc::Status status = stub->Hello(&context, hello, &reply);
  ExpectRefused(status, grpc::StatusCode::FAILED_PRECONDITION, "catalog version");
  EXPECT_THAT(status.error_message(), ::testing::Not(HasSubstr("\x1b")));
}

TEST_F(PeerServerTest, AnAddressInUseIsAnError) {
  const auto second = PeerServer::Listen({.address = rig_->address()});
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code(), ErrorCode::kUnavailable);
}

// Hello, as a daemon says it that was started a moment earlier.
class HelloCall {
 public:
  HelloCall(const std::string& address, std::uint64_t node_list_digest)
      : stub_(v1::Peer::NewStub(
            grpc::CreateChannel(address, grpc::InsecureChannelCredentials()))) {
    hello_.set_protocol_version(kPeerProtocolVersion);
    hello_.set_order_version(kOrderSpecVersion);
    hello_.set_catalog_version(kCatalogVersion);
    hello_.set_job_id("job");
    hello_.set_node_list_digest(node_list_digest);
    stub_->async()->Hello(&context_, &hello_, &reply_,
                          [this](const grpc::Status& status) { ended_.set_value(status); });
  }
  grpc::Status Await() { return status_.get(); }
  bool IsAnswered() {
    return status_.wait_for(std::chrono::milliseconds(50)) == std::future_status::ready;
  }

 private:
  std::unique_ptr<v1::Peer::Stub> stub_;
  grpc::ClientContext context_;
  v1::PeerHelloRequest hello_;
  v1::PeerHelloReply reply_;
  std::promise<grpc::Status> ended_;
  std::future<grpc::Status> status_ = ended_.get_future();
};

class ListeningNodeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = PeerRig::Create({.serves = false});
    ASSERT_TRUE(made.has_value());
    rig_ = std::move(*made);
  }
  std::unique_ptr<PeerRig> rig_;
};

TEST_F(ListeningNodeTest, HelloIsAnsweredOnceTheNodeServes) {
  HelloCall early(rig_->address(), 0);
  HelloCall of_another_launch(rig_->address(), 7);
  EXPECT_FALSE(early.IsAnswered());
  FOREBAY_EXPECT_OK(rig_->Serve());
  EXPECT_TRUE(early.Await().ok());
  const grpc::Status refused = of_another_launch.Await();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(refused.error_message(), HasSubstr("different launches"));
}

TEST_F(ListeningNodeTest, RowsThatAreAskedForEarlyComeOnceTheNodeServes) {
  FOREBAY_EXPECT_OK(rig_->Connect(rig_->address()));
  PeerRig::Rows rows = rig_->Ask({5, 6});
  FOREBAY_EXPECT_OK(rig_->Serve());
  FOREBAY_EXPECT_OK(rows.outcome.get());
  EXPECT_TRUE(rig_->AreRight(rows));
}

TEST_F(ListeningNodeTest, ARequestForRowsSaysWhichNodesAreSlow) {
  std::vector<NodeRank> heard;
  rig_->hear_slow = [&heard](std::span<const NodeRank> nodes) {
    heard.insert(heard.end(), nodes.begin(), nodes.end());
  };
  FOREBAY_EXPECT_OK(rig_->Serve());
  RowsAsked asked{.request = {.identity = DigestOf(PeerRig::AskingIdentity()),
                              .dataset = rig_->dataset().hash(),
                              .catalog_fingerprint = rig_->dataset().catalog()->fingerprint()},
                  .rows = {{.sample = SampleId(1), .field = FieldId(0), .memory = {}}},
                  .slow_nodes = {NodeRank(7), NodeRank(2)}};
  const auto channel = grpc::CreateChannel(rig_->address(), grpc::InsecureChannelCredentials());
  EXPECT_TRUE(RawCall(channel, "Samples", WriteRequest(asked)).Await().ok());
  EXPECT_THAT(heard, ::testing::ElementsAre(NodeRank(7), NodeRank(2)));
  // One of another launch is not believed.
  asked.request.identity += 1;
  EXPECT_FALSE(RawCall(channel, "Samples", WriteRequest(asked)).Await().ok());
  EXPECT_EQ(heard.size(), 2U);
}

// From a node that has said Hello to the daemon whose place this one takes.
TEST_F(ListeningNodeTest, ARequestBeforeItServesIsForTheNextNode) {
  const auto channel = grpc::CreateChannel(rig_->address(), grpc::InsecureChannelCredentials());
  v1::SamplesRequest request;
  request.add_samples(0);
  request.add_fields(0);
  const grpc::Slice slice(request.SerializeAsString());
  const grpc::Status status = RawCall(channel, "Samples", grpc::ByteBuffer(&slice, 1)).Await();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("does not serve yet"));
}

TEST_F(ListeningNodeTest, ANodeThatEndsBeforeItServesAnswersHello) {
  HelloCall early(rig_->address(), 0);
  EXPECT_FALSE(early.IsAnswered());
  rig_->StopServer();
  EXPECT_EQ(early.Await().error_code(), grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace forebay::peer

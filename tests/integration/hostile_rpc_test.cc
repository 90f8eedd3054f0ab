// What a hostile or broken client of the right user can send: the daemon answers with a typed
// error, keeps its memory, and goes on serving.
#include <sys/resource.h>
#include <sys/socket.h>

#include <cstdio>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <grpcpp/impl/codegen/client_unary_call.h>
#include <grpcpp/support/byte_buffer.h>
#include <gtest/gtest.h>

#include "proto/contract/limits.h"
#include "tests/integration/daemon_rig.h"

namespace forebay::integration {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using grpc::StatusCode;

constexpr std::uint64_t kGrowthKibMax = 64 * 1024;

// Freed memory that ASan keeps back, and that counts as the daemon's.
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr std::uint64_t kQuarantineKib = 256 * 1024;
#else
constexpr std::uint64_t kQuarantineKib = 0;
#endif
#elif defined(__SANITIZE_ADDRESS__)
constexpr std::uint64_t kQuarantineKib = 256 * 1024;
#else
constexpr std::uint64_t kQuarantineKib = 0;
#endif

class HostileRpcTest : public ::testing::Test {
 protected:
  HostileRpcTest() : daemon_(rig_.Start()), client_(rig_.socket_path()) {
    AwaitStaged(client_);
    dataset_ = client_.Describe(kDataset);
  }
  // Whatever happened: the daemon lives, holds nothing, and serves a proper client.
  void TearDown() override {
    ASSERT_TRUE(daemon_->running());
    RawClient proper(rig_.socket_path());
    v1::HelloReply reply;
    EXPECT_TRUE(proper.Hello(proper.GoodHello(), reply).ok());
    EXPECT_TRUE(Eventually([&] { return proper.Status().slot_bytes_used() == 0; }));
    const EpochCounts counts = ReadEpoch(proper, "proper");
    EXPECT_EQ(counts.error, "");
    EXPECT_EQ(counts.distinct, 4096U);
    EXPECT_EQ(counts.wrong, 0U);
  }

  grpc::Status HelloWith(const v1::HelloRequest& request) {
    v1::HelloReply reply;
    return client_.Hello(request, reply);
  }

  // Sends all of it on one call and returns how the call ends.
  grpc::Status EndOf(const std::vector<v1::StreamRequest>& requests) {
    RawStream stream(client_);
    for (const v1::StreamRequest& request : requests) stream.Write(request);
    return stream.End();
  }

  template <typename Change>
  grpc::Status EndOfOpen(const Change& change) {
    v1::StreamRequest open = GoodOpen(dataset_, 64);
    change(*open.mutable_open());
    return EndOf({open});
  }

  grpc::Status CallByName(const char* method, const grpc::ByteBuffer& request) {
    grpc::ByteBuffer reply;
    return grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer>(
        client_.channel().get(),
        grpc::internal::RpcMethod(method, grpc::internal::RpcMethod::NORMAL_RPC),
        NewContext().get(), request, &reply);
  }

  DaemonRig rig_;
  std::unique_ptr<DaemonProcess> daemon_;
  RawClient client_;
  v1::DescribeReply dataset_;
};

void ExpectEnd(const grpc::Status& status, StatusCode code, const std::string& part) {
  EXPECT_EQ(status.error_code(), code) << status.error_message();
  EXPECT_THAT(status.error_message(), HasSubstr(part));
}

// --- messages ------------------------------------------------------------------------------

TEST_F(HostileRpcTest, OversizeMessagesAreRefused) {
  const std::uint64_t before = daemon_->StatusKib("VmHWM");
  v1::HelloRequest hello = client_.GoodHello();
  hello.set_client_name(std::string(limits::kRpcMessageBytesMax, 'x'));
  EXPECT_EQ(HelloWith(hello).error_code(), StatusCode::RESOURCE_EXHAUSTED);
  hello.set_client_name(std::string(512 << 20, 'x'));
  EXPECT_EQ(HelloWith(hello).error_code(), StatusCode::RESOURCE_EXHAUSTED);
  v1::StreamRequest open = GoodOpen(dataset_, 64);
  open.mutable_open()->set_selection(std::string(8 << 20, 'x'));
  EXPECT_FALSE(EndOf({open}).ok());
  // gRPC collects a message before it looks at its size; the daemon's quota ends that.
  constexpr std::uint64_t kQuotaKib = 128 * 1024;
  EXPECT_LT(daemon_->StatusKib("VmHWM"), before + kQuotaKib + kQuarantineKib + kGrowthKibMax);
}

TEST_F(HostileRpcTest, ACompressedBombIsRefusedBeforeItIsInflated) {
  for (const grpc_compression_algorithm algorithm : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    const std::uint64_t before = daemon_->StatusKib("VmHWM");
    ASSERT_GT(before, 0U);
    v1::HelloRequest bomb = client_.GoodHello();
    bomb.set_client_name(std::string(128 << 20, '\0'));
    v1::HelloReply reply;
    const auto context = NewContext();
    context->set_compression_algorithm(algorithm);
    const grpc::Status status = client_.data().Hello(context.get(), bomb, &reply);
    EXPECT_EQ(status.error_code(), StatusCode::UNIMPLEMENTED) << status.error_message();
    EXPECT_LT(daemon_->StatusKib("VmHWM"), before + kGrowthKibMax);
  }
}

TEST_F(HostileRpcTest, LargeMetadataIsRefused) {
  const auto context = NewContext();
  context->AddMetadata("x-large", std::string(16 * 1024, 'm'));
  v1::HelloReply reply;
  const grpc::Status status = client_.data().Hello(context.get(), client_.GoodHello(), &reply);
  EXPECT_EQ(status.error_code(), StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
}

TEST_F(HostileRpcTest, UnknownMethodsAreUnimplemented) {
  for (const char* method : {"/forebay.v1.Data/Format", "/forebay.v1.Data/Lease",
                             "/forebay.v2.Data/Hello",
                             "/grpc.reflection.v1alpha.ServerReflection/Info", "/"}) {
    const grpc::Slice nothing;
    const grpc::ByteBuffer request(&nothing, 1);
    EXPECT_EQ(CallByName(method, request).error_code(), StatusCode::UNIMPLEMENTED) << method;
  }
}

TEST_F(HostileRpcTest, BytesThatAreNoMessageAreRefused) {
  const grpc::Slice junk(std::string(1000, '\xff'));
  const grpc::ByteBuffer request(&junk, 1);
  EXPECT_FALSE(CallByName("/forebay.v1.Data/Hello", request).ok());
  EXPECT_FALSE(CallByName("/forebay.v1.Admin/Status", request).ok());
}

// --- hello ---------------------------------------------------------------------------------

TEST_F(HostileRpcTest, EveryOtherVersionIsRefusedAndBothAreNamed) {
  using Setter = void (v1::HelloRequest::*)(std::uint32_t);
  const std::tuple<const char*, const char*, Setter> versions[] = {
      {"protocol", "version 2", &v1::HelloRequest::set_protocol_version},
      {"layout", "version 1", &v1::HelloRequest::set_layout_version},
      {"order", "version 2", &v1::HelloRequest::set_order_version},
      {"catalog", "version 1", &v1::HelloRequest::set_catalog_version},
  };
  for (const auto& [name, ours, setter] : versions) {
    v1::HelloRequest hello = client_.GoodHello();
    (hello.*setter)(77);
    const grpc::Status status = HelloWith(hello);
    EXPECT_EQ(status.error_code(), StatusCode::FAILED_PRECONDITION) << name;
    EXPECT_THAT(status.error_message(),
                AllOf(HasSubstr(name), HasSubstr(ours), HasSubstr("77")));
  }
}

TEST_F(HostileRpcTest, AnotherJobsClientIsRefusedAndBothAreNamed) {
  v1::HelloRequest hello = client_.GoodHello();
  hello.set_job_id("job-1");
  EXPECT_TRUE(HelloWith(hello).ok());
  hello.set_job_id("job-2");
  ExpectEnd(HelloWith(hello), StatusCode::FAILED_PRECONDITION, "'job-1'");
  ExpectEnd(HelloWith(hello), StatusCode::FAILED_PRECONDITION, "'job-2'");
}

TEST_F(HostileRpcTest, ASessionThatNobodyHasIsRefused) {
  v1::HelloRequest hello = client_.GoodHello();
  for (const std::uint64_t session : {std::uint64_t{0}, hello.session() + 1}) {
    hello.set_session(session);
    ExpectEnd(HelloWith(hello), StatusCode::UNAUTHENTICATED, "session");
  }
}

// --- the stream's grammar ------------------------------------------------------------------

TEST_F(HostileRpcTest, TheFirstRequestMustOpen) {
  ExpectEnd(EndOf({v1::StreamRequest()}), StatusCode::INVALID_ARGUMENT, "must open");
  ExpectEnd(EndOf({PullOf(0, 1)}), StatusCode::INVALID_ARGUMENT, "must open");
  v1::StreamRequest finish;
  finish.set_finish(true);
  ExpectEnd(EndOf({finish}), StatusCode::INVALID_ARGUMENT, "must open");
  v1::StreamRequest release;
  release.add_release(1);
  ExpectEnd(EndOf({release}), StatusCode::INVALID_ARGUMENT, "must open");
}

TEST_F(HostileRpcTest, AStreamOpensOnce) {
  const v1::StreamRequest open = GoodOpen(dataset_, 64);
  ExpectEnd(EndOf({open, open}), StatusCode::INVALID_ARGUMENT, "open already");
}

TEST_F(HostileRpcTest, ReleasesOfWhatIsNotHeldEndTheStream) {
  for (const std::uint64_t id : {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}}) {
    v1::StreamRequest release;
    release.add_release(id);
    ExpectEnd(EndOf({GoodOpen(dataset_, 64), release}), StatusCode::INVALID_ARGUMENT,
              "not held");
  }
}

TEST_F(HostileRpcTest, ABatchIsReleasedOnce) {
  RawStream stream(client_);
  stream.Write(GoodOpen(dataset_, 64));
  stream.Write(PullOf(0, 1));
  v1::StreamRequest release;
  while (release.release_size() == 0) {
    const auto reply = stream.Read();
    ASSERT_TRUE(reply.has_value());
    if (reply->batches_size() > 0) release.add_release(reply->batches(0).id());
  }
  stream.Write(release);
  stream.Write(release);
  ExpectEnd(stream.End(), StatusCode::INVALID_ARGUMENT, "not held");
}

// The memory of a released batch is used again, so its last chunks would have the bytes of other
// batches. Nothing is read here, so most of the 16 MiB wait in the daemon, those of the last batch
// behind the others.
TEST_F(HostileRpcTest, AReleaseBeforeTheLastInlineChunkEndsTheStream) {
  RawStream stream(client_);
  v1::StreamRequest open = GoodOpen(dataset_, 1024);
  open.mutable_open()->set_inline_payload(true);
  stream.Write(open);
  stream.Write(PullOf(0, 4));
  ASSERT_TRUE(Eventually([&] {
    const v1::StatusReply status = client_.Status();
    return status.streams_size() == 1 && status.streams(0).held() == 4;
  }));
  v1::StreamRequest release;
  release.add_release(4);
  stream.Write(release);
  ASSERT_TRUE(Eventually([&] { return client_.Status().streams_size() == 0; }));
  ExpectEnd(stream.End(), StatusCode::INVALID_ARGUMENT, "before its last inline chunk");
}

TEST_F(HostileRpcTest, PullsBeyondTheCreditsEndTheStream) {
  ExpectEnd(EndOf({GoodOpen(dataset_, 64), PullOf(0, 5)}), StatusCode::RESOURCE_EXHAUSTED,
            "of 4 credits");
  ExpectEnd(EndOf({GoodOpen(dataset_, 64), PullOf(0, 4), PullOf(4, 1)}),
            StatusCode::RESOURCE_EXHAUSTED, "of 4 credits");
}

TEST_F(HostileRpcTest, PullsOfNothingOrTooMuchEndTheStream) {
  for (const std::uint32_t count : {0U, limits::kPullStepsMax + 1, ~0U}) {
    ExpectEnd(EndOf({GoodOpen(dataset_, 64), PullOf(0, count)}), StatusCode::OUT_OF_RANGE,
              "1 to 64 steps");
  }
}

TEST_F(HostileRpcTest, StepsThatDoNotExistFailAlone) {
  for (const std::uint64_t step : {std::uint64_t{64}, ~std::uint64_t{0} - 1, ~std::uint64_t{0}}) {
    RawStream stream(client_);
    stream.Write(GoodOpen(dataset_, 64));
    v1::StreamRequest pull = PullOf(step, 1);
    pull.set_finish(true);
    stream.Write(pull);
    int errors = 0;
    bool trailer = false;
    while (const auto reply = stream.Read()) {
      errors += reply->errors_size();
      for (const v1::BatchError& error : reply->errors()) {
        EXPECT_EQ(error.code(), static_cast<std::uint32_t>(ErrorCode::kOutOfRange));
      }
      if (!reply->has_trailer()) continue;
      trailer = true;
      stream.HalfClose();
    }
    EXPECT_EQ(errors, 1);
    EXPECT_TRUE(trailer);
    EXPECT_TRUE(stream.End().ok());
  }
}

// gRPC itself takes some megabytes of answers that nobody reads. A client that does not read is not
// told that its call has ended, so the daemon's status shows it; and it shows when a pull has
// failed, which returns its credits.
TEST_F(HostileRpcTest, WrongNamesWhoseErrorsNobodyReadsEndTheStream) {
  constexpr std::uint64_t kPullsMax = 20'000;
  RawStream stream(client_);
  v1::StreamRequest open = GoodOpen(dataset_, 64);
  open.mutable_open()->set_credits(limits::kCreditsMax);
  stream.Write(open);
  ASSERT_TRUE(Eventually([&] { return client_.Status().streams_size() == 1; }));
  bool has_ended = false;
  for (std::uint64_t pulls = 1; pulls <= kPullsMax && !has_ended; ++pulls) {
    stream.Write(PullOf(1'000'000, limits::kPullStepsMax));
    ASSERT_TRUE(Eventually([&] {
      const v1::StatusReply status = client_.Status();
      has_ended = status.streams_size() == 0;
      return has_ended || status.streams(0).failed() == pulls * limits::kPullStepsMax;
    }));
  }
  ASSERT_TRUE(has_ended) << "the daemon keeps errors without limit";
  ExpectEnd(stream.End(), StatusCode::RESOURCE_EXHAUSTED, "wait to be read");
}

TEST_F(HostileRpcTest, APullAfterFinishEndsTheStream) {
  // Inline payload that nobody reads keeps the trailer back, so that the pull comes before it.
  RawStream stream(client_);
  v1::StreamRequest open = GoodOpen(dataset_, 1024);
  open.mutable_open()->set_inline_payload(true);
  stream.Write(open);
  v1::StreamRequest pull = PullOf(0, 2);
  pull.set_finish(true);
  stream.Write(pull);
  stream.Write(PullOf(2, 1));
  ASSERT_TRUE(Eventually([&] { return client_.Status().streams_size() == 0; }))
      << "it ended without being read";
  ExpectEnd(stream.End(), StatusCode::INVALID_ARGUMENT, "pull after finish");
}

// --- what is opened ------------------------------------------------------------------------

TEST_F(HostileRpcTest, AForeignCatalogIsRefusedAndBothAreNamed) {
  const grpc::Status status =
      EndOfOpen([&](v1::OpenStream& open) { open.set_catalog_fingerprint(0xabcdef); });
  ExpectEnd(status, StatusCode::FAILED_PRECONDITION, "0000000000abcdef");
  char ours[17];
  std::snprintf(ours, sizeof(ours), "%016llx",
                static_cast<unsigned long long>(dataset_.catalog_fingerprint()));
  EXPECT_THAT(status.error_message(), HasSubstr(ours));
}

TEST_F(HostileRpcTest, UnknownDataSetsNameTheKnownOnes) {
  for (const char* name : {"", "other", "../records", "/etc/passwd"}) {
    ExpectEnd(EndOfOpen([&](v1::OpenStream& open) { open.set_dataset(name); }),
              StatusCode::NOT_FOUND, kDataset);
  }
}

TEST_F(HostileRpcTest, WordsOutsideTheirBoundsAreRefused) {
  const auto refused = [&](auto change) { return EndOfOpen(change).error_code(); };
  EXPECT_EQ(refused([](v1::OpenStream& open) { open.set_credits(0); }),
            StatusCode::OUT_OF_RANGE);
  EXPECT_EQ(refused([](v1::OpenStream& open) { open.set_credits(65); }),
            StatusCode::OUT_OF_RANGE);
  EXPECT_EQ(refused([](v1::OpenStream& open) { open.set_ranks(0); }), StatusCode::OUT_OF_RANGE);
  EXPECT_EQ(refused([](v1::OpenStream& open) { open.set_rank(1); }), StatusCode::OUT_OF_RANGE);
  EXPECT_EQ(refused([](v1::OpenStream& open) { open.set_ranks(3); }),
            StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(refused([](v1::OpenStream& open) { open.set_delivery(9); }),
            StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(refused([](v1::OpenStream& open) { open.set_stream_name(""); }),
            StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(refused([](v1::OpenStream& open) { open.set_stream_name(std::string(256, 'n')); }),
            StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(refused([](v1::OpenStream& open) { open.set_global_batch(0); }),
            StatusCode::OUT_OF_RANGE);
  EXPECT_EQ(refused([](v1::OpenStream& open) { open.set_global_batch(~0U); }),
            StatusCode::OUT_OF_RANGE);
  EXPECT_EQ(refused([](v1::OpenStream& open) { open.set_selection("list:../../etc/passwd"); }),
            StatusCode::NOT_FOUND);
  EXPECT_EQ(refused([](v1::OpenStream& open) { open.set_order_spec("short"); }),
            StatusCode::DATA_LOSS);
  EXPECT_EQ(refused([](v1::OpenStream& open) { (*open.mutable_order_spec())[0] ^= 1; }),
            StatusCode::INVALID_ARGUMENT);
}

TEST_F(HostileRpcTest, MoreSlotsThanThereAreAreRefusedAndTheRemedyIsNamed) {
  ExpectEnd(EndOfOpen([](v1::OpenStream& open) {
              open.set_global_batch(4096);
              open.set_credits(64);
            }),
            StatusCode::RESOURCE_EXHAUSTED, "slots.capacity");
}

TEST_F(HostileRpcTest, ARankWithAnotherOrderIsRefused) {
  RawStream first(client_);
  first.Write(GoodOpen(dataset_, 64));
  ASSERT_TRUE(first.Read().has_value());
  ExpectEnd(EndOfOpen([](v1::OpenStream& open) { open.set_global_batch(128); }),
            StatusCode::FAILED_PRECONDITION, "global batch 64");
}

// --- the admin service ---------------------------------------------------------------------

TEST_F(HostileRpcTest, AdminCallsCheckTheirWords) {
  v1::EvictRequest evict;
  v1::EvictReply evicted;
  EXPECT_EQ(client_.admin().Evict(NewContext().get(), evict, &evicted).error_code(),
            StatusCode::NOT_FOUND);
  evict.set_dataset(kDataset);
  evict.set_tier("tape");
  EXPECT_EQ(client_.admin().Evict(NewContext().get(), evict, &evicted).error_code(),
            StatusCode::INVALID_ARGUMENT);
  v1::ResolveRequest resolve;
  v1::ResolveReply resolved;
  resolve.set_dataset(kDataset);
  resolve.set_count(65'537);
  EXPECT_EQ(client_.admin().ResolveSelection(NewContext().get(), resolve, &resolved).error_code(),
            StatusCode::OUT_OF_RANGE);
  resolve.set_count(10);
  resolve.set_first_index(~std::uint64_t{0});
  EXPECT_TRUE(client_.admin().ResolveSelection(NewContext().get(), resolve, &resolved).ok());
  EXPECT_EQ(resolved.sample_ids_size(), 0);
}

// --- connections ---------------------------------------------------------------------------

TEST_F(HostileRpcTest, FiveHundredIdleConnectionsMeetTheLimit) {
  constexpr int kConnections = 500;
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  if (files.rlim_cur < 700) GTEST_SKIP() << "only " << files.rlim_cur << " descriptors";
  std::vector<RawSocket> sockets;
  int taken = 0;
  int told = 0;
  for (int i = 0; i < kConnections; ++i) {
    sockets.push_back(Handshake(rig_.socket_path(), {}));
    taken += sockets.back().hello.status == 0;
    told += sockets.back().hello.status ==
            static_cast<std::uint32_t>(ErrorCode::kResourceExhausted);
  }
  EXPECT_EQ(taken, static_cast<int>(limits::kClientsMax) - 1) << "one was connected before";
  EXPECT_EQ(told, kConnections - taken);
  EXPECT_THAT(rig_.log(), HasSubstr("kClientsMax"));
  EXPECT_EQ(client_.Status().clients(), limits::kClientsMax) << "the first one is still served";
  sockets.clear();
  EXPECT_TRUE(Eventually([&] { return client_.Status().clients() == 1; }));
}

TEST_F(HostileRpcTest, GarbageInsteadOfHttp2EndsTheConnection) {
  const std::uint64_t fds = daemon_->OpenFdCount();
  for (const std::string& garbage :
       {std::string("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), std::string(100'000, '\0'),
        std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") + std::string(1000, '\xff')}) {
    const RawSocket socket = Handshake(rig_.socket_path(), {});
    ASSERT_EQ(socket.hello.status, 0U);
    (void)!send(socket.fd.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
    EXPECT_TRUE(AtEnd(socket.fd));
  }
  EXPECT_TRUE(Eventually([&] { return client_.Status().clients() == 1; }));
  EXPECT_TRUE(Eventually([&] { return daemon_->OpenFdCount() <= fds; }));
}

TEST_F(HostileRpcTest, RefusedHandshakesLeakNoDescriptor) {
  const std::uint64_t fds = daemon_->OpenFdCount();
  ClientHello alien;
  alien.magic = 0;
  ClientHello old;
  old.layout_version = 0;
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(Handshake(rig_.socket_path(), alien).hello.status,
              static_cast<std::uint32_t>(ErrorCode::kInvalidArgument));
    const RawSocket refused = Handshake(rig_.socket_path(), old);
    EXPECT_EQ(refused.hello.status, static_cast<std::uint32_t>(ErrorCode::kFailedPrecondition));
    EXPECT_EQ(refused.hello.layout_version, kLayoutVersion) << "the client can name both";
  }
  EXPECT_THAT(rig_.log(), HasSubstr("layout version 0"));
  EXPECT_TRUE(Eventually([&] { return daemon_->OpenFdCount() <= fds; }));
}

TEST_F(HostileRpcTest, ASilentConnectionIsDroppedAtItsDeadline) {
  const UniqueFd silent = ConnectTo(rig_.socket_path());
  ASSERT_TRUE(silent.valid());
  EXPECT_TRUE(AtEnd(silent)) << "after kHandshakeDeadlineMs";
}

TEST_F(HostileRpcTest, AThousandCancelledCallsLeaveNothing) {
  for (int i = 0; i < 1000; ++i) {
    const auto context = NewContext();
    const auto call = client_.data().Stream(context.get());
    if (i % 2 == 0) call->Write(GoodOpen(dataset_, 64));
    context->TryCancel();
    (void)call->Finish().ok();
  }
  EXPECT_TRUE(Eventually([&] { return client_.Status().streams_size() == 0; }));
}

}  // namespace
}  // namespace forebay::integration

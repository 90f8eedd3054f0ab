// Stream calls over in-process channels of gRPC, on the rooms of a daemon, for what depends on when
// a call ends.
#include "server/stream/rpc/data_service.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <semaphore>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include "proto/contract/limits.h"
#include "server/io/executor.h"
#include "server/io/testing/manual_clock.h"
#include "server/io/testing/memory_backend.h"
#include "server/stream/testing/serve_fixture.h"

namespace forebay::stream::data_service_test {

constexpr std::size_t kRecordBytes = 1000;
constexpr std::uint64_t kSamples = 64;

std::unique_ptr<grpc::ClientContext> NewContext() {
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(1));
  return context;
}

// Calls of clients of other nodes, and how many the service knows of.
class RemoteCalls final : public v1::Data::CallbackService {
 public:
  explicit RemoteCalls(DataService& service) : service_(service) {}
  grpc::ServerBidiReactor<v1::StreamRequest, v1::StreamReply>* Stream(
      grpc::CallbackServerContext* context) override {
    auto* const reactor = service_.RemoteStream(context);
    begun_.release();
    return reactor;
  }
  void AwaitNext() { begun_.acquire(); }

 private:
  DataService& service_;
  std::counting_semaphore<> begun_{0};
};

// Runs its tasks when it is told to, in the thread that tells it.
class HeldTasks final : public io::Executor {
 public:
  void Post(io::Task task) override {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    posted_.release();
  }
  // False where nothing is posted for a minute.
  bool AwaitNext() { return posted_.try_acquire_for(std::chrono::minutes(1)); }
  void RunAll(io::IoQueue& queue) {
    std::deque<io::Task> tasks;
    {
      const std::lock_guard lock(mutex_);
      tasks.swap(tasks_);
    }
    for (const io::Task& task : tasks) task(queue);
  }

 private:
  std::mutex mutex_;
  std::deque<io::Task> tasks_;
  std::counting_semaphore<> posted_{0};
};

class DataServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(
        backend_.AddFile("/gfs/data.bin", ServeFixture::RecordFile(kSamples, kRecordBytes))
            .has_value());
    auto made = ServeFixture::Create(backend_, kRecordBytes, {});
    ASSERT_TRUE(made.has_value());
    serve_ = std::move(*made);
    ASSERT_TRUE(serve_->StageAll().has_value());
    service_ = std::make_unique<DataService>(
        DataServiceOptions{.job_id = "job-1"},
        DataServiceParts{
            .registry = serve_->registry(),
            .clock = clock_,
            .resolvers = resolvers_,
            .find_dataset = [this](const std::string& name) -> stage::Dataset* {
              return name == serve_->dataset().name() ? &serve_->dataset() : nullptr;
            },
            .dataset_names = [] { return std::vector<std::string>{"data"}; },
            .knows_session = [](std::uint64_t) { return true; },
            .check_serves = [](const std::string&) -> Status { return {}; },
            .ensure_staging = [](stage::Dataset&) {},
            .opened = [this](const StreamSpec&) { return opened_ ? opened_() : nullptr; }});
    grpc::ServerBuilder builder;
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    stub_ = v1::Data::NewStub(server_->InProcessChannel({}));
    remote_ = std::make_unique<RemoteCalls>(*service_);
    grpc::ServerBuilder for_others;
    for_others.RegisterService(remote_.get());
    remote_server_ = for_others.BuildAndStart();
    remote_stub_ = v1::Data::NewStub(remote_server_->InProcessChannel({}));
  }

  void TearDown() override {
    stub_.reset();
    remote_stub_.reset();
    // gRPC waits for all calls, whose reactors use the service and the rooms.
    server_.reset();
    remote_server_.reset();
  }

  v1::StreamRequest OpenRequest(const std::string& selection = "all") {
    const auto request = serve_->Request({.credits = 2, .selection = selection});
    EXPECT_TRUE(request.has_value());
    v1::StreamRequest first;
    v1::OpenStream& open = *first.mutable_open();
    open.set_dataset(request->dataset);
    open.set_stream_name(request->stream_name);
    open.set_selection(request->selection);
    open.set_order_spec(request->order_spec.data(), request->order_spec.size());
    open.set_global_batch(request->global_batch);
    open.set_ranks(request->ranks);
    open.set_delivery(request->delivery);
    open.set_credits(request->credits);
    return first;
  }

  v1::StreamRequest RemoteOpenRequest() {
    v1::StreamRequest first = OpenRequest();
    first.mutable_open()->set_inline_payload(true);
    return first;
  }
  void AdvanceMs(std::int64_t duration_ms) { clock_.AdvanceNs(duration_ms * 1'000'000); }
  void AwaitNoCall() { ASSERT_TRUE(service_->WaitDrained(std::chrono::minutes(1))); }

  void RunResolvers() {
    const auto queue = backend_.CreateQueue({.depth = 1});
    ASSERT_TRUE(queue.has_value());
    resolvers_.RunAll(**queue);
  }
  struct Described {
    grpc::Status status;
    v1::DescribeReply reply;
  };
  Described Describe(const std::string& selection) {
    v1::DescribeRequest request;
    request.set_dataset("data");
    request.set_selection(selection);
    Described described;
    const auto context = NewContext();
    described.status = stub_->Describe(context.get(), request, &described.reply);
    return described;
  }

  io::MemoryBackend backend_;
  io::ManualClock clock_;
  HeldTasks resolvers_;
  std::unique_ptr<ServeFixture> serve_;
  std::function<std::shared_ptr<void>()> opened_;  // as DataServiceParts::opened
  std::unique_ptr<DataService> service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::Data::Stub> stub_;
  std::unique_ptr<RemoteCalls> remote_;
  std::unique_ptr<grpc::Server> remote_server_;
  std::unique_ptr<v1::Data::Stub> remote_stub_;
};

// Its session may be in the hands of another call of the reader, which would tell the reactor of
// this one, long gone, that it has closed it.
TEST_F(DataServiceTest, ACallThatEndsWhileItIsOpenedHasClosedItsSession) {
  const auto open_then = std::make_shared<std::promise<std::size_t>>();
  opened_ = [this, open_then] {
    service_->Drain();  // ends the call just now, as the client may do by cancelling it
    return std::shared_ptr<void>(this, [this, open_then](void*) {
      open_then->set_value(serve_->registry().open_count());
    });
  };
  const auto context = NewContext();
  const auto call = stub_->Stream(context.get());
  call->Write(OpenRequest());
  EXPECT_EQ(call->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(open_then->get_future().get(), 0U)
      << "what is kept while the stream is open went before the session was closed";
}

TEST_F(DataServiceTest, ACallOfAnotherNodeThatOpensNothingIsEndedAndKeepsNobody) {
  const auto context = NewContext();
  const auto call = remote_stub_->Stream(context.get());
  remote_->AwaitNext();
  EXPECT_FALSE(service_->has_remote_clients());
  AdvanceMs(limits::kHandshakeDeadlineMs);
  service_->EndSilentCalls();
  const grpc::Status ended = call->Finish();
  EXPECT_EQ(ended.error_code(), grpc::StatusCode::UNAVAILABLE) << ended.error_message();
  EXPECT_THAT(ended.error_message(), ::testing::HasSubstr("has opened no stream"));
  AwaitNoCall();
  EXPECT_FALSE(service_->has_remote_clients());
}

TEST_F(DataServiceTest, ARefusedCallOfAnotherNodeKeepsNobody) {
  v1::StreamRequest first = RemoteOpenRequest();
  first.mutable_open()->set_dataset("another");
  const auto context = NewContext();
  const auto call = remote_stub_->Stream(context.get());
  call->Write(first);
  EXPECT_EQ(call->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
  AwaitNoCall();
  EXPECT_FALSE(service_->has_remote_clients());
}

TEST_F(DataServiceTest, AStreamOfAnotherNodeCountsUntilTenSecondsAfterItsEnd) {
  const auto context = NewContext();
  const auto call = remote_stub_->Stream(context.get());
  remote_->AwaitNext();
  AdvanceMs(limits::kHandshakeDeadlineMs - 1);
  service_->EndSilentCalls();  // it may still open
  call->Write(RemoteOpenRequest());
  v1::StreamReply reply;
  ASSERT_TRUE(call->Read(&reply));
  EXPECT_TRUE(reply.has_opened());
  EXPECT_TRUE(service_->has_remote_clients());
  AdvanceMs(limits::kHandshakeDeadlineMs);
  service_->EndSilentCalls();  // a reader that computes says nothing for long
  EXPECT_EQ(serve_->registry().open_count(), 1U);
  call->WritesDone();
  EXPECT_EQ(call->Finish().error_message(), "the reader ended the stream");
  AwaitNoCall();
  EXPECT_TRUE(service_->has_remote_clients()) << "it may open its next one";
  AdvanceMs(10'000);
  EXPECT_FALSE(service_->has_remote_clients());
}

TEST_F(DataServiceTest, SilentCallsOfOtherNodesGiveTheirPlacesBack) {
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReaderWriter<v1::StreamRequest, v1::StreamReply>>> calls;
  const auto begin = [&] {
    contexts.push_back(NewContext());
    calls.push_back(remote_stub_->Stream(contexts.back().get()));
    remote_->AwaitNext();
  };
  for (std::uint32_t i = 0; i < limits::kClientsMax; ++i) begin();
  begin();
  const grpc::Status refused = calls.back()->Finish();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(refused.error_message(), ::testing::HasSubstr("kClientsMax"));
  calls.pop_back();
  AdvanceMs(limits::kHandshakeDeadlineMs);
  service_->EndSilentCalls();
  for (const auto& call : calls) {
    EXPECT_EQ(call->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  }
  AwaitNoCall();
  begin();
  calls.back()->Write(RemoteOpenRequest());
  v1::StreamReply reply;
  EXPECT_TRUE(calls.back()->Read(&reply));
  EXPECT_TRUE(reply.has_opened());
  contexts.back()->TryCancel();
  (void)calls.back()->Finish();
}

// As where the GFS does not answer for a split file.
TEST_F(DataServiceTest, OtherCallsAreAnsweredWhileSelectionsAreResolved) {
  const auto context = NewContext();
  const auto call = stub_->Stream(context.get());
  call->Write(OpenRequest("hash:0:0.5"));
  ASSERT_TRUE(resolvers_.AwaitNext());
  auto described = std::async(std::launch::async, [this] { return Describe("hash:0.5:1"); });
  ASSERT_TRUE(resolvers_.AwaitNext());
  auto unknown = std::async(std::launch::async, [this] { return Describe("list:unknown"); });
  ASSERT_TRUE(resolvers_.AwaitNext());
  EXPECT_EQ(Describe("range:1:3").reply.selected_count(), 3U);
  EXPECT_EQ(serve_->registry().open_count(), 0U);
  RunResolvers();
  v1::StreamReply reply;
  ASSERT_TRUE(call->Read(&reply));
  EXPECT_GT(reply.opened().selected_count(), 0U);
  const Described other_half = described.get();
  EXPECT_TRUE(other_half.status.ok()) << other_half.status.error_message();
  EXPECT_EQ(other_half.reply.selected_count() + reply.opened().selected_count(), kSamples);
  EXPECT_EQ(unknown.get().status.error_code(), grpc::StatusCode::NOT_FOUND);
  context->TryCancel();
  (void)call->Finish();
}

TEST_F(DataServiceTest, TheEndDoesNotWaitForSelectionsThatAreResolved) {
  const auto context = NewContext();
  const auto call = stub_->Stream(context.get());
  call->Write(OpenRequest("hash:0:0.5"));
  ASSERT_TRUE(resolvers_.AwaitNext());
  auto described = std::async(std::launch::async, [this] { return Describe("hash:0.5:1"); });
  ASSERT_TRUE(resolvers_.AwaitNext());
  service_->Drain();
  EXPECT_EQ(call->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(described.get().status.error_code(), grpc::StatusCode::UNAVAILABLE);
  AwaitNoCall();
  RunResolvers();  // the GFS has answered at last
  EXPECT_EQ(serve_->registry().open_count(), 0U);
  EXPECT_EQ(Describe("hash:0.5:1").status.error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(DataServiceTest, SelectionsThatWaitAreBounded) {
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReaderWriter<v1::StreamRequest, v1::StreamReply>>> calls;
  for (std::uint32_t i = 0; i < limits::kSelectionsResolvedMax; ++i) {
    contexts.push_back(NewContext());
    calls.push_back(stub_->Stream(contexts.back().get()));
    calls.back()->Write(OpenRequest("hash:0:0.5"));
    ASSERT_TRUE(resolvers_.AwaitNext());
    // Each is to be resolved although nobody waits for it any more.
    contexts.back()->TryCancel();
    (void)calls.back()->Finish();
  }
  const Described refused = Describe("hash:0.5:1");
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(refused.status.error_message(), ::testing::HasSubstr("kSelectionsResolvedMax"));
  const auto context = NewContext();
  const auto call = stub_->Stream(context.get());
  call->Write(OpenRequest("hash:0:0.5"));
  EXPECT_EQ(call->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  RunResolvers();
  auto described = std::async(std::launch::async, [this] { return Describe("hash:0.5:1"); });
  ASSERT_TRUE(resolvers_.AwaitNext());
  RunResolvers();
  EXPECT_TRUE(described.get().status.ok());
}

}  // namespace forebay::stream::data_service_test

// Stream calls over in-process channels of gRPC, on the rooms of a daemon, for what depends on when
// a call ends.
#include "server/stream/rpc/data_service.h"

#include <chrono>
#include <cstddef>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include <grpcpp/client_context.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

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
  }

  void TearDown() override {
    stub_.reset();
    // gRPC waits for all calls, whose reactors use the service and the rooms.
    server_.reset();
  }

  v1::StreamRequest OpenRequest() {
    const auto request = serve_->Request({.credits = 2});
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

  io::MemoryBackend backend_;
  io::ManualClock clock_;
  std::unique_ptr<ServeFixture> serve_;
  std::function<std::shared_ptr<void>()> opened_;  // as DataServiceParts::opened
  std::unique_ptr<DataService> service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::Data::Stub> stub_;
};

// Its session may be in the hands of another call of the reader, which would tell the reactor of
// this one, long gone, that it has closed it.
TEST_F(DataServiceTest, ACallThatEndsWhileItIsOpenedHasClosedItsSession) {
  std::promise<std::size_t> open_then;
  opened_ = [this, &open_then] {
    service_->Drain();  // ends the call just now, as the client may do by cancelling it
    return std::shared_ptr<void>(this, [this, &open_then](void*) {
      open_then.set_value(serve_->registry().open_count());
    });
  };
  const auto context = NewContext();
  const auto call = stub_->Stream(context.get());
  call->Write(OpenRequest());
  EXPECT_EQ(call->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(open_then.get_future().get(), 0U)
      << "what is kept while the stream is open went before the session was closed";
}

}  // namespace forebay::stream::data_service_test

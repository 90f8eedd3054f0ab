// A client of another node that comes before this daemon has streams is refused at once, and asks
// the next node.
#include "server/stream/rpc/remote_data_service.h"

#include <chrono>
#include <memory>

#include <grpcpp/client_context.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

namespace forebay::stream {
namespace {

class StartingServiceTest : public ::testing::Test {
 protected:
  StartingServiceTest() {
    grpc::ServerBuilder builder;
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    stub_ = v1::Data::NewStub(server_->InProcessChannel({}));
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(1));
  }

  RemoteDataService service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::Data::Stub> stub_;
  grpc::ClientContext context_;
};

TEST_F(StartingServiceTest, HelloIsRefused) {
  v1::HelloReply reply;
  EXPECT_EQ(stub_->Hello(&context_, {}, &reply).error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(StartingServiceTest, DescribeIsRefused) {
  v1::DescribeReply reply;
  EXPECT_EQ(stub_->Describe(&context_, {}, &reply).error_code(), grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace forebay::stream

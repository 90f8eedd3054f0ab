// Passes each call on to the DataService, which knows by the function that is called that the
// client is one of another node.
#include "server/stream/rpc/remote_data_service.h"

namespace forebay::stream {
namespace {

grpc::ServerUnaryReactor* RefuseBecauseStarting(grpc::CallbackServerContext& context) {
  // Once: each call of DefaultReactor makes the reactor anew.
  grpc::ServerUnaryReactor* const reactor = context.DefaultReactor();
  reactor->Finish(
      {grpc::StatusCode::UNAVAILABLE, "the daemon is starting, and has no streams yet"});
  return reactor;
}

}  // namespace

grpc::ServerUnaryReactor* RemoteDataService::Hello(grpc::CallbackServerContext* context,
                                                   const v1::HelloRequest* request,
                                                   v1::HelloReply* reply) {
  if (DataService* service = service_) return service->RemoteHello(context, request, reply);
  return RefuseBecauseStarting(*context);
}

grpc::ServerUnaryReactor* RemoteDataService::Describe(grpc::CallbackServerContext* context,
                                                      const v1::DescribeRequest* request,
                                                      v1::DescribeReply* reply) {
  if (DataService* service = service_) return service->RemoteDescribe(context, request, reply);
  return RefuseBecauseStarting(*context);
}

grpc::ServerBidiReactor<v1::StreamRequest, v1::StreamReply>* RemoteDataService::Stream(
    grpc::CallbackServerContext* context) {
  DataService* const service = service_;
  // gRPC answers null with UNIMPLEMENTED. A client whose Hello was refused does not come here.
  return service != nullptr ? service->RemoteStream(context) : nullptr;
}

}  // namespace forebay::stream

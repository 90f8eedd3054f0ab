// RemoteDataService: the data service as clients of other nodes reach it, over TCP. They have lost
// the daemon of their own node, share no memory with this one, and get the bytes of batches inside
// the messages. It is registered with the server for other nodes, whose connections are encrypted
// and show a certificate of the job. That server listens long before this daemon has streams, so
// this object is there before the DataService that answers.
#pragma once

#include <atomic>

#include "server/stream/rpc/data_service.h"

namespace forebay::stream {

// Thread-safe.
class RemoteDataService final : public forebay::v1::Data::CallbackService {
 public:
  // Answers from now on. Until then calls end with UNAVAILABLE, and clients try another node.
  // `service` must outlive all calls.
  void Serve(DataService& service) { service_ = &service; }

  grpc::ServerUnaryReactor* Hello(grpc::CallbackServerContext* context,
                                  const v1::HelloRequest* request,
                                  v1::HelloReply* reply) override;
  grpc::ServerUnaryReactor* Describe(grpc::CallbackServerContext* context,
                                     const v1::DescribeRequest* request,
                                     v1::DescribeReply* reply) override;
  grpc::ServerBidiReactor<v1::StreamRequest, v1::StreamReply>* Stream(
      grpc::CallbackServerContext* context) override;

 private:
  std::atomic<DataService*> service_ = nullptr;
};

}  // namespace forebay::stream

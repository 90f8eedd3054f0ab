// FakeAdminService: answers every admin call with what the test has put in.
#pragma once

#include <string>
#include <vector>

#include "forebay/v1/admin.grpc.pb.h"

namespace forebay::testing {

// Set the replies before the daemon starts. Answers are sent as they are.
class FakeAdminService final : public v1::Admin::Service {
 public:
  v1::StatusReply status;
  std::vector<v1::StageProgress> stage;
  std::vector<v1::VerifyProgress> verify;
  v1::EvictReply evict;
  std::vector<std::uint64_t> selected_ids;  // of every selection but "all"
  std::vector<std::string> known = {"fake"};
  // Seen.
  v1::StageRequest stage_request;
  v1::EvictRequest evict_request;
  int drains = 0;

  grpc::Status Status(grpc::ServerContext*, const v1::StatusRequest*,
                      v1::StatusReply* reply) override {
    *reply = status;
    return grpc::Status::OK;
  }
  grpc::Status Stage(grpc::ServerContext*, const v1::StageRequest* request,
                     grpc::ServerWriter<v1::StageProgress>* writer) override {
    stage_request = *request;
    for (const std::string& name : request->datasets()) {
      if (name != known[0]) return {grpc::StatusCode::NOT_FOUND, "no data set '" + name + "'"};
    }
    for (const v1::StageProgress& progress : stage) writer->Write(progress);
    return grpc::Status::OK;
  }
  grpc::Status Verify(grpc::ServerContext*, const v1::VerifyRequest*,
                      grpc::ServerWriter<v1::VerifyProgress>* writer) override {
    for (const v1::VerifyProgress& progress : verify) writer->Write(progress);
    return grpc::Status::OK;
  }
  grpc::Status Evict(grpc::ServerContext*, const v1::EvictRequest* request,
                     v1::EvictReply* reply) override {
    evict_request = *request;
    *reply = evict;
    return grpc::Status::OK;
  }
  grpc::Status Drain(grpc::ServerContext*, const v1::DrainRequest*,
                     v1::DrainReply*) override {
    ++drains;
    return grpc::Status::OK;
  }
  grpc::Status ResolveSelection(grpc::ServerContext*, const v1::ResolveRequest* request,
                                v1::ResolveReply* reply) override {
    for (std::uint64_t i = request->first_index();
         i < selected_ids.size() && i - request->first_index() < request->count(); ++i) {
      reply->add_sample_ids(selected_ids[i]);
    }
    return grpc::Status::OK;
  }
};

}  // namespace forebay::testing

// gRPC's side of FakeAdminService. It is apart from the header so that tests of commands compile
// without the generated code of the service.
#include "client/testing/fake_admin_service.h"

#include "forebay/v1/admin.grpc.pb.h"

namespace forebay::testing {

class FakeAdminService::Service final : public v1::Admin::Service {
 public:
  explicit Service(FakeAdminService& fake) : fake_(fake) {}

  grpc::Status Status(grpc::ServerContext*, const v1::StatusRequest*,
                      v1::StatusReply* reply) override {
    *reply = fake_.status;
    return grpc::Status::OK;
  }
  grpc::Status Nodes(grpc::ServerContext* context, const v1::NodesRequest*,
                     v1::NodesReply* reply) override {
    fake_.nodes_deadline = context->deadline();
    *reply = fake_.nodes;
    return grpc::Status::OK;
  }
  grpc::Status Stage(grpc::ServerContext*, const v1::StageRequest* request,
                     grpc::ServerWriter<v1::StageProgress>* writer) override {
    fake_.stage_request = *request;
    for (const std::string& name : request->datasets()) {
      if (name == fake_.known[0]) continue;
      return {grpc::StatusCode::NOT_FOUND, "no data set '" + name + "'"};
    }
    for (const v1::StageProgress& progress : fake_.stage) writer->Write(progress);
    return grpc::Status::OK;
  }
  grpc::Status Verify(grpc::ServerContext*, const v1::VerifyRequest*,
                      grpc::ServerWriter<v1::VerifyProgress>* writer) override {
    for (const v1::VerifyProgress& progress : fake_.verify) writer->Write(progress);
    return grpc::Status::OK;
  }
  grpc::Status Evict(grpc::ServerContext*, const v1::EvictRequest* request,
                     v1::EvictReply* reply) override {
    fake_.evict_request = *request;
    *reply = fake_.evict;
    return grpc::Status::OK;
  }
  grpc::Status Drain(grpc::ServerContext*, const v1::DrainRequest* request,
                     v1::DrainReply*) override {
    ++(request->after_all() ? fake_.drains_after_all : fake_.drains);
    fake_.drain_request = *request;
    return grpc::Status::OK;
  }
  grpc::Status ResolveSelection(grpc::ServerContext*, const v1::ResolveRequest* request,
                                v1::ResolveReply* reply) override {
    for (std::uint64_t i = request->first_index();
         i < fake_.selected_ids.size() && i - request->first_index() < request->count(); ++i) {
      reply->add_sample_ids(fake_.selected_ids[i]);
    }
    return grpc::Status::OK;
  }

 private:
  FakeAdminService& fake_;
};

FakeAdminService::FakeAdminService() : service_(std::make_unique<Service>(*this)) {}
FakeAdminService::~FakeAdminService() = default;

grpc::Service* FakeAdminService::service() { return service_.get(); }

}  // namespace forebay::testing

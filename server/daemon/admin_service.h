// AdminService: what the CLI asks of a daemon (proto/forebay/v1/admin.proto). Few calls, each on
// a thread of gRPC's pool while it lasts; none of them on the path of a byte.
#pragma once

#include <string>
#include <vector>

#include "forebay/v1/admin.grpc.pb.h"
#include "proto/contract/result.h"
#include "server/io/clock.h"
#include "server/io/io_backend.h"
#include "server/stage/dataset.h"
#include "server/tier/extent_cache.h"

namespace forebay::daemon {

// What the service acts on.
class AdminTarget {
 public:
  virtual ~AdminTarget() = default;
  virtual v1::StatusReply StatusNow() = 0;
  // The named data sets (all where `names` is empty). `unknown` gets a name that does not exist.
  virtual std::vector<stage::Dataset*> FindDatasets(const std::vector<std::string>& names,
                                                    std::string& unknown) = 0;
  virtual v1::DatasetStatus StatusOf(const stage::Dataset& dataset) = 0;
  // Starts staging, and returns the data set to follow: with `rebuild` it may be another one, which
  // replaces the one of this name. kFailedPrecondition, kResourceExhausted: it is not rebuilt now.
  virtual Result<stage::Dataset*> StageNow(const std::string& name, bool rebuild) = 0;
  virtual tier::ExtentCache& cache() = 0;
  virtual io::IoBackend& backend() = 0;
  virtual io::Clock& clock() = 0;
  virtual void RequestDrain() = 0;
  virtual bool stopping() const = 0;
};

// Thread-safe.
class AdminService final : public v1::Admin::Service {
 public:
  explicit AdminService(AdminTarget& target) : target_(target) {}

  grpc::Status Status(grpc::ServerContext* context, const v1::StatusRequest* request,
                      v1::StatusReply* reply) override;
  grpc::Status Stage(grpc::ServerContext* context, const v1::StageRequest* request,
                     grpc::ServerWriter<v1::StageProgress>* writer) override;
  grpc::Status Verify(grpc::ServerContext* context, const v1::VerifyRequest* request,
                      grpc::ServerWriter<v1::VerifyProgress>* writer) override;
  grpc::Status Evict(grpc::ServerContext* context, const v1::EvictRequest* request,
                     v1::EvictReply* reply) override;
  grpc::Status Drain(grpc::ServerContext* context, const v1::DrainRequest* request,
                     v1::DrainReply* reply) override;
  grpc::Status ResolveSelection(grpc::ServerContext* context, const v1::ResolveRequest* request,
                                v1::ResolveReply* reply) override;

 private:
  AdminTarget& target_;
};

}  // namespace forebay::daemon

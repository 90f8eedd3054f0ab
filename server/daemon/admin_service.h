// AdminService: the gRPC service that the command `forebay` calls (proto/forebay/v1/admin.proto).
// Calls are few and synchronous: each occupies a thread of gRPC's pool while it lasts, and at most
// limits::kAdminThreadsMax run at once. No call is on the path of a byte.
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

// What the service acts on: Daemon, or a stand-in in tests. Implementations are thread-safe.
class AdminTarget {
 public:
  virtual ~AdminTarget() = default;
  virtual v1::StatusReply StatusNow() = 0;
  // Blocks until all nodes have answered, or their time is over (PingForStatus).
  virtual v1::NodesReply NodesNow() = 0;
  // The data sets of these names; all data sets if `names` is empty. If a name does not exist,
  // `unknown` is set to it and the result is empty.
  virtual std::vector<stage::Dataset*> FindDatasets(const std::vector<std::string>& names,
                                                    std::string& unknown) = 0;
  virtual v1::DatasetStatus StatusOf(const stage::Dataset& dataset) = 0;
  // Starts staging and returns the data set whose progress() to follow. With `rebuild` it may be a
  // new one, which will replace the data set of this name. Returns without waiting for the staging.
  // kNotFound: no data set has this name; kFailedPrecondition: it is being catalogued, staged or
  // rebuilt; kResourceExhausted: the daemon keeps too many replaced data sets (DatasetTable::Keep).
  virtual Result<stage::Dataset*> StageNow(const std::string& name, bool rebuild) = 0;
  virtual tier::ExtentCache& cache() = 0;
  virtual io::IoBackend& backend() = 0;
  virtual io::Clock& clock() = 0;
  // With `after_all`, the daemon first waits until every node of the job that answers has been
  // asked for the same.
  virtual void RequestDrain(bool after_all) = 0;
  // Has a node of the job hand over what it has to the others, for `time_ms` at most, and end.
  // kNotFound, kInvalidArgument: `node` is no name of one node; kFailedPrecondition: nobody can
  // leave this job; kUnavailable, kDeadlineExceeded: the node does not answer.
  virtual Status RequestHandOver(const std::string& node, std::int64_t time_ms) = 0;
  virtual bool stopping() const = 0;
};

// Thread-safe. Borrows `target`.
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
  grpc::Status Nodes(grpc::ServerContext* context, const v1::NodesRequest* request,
                     v1::NodesReply* reply) override;
  grpc::Status Drain(grpc::ServerContext* context, const v1::DrainRequest* request,
                     v1::DrainReply* reply) override;
  grpc::Status ResolveSelection(grpc::ServerContext* context, const v1::ResolveRequest* request,
                                v1::ResolveReply* reply) override;

 private:
  AdminTarget& target_;
};

}  // namespace forebay::daemon

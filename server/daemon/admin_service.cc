// Each call translates a request to calls of AdminTarget, and errors to gRPC's codes. Stage and
// Verify are streams of progress messages: they end early if the client cancels or the daemon
// stops, so that a call does not hold up the shutdown.
#include "server/daemon/admin_service.h"

#include <algorithm>
#include <chrono>
#include <set>

#include <fmt/format.h>

#include "proto/contract/limits.h"
#include "proto/contract/thread_annotations.h"
#include "server/daemon/verifier.h"
#include "server/stream/rpc/data_service.h"
#include "server/stream/stream_spec.h"

namespace forebay::daemon {
namespace {

constexpr auto kProgressInterval = std::chrono::milliseconds(200);

grpc::Status Unknown(const std::string& name) {
  return {grpc::StatusCode::NOT_FOUND, fmt::format("no data set '{}' is configured", name)};
}

// Paces a progress stream: sleeps between two looks at the progress. Nothing notifies the condition
// variable, because a data set reports its progress to nobody.
class Pace {
 public:
  void Wait() {
    MutexLock lock(mutex_);
    never_.WaitFor(mutex_, kProgressInterval);
  }

 private:
  Mutex mutex_;
  CondVar never_;
};

bool HasPassEnded(const stage::Dataset& dataset) {
  // "Failed" ends a pass, too; the progress message carries its error.
  const stage::DatasetState state = dataset.progress().state;
  return state == stage::DatasetState::kStaged || state == stage::DatasetState::kFailed;
}

template <typename Names>
std::vector<std::string> ToVector(const Names& names) {
  return {names.begin(), names.end()};
}

}  // namespace

grpc::Status AdminService::Status(grpc::ServerContext*, const v1::StatusRequest*,
                                  v1::StatusReply* reply) {
  // This server is synchronous: each call takes a thread, whose number the resource quota bounds.
  *reply = target_.StatusNow();
  return grpc::Status::OK;
}

grpc::Status AdminService::Nodes(grpc::ServerContext*, const v1::NodesRequest*,
                                 v1::NodesReply* reply) {
  *reply = target_.NodesNow();
  return grpc::Status::OK;
}

grpc::Status AdminService::Stage(grpc::ServerContext* context, const v1::StageRequest* request,
                                 grpc::ServerWriter<v1::StageProgress>* writer) {
  std::string unknown;
  std::vector<stage::Dataset*> datasets =
      target_.FindDatasets(ToVector(request->datasets()), unknown);
  if (!unknown.empty()) return Unknown(unknown);
  // With `rebuild`, a repeated name would be refused: the data set is being rebuilt already.
  std::set<std::string> names;  // each name once, even if the request repeats it
  for (const stage::Dataset* dataset : datasets) names.insert(dataset->name());
  datasets.clear();
  for (const std::string& name : names) {
    // By name, because a rebuild may have replaced the Dataset since FindDatasets.
    const Result<stage::Dataset*> followed = target_.StageNow(name, request->rebuild());
    if (!followed.has_value()) return stream::ToGrpc(followed.error());
    datasets.push_back(*followed);
  }
  Pace pace;
  // One message per data set and round; `done` is set in the last one of each.
  while (!datasets.empty()) {
    for (auto entry = datasets.begin(); entry != datasets.end();) {
      // Without `wait` the client gets one message a data set, and staging goes on.
      const bool done = !request->wait() || HasPassEnded(**entry);
      v1::StageProgress progress;
      *progress.mutable_dataset() = target_.StatusOf(**entry);
      progress.set_done(done);
      // The client is gone; staging continues without it.
      if (!writer->Write(progress)) return grpc::Status::CANCELLED;
      entry = done ? datasets.erase(entry) : entry + 1;
    }
    if (datasets.empty()) break;
    if (target_.stopping()) {
      return {grpc::StatusCode::UNAVAILABLE, "the daemon is shutting down"};
    }
    if (context->IsCancelled()) return grpc::Status::CANCELLED;
    pace.Wait();
  }
  return grpc::Status::OK;
}

grpc::Status AdminService::Verify(grpc::ServerContext* context, const v1::VerifyRequest* request,
                                  grpc::ServerWriter<v1::VerifyProgress>* writer) {
  std::string unknown;
  const std::vector<stage::Dataset*> datasets =
      target_.FindDatasets(ToVector(request->datasets()), unknown);
  if (!unknown.empty()) return Unknown(unknown);
  // Runs on this call's thread. A client that has gone stops it at the next extent.
  Verifier verifier(target_.cache(), target_.backend(), target_.clock());
  const forebay::Status verified =
      verifier.Run(datasets, [&](const VerifyCounts& counts, std::vector<std::string> errors) {
        v1::VerifyProgress progress;
        progress.set_extents_total(counts.extents_total);
        progress.set_extents_done(counts.extents_done);
        progress.set_extents_bad(counts.extents_bad);
        progress.set_bytes_done(counts.bytes_done);
        progress.set_done(counts.done);
        for (std::string& error : errors) progress.add_errors(std::move(error));
        // `false` ends the verification: it reads every extent, and should not outlive its reader.
        return writer->Write(progress) && !context->IsCancelled() && !target_.stopping();
      });
  return verified.has_value() ? grpc::Status::OK : stream::ToGrpc(verified.error());
}

grpc::Status AdminService::Evict(grpc::ServerContext*, const v1::EvictRequest* request,
                                 v1::EvictReply* reply) {
  std::string unknown;
  const std::vector<stage::Dataset*> datasets =
      target_.FindDatasets({request->dataset()}, unknown);
  if (!unknown.empty()) return Unknown(unknown);
  const std::string& tier = request->tier();
  if (!tier.empty() && tier != "ram" && tier != "ssd") {
    return {grpc::StatusCode::INVALID_ARGUMENT,
            fmt::format("there is no tier '{}'; write ram or ssd, or leave it out for both", tier)};
  }
  // By the hash of the name, so that extents from before a rebuild go too. Pinned extents lose
  // their name now and their memory with the last pin.
  const std::uint64_t hash = datasets.front()->hash();
  tier::ExtentCache& cache = target_.cache();
  for (const tier::TierKind kind : {tier::TierKind::kRam, tier::TierKind::kSsd}) {
    const bool wanted = tier.empty() || (tier == "ram") == (kind == tier::TierKind::kRam);
    if (!wanted) continue;
    for (const tier::ExtentKey& key : cache.Resident(kind)) {
      if (key.dataset != hash) continue;
      // A reference taken before the eviction, because the size is known only from it.
      const tier::ExtentRef extent = cache.Find(key);
      // It may have been evicted by others meanwhile.
      if (!cache.Evict(key, kind).has_value()) continue;
      reply->set_extents(reply->extents() + 1);
      if (extent) reply->set_bytes(reply->bytes() + extent->image_bytes);
    }
  }
  return grpc::Status::OK;
}

grpc::Status AdminService::Drain(grpc::ServerContext*, const v1::DrainRequest* request,
                                 v1::DrainReply*) {
  if (!request->node().empty()) {
    constexpr std::int64_t kSecondsMax = limits::kLeaveMsMax / 1'000;
    if (request->after_all() || request->hand_over_s() == 0 ||
        request->hand_over_s() > kSecondsMax) {
      return {grpc::StatusCode::INVALID_ARGUMENT,
              fmt::format("a node leaves within 1 to {} s, and not after all others", kSecondsMax)};
    }
    const forebay::Status asked = target_.RequestHandOver(
        request->node(), static_cast<std::int64_t>(request->hand_over_s()) * 1'000);
    return asked.has_value() ? grpc::Status::OK : stream::ToGrpc(asked.error());
  }
  // Returns at once: the main thread stops the daemon, and leaves gRPC the time to send this
  // answer.
  target_.RequestDrain(request->after_all());
  return grpc::Status::OK;
}

grpc::Status AdminService::ResolveSelection(grpc::ServerContext*,
                                            const v1::ResolveRequest* request,
                                            v1::ResolveReply* reply) {
  std::string unknown;
  const std::vector<stage::Dataset*> datasets =
      target_.FindDatasets({request->dataset()}, unknown);
  if (!unknown.empty()) return Unknown(unknown);
  // The ids have to fit into one message.
  if (request->count() > limits::kResolveCountMax) {
    return {grpc::StatusCode::OUT_OF_RANGE,
            fmt::format("{} ids are requested, at most {} are returned by one call; request parts",
                        request->count(), limits::kResolveCountMax)};
  }
  stage::Dataset& dataset = *datasets.front();
  const auto catalog = dataset.catalog();
  if (!catalog) {
    return {grpc::StatusCode::FAILED_PRECONDITION,
            fmt::format("data set '{}' has no catalog yet; stage it first", dataset.name())};
  }
  const auto selection = stream::ResolveSelection(dataset, *catalog, request->selection());
  if (!selection.has_value()) return stream::ToGrpc(selection.error());
  reply->set_selected_count((*selection)->size());
  reply->set_selection_fingerprint((*selection)->fingerprint());
  reply->set_catalog_fingerprint(catalog->fingerprint());
  // Clamped in this order, so that no sum of two numbers from outside can overflow.
  const std::uint64_t size = (*selection)->size();
  const std::uint64_t first = std::min(request->first_index(), size);
  const std::uint64_t count = std::min<std::uint64_t>(request->count(), size - first);
  for (std::uint64_t i = 0; i < count; ++i) {
    reply->add_sample_ids((*selection)->At(first + i).value());
  }
  return grpc::Status::OK;
}

}  // namespace forebay::daemon

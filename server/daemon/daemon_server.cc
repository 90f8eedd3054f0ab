// Opens what the daemon listens on: the gRPC server, the Unix socket of the handshake, and the
// metrics endpoint. The gRPC server binds no address of its own: it gets its connections from the
// Acceptor, after the handshake. Clients of other nodes come by the server for other nodes.
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>

#include "proto/contract/limits.h"
#include "proto/contract/shared_mapping.h"
#include "server/daemon/daemon.h"
#include "server/daemon/served_check.h"
#include "server/io/log.h"
#include "server/peer/channel_settings.h"
#include "server/stream/home_extents.h"

namespace forebay::daemon {
namespace {

// Describes the regions of an arena for the handshake. Ids count on over both arenas, in the order
// in which OpenMemory numbered the regions.
void AddRegions(const tier::RamArena& arena, RegionKind kind, std::uint64_t generation,
                std::vector<SharedEntry>& entries) {
  for (const tier::SharedRegion& region : arena.regions()) {
    SharedEntry shared;
    shared.entry.id = static_cast<std::uint32_t>(entries.size());
    shared.entry.kind = static_cast<std::uint32_t>(kind);
    shared.entry.bytes = region.bytes().size();
    shared.entry.page_bytes =
        region.is_reserved() ? kHugePageBytes : limits::kIoAlignmentBytes;
    shared.entry.generation = generation;
    shared.fd = region.fd();
    entries.push_back(shared);
  }
}

}  // namespace

Status Daemon::OpenServer() {
  const v1::RemoteDaemons others = nodes_->ForClients();
  other_daemons_ = others.addresses_size();
  data_service_ = std::make_unique<stream::DataService>(
      stream::DataServiceOptions{.job_id = job_id_,
                                 .generation = generation_,
                                 .remote_daemons = others},
      stream::DataServiceParts{
          .registry = *registry_,
          .clock = clock_,
          .resolvers = *resolvers_,
          .find_dataset = [this](const std::string& name) { return datasets_.Find(name); },
          .dataset_names = [this] { return DatasetNames(); },
          .knows_session =
              [this](std::uint64_t session) {
                return acceptor_ && acceptor_->KnowsSession(session);
              },
          .check_serves =
              [this](const std::string& wanted) { return CheckServes(config_.datasets, wanted); },
          .ensure_staging = [this](stage::Dataset& dataset) {
            // After a failed cataloguing, a reader's stream tries again: the GFS may work by now.
            const bool has_failed = dataset.catalog() == nullptr &&
                                    dataset.progress().state == stage::DatasetState::kFailed;
            if (has_failed || dataset.progress().state == stage::DatasetState::kIdle) {
              stager_->StageForReader(dataset);
            }
          },
          .opened = [this](const stream::StreamSpec& spec) {
            return stager_->PreferCopies(*spec.dataset, stream::HomeExtents(spec));
          }});
  admin_service_ = std::make_unique<AdminService>(*this);
  grpc::ServerBuilder builder;
  builder.RegisterService(data_service_.get());
  builder.RegisterService(admin_service_.get());
  // Each call of the admin service occupies a thread; calls beyond threads_max are refused.
  peer::ApplyLimits({.name = "forebayd",
                     .message_bytes_max = limits::kRpcMessageBytesMax,
                     .threads_max = limits::kAdminThreadsMax},
                    builder);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             limits::kClientKeepaliveMs / 2);
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 2);
  server_ = builder.BuildAndStart();
  if (!server_) return Error(ErrorCode::kInternal, "the gRPC server did not start");
  std::vector<SharedEntry> regions;
  AddRegions(*arena_, RegionKind::kArena, generation_, regions);
  AddRegions(*slots_, RegionKind::kSlots, generation_, regions);
  const auto hand_over = [this](UniqueFd fd, const PeerCredentials& peer) {
    // "fd:N" is the name that gRPC gives the connection (ServerContext::peer). The service learns
    // it first, so that the client's first call finds its credentials.
    data_service_->Connected(fmt::format("fd:{}", fd.get()),
                             {.name = "", .pid = peer.pid, .uid = peer.uid});
    grpc::AddInsecureChannelFromFd(server_.get(), fd.Release());
  };
  FOREBAY_ASSIGN(acceptor_, Acceptor::Create({.socket_path = socket_path_,
                                              .generation = generation_,
                                              .connections_max = limits::kClientsMax,
                                              .others_serve = others.addresses_size() > 0},
                                             std::move(regions), clock_, hand_over,
                                             [this](const Error& error) { Fail(error); }));
  // Only now, because knows_session above uses acceptor_ as soon as a client is connected.
  acceptor_->Start();
  remote_data_->Serve(*data_service_);
  return {};
}

Status Daemon::OpenMetrics() {
  if (config_.metrics_listen.empty()) return {};
  FOREBAY_ASSIGN(metrics_, MetricsEndpoint::Start(config_.metrics_listen,
                                                  [this] { return StatusNow(); }));
  log::Info("metrics on http://{}/metrics", metrics_->address());
  return {};
}

}  // namespace forebay::daemon

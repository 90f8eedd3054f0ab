// MPI excludes the connections: its network needs no encryption (docs/security.md).
#include "server/daemon/row_carriers.h"

#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "server/daemon/open_files.h"
#include "server/daemon/version.h"
#include "server/io/log.h"
#include "server/rendezvous/host_port.h"
#include "server/rendezvous/interface_address.h"

namespace forebay::daemon {
namespace {

constexpr const char* kMpiModule = "libforebay_mpi.so";
// Nodes that are ended at the same time drain in less.
constexpr std::int64_t kLeaveTogetherMs = 4'000;

std::string ModulePath(const Config& config) {
  if (!config.peer_module.empty()) return config.peer_module;
  std::error_code unused;  // without a path, the error says that the module is not there
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", unused);
  return (program.parent_path() / kModuleFolder / kMpiModule).lexically_normal().string();
}

}  // namespace

Status RowCarriers::OpenModule(const CarrierParts& parts) {
  if (parts.config.peer_transport != "mpi") return {};
  const std::string path = ModulePath(parts.config);
  FOREBAY_ASSIGN(module_, peer::ModuleCarrier::Load(
                              {.path = path,
                               .self = parts.self,
                               .node_count = static_cast<std::uint32_t>(parts.nodes.size()),
                               .name = parts.nodes[parts.self.value()].identity.Text()}));
  log::Info("samples of other nodes come over MPI ({})", path);
  return {};
}

Status RowCarriers::OpenConnections(const CarrierParts& parts) {
  const bool is_wanted = parts.config.peer_payload_connections && !has_mpi() &&
                         !parts.certificates.empty();
  if (!is_wanted) return {};
  std::map<NodeRank, std::string> hosts;
  for (const rendezvous::NodeEntry& node : parts.nodes) {
    if (node.rank != parts.self && !node.is_free()) hosts[node.rank] = node.address.host;
  }
  // ListenForNodes has read both before.
  FOREBAY_ASSIGN(const auto ports, rendezvous::ParsePortRange(parts.config.peer_ports));
  FOREBAY_ASSIGN(const auto address, rendezvous::ParseHostPort(parts.address));
  auto opened = peer::PayloadConnections::Create({.self = parts.self,
                                                  .host = address.host,
                                                  .first_port = ports.first,
                                                  .last_port = ports.last,
                                                  .hosts = std::move(hosts),
                                                  .certificates = parts.certificates,
                                                  .connections_max = PayloadConnectionsMax()},
                                                 parts.clock);
  if (!opened.has_value()) return opened.error().WithContext("peer.payload_connections");
  connections_ = std::move(*opened);
  return {};
}

void RowCarriers::SetHost(NodeRank node, const std::string& host) {
  if (connections_) connections_->SetHost(node, host);
}

peer::PayloadCarrier* RowCarriers::carrier() {
  if (module_) return module_.get();
  return connections_.get();
}

void RowCarriers::StopConnections() {
  if (connections_) connections_->Stop();
}

void RowCarriers::Leave() {
  if (!module_ || module_->Leave(kLeaveTogetherMs)) return;
  log::Warn("this node ends before the others, within {} ms: the launcher will end the job, "
            "because a rank of MPI is lost",
            kLeaveTogetherMs);
}

}  // namespace forebay::daemon

// Checks what a daemon needs of its node to take part in a job of several nodes: a place in the
// job, an address and a port to listen on, memory that MPI may lock, and the list of hosts or the
// directory of the rendezvous. It calls the functions by which the daemon finds these itself. Other
// nodes are not asked, because their daemons do not run yet.
#include <netdb.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <ctime>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "server/daemon/doctor/checks.h"
#include "server/daemon/doctor/directory_trial.h"
#include "server/daemon/job_launch.h"
#include "server/daemon/job_secret.h"
#include "server/daemon/node_listener.h"
#include "server/daemon/open_files.h"
#include "server/daemon/row_carriers.h"

namespace forebay::daemon {
namespace {

using rendezvous::RendezvousKind;

constexpr const char* kRendezvousKey = "nodes.rendezvous";
constexpr std::int64_t kResolveNs = 5'000'000'000;
constexpr std::size_t kNamesShown = 3;

bool Resolves(const std::string& host) {
  addrinfo* found = nullptr;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return false;
  freeaddrinfo(found);
  return true;
}

// Looks up each host of the list once, as long as there is time.
void CheckNames(const rendezvous::HostList& hosts, const std::string& path, const io::Clock& clock,
                CheckReport& report) {
  const std::int64_t deadline_ns = clock.NowNs() + kResolveNs;
  std::set<std::string> seen;
  std::vector<std::string> unknown;
  std::uint32_t rank = 0;
  for (; rank < hosts.node_count() && clock.NowNs() < deadline_ns; ++rank) {
    const std::string& host = hosts.address(NodeRank(rank)).host;
    if (!seen.insert(host).second) continue;
    report.Begin("looking up the host " + host);
    if (!Resolves(host)) unknown.push_back(host);
  }
  const std::vector<Figure> figures = {{"hosts", seen.size()}, {"unknown_hosts", unknown.size()}};
  if (!unknown.empty()) {
    const std::size_t count = unknown.size();
    unknown.resize(std::min(count, kNamesShown));
    return report.Fail(fmt::format("{} of {} hosts of {} cannot be looked up: {}{}", count,
                                   seen.size(), path, fmt::join(unknown, ", "),
                                   count > kNamesShown ? ", ..." : ""),
                       "correct the list, or make the names known to this node (DNS, /etc/hosts)",
                       figures);
  }
  if (rank < hosts.node_count()) {
    return report.Warn(fmt::format("only {} of {} nodes of {} were looked up within {} s", rank,
                                   hosts.node_count(), path, kResolveNs / 1'000'000'000),
                       "write addresses in place of names, or speed up the name service", figures);
  }
  report.Ok(fmt::format("all {} hosts of {} can be looked up", seen.size(), path), figures);
}

// Reports this node's place in the job. An unknown place is a warning, because the doctor may have
// been started without the launcher of the job.
void ReportPlace(const Config& config, const Result<rendezvous::NodePlace>& place,
                 const std::string& remedy, CheckReport& report) {
  if (!place.has_value()) {
    return report.Warn("the place of this node in the job is not known: " +
                           place.error().message(),
                       remedy);
  }
  report.Ok(fmt::format("this node has rank {} of {}", place->rank.value(), place->node_count),
            {{"rank", place->rank.value()}, {"node_count", place->node_count}});
  // Connections take descriptors, beside those that CheckOpenFiles counts.
  if (const auto few = FindFewOpenFiles(config, place->node_count)) {
    report.Warn(few->text, few->remedy);
  }
}

// A daemon with a secret listens on a second port, while it has the first one. It serves without.
void CheckPayloadPort(const Config& config, const peer::NodeCertificates& certificates,
                      const std::string& address, CheckReport& report) {
  if (config.peer_transport == "mpi") return;  // which brings these bytes
  io::SteadyClock clock;
  RowCarriers carriers;
  const Status opened = carriers.OpenConnections({.config = config,
                                                  .clock = clock,
                                                  .self = NodeRank(0),
                                                  .nodes = {},
                                                  .certificates = certificates,
                                                  .address = address});
  if (opened.has_value()) return;
  report.Warn(opened.error().message() +
                  ", so gRPC would bring the bytes of samples between nodes, with more CPU time",
              "give peer.ports a range with two free ports for each daemon of this node");
}

// The ports are taken and given back, so another process may have them by the time the daemon
// starts.
void CheckListening(const Config& config, const std::string& job, std::uint16_t port_of_list,
                    CheckReport& report) {
  report.Begin("listening for other nodes");
  const auto certificates = FindCertificates(config, job, std::time(nullptr));
  if (!certificates.has_value()) {
    return report.Fail(certificates.error().message(),
                       fmt::format("hand the same secret to all nodes, in a file that only you can "
                                   "read or in {} (docs/security.md)", kSecretVariable));
  }
  if (std::string risk = SecretFileRisk(config); !risk.empty()) {
    report.Warn(std::move(risk), kSecretFileRemedy);
  }
  const auto server = ListenForNodes(config, port_of_list, *certificates);
  if (!server.has_value()) {
    return report.Fail(
        server.error().message(),
        fmt::format("set peer.interface to an interface of this node and peer.ports to free ports; "
                    "hand a secret to all nodes ({}), or set peer.allow_plaintext where the "
                    "network allows it", kSecretVariable));
  }
  report.Ok(fmt::format("a daemon can listen for other nodes on {}, {}", (*server)->address(),
                        certificates->empty() ? "in plaintext" : "encrypted"));
  CheckPayloadPort(config, *certificates, (*server)->address(), report);
}

// The memory that a fabric registers counts as locked: the tiers and slots that MPI sends from and
// receives into. With a limit, an MPI may copy through buffers of its own, or fail. That depends on
// the fabric, which is not known here, so a limit is a warning.
void CheckLockedMemory(CheckReport& report) {
  rlimit locked{};
  if (getrlimit(RLIMIT_MEMLOCK, &locked) != 0) return;
  const std::string key = "peer.transport is mpi";
  if (locked.rlim_cur == RLIM_INFINITY) {
    return report.Ok(key + ", and locked memory has no limit");
  }
  report.Warn(fmt::format("{}, and {} bytes of memory may be locked: on fabrics that register "
                          "memory (InfiniBand, RoCE, Omni-Path), MPI may be slow or fail",
                          key, locked.rlim_cur),
              "start the daemons without a limit of locked memory (ulimit -l unlimited; "
              "limits.conf, or LimitMEMLOCK=infinity of slurmd); nothing is to be done where MPI "
              "uses TCP",
              {{"locked_bytes_max", locked.rlim_cur}});
}

// Writes as a daemon does when it publishes its entry, but to a file without a name.
void CheckRendezvousDirectory(const std::string& path, io::IoBackend& backend,
                              CheckReport& report) {
  report.Begin("writing to " + path);
  const Status written = TryToWrite(backend, path);
  if (written.has_value()) return report.Ok(path + ": entries can be written and synced");
  report.Fail(written.error().message(), DirectoryRemedy(written.error(), kRendezvousKey));
}

}  // namespace

void CheckNodes(const Config& config, io::IoBackend& backend, const io::Clock& clock,
                CheckReport& report) {
  report.Begin("asking the launcher for this node's place in the job");
  const auto launch = FindJobLaunch(config, clock);
  const std::string remedy =
      "start the doctor in the way in which the daemons are started (srun, mpirun), or give "
      "--node-rank and --node-count to forebayd --doctor";
  if (!launch.has_value()) return report.Fail(launch.error().message(), remedy);
  const RendezvousKind kind = launch->choice.kind;
  const std::string& path = launch->choice.path;
  if (kind == RendezvousKind::kNone) {
    return report.Ok(fmt::format("{} is none, so the daemon serves this node alone",
                                 kRendezvousKey));
  }
  if (kind == RendezvousKind::kJoin) {
    report.Ok(fmt::format("the daemon joins a job that runs, through the node at {} ({}); which "
                          "place it takes is seen then",
                          path, kRendezvousKey));
    return CheckListening(config, launch->launch.job.name, /*port_of_list=*/0, report);
  }
  Result<rendezvous::NodePlace> place = rendezvous::PlaceOf(launch->launch);
  std::uint16_t port_of_list = 0;
  // A list of hosts decides the place and the port itself.
  if (kind == RendezvousKind::kHosts) {
    const auto host_name = HostName();
    const auto hosts = ReadHostList(config, path);
    if (!hosts.has_value() || !host_name.has_value()) {
      const Error& error = hosts.has_value() ? host_name.error() : hosts.error();
      return report.Fail(error.message(),
                         fmt::format("correct the list that {} names", kRendezvousKey));
    }
    CheckNames(*hosts, path, clock, report);
    place = hosts->Place(launch->launch, *host_name);
    if (place.has_value()) port_of_list = hosts->address(place->rank).port;
  }
  ReportPlace(config, place, remedy, report);
  CheckListening(config, launch->launch.job.name, port_of_list, report);
  if (config.peer_transport == "mpi") CheckLockedMemory(report);
  if (kind == RendezvousKind::kDirectory) CheckRendezvousDirectory(path, backend, report);
}

}  // namespace forebay::daemon

// Both ends of each connection are in this process, and all addresses are loopback ones. So the
// figures are those of both ends together. They have no latency of a network, and not the memory
// that the kernel needs for sockets. The server has the settings of the daemon's for other nodes,
// but answers nothing except pings.
//
// No figure is a model: all of them are measured with the classes that a daemon uses. Memory is
// that of the process (PrivateBytes), so the process must do nothing else meanwhile. Results are in
// bench/results/2026-11-30-channels.md.
#include "bench/nodes/scale_links.h"

#include <cstddef>
#include <ctime>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include "bench/nodes/scale_state.h"
#include "bench/nodes/scale_traffic.h"
#include "bench/peers/run_report.h"
#include "forebay/v1/peer.grpc.pb.h"
#include "server/io/clock.h"
#include "server/peer/channel_settings.h"
#include "server/peer/grpc_peers.h"
#include "server/peer/job_certificates.h"
#include "server/peer/link_watch.h"
#include "server/peer/peer_link.h"
#include "server/plan/membership.h"

namespace forebay::bench {
namespace {

// One look at few links takes some microseconds, so the time of several looks is measured.
constexpr std::uint32_t kLooks = 10;
constexpr std::int64_t kDayS = 86'400;
// Much longer than a ping over loopback takes, also on a machine that is busy. A ping that fails
// ends the measurement with an error.
constexpr std::int64_t kPingNs = 30'000'000'000;

// Returns the certificates of a node, as a daemon makes them from the secret of the job. Any secret
// does here, because both ends have the same certificates.
Result<peer::NodeCertificates> Certificates() {
  const std::int64_t now_s = std::time(nullptr);
  return peer::MakeNodeCertificates(std::string(peer::kJobSecretBytesMin, 's'), "scale",
                                    {.from_s = now_s - kDayS, .until_s = now_s + kDayS});
}

// Pings carry no identity, so the server need not have the same one.
const peer::PeerIdentity kSelf{.address = "127.0.0.1:1", .job_id = "scale"};

// Each rank has an address of its own, as in a job. Nothing is connected to it, because a link that
// has no calls has no channel.
std::string AddressOf(std::uint32_t rank) {
  return fmt::format("127.{}.{}.{}:7000", rank >> 16, rank >> 8 & 255, rank & 255);
}

// Stands for all other nodes. Pings need no Hello, so a connection and a ping are all that is
// measured.
class Server final : public v1::Peer::CallbackService {
 public:
  explicit Server(const peer::NodeCertificates& certificates) {
    grpc::ServerBuilder builder;
    peer::ApplySettings(builder);
    builder.AddListeningPort("127.0.0.1:0", peer::CredentialsOf(certificates), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  std::string address() const { return fmt::format("127.0.0.1:{}", port_); }

  grpc::ServerUnaryReactor* Ping(grpc::CallbackServerContext* context, const v1::PingRequest*,
                                 v1::PingReply*) override {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

 private:
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// Waits for the answer, so that only one connection is opened at a time.
Status Ping(peer::GrpcPeers& peers, NodeRank node, const io::Clock& clock) {
  std::promise<Status> answered;
  peers.Ping(node, clock.NowNs() + kPingNs, [&](const Result<peer::NodeReport>& report) {
    answered.set_value(report.has_value() ? Status() : Status(report.error()));
  });
  return answered.get_future().get();
}

}  // namespace

Result<LinksState> MeasureLinks(std::uint32_t node_count) {
  io::SteadyClock clock;
  FOREBAY_ASSIGN(const peer::NodeCertificates certificates, Certificates());
  // The addresses are no part of the links, so they are made before the measurement.
  std::map<NodeRank, std::string> addresses;
  for (std::uint32_t rank = 1; rank < node_count; ++rank) {
    addresses[NodeRank(rank)] = AddressOf(rank);
  }
  LinksState state;
  const std::uint64_t before = PrivateBytes();
  double began = CpuSeconds();
  {
    FOREBAY_ASSIGN(const std::unique_ptr<peer::GrpcPeers> peers,
                   peer::GrpcPeers::Create({.identity = kSelf,
                                            .addresses = addresses,
                                            .certificates = certificates},
                                           clock));
    state.create_s = CpuSeconds() - began;
    // Measured while the links exist. The memory of a process may also become less, and the
    // difference must not wrap then.
    const std::uint64_t after = PrivateBytes();
    state.kept_bytes = after > before ? after - before : 0;
  }
  // GrpcPeers looks by a thread of its own, so other links are looked at here.
  const auto shared = std::make_shared<const peer::NodeCertificates>(certificates);
  std::vector<std::unique_ptr<peer::PeerLink>> links;
  std::vector<peer::WatchedNode> watched;
  for (const auto& [rank, address] : addresses) {
    links.push_back(std::make_unique<peer::PeerLink>(kSelf, address, clock, shared));
    watched.push_back({.rank = rank, .link = links.back().get()});
  }
  // Nothing is asked of any node, so a look finds no node late or slow, which is the usual case. It
  // goes through all links nevertheless.
  plan::Membership nodes(NodeRank(0), NodesOf(node_count));
  peer::LinkWatch watch({.nodes = nodes,
                         .clock = clock,
                         .is_suspected = [](NodeRank) { return false; },
                         .name = [](NodeRank node) { return std::to_string(node.value()); },
                         .late_ms = 2'000},  // the default of nodes.late_ms
                        watched);
  began = CpuSeconds();
  for (std::uint32_t i = 0; i < kLooks; ++i) watch.Look();
  state.look_s = (CpuSeconds() - began) / kLooks;
  return state;
}

Result<ConnectionsState> MeasureConnections(std::uint32_t count) {
  io::SteadyClock clock;
  FOREBAY_ASSIGN(const peer::NodeCertificates certificates, Certificates());
  const Server server(certificates);
  // All ranks are the same server. Each link has a connection of its own nevertheless, because the
  // channels of a daemon share none (ChannelSettings).
  std::map<NodeRank, std::string> addresses;
  for (std::uint32_t rank = 0; rank <= count; ++rank) {
    addresses[NodeRank(rank)] = server.address();
  }
  FOREBAY_ASSIGN(const std::unique_ptr<peer::GrpcPeers> peers,
                 peer::GrpcPeers::Create({.identity = kSelf,
                                          .addresses = std::move(addresses),
                                          .certificates = certificates,
                                          // No connection is closed before the end.
                                          .channels_max = std::size_t{count} + 1},
                                         clock));
  // The first connection is not counted, because it also makes the threads of gRPC and other things
  // that a process has once.
  FOREBAY_TRY(Ping(*peers, NodeRank(0), clock));
  const std::uint64_t before = PrivateBytes();
  const double began = CpuSeconds();
  for (std::uint32_t rank = 1; rank <= count; ++rank) {
    FOREBAY_TRY(Ping(*peers, NodeRank(rank), clock));
  }
  ConnectionsState state;
  state.open_s = (CpuSeconds() - began) / count;
  const std::uint64_t after = PrivateBytes();
  state.kept_bytes = (after > before ? after - before : 0) / count;
  peers->Stop();
  return state;
}

}  // namespace forebay::bench

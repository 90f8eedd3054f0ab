// All addresses are loopback ones. The server has the settings of the daemon's for other nodes, and
// answers nothing but pings.
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

constexpr std::uint32_t kLooks = 10;
constexpr std::int64_t kDayS = 86'400;
constexpr std::int64_t kPingNs = 30'000'000'000;

Result<peer::NodeCertificates> Certificates() {
  const std::int64_t now_s = std::time(nullptr);
  return peer::MakeNodeCertificates(std::string(peer::kJobSecretBytesMin, 's'), "scale",
                                    {.from_s = now_s - kDayS, .until_s = now_s + kDayS});
}

const peer::PeerIdentity kSelf{.address = "127.0.0.1:1", .job_id = "scale"};

std::string AddressOf(std::uint32_t rank) {
  return fmt::format("127.{}.{}.{}:7000", rank >> 16, rank >> 8 & 255, rank & 255);
}

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
  plan::Membership nodes(NodeRank(0), NodesOf(node_count));
  peer::LinkWatch watch({.nodes = nodes,
                         .clock = clock,
                         .is_suspected = [](NodeRank) { return false; },
                         .name = [](NodeRank node) { return std::to_string(node.value()); },
                         .late_ms = 2'000},
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
  std::map<NodeRank, std::string> addresses;
  for (std::uint32_t rank = 0; rank <= count; ++rank) {
    addresses[NodeRank(rank)] = server.address();
  }
  FOREBAY_ASSIGN(const std::unique_ptr<peer::GrpcPeers> peers,
                 peer::GrpcPeers::Create({.identity = kSelf,
                                          .addresses = std::move(addresses),
                                          .certificates = certificates,
                                          .channels_max = std::size_t{count} + 1},
                                         clock));
  // Threads of gRPC, and whatever else the first connection makes, do not count.
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

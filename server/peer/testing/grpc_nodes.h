// GrpcNodes: the transport of production, between nodes of one process: each node has a PeerServer
// on a loopback address, and one GrpcPeers asks for all of them. Part of forebay::peer_testing.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "server/io/clock.h"
#include "server/peer/grpc_peers.h"
#include "server/peer/peer_server.h"
#include "server/peer/testing/node_transport.h"

namespace forebay::peer {

class GrpcNodes final : public NodeTransport {
 public:
  ~GrpcNodes() override { Stop(); }
  void Stop() override;

 private:
  void Begin(NodeRank rank, const Node& node) override;
  // Ends the node's server, and the requests that it has not answered yet.
  void End(NodeRank rank) override;
  Result<stage::SuppliedExtent> Carry(const stage::ExtentRequest& request,
                                      const stage::AllocateImage& allocate,
                                      io::IoQueue& queue) override;
  void Carry(std::shared_ptr<const fetch::RowRequest> request, Done done) override;
  void Carry(stage::KeepRequest request, Kept kept) override;
  Result<stage::PartAnswer> Carry(const stage::PartRequest& request,
                                  catalog::TableSpool& part) override;
  Result<std::vector<io::FileInfo>> Carry(const stage::StatRequest& request) override;
  GrpcPeers& peers();

  io::SteadyClock clock_;
  std::mutex mutex_;
  std::map<NodeRank, std::string> addresses_;
  std::map<NodeRank, std::unique_ptr<PeerServer>> servers_;
  std::unique_ptr<GrpcPeers> peers_;  // made with the first request, when all nodes are known
};

}  // namespace forebay::peer

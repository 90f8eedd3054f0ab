// InProcessNodes: a transport between nodes in one process: a request is a call of the other node's
// objects. Part of forebay::peer_testing.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "server/peer/testing/node_transport.h"

namespace forebay::peer {

// The node that is asked copies the bytes, straight to the memory of the request. Requests that it
// has begun to answer when it is silenced are finished.
class InProcessNodes final : public NodeTransport {
 public:
  void Stop() override;

 private:
  void Begin(NodeRank rank, const Node& node) override;
  void End(NodeRank rank) override;
  Result<stage::SuppliedExtent> Carry(const stage::ExtentRequest& request,
                                      const stage::AllocateImage& allocate,
                                      io::IoQueue& queue) override;
  void Carry(std::shared_ptr<const fetch::RowRequest> request, Done done) override;
  void Carry(stage::KeepRequest request, Kept kept) override;
  Result<stage::PartAnswer> Carry(const stage::PartRequest& request,
                                  catalog::TableSpool& part) override;
  Result<std::vector<io::FileInfo>> Carry(const stage::StatRequest& request) override;
  // Nullopt if the node does not answer.
  std::optional<Node> Find(NodeRank rank) const;

  mutable std::mutex mutex_;
  std::map<NodeRank, Node> nodes_;
};

}  // namespace forebay::peer

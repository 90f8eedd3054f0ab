// Servers are destroyed without the mutex: a request that one of them still answers may ask another
// node.
#include "server/peer/testing/grpc_nodes.h"

#include <utility>

#include "proto/contract/check.h"

namespace forebay::peer {

void GrpcNodes::Begin(NodeRank rank, const Node& node) {
  auto server = PeerServer::Listen({.address = "127.0.0.1:0"});
  FOREBAY_CHECK(server.has_value());
  const Status served = (*server)->Serve(
      {.address = (*server)->address(), .job_id = "test"},
      {.extents = *node.extents,
       .rows = *node.rows,
       .first_reads = *node.first_reads,
       .find_dataset = [dataset = node.dataset](std::uint64_t hash) {
         return dataset->hash() == hash ? dataset : nullptr;
       },
       .backend = *node.backend});
  FOREBAY_CHECK(served.has_value());
  std::lock_guard lock(mutex_);
  addresses_[rank] = (*server)->address();
  servers_[rank] = std::move(*server);
}

void GrpcNodes::End(NodeRank rank) {
  std::unique_ptr<PeerServer> server;  // destroyed after the lock
  std::lock_guard lock(mutex_);
  server = std::move(servers_[rank]);
}

void GrpcNodes::Stop() {
  std::map<NodeRank, std::unique_ptr<PeerServer>> servers;  // destroyed after the lock
  GrpcPeers* peers = nullptr;
  {
    std::lock_guard lock(mutex_);
    servers.swap(servers_);
    peers = peers_.get();
  }
  if (peers != nullptr) peers->Stop();
}

GrpcPeers& GrpcNodes::peers() {
  std::lock_guard lock(mutex_);
  if (!peers_) {
    auto made = GrpcPeers::Create(
        {.identity = {.address = "127.0.0.1:1", .job_id = "test"}, .addresses = addresses_},
        clock_);
    FOREBAY_CHECK(made.has_value());
    peers_ = std::move(*made);
  }
  return *peers_;
}

Result<stage::SuppliedExtent> GrpcNodes::Carry(const stage::ExtentRequest& request,
                                               const stage::AllocateImage& allocate,
                                               io::IoQueue& queue) {
  return peers().Read(request, allocate, queue);
}

Result<stage::PartAnswer> GrpcNodes::Carry(const stage::PartRequest& request,
                                           catalog::TableSpool& part) {
  return peers().ReadPart(request, part);
}

Result<std::vector<io::FileInfo>> GrpcNodes::Carry(const stage::StatRequest& request) {
  return peers().Stat(request);
}

void GrpcNodes::Carry(std::shared_ptr<const fetch::RowRequest> request, Done done) {
  peers().Read(std::move(request), std::move(done));
}

void GrpcNodes::Carry(stage::KeepRequest request, Kept kept) {
  peers().Keep(std::move(request), std::move(kept));
}

}  // namespace forebay::peer

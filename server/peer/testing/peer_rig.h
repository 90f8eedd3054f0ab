// PeerRig: a node that answers (its rooms from the GFS to the tiers, and a PeerServer) and the
// GrpcPeers of a node that asks it, over loopback TCP. Part of forebay::peer_testing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "server/fetch/decoded_cache.h"
#include "server/fetch/fetcher.h"
#include "server/fetch/local_rows.h"
#include "server/io/executor.h"
#include "server/io/testing/memory_backend.h"
#include "server/peer/grpc_peers.h"
#include "server/peer/peer_server.h"
#include "server/stage/local_extents.h"
#include "server/stage/local_first_reads.h"
#include "server/stage/testing/stage_rig.h"

namespace forebay::peer {

struct PeerRigOptions {
  std::uint64_t records = 512;
  std::uint64_t record_bytes = 1000;
  std::uint64_t extent_bytes = 64 << 10;
  stage::RigOptions stage = {};
  stage::Compression compression = stage::Compression::kOff;
  bool serves = true;  // false: the node listens, and serves after Serve
  PayloadCarrier* carrier = nullptr;  // of both nodes; borrowed
  bool answers_by_carrier = true;     // false: the node that answers has none
  NodeCertificates certificates = {};  // of the node that answers; empty: plaintext
};

class PeerRig {
 public:
  static constexpr NodeRank kNode{1};  // the node that answers
  static constexpr std::uint64_t kReportedSamples = 4711;

  // A node with one data set of fixed records, which is staged.
  static Result<std::unique_ptr<PeerRig>> Create(const PeerRigOptions& options);
  ~PeerRig();

  // Makes the node that asks. `address` is that of the server, or of a relay before it.
  // `certificates` are its own.
  Status Connect(const std::string& address, PeerIdentity identity = AskingIdentity(),
                 const NodeCertificates& certificates = {});
  static PeerIdentity AskingIdentity() { return {.address = "127.0.0.1:1", .job_id = "job"}; }
  Status Serve();
  void StopServer() { server_.reset(); }
  void RefuseWaiting() { server_->RefuseWaiting(); }

  // Rows of field 0, with memory of their own.
  struct Rows {
    std::vector<std::byte> memory;
    std::shared_ptr<fetch::RowRequest> request;
    std::future<Status> outcome;
  };
  // Asks for these samples; a deadline of 0 is a minute from now.
  Rows Ask(const std::vector<std::uint64_t>& samples, std::int64_t wait_ms = 60'000,
           std::stop_token unwanted = {});
  // Whether the rows are those of the file.
  bool AreRight(const Rows& rows) const;

  Result<stage::SuppliedExtent> ReadExtent(ExtentId extent);

  // The objects that the server answers with.
  PeerServerParts parts();
  // Of the node that answers, from Serve on; both are borrowed.
  probe::NodeProber* prober = nullptr;
  stage::GfsThrottle* throttle = nullptr;
  std::function<Result<LeaveAnswer>(NodeRank, std::int64_t)> leave = nullptr;
  std::function<Result<JoinAnswer>(const JoinAsked&)> join = nullptr;
  std::function<void(std::span<const NodeRank>)> hear_slow = nullptr;
  std::function<void(NodeRank, bool)> note_finished = nullptr;
  bool has_returned = false;

  const std::string& address() const { return server_->address(); }
  GrpcPeers& peers() { return *peers_; }
  stage::StageRig& rig() { return rig_; }
  stage::Dataset& dataset() { return rig_.dataset(); }

 private:
  explicit PeerRig(const PeerRigOptions& options);

  const PeerRigOptions options_;
  std::vector<std::byte> file_;
  io::MemoryBackend memory_;
  stage::StageRig rig_{memory_, ""};
  plan::Membership nodes_;
  std::optional<fetch::Fetcher> fetcher_;
  std::unique_ptr<io::ThreadExecutor> executor_;
  fetch::DecodedCache decoded_{/*capacity_bytes=*/0, /*next_use=*/nullptr};
  std::optional<fetch::LocalRows> rows_;
  std::optional<stage::LocalExtents> extents_;
  std::optional<stage::LocalFirstReads> first_reads_;
  std::unique_ptr<PeerServer> server_;
  std::unique_ptr<GrpcPeers> peers_;
};

}  // namespace forebay::peer

// PeerServer: answers the other nodes of the job, over gRPC, with the rows and extents of this node
// and with sizes of files on the GFS, and keeps checksums of first reads for them. GrpcPeers asks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "server/fetch/local_rows.h"
#include "server/io/io_backend.h"
#include "server/peer/member_answers.h"
#include "server/peer/payload_carrier.h"
#include "server/peer/job_certificates.h"
#include "server/peer/peer_identity.h"
#include "server/stage/dataset.h"
#include "server/stage/local_extents.h"
#include "server/stage/local_first_reads.h"

namespace grpc {
class Service;
}  // namespace grpc

namespace forebay::peer {

struct PeerServerOptions {
  // Where to listen, "HOST:PORT"; with port 0 the kernel chooses one.
  std::string address;
  bool allow_plaintext = false;  // on an address that is not loopback
  NodeCertificates certificates = {};  // of this node; empty: plaintext
  // Answers clients of other nodes on the same address, and outlives the server; null: nobody does.
  grpc::Service* clients = nullptr;
};

// The objects that answer requests. All are borrowed.
struct PeerServerParts {
  stage::LocalExtents& extents;
  fetch::LocalRows& rows;
  stage::LocalFirstReads& first_reads;
  // The data set whose name has this hash (Dataset::hash), or null.
  std::function<stage::Dataset*(std::uint64_t)> find_dataset;
  io::IoBackend& backend;  // of the SSD and of daemon.state_dir
  // Told where readers of other nodes are in their orders; null: nobody wants to know.
  std::function<void(const stage::Dataset&, const fetch::ReaderPlace&)> note_place = nullptr;
  // Told which nodes the node that asks has found slow, ranks of any value; null: nobody wants to
  // know.
  std::function<void(std::span<const NodeRank>)> hear_slow = nullptr;
  MemberParts member = {};  // for calls by which nodes know of each other
  // The daemon takes the place of one that was killed, and does not know of its rebuilds.
  bool has_returned = false;
  // Sends the bytes of rows, if it is not null and the node that asks waits for them there.
  PayloadCarrier* carrier = nullptr;
};

// A daemon has to tell other nodes its address before it knows which nodes there are, and so before
// it has the objects that answer. Therefore it first listens, and serves later. Meanwhile Hello,
// the first call of every node, waits for its answer.
//
// Thread-safe. A request holds no thread while it waits for the GFS.
class PeerServer {
 public:
  // Listens from now on. Changes malloc's settings for the process (KeepMessageMemory).
  // kUnavailable: the address cannot be used. Errors of CheckPeerAddress.
  static Result<std::unique_ptr<PeerServer>> Listen(const PeerServerOptions& options);
  // Answers requests from now on; to be called once. `identity` is this node's, with address().
  Status Serve(const PeerIdentity& identity, const PeerServerParts& parts);
  // Ends all requests at once, so that the nodes which ask go on with other nodes. Later ones find
  // nobody who listens.
  void StopAnswering();
  // This node has begun to yield (plan::Membership): ends the calls that wait for its GFS with
  // stage::AskNext.
  void RefuseWaiting();
  // StopAnswering; then waits until nothing refers to extents of this node any more. Parts must
  // still work: requests may be waiting for the stager.
  ~PeerServer();

  // "HOST:PORT", with the port on which it listens.
  const std::string& address() const { return address_; }

 private:
  struct Serving;
  struct Service;
  PeerServer() = default;

  std::string address_;
  std::unique_ptr<Service> service_;
};

}  // namespace forebay::peer

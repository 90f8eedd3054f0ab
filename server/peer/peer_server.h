// PeerServer: answers the other nodes of the job, over gRPC, with the rows and extents of this
// node. GrpcPeers asks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "proto/contract/result.h"
#include "server/fetch/local_rows.h"
#include "server/io/io_backend.h"
#include "server/peer/peer_identity.h"
#include "server/stage/dataset.h"
#include "server/stage/local_extents.h"

namespace forebay::peer {

struct PeerServerOptions {
  // Its address is where to listen, "HOST:PORT"; with port 0 the kernel chooses one.
  PeerIdentity identity;
  bool allow_plaintext = false;  // on an address that is not loopback
};

// The objects that answer requests. All are borrowed.
struct PeerServerParts {
  stage::LocalExtents& extents;
  fetch::LocalRows& rows;
  // The data set whose name has this hash (Dataset::hash), or null.
  std::function<stage::Dataset*(std::uint64_t)> find_dataset;
  io::IoBackend& backend;  // of the SSD
};

// Thread-safe. A request holds no thread while it waits for the GFS.
class PeerServer {
 public:
  // Listens from now on. Changes malloc's settings for the process (KeepMessageMemory).
  // kUnavailable: the address cannot be used. Errors of CheckPeerAddress.
  static Result<std::unique_ptr<PeerServer>> Start(const PeerServerOptions& options,
                                                   const PeerServerParts& parts);
  // Ends all requests at once, and waits until nothing refers to extents of this node any more.
  // Parts must still work: requests may be waiting for the stager.
  ~PeerServer();

  // "HOST:PORT", with the port on which it listens.
  const std::string& address() const { return address_; }

 private:
  struct Service;
  PeerServer() = default;

  std::string address_;
  std::unique_ptr<Service> service_;
};

}  // namespace forebay::peer

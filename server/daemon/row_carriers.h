// RowCarriers: what brings the bytes of rows from other nodes beside gRPC, as the configuration
// says: MPI, encrypted connections of their own, or nothing. Without one, gRPC brings them.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "server/daemon/config/config.h"
#include "server/io/clock.h"
#include "server/peer/job_certificates.h"
#include "server/peer/module_carrier.h"
#include "server/peer/payload_carrier.h"
#include "server/peer/tls/payload_connections.h"
#include "server/rendezvous/node_entry.h"

namespace forebay::daemon {

// The values of the job that OpenModule and OpenConnections need. They are borrowed for the call;
// only the clock must outlive the RowCarriers.
struct CarrierParts {
  const Config& config;
  io::Clock& clock;
  NodeRank self;
  std::span<const rendezvous::NodeEntry> nodes;  // by rank
  const peer::NodeCertificates& certificates;    // of this node; empty: plaintext
  const std::string& address;                    // of this node, for other nodes
};

// Not thread-safe, but for the carrier.
class RowCarriers {
 public:
  // With peer.transport = "mpi", loads the module and blocks until the other nodes, which are
  // started already, have come here, too. Otherwise it has no effect.
  Status OpenModule(const CarrierParts& parts);
  // With certificates and peer.payload_connections, listens for connections of other nodes on a
  // port of its own. Otherwise it has no effect. The error says that no port of peer.ports is free;
  // without connections, gRPC brings the bytes.
  Status OpenConnections(const CarrierParts& parts);

  // The node with this rank is on this host from now on, a numeric address. Thread-safe.
  void SetHost(NodeRank node, const std::string& host);

  // Null: there is none.
  peer::PayloadCarrier* carrier();
  bool has_mpi() const { return module_ != nullptr; }
  bool has_connections() const { return connections_ != nullptr; }

  // Ends the connections and what they are sending.
  void StopConnections();
  // Waits for the other nodes for some seconds, if MPI is used, which wants to be ended by all at
  // the same time.
  void Leave();

 private:
  std::unique_ptr<peer::ModuleCarrier> module_;
  std::unique_ptr<peer::PayloadConnections> connections_;
};

}  // namespace forebay::daemon

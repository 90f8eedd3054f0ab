// PeerIdentity: what all nodes of a job must have alike before they exchange bytes. A node says it
// in its first call to another one (Hello), which compares it with its own. Every later request
// carries a digest of it, so that a node that was started again with another configuration is
// noticed as well.
#pragma once

#include <cstdint>
#include <string>

#include "proto/contract/order_spec.h"
#include "proto/contract/result.h"
#include "proto/contract/wire_layout.h"

namespace forebay::v1 {
class PeerHelloRequest;
}  // namespace forebay::v1

namespace forebay::peer {

struct PeerIdentity {
  // "HOST:PORT" of the node, by which messages name it. The nodes differ in it.
  std::string address;
  std::uint32_t protocol_version = kPeerProtocolVersion;
  std::uint32_t order_version = kOrderSpecVersion;
  std::uint32_t catalog_version = kCatalogVersion;
  std::string job_id;
  // Digest of the part of the configuration that all nodes of a job share.
  std::uint64_t config_digest = 0;
  // Digest of the list of nodes. It differs for daemons of another launch of the job.
  std::uint64_t node_list_digest = 0;
};

// kFailedPrecondition names the first difference: both nodes, and the value that each of them has.
Status CheckSameIdentity(const PeerIdentity& ours, const PeerIdentity& theirs);

// A digest of all but the address.
std::uint64_t DigestOf(const PeerIdentity& identity);

// An identity as messages carry it (peer.proto).
void WriteHello(const PeerIdentity& identity, v1::PeerHelloRequest& hello);
PeerIdentity ReadHello(const v1::PeerHelloRequest& hello);

}  // namespace forebay::peer

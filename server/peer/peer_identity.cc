// The values are compared one by one, so that the error says which one differs. The digest covers
// the same values, in the same order.
#include "server/peer/peer_identity.h"

#include <fmt/format.h>

#include "forebay/v1/peer.pb.h"
#include "proto/contract/byte_cursor.h"
#include "proto/contract/checksum.h"
#include "proto/contract/printable.h"

namespace forebay::peer {
namespace {

struct Compared {
  const char* what;
  std::string ours;
  std::string theirs;
  const char* remedy;
};

constexpr const char* kInstallAlike = "install the same Forebay on all nodes";

}  // namespace

Status CheckSameIdentity(const PeerIdentity& ours, const PeerIdentity& theirs) {
  // Versions first: if they differ, the meaning of the other values may differ too.
  const Compared values[] = {
      {"protocol version", fmt::to_string(ours.protocol_version),
       fmt::to_string(theirs.protocol_version), kInstallAlike},
      {"order version", fmt::to_string(ours.order_version), fmt::to_string(theirs.order_version),
       kInstallAlike},
      {"catalog version", fmt::to_string(ours.catalog_version),
       fmt::to_string(theirs.catalog_version), kInstallAlike},
      {"job", Quoted(ours.job_id), Quoted(theirs.job_id),
       "a node must not be given the addresses of another job"},
      {"configuration digest", fmt::format("{:016x}", ours.config_digest),
       fmt::format("{:016x}", theirs.config_digest), "start all nodes with the same configuration"},
      {"node list digest", fmt::format("{:016x}", ours.node_list_digest),
       fmt::format("{:016x}", theirs.node_list_digest),
       "the daemons belong to different launches; start all of them together"},
  };
  for (const Compared& value : values) {
    if (value.ours == value.theirs) continue;
    // The other address was sent by the other node, so it is made safe for a log.
    return Error(ErrorCode::kFailedPrecondition,
                 fmt::format("node {} has {} {}, node {} has {}: {}", ours.address, value.what,
                             value.ours, Quoted(theirs.address), value.theirs, value.remedy));
  }
  return {};
}

std::uint64_t DigestOf(const PeerIdentity& identity) {
  // A length goes before the text, so that no two identities give the same bytes.
  ByteWriter bytes;
  bytes.Le(identity.protocol_version);
  bytes.Le(identity.order_version);
  bytes.Le(identity.catalog_version);
  bytes.String(identity.job_id);
  bytes.Le(identity.config_digest);
  bytes.Le(identity.node_list_digest);
  return Checksum(bytes.bytes());
}

void WriteHello(const PeerIdentity& identity, v1::PeerHelloRequest& hello) {
  hello.set_protocol_version(identity.protocol_version);
  hello.set_order_version(identity.order_version);
  hello.set_catalog_version(identity.catalog_version);
  hello.set_job_id(identity.job_id);
  hello.set_config_digest(identity.config_digest);
  hello.set_node_list_digest(identity.node_list_digest);
  hello.set_address(identity.address);
}

PeerIdentity ReadHello(const v1::PeerHelloRequest& hello) {
  return {.address = hello.address(),
          .protocol_version = hello.protocol_version(),
          .order_version = hello.order_version(),
          .catalog_version = hello.catalog_version(),
          .job_id = hello.job_id(),
          .config_digest = hello.config_digest(),
          .node_list_digest = hello.node_list_digest()};
}

}  // namespace forebay::peer

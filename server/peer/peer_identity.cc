// The values are compared one by one, so that the error says which one differs. The digest covers
// the same values, in the same order.
#include "server/peer/peer_identity.h"

#include <fmt/format.h>

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

}  // namespace forebay::peer

// Rendezvous: how the daemons of a job find each other. Each calls Exchange once at its start with
// its own entry, and gets the entries of all.
//
//   FOREBAY_ASSIGN(const auto nodes, rendezvous->Exchange(own, node_count, deadline_ns));
//   ... the daemon serves, and asks other nodes at nodes[rank].address ...
//   rendezvous->Leave();
//
// Implementations: a directory on the GFS (directory_rendezvous.h), a static list of hosts
// (host_list_rendezvous.h), a PMIx server (pmix_rendezvous.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "proto/contract/result.h"
#include "server/rendezvous/node_entry.h"

namespace forebay::rendezvous {

// For one thread.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;

  // Returns the entries of all `node_count` nodes, sorted by rank. Every node that succeeds gets
  // the same list, which CheckNodeList has accepted and which holds `own`. Blocks until then, or
  // until `deadline_ns` (io::Clock). Errors: kDeadlineExceeded names ranks that are missing
  // (PmixRendezvous cannot); kFailedPrecondition names two nodes that clash, and in what;
  // kCancelled: the daemon is to stop. After an error nothing that this node has published
  // is left (PMIx keeps it until the job ends). Before it returns an error it may wait up to
  // 3 s, until other nodes have read why.
  virtual Result<std::vector<NodeEntry>> Exchange(const NodeEntry& own, std::uint32_t node_count,
                                                  std::int64_t deadline_ns) = 0;

  // Removes what this node has published. To be called when the daemon shuts down; safe at any
  // time. Failures are logged. Within a minute of Exchange it may wait up to 3 s, until all other
  // nodes have the list.
  virtual void Leave() = 0;
};

// The value of the key `nodes.rendezvous`: "none", "pmix", "pmix:events", "directory:PATH",
// "hosts:PATH" or "join:HOST:PORT".
enum class RendezvousKind : std::uint8_t { kNone, kPmix, kDirectory, kHosts, kJoin };

struct RendezvousChoice {
  RendezvousKind kind = RendezvousKind::kNone;
  // kDirectory and kHosts: an absolute path. kJoin: the address of a node of the running job, which
  // is joined without an Exchange.
  std::string path = {};
  bool hears_losses = false;  // of kPmix: stay connected, and hear which tasks have failed
};

// kInvalidArgument: `text` is none of the six, a path is missing or not absolute, or what follows
// "join:" is not HOST:PORT or [ADDRESS]:PORT.
Result<RendezvousChoice> ParseRendezvous(std::string_view text);

}  // namespace forebay::rendezvous

// HostListRendezvous: the daemons of a job find each other by a static list of hosts. Nothing is
// exchanged: the list says all that is known before daemons talk to each other.
//
// One host per line, in the order of the ranks; text after '#' is a comment:
//
//   node17            # rank 0, the default port
//   node18:7001       # rank 1
//   [fd00::19]:7000 2 # rank 2, with twice the share of the others
//
// A node is named by its line's first word as it is written. So every node computes the same
// identities, and daemons on one host are told apart by their ports. Payload connections
// (peer/tls) are made only to hosts that are numeric addresses. The optional second word is the
// node's capacity, in any unit; a node without it has 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "server/rendezvous/host_port.h"
#include "server/rendezvous/launch_environment.h"
#include "server/rendezvous/rendezvous.h"

namespace forebay::rendezvous {

class HostList {
 public:
  // `name` is the file's, for messages. `default_port` is for lines without a port; 0: there is
  // none, so each line must have one. Errors name the line.
  static Result<HostList> Parse(std::string_view text, std::string name,
                                std::uint16_t default_port);

  // Finds this node: by the rank of `launch`, or else by `host_name`, which must then occur in one
  // line. kFailedPrecondition: it does not, or the launch's number of nodes is another than that of
  // lines.
  Result<NodePlace> Place(const Launch& launch, std::string_view host_name) const;

  std::uint32_t node_count() const { return static_cast<std::uint32_t>(lines_.size()); }
  // Where the daemon of `rank` listens.
  const HostPort& address(NodeRank rank) const { return lines_[rank.value()].address; }

  // The entries of all nodes. Job and agreed values are those of `own`, as daemons compare them
  // when they talk to each other. SSD directories are empty, because a node does not know those of
  // others; nonces are 0.
  std::vector<NodeEntry> Entries(const NodeEntry& own) const;

 private:
  struct Line {
    std::string word;  // the first one, as it is written
    HostPort address;
    std::uint64_t capacity = 1;
    std::size_t number = 0;  // in the file, from 1
  };

  std::string name_;
  std::vector<Line> lines_;
};

class HostListRendezvous final : public Rendezvous {
 public:
  explicit HostListRendezvous(HostList hosts) : hosts_(std::move(hosts)) {}

  // Returns HostList::Entries, at once.
  Result<std::vector<NodeEntry>> Exchange(const NodeEntry& own, std::uint32_t node_count,
                                          std::int64_t deadline_ns) override;
  void Leave() override {}

 private:
  const HostList hosts_;
};

}  // namespace forebay::rendezvous

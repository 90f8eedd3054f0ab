// NodeIdentity: the name of a node, or of its place, for as long as the job lives. A node is named
// by job, host and SSD directory and not by its rank, so a job that is queued again, and whose
// ranks are numbered in another order, finds each node's share of the data on the SSD on which it
// lies.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace forebay::rendezvous {

struct NodeIdentity {
  std::string job;
  std::string host;           // as gethostname gives it, or as a list of hosts spells it
  std::string ssd_directory = {};  // tier.ssd.directory; empty: the node has no SSD tier

  // A hash of the three texts. It never changes from version to version, because it is written to
  // disk.
  std::uint64_t Id() const;
  // For messages, on one line: "node17:/local/forebay (job 4711)".
  std::string Text() const;

  auto operator<=>(const NodeIdentity&) const = default;
};

}  // namespace forebay::rendezvous

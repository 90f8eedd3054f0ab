// LocalFirstReads: answers a request of another node to keep checksums of first reads
// (FirstReadKeepers). They count as first reads of this node, which compares its own reads with
// them, now and after a restart.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "server/stage/dataset.h"
#include "server/stage/gfs/first_reads.h"
#include "server/stage/stager.h"

namespace forebay::stage {

// Thread-safe.
class LocalFirstReads {
 public:
  // `self` is this node. The stager is borrowed.
  LocalFirstReads(NodeRank self, Stager& stager) : self_(self), stager_(stager) {}

  // Keeps the reads of node `from`, and returns the indexes of those that differ from the first
  // read that is known here, which stays. Blocks while a file in daemon.state_dir is written.
  // `fingerprint` is that of the other node's catalog; 0: it has none yet. kFailedPrecondition:
  // this node's catalog lists other samples or objects. kInvalidArgument: there is no such extent.
  // kResourceExhausted: this node has no catalog yet, and keeps as many reads as it may then.
  Result<std::vector<std::uint32_t>> Keep(Dataset& dataset, std::uint64_t fingerprint,
                                          NodeRank from, std::span<const FirstRead> reads);

 private:
  const NodeRank self_;
  Stager& stager_;
};

}  // namespace forebay::stage

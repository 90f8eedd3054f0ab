// FirstReadKeepers: interface to the nodes that keep checksums of first reads for this one, so that
// they can still be compared with when this node is gone. A transport of `peer` carries a request,
// and LocalFirstReads answers it on the node that is asked. FirstReadSharing decides whom to ask.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "server/stage/dataset.h"
#include "server/stage/gfs/first_reads.h"

namespace forebay::stage {

struct KeepRequest {
  NodeRank node;  // that is asked
  NodeRank from;  // this node, which has read the extents
  const Dataset& dataset;
  std::vector<FirstRead> reads;  // of extents of `dataset`; limits::kPeerFirstReadsMax at most
  std::int64_t deadline_ns = 0;  // by io::Clock
};

// Thread-safe.
class FirstReadKeepers {
 public:
  virtual ~FirstReadKeepers() = default;
  // The indexes of the reads that differ from what the other node knows as the first read. It
  // keeps the others.
  using Kept = std::function<void(Result<std::vector<std::uint32_t>>)>;
  // Calls `kept` once, before or soon after the deadline, from any thread; perhaps within this
  // call. IsNoAnswer says whether an error means that the node is silent.
  virtual void Keep(KeepRequest request, Kept kept) = 0;
};

}  // namespace forebay::stage

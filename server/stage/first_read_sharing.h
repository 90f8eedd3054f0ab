// FirstReadSharing: gives the checksums of first reads to the nodes that would read the same
// extents again if this one died, before this node serves the extents. Otherwise a substitute could
// not tell that an object has changed since, and readers would get two versions of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/io/clock.h"
#include "server/plan/membership.h"
#include "server/stage/first_read_keepers.h"

namespace forebay::stage {

// An extent that this node has read from the GFS.
struct SharedRead {
  std::uint64_t group_key = 0;  // of the extent's group (extent_groups.h)
  FirstRead read;
};

// A node has another first read of an extent.
struct Contradiction {
  std::size_t read = 0;  // index
  NodeRank node;
};

// Thread-safe.
class FirstReadSharing {
 public:
  // All are borrowed.
  FirstReadSharing(plan::Membership& nodes, FirstReadKeepers& keepers, io::Clock& clock)
      : nodes_(nodes), keepers_(keepers), clock_(clock) {}

  // Gives each read to the next two nodes of its group's ranking that are alive, one after the
  // other. Blocks until they have it. In the place of a node that refuses, or does not answer
  // within limits::kPeerFirstReadsDeadlineMs, the next one is asked, also in the minute that
  // follows; if no node is left, the read is kept by fewer, because serving must not depend on
  // substitutes. Returns which reads differ from the first read that another node knows.
  // kCancelled: this daemon shuts down.
  Result<std::vector<Contradiction>> Give(const Dataset& dataset,
                                          std::span<const SharedRead> reads);

  NodeRank self() const { return nodes_.self(); }

 private:
  struct Progress;
  struct Call;
  struct Round;

  std::vector<Call> NextCalls(std::span<const SharedRead> reads, std::vector<Progress>& progress);
  std::vector<Result<std::vector<std::uint32_t>>> Ask(const Dataset& dataset,
                                                      std::span<const SharedRead> reads,
                                                      const std::vector<Call>& calls);
  void NoteError(NodeRank node, const Dataset& dataset, const Error& error);

  plan::Membership& nodes_;
  FirstReadKeepers& keepers_;
  io::Clock& clock_;
  Mutex mutex_;
  // Nodes that have failed, and until when they are left out; by io::Clock.
  std::map<NodeRank, std::int64_t> left_out_ FOREBAY_GUARDED_BY(mutex_);
};

}  // namespace forebay::stage

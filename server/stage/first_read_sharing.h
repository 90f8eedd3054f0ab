// FirstReadSharing: gives the checksums of first reads to the nodes that would read the same
// extents again if this one died, before this node serves the extents. Otherwise a substitute could
// not tell that an object has changed since, and readers would get two versions of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/io/clock.h"
#include "server/plan/membership.h"
#include "server/stage/first_read_keepers.h"

namespace forebay::stage {

// An extent that this node has read from the GFS, or of which an earlier daemon has left a copy.
struct SharedRead {
  std::uint64_t group_key = 0;  // of the extent's group (extent_groups.h)
  FirstRead read;
  bool is_of_other = false;  // another node reads the extent for the job; this one has a copy
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
  FirstReadSharing(plan::Membership& nodes, FirstReadKeepers& keepers, io::Clock& clock);

  // Gives each read to the next two nodes of its group's ranking that are alive, one after the
  // other; that of a copy to the node that reads the extent. Blocks until they have it. In place of
  // a node that refuses, or does not answer within limits::kPeerFirstReadsDeadlineMs, the next
  // one is asked, also in the minute that follows; if no node is left, the read is kept by fewer,
  // because serving must not depend on substitutes. Returns which reads differ from the first read
  // that another node knows. While a request to a node is under way, further reads of the data set
  // wait, and go together in the next one. kCancelled: this daemon shuts down.
  Result<std::vector<Contradiction>> Give(const Dataset& dataset,
                                          std::span<const SharedRead> reads);

  NodeRank self() const { return nodes_.self(); }
  // The number of reads that wait for a request which is under way.
  std::size_t waiting() const;

 private:
  struct Progress;
  struct Question;
  struct Answer;
  struct Round;
  struct Waiting;
  struct Lines;

  std::vector<Question> NextQuestions(std::span<const SharedRead> reads,
                                      std::vector<Progress>& progress);
  std::vector<Answer> Ask(const Dataset& dataset, std::span<const SharedRead> reads,
                          std::span<const Question> questions);
  void Send(NodeRank node, const Dataset& dataset, std::vector<Waiting> asked);
  void NoteError(NodeRank node, const Dataset& dataset, const Error& error);

  plan::Membership& nodes_;
  FirstReadKeepers& keepers_;
  io::Clock& clock_;
  const std::shared_ptr<Lines> lines_;
  Mutex mutex_;
  struct Failure {
    std::int64_t until_ns = 0;  // by io::Clock; until then it is not logged again
    bool is_left_out = false;   // and other nodes are asked in its place
  };
  std::map<NodeRank, Failure> failed_ FOREBAY_GUARDED_BY(mutex_);
};

}  // namespace forebay::stage

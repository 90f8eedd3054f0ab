// SharedStats: sizes and modification times of objects for the builder of a catalog, in a job of
// several nodes. For each batch of paths, plan::Membership ranks the nodes; the first one that is
// alive asks the GFS, and the others ask that node. So the nodes together ask the GFS once for each
// file, and different nodes ask for different batches at the same time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "proto/contract/result.h"
#include "server/catalog/object_stats.h"
#include "server/io/io_backend.h"
#include "server/plan/membership.h"
#include "server/stage/cataloguing/local_stats.h"
#include "server/stage/dataset.h"
#include "server/stage/stat_source.h"

namespace forebay::stage {

// Thread-safe. Used for one build. Sizes and times are facts of the GFS, so any node may supply
// them, and each object is compared with them again when it is opened. A node that is silent or
// busy, that could not be asked in time, or whose answer is malformed, is replaced by the next one,
// and in the end by this node.
class SharedStats final : public catalog::ObjectStats {
 public:
  // All are borrowed. All nodes must have the same `paths_in_batch`, so that their batches are the
  // same. `has_cap`: nodes may wait for a cap of the job on opens. Then one whose answer is late
  // does not count as lost.
  SharedStats(Dataset& dataset, plan::Membership& nodes, StatSource& others, LocalStats& local,
              std::size_t paths_in_batch = limits::kStatPathsMax, bool has_cap = false)
      : dataset_(dataset),
        nodes_(nodes),
        others_(others),
        local_(local),
        paths_in_batch_(paths_in_batch),
        has_cap_(has_cap) {}

  // Blocks until the GFS or another node has answered; a node that does not answer is waited for as
  // long as `others` says. Calls to the GFS are counted by the node that makes them.
  catalog::StatOutcome Stat(std::span<const std::string> paths) override;
  std::size_t batches_at_once() const override;
  std::size_t paths_in_batch() const override { return paths_in_batch_; }

  // The number of paths that were asked for so far.
  std::uint64_t paths_asked() const { return paths_asked_; }

 private:
  catalog::StatOutcome Complete(std::span<const std::string> paths,
                                std::vector<io::FileInfo> infos);
  void NoteError(NodeRank node, const Error& error);

  Dataset& dataset_;
  plan::Membership& nodes_;
  StatSource& others_;
  LocalStats& local_;
  const std::size_t paths_in_batch_;
  const bool has_cap_;
  std::atomic<std::uint64_t> paths_asked_ = 0;
  std::atomic<bool> has_warned_ = false;
};

}  // namespace forebay::stage

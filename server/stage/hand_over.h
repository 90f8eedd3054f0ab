// HandOver: stages on this node what it reads from the GFS from now on because another node leaves
// the job (plan::Membership::SetLeaves). As long as that node answers, ExtentSupplier gets the
// extents from it.
//
//   HandOver hand_over(stager, [&] { return table.Served(); });
//   membership.SetLeaves(node, true);
//   for (hand_over.Begin(); !hand_over.Look();) ...  // about once a second
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "server/stage/dataset.h"
#include "server/stage/stager.h"

namespace forebay::stage {

// Not thread-safe.
class HandOver {
 public:
  // `stager` is borrowed. `datasets` returns those that are served.
  HandOver(Stager& stager, std::function<std::vector<Dataset*>()> datasets)
      : stager_(stager), datasets_(std::move(datasets)) {}

  // A node leaves: from here on, Look begins a pass of each data set.
  void Begin() { begun_.clear(); }
  // Returns whether this node has staged all for which its tiers have room. Does not block: threads
  // of the stager prepare the passes.
  bool Look();
  // Whether no data set is being catalogued or staged, or has failed.
  bool HasStaged() const;

 private:
  Stager& stager_;
  const std::function<std::vector<Dataset*>()> datasets_;
  // By Dataset::number, of those for which a pass was asked: Dataset::take_overs before that.
  std::map<std::uint64_t, std::uint32_t> begun_;
};

}  // namespace forebay::stage

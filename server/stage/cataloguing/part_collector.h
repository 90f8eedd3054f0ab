// PartCollector: asks other nodes of the job for the catalog parts that they have scanned, and adds
// them to ObjectScans. It is a part of Cataloguer, and works in rounds: a node that lacks parts
// asks for each of them once, and does other work until the next round, so no thread waits for a
// scan.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "server/io/clock.h"
#include "server/plan/membership.h"
#include "server/stage/cataloguing/object_scans.h"
#include "server/stage/dataset.h"
#include "server/stage/part_source.h"

namespace forebay::stage {

// Not thread-safe. Borrows its arguments. It keeps nothing from one round to the next: what has
// been found, and which nodes were asked, is in ObjectScans.
class PartCollector {
 public:
  PartCollector(plan::Membership& nodes, PartSource& peers, io::Clock& clock)
      : nodes_(nodes), peers_(peers), clock_(clock) {}

  // Scans an object on this node, and adds its part to ObjectScans.
  using ScanHere = std::function<Status(ObjectId)>;

  // One round over the objects whose parts are missing. A node that does not answer is taken for
  // dead. An object that another node refuses is refused in `scans`, too. Errors: those of
  // `scan_here`, and of ObjectScans::Add.
  Status AskOnce(const Dataset& dataset, ObjectScans& scans, const ScanHere& scan_here);
  // Of a node that has joined the running job: asks the nodes behind this one for the parts of
  // these objects, which it would scan. Returns those whose part they do not have. Errors as above.
  Result<std::vector<ObjectId>> AskBehind(const Dataset& dataset, ObjectScans& scans,
                                          std::span<const ObjectId> objects);

 private:
  std::vector<ObjectId> MissingByNode(ObjectScans& scans) const;
  // Whether the node has answered: with the part, or with a reason why there is none.
  Result<bool> Ask(const Dataset& dataset, ObjectScans& scans, ObjectId object, NodeRank node);

  plan::Membership& nodes_;
  PartSource& peers_;
  io::Clock& clock_;
};

}  // namespace forebay::stage

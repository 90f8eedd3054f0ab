// PeerSource: how `fetch` asks other nodes for extents it does not own. Declared here,
// implemented by `peer` (design 4); a node alone has nobody to ask.
#pragma once

#include <functional>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "server/plan/ownership.h"

namespace forebay::fetch {

class PeerSource {
 public:
  virtual ~PeerSource() = default;
  // The live nodes of the job, this one included, and which one this is.
  virtual std::vector<plan::Node> Nodes() const = 0;
  virtual NodeRank self() const = 0;
  // Brings `extent` of the data set whose hash is `dataset` from `owner` to this node's cache
  // and calls `done` once. kUnavailable where that node does not answer: the caller then reads
  // the GFS itself.
  virtual void Bring(NodeRank owner, std::uint64_t dataset, ExtentId extent,
                     std::function<void(const Status&)> done) = 0;
};

}  // namespace forebay::fetch

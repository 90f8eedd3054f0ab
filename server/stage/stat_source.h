// StatSource: interface that asks another node of the job for the sizes and modification times of a
// batch of files, so that one node asks the GFS for them and not all. A transport of `peer` carries
// the request, and LocalStats answers it on the node that is asked. SharedStats decides which node
// that is.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "server/io/io_backend.h"
#include "server/stage/dataset.h"

namespace forebay::stage {

struct StatRequest {
  NodeRank node;  // the node that is asked
  const Dataset& dataset;
  std::span<const std::string> paths;  // beneath the root of `dataset`; CheckBatch accepts them
};

// Thread-safe.
class StatSource {
 public:
  virtual ~StatSource() = default;
  // Returns sizes and times of the paths, in order. If a path fails on the other node, only those
  // of the paths before it are returned: the other node's error is not sent, because this node
  // tries that path itself. Blocks until they are there, or for limits::kPeerStatDeadlineMs.
  // IsNoAnswer says whether an error means that the node is silent, and IsNotSent whether the whole
  // time has passed although the node was not asked.
  virtual Result<std::vector<io::FileInfo>> Stat(const StatRequest& request) = 0;
};

// Identifies a batch of paths of a data set, of which `dataset` is Dataset::hash. All nodes that
// have listed the same files compute the same key.
std::uint64_t BatchKey(std::uint64_t dataset, std::span<const std::string> paths);

// Checks the paths that another node asks for: their number, their bytes, and that each is a
// canonical path beneath a root, which contains no "..". kInvalidArgument says what is wrong.
Status CheckBatch(std::span<const std::string> paths);

}  // namespace forebay::stage

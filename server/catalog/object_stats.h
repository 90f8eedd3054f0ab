// ObjectStats: where the builder of a catalog gets the sizes and modification times of objects. By
// default it asks the GFS for each of them (RootStats). In a job of several nodes `stage` supplies
// an implementation that lets the nodes share these calls, because a data set of a million small
// files takes a million of them.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "proto/contract/limits.h"
#include "proto/contract/result.h"
#include "server/io/io_backend.h"

namespace forebay::catalog {

// What is known of a batch of paths: the paths before the first one that failed, in order.
struct StatOutcome {
  std::vector<io::FileInfo> infos;
  // Why the path infos.size() failed. Not set: there is an info for every path.
  std::optional<Error> error;
};

// Thread-safe.
class ObjectStats {
 public:
  virtual ~ObjectStats() = default;
  // Reads size and modification time of a batch of paths beneath the root of the data set. Blocks
  // until all are known. A batch has at most paths_in_batch() paths, which together have at most
  // limits::kStatPathBytesMax bytes.
  virtual StatOutcome Stat(std::span<const std::string> paths) = 0;
  // From 1 to limits::kStatPathsMax.
  virtual std::size_t paths_in_batch() const { return limits::kStatPathsMax; }
  // The number of batches that a builder should ask for at the same time; at least 1.
  virtual std::size_t batches_at_once() const = 0;
};

// Asks the GFS, by StatMany, which keeps several requests in flight. So one batch at a time is
// enough.
class RootStats final : public ObjectStats {
 public:
  explicit RootStats(io::Directory& root) : root_(root) {}  // borrowed
  StatOutcome Stat(std::span<const std::string> paths) override;
  std::size_t batches_at_once() const override { return 1; }

 private:
  io::Directory& root_;
};

}  // namespace forebay::catalog

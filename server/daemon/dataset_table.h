// DatasetTable: the data sets that a daemon serves, by name. A rebuild replaces a Dataset by a new
// one. Streams may still read the old one, so the table keeps it until the daemon ends.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/stage/dataset.h"

namespace forebay::daemon {

// Thread-safe. Every Dataset lives as long as the table, also after it was replaced, or if it
// failed to replace another one, because streams, waiters and the stager refer to it.
class DatasetTable {
 public:
  // Adds a data set to those that are served.
  void Add(std::unique_ptr<stage::Dataset> dataset);
  // Stores a data set that will replace the one of its name, without serving it yet.
  // kResourceExhausted: limits::kReplacedDatasetsMax data sets that are not served are kept.
  Status Keep(std::unique_ptr<stage::Dataset> successor);
  // Serves `successor`, which Keep has stored, instead of `old`, which is kept but not served from
  // now on.
  void Swap(const stage::Dataset& old, const stage::Dataset& successor);
  // Whether a successor of the data set of this name is being catalogued.
  bool IsBeingReplaced(std::string_view name) const;

  // The data set that is served under this name, or null.
  stage::Dataset* Find(std::string_view name) const;
  // The data set that is served under the name with this hash (Dataset::hash), or null.
  stage::Dataset* FindByHash(std::uint64_t hash) const;
  // The data sets that are served, in the order of the configuration.
  std::vector<stage::Dataset*> Served() const;
  // All data sets, including those that are not served.
  std::vector<stage::Dataset*> All() const;

 private:
  mutable Mutex mutex_;  // held while Dataset::progress locks the data set's
  std::vector<std::unique_ptr<stage::Dataset>> served_ FOREBAY_GUARDED_BY(mutex_);
  // Data sets that are no longer served, or not yet.
  std::vector<std::unique_ptr<stage::Dataset>> kept_ FOREBAY_GUARDED_BY(mutex_);
};

}  // namespace forebay::daemon

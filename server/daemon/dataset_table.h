// DatasetTable: the data sets that a daemon serves, by name. A rebuild replaces a Dataset, which
// streams may still be reading, by another one.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/stage/dataset.h"

namespace forebay::daemon {

// Thread-safe. Every Dataset lives as long as the table, also after it was replaced or failed to
// replace another one, because streams, waiters and the stager refer to it.
class DatasetTable {
 public:
  void Add(std::unique_ptr<stage::Dataset> dataset);
  // Keeps a data set that is to replace the one of its name. kResourceExhausted where
  // limits::kReplacedDatasetsMax are kept beside those that are served.
  Status Keep(std::unique_ptr<stage::Dataset> successor);
  // Serves `successor`, which is kept, in the place of `old`, which is kept from now on.
  void Swap(const stage::Dataset& old, const stage::Dataset& successor);
  // Whether one is kept that is being catalogued to replace the data set of this name.
  bool IsBeingReplaced(std::string_view name) const;

  // Null if there is none of this name.
  stage::Dataset* Find(std::string_view name) const;
  // The data sets that are served, in the order of the configuration.
  std::vector<stage::Dataset*> Served() const;
  // All data sets, including those that are kept.
  std::vector<stage::Dataset*> All() const;

 private:
  mutable Mutex mutex_;  // held while Dataset::progress locks the data set's
  std::vector<std::unique_ptr<stage::Dataset>> served_ FOREBAY_GUARDED_BY(mutex_);
  // Data sets that are served no more, or not yet.
  std::vector<std::unique_ptr<stage::Dataset>> kept_ FOREBAY_GUARDED_BY(mutex_);
};

}  // namespace forebay::daemon

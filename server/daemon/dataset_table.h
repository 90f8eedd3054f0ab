// DatasetTable: the data sets that a daemon serves, by name. A rebuild replaces a Dataset, which
// streams may still be reading, by another one.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "proto/contract/result.h"
#include "server/stage/dataset.h"

namespace forebay::daemon {

// Thread-safe. Every Dataset lives as long as the table, also after it was replaced, because
// streams, waiters and the stager refer to it.
class DatasetTable {
 public:
  void Add(std::unique_ptr<stage::Dataset> dataset);
  // Serves `successor` under the name of `old`, which is in the table. kResourceExhausted once
  // limits::kReplacedDatasetsMax have been replaced.
  Status Replace(const stage::Dataset& old, std::unique_ptr<stage::Dataset> successor);

  // Null if there is none of this name.
  stage::Dataset* Find(std::string_view name) const;
  // The data sets that are served, in the order of the configuration.
  std::vector<stage::Dataset*> Served() const;
  // All data sets, including those that were replaced.
  std::vector<stage::Dataset*> All() const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<stage::Dataset>> served_;
  std::vector<std::unique_ptr<stage::Dataset>> replaced_;
};

}  // namespace forebay::daemon

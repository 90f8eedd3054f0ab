// Two lists under one mutex: the data sets that are served, in the order of the configuration, and
// those that are kept for their readers. A rebuild adds its new Dataset to the second list (Keep),
// and exchanges the two once the new catalog is known (Swap).
#include "server/daemon/dataset_table.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/check.h"
#include "proto/contract/limits.h"

namespace forebay::daemon {

void DatasetTable::Add(std::unique_ptr<stage::Dataset> dataset) {
  MutexLock lock(mutex_);
  served_.push_back(std::move(dataset));
}

Status DatasetTable::Keep(std::unique_ptr<stage::Dataset> successor) {
  MutexLock lock(mutex_);
  // Data sets are never destroyed before the daemon: streams hold plain pointers to them. So the
  // number of rebuilds is bounded.
  if (kept_.size() >= limits::kReplacedDatasetsMax) {
    return Error(ErrorCode::kResourceExhausted,
                 fmt::format("data set '{1}' is not rebuilt: this daemon has rebuilt data sets {0} "
                             "times, and keeps the old ones because streams may still read them; "
                             "restart the daemon to rebuild it",
                             kept_.size(), successor->name()));
  }
  kept_.push_back(std::move(successor));
  return {};
}

void DatasetTable::Swap(const stage::Dataset& old, const stage::Dataset& successor) {
  MutexLock lock(mutex_);
  const auto pointer = [](const auto& entry) { return entry.get(); };
  const auto served = std::ranges::find(served_, &old, pointer);
  const auto kept = std::ranges::find(kept_, &successor, pointer);
  FOREBAY_CHECK(served != served_.end() && kept != kept_.end());
  // The old data set takes the successor's place in the list, so no pointer becomes invalid.
  std::swap(*served, *kept);
}

bool DatasetTable::IsBeingReplaced(std::string_view name) const {
  MutexLock lock(mutex_);
  return std::ranges::any_of(kept_, [&](const auto& entry) {
    return entry->name() == name &&
           entry->progress().state == stage::DatasetState::kCataloguing;
  });
}

stage::Dataset* DatasetTable::Find(std::string_view name) const {
  MutexLock lock(mutex_);
  // Linear: at most kDatasetCountMax names, and looked up once for each call.
  const auto found =
      std::ranges::find(served_, name, [](const auto& entry) { return entry->name(); });
  return found == served_.end() ? nullptr : found->get();
}

stage::Dataset* DatasetTable::FindByHash(std::uint64_t hash) const {
  MutexLock lock(mutex_);
  const auto found =
      std::ranges::find(served_, hash, [](const auto& entry) { return entry->hash(); });
  return found == served_.end() ? nullptr : found->get();
}

std::vector<stage::Dataset*> DatasetTable::Served() const {
  MutexLock lock(mutex_);
  std::vector<stage::Dataset*> datasets;
  for (const auto& dataset : served_) datasets.push_back(dataset.get());
  return datasets;
}

std::vector<stage::Dataset*> DatasetTable::All() const {
  // Both lists are read under one lock: a Swap between two locks would make one data set occur
  // twice and the other one not at all.
  MutexLock lock(mutex_);
  std::vector<stage::Dataset*> datasets;
  for (const auto& dataset : served_) datasets.push_back(dataset.get());
  for (const auto& dataset : kept_) datasets.push_back(dataset.get());
  return datasets;
}

}  // namespace forebay::daemon

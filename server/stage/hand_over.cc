// A pass works with the nodes as they were when it was prepared, so each data set needs one that
// begins after the news. A pass that is under way ends first.
#include "server/stage/hand_over.h"

#include <algorithm>

namespace forebay::stage {
namespace {

bool IsUnderWay(const Dataset& dataset) {
  // First: when it is prepared, the state shows already that it has begun.
  if (dataset.is_preparing()) return true;
  const DatasetState state = dataset.progress().state;
  return state == DatasetState::kCataloguing || state == DatasetState::kStaging;
}

}  // namespace

bool HandOver::Look() {
  bool is_done = true;
  for (Dataset* dataset : datasets_()) {
    // A data set without a catalog has nothing to hand over. Once it is catalogued, its pass begins
    // with the nodes as they are then.
    if (!IsUnderWay(*dataset) && dataset->catalog() != nullptr) {
      const auto [before, is_new] = begun_.try_emplace(dataset->number(), dataset->take_overs());
      // Not new: it was not prepared, because another pass had begun.
      if (is_new || dataset->take_overs() == before->second) stager_.TakeOver(*dataset);
    }
    if (IsUnderWay(*dataset)) is_done = false;
  }
  return is_done;
}

bool HandOver::HasStaged() const {
  return std::ranges::none_of(datasets_(), [](const Dataset* dataset) {
    return IsUnderWay(*dataset) || dataset->progress().state == DatasetState::kFailed;
  });
}

}  // namespace forebay::stage

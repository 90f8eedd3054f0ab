#include "tests/model/demand_log.h"

#include <chrono>

#include <fmt/format.h>

namespace forebay::model {

void DemandLog::Demand(stage::Stager& stager, stage::Dataset& dataset, ExtentId extent,
                       stage::Stager::Access access) {
  std::size_t index = 0;
  {
    std::lock_guard lock(mutex_);
    index = entries_.size();
    entries_.emplace_back();
    ++missing_;
  }
  stager.Demand(
      dataset, extent,
      [self = shared_from_this(), index](const Status& status) {
        std::lock_guard lock(self->mutex_);
        Entry& entry = self->entries_[index];
        if (entry.answers++ == 0) --self->missing_;
        entry.last = status;
        self->answered_.notify_all();
      },
      access);
}

bool DemandLog::Wait() {
  std::unique_lock lock(mutex_);
  return answered_.wait_for(lock, std::chrono::seconds(20), [this] { return missing_ == 0; });
}

Result<std::vector<Status>> DemandLog::Answers() const {
  std::lock_guard lock(mutex_);
  std::vector<Status> answers;
  for (const Entry& entry : entries_) {
    if (entry.answers != 1) {
      return Error(ErrorCode::kInternal, fmt::format("demand {} of {} was answered {} times",
                                                     answers.size(), entries_.size(),
                                                     entry.answers));
    }
    answers.push_back(entry.last);
  }
  return answers;
}

}  // namespace forebay::model

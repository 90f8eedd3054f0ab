// DemandLog: demands of extents, and how often each was answered.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "proto/contract/result.h"
#include "server/stage/stager.h"

namespace forebay::model {

// Thread-safe. Waiters keep it alive.
class DemandLog : public std::enable_shared_from_this<DemandLog> {
 public:
  void Demand(stage::Stager& stager, stage::Dataset& dataset, ExtentId extent,
              stage::Stager::Access access);
  // Until all were answered; false after 20 seconds.
  bool Wait();
  // In the order of demands. kInternal where one was not answered, or more than once.
  Result<std::vector<Status>> Answers() const;

 private:
  struct Entry {
    std::size_t answers = 0;
    Status last;
  };

  mutable std::mutex mutex_;
  std::condition_variable answered_;
  std::vector<Entry> entries_;
  std::size_t missing_ = 0;
};

}  // namespace forebay::model

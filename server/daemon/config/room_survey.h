// RoomSurvey: whether the tiers hold the configured data sets, said before a job starts
// (`forebayd --check`). Nothing is read but names, sizes and headers, and nothing is changed.
#pragma once

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/daemon/config/config.h"
#include "server/io/clock.h"
#include "server/io/io_backend.h"
#include "server/plan/placement.h"
#include "server/stage/placement/dataset_size.h"

namespace forebay::daemon {

inline constexpr std::int64_t kCheckPatienceMs = 10'000;  // of `forebayd --check`

struct RoomReport {
  Result<plan::TierPlan> tiers = plan::TierPlan();
  struct Sized {
    std::string name;
    Result<stage::DatasetSize> size = stage::DatasetSize();
  };
  std::vector<Sized> datasets;  // as configured
};

// For the terminal: one statement a line.
struct RoomText {
  std::vector<std::string> facts;
  std::vector<std::string> warnings;  // what a user must not miss; empty where the tiers hold all
};
RoomText Describe(const RoomReport& report);

// Looks at the tiers' directories and at the data sets, on a thread of its own, for as long as
// `patience_ms`; what is not known then is reported so. Borrows its arguments.
class RoomSurvey {
 public:
  RoomSurvey(const Config& config, io::IoBackend& backend, const io::Clock& clock,
             std::int64_t patience_ms);

  // Until all has been looked at, or the patience is over. False where a call to a file system has
  // not come back then: this must not be destroyed, and the process has to end without it
  // (std::_Exit).
  bool Await();
  // What is known by now.
  RoomReport Report() const;

 private:
  void Run();
  Error Silent(const std::string& path) const;
  Result<plan::TierPlan> LookAtTiers();
  Result<stage::DatasetSize> LookAt(const stage::DatasetOptions& dataset);

  const Config& config_;
  io::IoBackend& backend_;
  const io::Clock& clock_;
  const std::int64_t patience_ms_;
  const std::int64_t deadline_ns_;

  mutable Mutex mutex_;
  CondVar over_;
  bool is_over_ FOREBAY_GUARDED_BY(mutex_) = false;
  RoomReport report_ FOREBAY_GUARDED_BY(mutex_);
  std::jthread thread_;  // last: it uses all of the above
};

}  // namespace forebay::daemon

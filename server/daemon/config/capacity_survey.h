// CapacitySurvey: implements `forebayd --check`: reports, before a job starts, whether the tiers
// hold the configured data sets. Reads only names, sizes and headers, and changes nothing.
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

inline constexpr std::int64_t kCheckPatienceMs = 10'000;  // how long `forebayd --check` may take

struct CapacityReport {
  Result<plan::TierPlan> tiers = plan::TierPlan();
  struct Sized {
    std::string name;
    Result<stage::DatasetSize> size = stage::DatasetSize();
  };
  std::vector<Sized> datasets;  // in the order of the configuration
};

// The report as text for a terminal, one statement per line.
struct CapacityText {
  std::vector<std::string> facts;
  std::vector<std::string> warnings;  // empty if the tiers hold all data sets
};
CapacityText Describe(const CapacityReport& report);

// Looks at the tiers' directories and at the data sets, on a thread of its own, for at most
// `patience_ms`; what is not known then is reported as unknown. Borrows its arguments.
class CapacitySurvey {
 public:
  CapacitySurvey(const Config& config, io::IoBackend& backend, const io::Clock& clock,
             std::int64_t patience_ms);

  // Blocks until everything was looked at, or the time is over. Returns false if a call to a file
  // system has not returned by then: the object must not be destroyed, and the process must end
  // with std::_Exit.
  bool Await();
  // What is known so far. Thread-safe.
  CapacityReport Report() const;

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
  CapacityReport report_ FOREBAY_GUARDED_BY(mutex_);
  std::jthread thread_;  // last: it uses all of the above
};

}  // namespace forebay::daemon

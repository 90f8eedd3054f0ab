// Verifier: has the tier's scrubber look at every resident extent of some data sets, as fast as
// it can; damaged copies are dropped, so that the next reader gets the bytes anew.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "proto/contract/result.h"
#include "server/io/clock.h"
#include "server/io/io_backend.h"
#include "server/stage/dataset.h"
#include "server/tier/extent_cache.h"

namespace forebay::daemon {

struct VerifyCounts {
  std::uint64_t extents_total = 0;
  std::uint64_t extents_done = 0;
  std::uint64_t extents_bad = 0;
  std::uint64_t bytes_done = 0;
  bool done = false;
};

class Verifier {
 public:
  // Everything is borrowed.
  Verifier(tier::ExtentCache& cache, io::IoBackend& backend, io::Clock& clock)
      : cache_(cache), backend_(backend), clock_(clock) {}

  // Called after each extent with the counts so far and new errors; false stops.
  using Progress = std::function<bool(const VerifyCounts&, std::vector<std::string>)>;
  // Bad extents are counted, not an error of the run. kCancelled where progress said stop.
  Status Run(const std::vector<stage::Dataset*>& datasets, const Progress& progress);

 private:
  tier::ExtentCache& cache_;
  io::IoBackend& backend_;
  io::Clock& clock_;
};

}  // namespace forebay::daemon

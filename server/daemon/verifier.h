// Verifier: implements `forebay verify`. Checks every resident extent of some data sets with
// tier::Scrubber, without a rate limit. Damaged copies are dropped, so that the next reader gets
// the bytes from the GFS again.
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

// For use by one thread.
class Verifier {
 public:
  // Everything is borrowed.
  Verifier(tier::ExtentCache& cache, io::IoBackend& backend, io::Clock& clock)
      : cache_(cache), backend_(backend), clock_(clock) {}

  // Called after each extent with the counts so far and with new error messages. Returns false to
  // stop the run.
  using Progress = std::function<bool(const VerifyCounts&, std::vector<std::string>)>;
  // Blocks until all extents are checked. Bad extents are counted, and are no error of the run.
  // kCancelled: `progress` returned false.
  Status Run(const std::vector<stage::Dataset*>& datasets, const Progress& progress);

 private:
  tier::ExtentCache& cache_;
  io::IoBackend& backend_;
  io::Clock& clock_;
};

}  // namespace forebay::daemon

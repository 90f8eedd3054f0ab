// BackgroundScrubber: looks at everything that is resident again and again, slowly, so that bit
// rot is found while the GFS can still mend it, and not by a sample.
#pragma once

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/fetch/decoded_cache.h"
#include "server/io/clock.h"
#include "server/io/io_backend.h"
#include "server/stage/dataset.h"
#include "server/tier/extent_cache.h"
#include "server/tier/scrubber.h"

namespace forebay::daemon {

// Pieces of the extents of these data sets, as far as their catalogs are known. Borrows them.
tier::PiecesOf PiecesOfDatasets(std::vector<stage::Dataset*> datasets);

// What it works on; must outlive it.
struct ScrubParts {
  tier::ExtentCache& cache;
  io::IoBackend& backend;
  io::Clock& clock;
  tier::PiecesOf pieces_of;
  fetch::DecodedCache* decoded = nullptr;  // null: there is none
};

// Works from Start to destruction, on a thread of its own and of the lowest priority. Ending it
// waits for the extent at hand. What is damaged is dropped and logged; whoever needs it next has
// it brought anew.
class BackgroundScrubber {
 public:
  static Result<std::unique_ptr<BackgroundScrubber>> Start(ScrubParts parts,
                                                           std::uint64_t bytes_per_second);
  ~BackgroundScrubber();

  // Since the start. Thread-safe.
  tier::Scrubber::Counts counts() const;

 private:
  BackgroundScrubber(io::Clock& clock, tier::Scrubber scrubber,
                     std::unique_ptr<io::IoQueue> queue, fetch::DecodedCache* decoded);
  void Run(const std::stop_token& stop);
  // False where nothing is resident.
  bool ScrubSome(const std::stop_token& stop);
  // Of decoded units as much as a wake of the other takes; returns their bytes.
  std::uint64_t ScrubDecoded(const std::stop_token& stop);

  io::Clock& clock_;
  tier::Scrubber scrubber_;             // the thread's own
  std::unique_ptr<io::IoQueue> queue_;  // the thread's own
  fetch::DecodedCache* const decoded_;
  std::uint64_t bytes_per_second_ = 0;  // 0: no limit
  mutable Mutex mutex_;
  StoppableCondVar wake_;
  tier::Scrubber::Counts counts_ FOREBAY_GUARDED_BY(mutex_);
  std::jthread thread_;
};

}  // namespace forebay::daemon

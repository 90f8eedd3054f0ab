// BackgroundScrubber: verifies all resident extents and decoded chunks in turn, at a low rate, for
// as long as the daemon runs. So bit rot is found, and mended from the GFS, before a sample of a
// minibatch meets it.
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

// Returns a function that lists the pieces of extents of these data sets. It fails for an extent of
// a data set that has no catalog, is replaced, or is compressed at staging. Borrows the data sets.
tier::PiecesOf PiecesOfDatasets(std::vector<stage::Dataset*> datasets);

// What the scrubber works on; must outlive it.
struct ScrubParts {
  tier::ExtentCache& cache;
  io::IoBackend& backend;
  io::Clock& clock;
  tier::PiecesOf pieces_of;
  fetch::DecodedCache* decoded = nullptr;  // null: decoded chunks are not scrubbed
};

// Runs from Start to destruction, on a thread of its own with the lowest priority. Destruction
// waits until the extent that is being verified is done. A damaged copy is dropped and logged; it
// is read or decoded again when a reader needs it.
class BackgroundScrubber {
 public:
  // `bytes_per_second` limits extents and decoded chunks together, on average; 0: no limit.
  static Result<std::unique_ptr<BackgroundScrubber>> Start(ScrubParts parts,
                                                           std::uint64_t bytes_per_second);
  ~BackgroundScrubber();
  // The thread ends soon; the destructor waits for it. Returns at once.
  void BeginStop() { thread_.request_stop(); }

  // Extents that were verified since the start. Thread-safe.
  tier::Scrubber::Counts counts() const;

 private:
  BackgroundScrubber(io::Clock& clock, tier::Scrubber scrubber,
                     std::unique_ptr<io::IoQueue> queue, fetch::DecodedCache* decoded);
  void Run(const std::stop_token& stop);
  // Verifies about kBytesPerWake of extents. False if nothing is resident.
  bool ScrubSome(const std::stop_token& stop);
  // Verifies about kBytesPerWake of decoded chunks; returns their bytes.
  std::uint64_t ScrubDecoded(const std::stop_token& stop);

  io::Clock& clock_;
  tier::Scrubber scrubber_;             // used by the thread only
  std::unique_ptr<io::IoQueue> queue_;  // used by the thread only
  fetch::DecodedCache* const decoded_;
  std::uint64_t bytes_per_second_ = 0;  // 0: no limit
  mutable Mutex mutex_;
  StoppableCondVar wake_;
  tier::Scrubber::Counts counts_ FOREBAY_GUARDED_BY(mutex_);
  std::jthread thread_;
};

}  // namespace forebay::daemon

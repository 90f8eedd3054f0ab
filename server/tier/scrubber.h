// Scrubber: reads resident extents again and compares them with their checksums, so that bit
// rot in RAM and on SSD is found before a sample meets it. Used by `verify` and, for as long as
// the daemon lives, in the background.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "proto/contract/limits.h"
#include "proto/contract/result.h"
#include "server/io/aligned_buffer.h"
#include "server/io/clock.h"
#include "server/io/io_backend.h"
#include "server/tier/extent_cache.h"

namespace forebay::tier {

// Appends the pieces of an extent, in image order (catalog::Catalog::Pieces). An error, or an
// unset function, means that they are not known now: the image is then checked as a whole,
// which finds the same damage without naming the piece.
using PiecesOf = std::function<Status(const ExtentKey&, std::vector<catalog::Range>&)>;

// Not thread-safe: one per thread. Owns two buffers of kScrubBytes; borrows the rest.
class Scrubber {
 public:
  struct Options {
    std::uint64_t bytes_per_second = 64 * limits::kMiB;  // 0: no limit
  };
  struct Counts {
    std::uint64_t bytes = 0;
    std::uint64_t extents = 0;
    std::uint64_t bad_extents = 0;
  };

  static Result<Scrubber> Create(ExtentCache& cache, io::Clock& clock, PiecesOf pieces_of,
                                 const Options& options);

  // Reads one extent and verifies image and pieces. kDataLoss names extent and piece; other
  // errors mean that nothing is known. Never waits for the rate and evicts nothing. `queue`
  // must be idle; it is not used for RAM.
  Status ScrubExtent(const ExtentRef& extent, io::IoQueue& queue);

  // Drops what ScrubExtent found damaged, so that the next reader has it brought anew; says
  // whether there was anything to drop. Other errors say nothing of the extent.
  bool DropIfDamaged(const ExtentKey& key, TierKind tier, const Status& found);

  // Scrubs the next resident extent in the order of keys, RAM before SSD, round and round, and
  // drops it where it is damaged. What comes during a round may wait for the next one. Nothing
  // where nothing is resident; otherwise what was looked at and how it was.
  struct Finding {
    ExtentKey key;
    TierKind tier = TierKind::kRam;
    Status status;
  };
  std::optional<Finding> ScrubNext(io::IoQueue& queue);

  // When the next extent may be scrubbed without exceeding the rate, on the clock's scale. The
  // caller waits, in a way that it can end; a whole extent is read at once, so the bound holds
  // over times longer than kExtentBytesMax / bytes_per_second.
  std::int64_t not_before_ns() const { return not_before_ns_; }
  const Counts& counts() const { return counts_; }

 private:
  Scrubber(ExtentCache& cache, io::Clock& clock, PiecesOf pieces_of, const Options& options,
           io::AlignedBuffer first, io::AlignedBuffer second);

  Status ScrubSegment(const ResidentExtent& extent, io::IoQueue& queue,
                      std::span<const catalog::Range> pieces);
  void Charge(std::uint64_t bytes);

  ExtentCache* cache_;
  io::Clock* clock_;
  PiecesOf pieces_of_;
  Options options_;
  io::AlignedBuffer buffers_[2];
  std::vector<catalog::Range> pieces_;
  Counts counts_;
  std::int64_t not_before_ns_ = 0;
  TierKind next_tier_ = TierKind::kRam;
  std::vector<ExtentKey> round_;  // on next_tier_, as it was when its turn came
  std::size_t next_in_round_ = 0;
};

// Bytes per read of a segment.
inline constexpr std::size_t kScrubBytes = std::size_t{1} << 20;

}  // namespace forebay::tier

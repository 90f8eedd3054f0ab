// Scrubber: reads resident extents again and compares them with their checksums, so that bit rot in
// RAM and on SSD is found before a minibatch needs the bytes. Used by `forebay verify`, and by
// daemon/background_scrubber.h for as long as the daemon runs.
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

// Appends the pieces of an extent, in the order of the image (catalog::Catalog::Pieces). If it
// fails or is unset, the pieces are not known: the image is then checked as a whole, which finds
// the same damage but does not name the piece.
using PiecesOf = std::function<Status(const ExtentKey&, std::vector<catalog::Range>&)>;

// Not thread-safe: use one per thread. Owns two buffers of kScrubBytes; borrows the rest.
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

  // Reads one extent and verifies its image and pieces. kDataLoss names extent and piece. Other
  // errors mean that the extent could not be checked. Blocks on the device, but not for the rate;
  // evicts nothing. `queue` must be idle; it is used for SSD only.
  Status ScrubExtent(const ExtentRef& extent, io::IoQueue& queue);

  // Drops the copy `extent` if `found`, the outcome of ScrubExtent, is kDataLoss, so that the next
  // reader has it staged again. A copy that has replaced it since stays. Returns whether `extent`
  // is damaged.
  bool DropIfDamaged(const ExtentRef& extent, const Status& found);

  // Scrubs the next resident extent and drops it if it is damaged. Goes through all extents in RAM,
  // then all on SSD, and begins again. Extents that are staged during a round may wait for the next
  // one. Returns the extent and its outcome; nullopt if nothing is resident.
  struct Finding {
    ExtentKey key;
    TierKind tier = TierKind::kRam;
    Status status;
  };
  std::optional<Finding> ScrubNext(io::IoQueue& queue);

  // The time of `clock` from which on the next extent may be scrubbed without exceeding the rate.
  // The caller waits, because it knows how to end a wait. A whole extent is read at once, so the
  // rate holds over times longer than kExtentBytesMax / bytes_per_second.
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
  std::vector<ExtentKey> round_;  // extents of next_tier_ when this round began
  std::size_t next_in_round_ = 0;
};

// Bytes per read of a segment.
inline constexpr std::size_t kScrubBytes = std::size_t{1} << 20;

}  // namespace forebay::tier

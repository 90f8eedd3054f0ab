// Each turn of the thread verifies about a megabyte of extents and a megabyte of decoded chunks,
// then sleeps as long as the rate demands. tier::Scrubber keeps the rate for extents; the sleep for
// decoded chunks is added here.
#include "server/daemon/background_scrubber.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "server/io/log.h"

namespace forebay::daemon {
namespace {

// Small extents are verified together up to this size, so that the thread wakes less often.
constexpr std::uint64_t kBytesPerWake = 1 * limits::kMiB;
// The pause while the tiers are empty: new extents were verified as they were stored.
constexpr std::chrono::nanoseconds kNothingThere = std::chrono::seconds(1);
constexpr int kLowestPriority = 19;

}  // namespace

tier::PiecesOf PiecesOfDatasets(std::vector<stage::Dataset*> datasets) {
  return [datasets = std::move(datasets)](const tier::ExtentKey& key,
                                          std::vector<catalog::Range>& pieces) -> Status {
    // After a rebuild, two data sets have the same hash; the identity in the key tells them apart.
    for (const stage::Dataset* dataset : datasets) {
      if (dataset->hash() != key.dataset) continue;
      const auto catalog = dataset->catalog();
      if (!catalog) continue;
      // Another identity: the extent is from before the objects changed, and has other pieces.
      const std::optional<ExtentId> extent = dataset->ExtentOf(key);
      if (!extent) continue;
      if (!dataset->form()) return catalog->Pieces(*extent, pieces);
      // The image of a packed extent has pieces that only its own directory knows. Without pieces
      // the scrubber verifies the image as a whole.
      return Error(ErrorCode::kUnimplemented,
                   "the catalog does not list the pieces of a packed extent");
    }
    return Error(ErrorCode::kNotFound, "no catalog has extent " + tier::KeyText(key));
  };
}

Result<std::unique_ptr<BackgroundScrubber>> BackgroundScrubber::Start(
    ScrubParts parts, std::uint64_t bytes_per_second) {
  FOREBAY_ASSIGN(auto queue, parts.backend.CreateQueue({.depth = 2}));
  FOREBAY_ASSIGN(tier::Scrubber scrubber,
                 tier::Scrubber::Create(parts.cache, parts.clock, std::move(parts.pieces_of),
                                        {.bytes_per_second = bytes_per_second}));
  std::unique_ptr<BackgroundScrubber> made(
      new BackgroundScrubber(parts.clock, std::move(scrubber), std::move(queue), parts.decoded));
  made->bytes_per_second_ = bytes_per_second;
  // The raw pointer is good as long as the thread: the object's last member joins it.
  made->thread_ = std::jthread(
      [raw = made.get()](const std::stop_token& stop) { raw->Run(stop); });
  return made;
}

BackgroundScrubber::BackgroundScrubber(io::Clock& clock, tier::Scrubber scrubber,
                                       std::unique_ptr<io::IoQueue> queue,
                                       fetch::DecodedCache* decoded)
    : clock_(clock),
      scrubber_(std::move(scrubber)),
      queue_(std::move(queue)),
      decoded_(decoded) {}

BackgroundScrubber::~BackgroundScrubber() = default;

tier::Scrubber::Counts BackgroundScrubber::counts() const {
  MutexLock lock(mutex_);
  return counts_;
}

bool BackgroundScrubber::ScrubSome(const std::stop_token& stop) {
  const std::uint64_t begin = scrubber_.counts().bytes;
  while (!stop.stop_requested() && scrubber_.counts().bytes - begin < kBytesPerWake) {
    const auto finding = scrubber_.ScrubNext(*queue_);
    // No extent is resident. If none was verified in this turn either, the thread sleeps for a
    // while.
    if (!finding) return scrubber_.counts().bytes > begin;
    if (!finding->status.has_value()) {
      // If the bytes are wrong, the scrubber has dropped the copy, and the next reader has it
      // staged again.
      log::Warn("scrub: extent {} on {}: {}", tier::KeyText(finding->key),
                finding->tier == tier::TierKind::kRam ? "ram" : "ssd",
                finding->status.error().message());
    }
  }
  return true;
}

std::uint64_t BackgroundScrubber::ScrubDecoded(const std::stop_token& stop) {
  std::uint64_t bytes = 0;
  while (decoded_ != nullptr && !stop.stop_requested() && bytes < kBytesPerWake) {
    const auto scrubbed = decoded_->ScrubNext();
    if (!scrubbed) break;
    bytes += scrubbed->bytes + 1;  // +1: chunks of 0 bytes must end this loop too
    if (!scrubbed->is_sound) {
      log::Warn("scrub: decoded chunk {} of extent {} is corrupt; dropped, will be decoded again",
                scrubbed->key.piece, tier::KeyText(scrubbed->key.extent));
    }
  }
  return bytes;
}

void BackgroundScrubber::Run(const std::stop_token& stop) {
  // On Linux this sets the priority of the calling thread alone. If it is refused, the rate still
  // limits the load.
  static_cast<void>(setpriority(PRIO_PROCESS, 0, kLowestPriority));
  while (!stop.stop_requested()) {
    // Extents have the first turn, but cannot keep decoded chunks from theirs.
    const bool found = ScrubSome(stop);
    std::chrono::nanoseconds pause =
        found ? std::chrono::nanoseconds(scrubber_.not_before_ns() - clock_.NowNs())
              : kNothingThere;
    const double decoded_bytes = static_cast<double>(ScrubDecoded(stop));
    if (bytes_per_second_ > 0) {  // extents and decoded chunks share the rate
      pause = std::max(pause, std::chrono::nanoseconds(0)) +
              std::chrono::nanoseconds(static_cast<std::int64_t>(
                  decoded_bytes * 1e9 / static_cast<double>(bytes_per_second_)));
    }
    MutexLock lock(mutex_);
    // A copy, because counts() is called by other threads while the scrubber works.
    counts_ = scrubber_.counts();
    wake_.WaitFor(mutex_, stop, pause, [] { return false; });
  }
}

}  // namespace forebay::daemon

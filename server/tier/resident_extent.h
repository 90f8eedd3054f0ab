// ResidentExtent: an extent that this node holds or knows how to read in pieces; and ExtentRef, by
// which readers keep it. The cache makes the first reference to an extent; readers copy it.
#pragma once

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "server/tier/extent_key.h"
#include "server/tier/piece_source.h"
#include "server/tier/ram/ram_arena.h"
#include "server/tier/ssd/segment_store.h"

namespace forebay::tier {

// The cache holds extents on kRam and kSsd.
enum class TierKind : std::uint8_t { kRam = 0, kSsd = 1, kGfs = 2 };

// An extent on a tier or, where `tier` is kGfs, one that can be read in pieces. Does not change
// while there are references to it.
struct ResidentExtent {
  ExtentKey key;
  TierKind tier = TierKind::kRam;
  std::uint64_t image_bytes = 0;
  ArenaBlock block;                        // kRam: the image
  ExtentChecksums checksums;               // kRam, kGfs; for kSsd see segment->checksums
  std::shared_ptr<const Segment> segment;  // kSsd
  std::shared_ptr<const PieceSource> source = nullptr;  // kGfs
  // kRam: the number of references, and who is told that the last one has gone.
  mutable std::atomic<std::uint32_t> pins = 0;
  MemorySignal* memory_signal = nullptr;

  const ExtentChecksums& sums() const { return segment ? segment->checksums : checksums; }
  // kRam: whether somebody uses the extent, so that it must not be evicted or moved. The first
  // reference is made under the cache's mutex only, so `false` holds as long as that is held.
  bool IsPinned() const { return pins.load() > 0; }
};

// A reference to an extent, which may be null. It pins the extent: memory and file stay until the
// last reference is gone, whatever the cache decides meanwhile. When the last reference to an
// extent in RAM goes, threads that wait for memory are told (MemorySignal), because the extent may
// be evicted from then on. Like a shared_ptr: several threads may use references of their own to
// one extent.
class ExtentRef {
 public:
  ExtentRef() = default;
  ExtentRef(std::nullptr_t) {}  // NOLINT(google-explicit-constructor): as a pointer
  template <typename Extent>
    requires std::convertible_to<std::shared_ptr<Extent>, std::shared_ptr<const ResidentExtent>>
  ExtentRef(std::shared_ptr<Extent> extent)  // NOLINT(google-explicit-constructor): likewise
      : extent_(std::move(extent)) {
    Pin();
  }
  ExtentRef(const ExtentRef& other) : extent_(other.extent_) { Pin(); }
  ExtentRef(ExtentRef&& other) noexcept = default;
  ExtentRef& operator=(ExtentRef other) noexcept {
    extent_.swap(other.extent_);
    return *this;
  }
  ~ExtentRef() {
    if (IsCounted()) Unpin();
  }

  const ResidentExtent* get() const { return extent_.get(); }
  const ResidentExtent& operator*() const { return *extent_; }
  const ResidentExtent* operator->() const { return extent_.get(); }
  explicit operator bool() const { return extent_ != nullptr; }
  friend bool operator==(const ExtentRef&, const ExtentRef&) = default;

 private:
  bool IsCounted() const { return extent_ && extent_->memory_signal != nullptr; }
  void Pin() {
    if (IsCounted()) extent_->pins.fetch_add(1, std::memory_order_relaxed);
  }
  void Unpin() {
    MemorySignal& signal = *extent_->memory_signal;
    // The order is sequentially consistent: a thread that then finds the count to be 0, and evicts
    // or moves the extent, does so after all accesses of this reader.
    const bool was_last = extent_->pins.fetch_sub(1) == 1;
    extent_.reset();  // frees the memory if the cache has dropped the extent
    if (was_last) signal.Notify();
  }

  std::shared_ptr<const ResidentExtent> extent_;
};

}  // namespace forebay::tier

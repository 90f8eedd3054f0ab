// PinRoom: limits the extents that requests keep in RAM while they wait for others of theirs.
//
// A batch needs all of its extents at the same time. If several batches have got some of theirs,
// and RAM is full of these, each of them waits for memory that another one keeps, and none ever
// gets its last extent ("hold and wait", one of Coffman's conditions for a deadlock). So requests
// begin only as long as all extents of those that have begun fit in the room together. A request
// that has not begun keeps nothing. The one that is needed first begins first; of those that are
// needed at the same time, the one that has come first.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "proto/contract/thread_annotations.h"
#include "server/io/clock.h"
#include "server/tier/extent_key.h"

namespace forebay::fetch {

// Thread-safe. Outlives all shares.
class PinRoom {
 public:
  // `clock` is borrowed.
  PinRoom(std::uint64_t capacity_bytes, const io::Clock& clock)
      : capacity_bytes_(capacity_bytes), clock_(clock) {}

  struct Pin {
    tier::ExtentKey key;
    std::uint64_t bytes = 0;  // in RAM, at most
  };
  // Stands for the room of a request. Free again when the last reference is gone.
  using Share = std::shared_ptr<const void>;
  // In how many steps of its reader a request is needed; 0: now. Falls while the request waits.
  // Called under the mutex of the room.
  using Steps = std::function<std::uint64_t()>;
  struct Wish {
    std::vector<Pin> pins = {};
    Steps steps = nullptr;  // null: needed now
    // Not to begin before it is needed in so many steps.
    std::uint64_t steps_max = ~std::uint64_t{0};
    // Whether anybody still waits for the extents; called as `steps` is. If not, its turn comes at
    // once, and it takes no room. Null: somebody does.
    std::function<bool()> is_wanted = nullptr;
  };
  // Calls `ready` once with the share and the steps at that time, when there is room: within this
  // call, or within one that makes room. An extent that several requests pin counts once. Requests
  // that are not needed now leave half of the room free. A request that is larger than its part of
  // the room gets it if nobody else is there. No `ready` runs within another one.
  using Ready = std::function<void(Share, std::uint64_t steps)>;
  void Take(Wish wish, Ready ready);
  // As Take, but at once. Null: there is no room, or others wait for it.
  Share TryTake(const Wish& wish, std::uint64_t steps);
  // Call after requests have become needed sooner: the readers have got batches before them.
  void Serve();
  // Shares that are held for longer than this no longer count, because the GFS does not answer:
  // other requests must not wait for it as well.
  void LendSharesOf(std::int64_t longer_than_ns);

  std::uint64_t capacity_bytes() const { return capacity_bytes_; }
  std::uint64_t used_bytes() const;
  std::size_t waiting() const { return waiting_count_; }
  // Whether a request waits that is needed now.
  bool IsAnyNeededNow() const;

 private:
  struct Taken {
    std::vector<Pin> pins;
    std::int64_t since_ns = 0;
    bool is_lent = false;
  };
  using TakenRef = std::list<Taken>::iterator;
  struct Waiting {
    Wish wish;
    Ready ready;
  };
  struct Pinned {
    std::uint64_t bytes = 0;
    std::uint32_t requests = 0;
  };

  bool FitsLocked(const std::vector<Pin>& pins, std::uint64_t steps) const
      FOREBAY_REQUIRES(mutex_);
  // A request whose turn has come.
  struct Turn {
    Ready ready;
    TakenRef taken;
    std::uint64_t steps = 0;
  };
  std::optional<Turn> NextLocked() FOREBAY_REQUIRES(mutex_);
  TakenRef AddLocked(std::vector<Pin> pins) FOREBAY_REQUIRES(mutex_);
  void SubtractLocked(const std::vector<Pin>& pins) FOREBAY_REQUIRES(mutex_);
  Share ShareOf(TakenRef taken);
  void Return(TakenRef taken);

  const std::uint64_t capacity_bytes_;
  const io::Clock& clock_;
  mutable Mutex mutex_;
  std::list<Taken> taken_ FOREBAY_GUARDED_BY(mutex_);      // the oldest first
  std::list<Waiting> waiting_ FOREBAY_GUARDED_BY(mutex_);  // in the order in which they came
  // The size of waiting_, changed under mutex_, so that who finds nobody waiting needs no lock.
  std::atomic<std::size_t> waiting_count_ = 0;
  // The extents of `taken_` that are not lent, and their sum.
  std::unordered_map<tier::ExtentKey, Pinned, tier::ExtentKeyHash> pinned_
      FOREBAY_GUARDED_BY(mutex_);
  std::uint64_t used_bytes_ FOREBAY_GUARDED_BY(mutex_) = 0;
  bool is_serving_ FOREBAY_GUARDED_BY(mutex_) = false;
};

}  // namespace forebay::fetch

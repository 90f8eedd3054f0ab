// UpcomingExtents: the extents of one stream in the order in which it needs them, a window ahead of
// its reader. FutureUse hands them to the stager, which reads them ahead of need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/order.h"
#include "server/stream/stream_spec.h"

namespace forebay::stream {

// A place in a stream: a position in the order of an epoch, over all ranks.
struct StreamPlace {
  EpochId epoch;
  std::uint64_t position = 0;
  friend auto operator<=>(const StreamPlace&, const StreamPlace&) = default;
};

// Not thread-safe. Extents that other nodes keep are left out. Orders that take a sample here and a
// sample there (global, partial) need all extents all the time: for them nothing is upcoming.
class UpcomingExtents {
 public:
  // How often a reader may go back.
  static constexpr std::uint32_t kRestartsMax = 256;

  explicit UpcomingExtents(std::shared_ptr<const StreamSpec> spec) : spec_(std::move(spec)) {}

  // Takes the extent that is needed soonest by a stream whose reader is at `reader`: those of the
  // window that it reads and, once it has read a quarter of that, those of the next window; in mode
  // `sequential`, of the next extents. Each is returned once for each window that needs it.
  // Nullopt: none before the reader is at look_again_at(). The first window of the next epoch
  // follows the last one of this epoch, if the reader has said that it will read on
  // (StreamSpec::end_epoch). The call that begins an epoch takes some microseconds for each extent
  // of the data set; so does the first one after the reader went back by more than a window. A
  // stream that does so often (kRestartsMax) has nothing upcoming.
  std::optional<ExtentId> Take(const StreamPlace& reader);
  // There is no room for an extent that was taken. When the reader has read a sixteenth of a window
  // more, Take returns it again; until then it returns nothing.
  void PutBack(ExtentId extent, const StreamPlace& reader);
  const StreamPlace& look_again_at() const { return look_again_at_; }

 private:
  // An extent, and the first position at which it is needed from now on.
  struct Need {
    std::uint64_t position = 0;
    std::uint32_t extent = 0;
    // The element of a heap that is needed soonest is the largest.
    friend bool operator<(const Need& a, const Need& b) { return a.position > b.position; }
  };
  // Begins to look at this place and what follows it in its epoch.
  void Begin(const StreamPlace& place);
  // Begins to look at the epoch after the reader's, if all of the reader's epoch has been looked
  // at, and the next one is near and will be read. False: it does not.
  bool BeginNextEpoch(const StreamPlace& reader);
  // The first position from `from` on at which that order needs the extent; ~0: none.
  std::uint64_t FirstNeed(const Order& order, std::uint32_t extent, std::uint64_t from) const;
  // Adds it to the heap, for the epoch that is looked at.
  void Add(std::uint32_t extent, std::uint64_t from);
  // The first position behind the window of this one.
  std::uint64_t WindowEnd(std::uint64_t position) const;
  // How far ahead of the reader extents count, in samples.
  std::uint64_t Distance() const;
  bool HasGoneBack(const StreamPlace& reader) const;
  // Whether that epoch, or the one after it, is the one that is looked at.
  bool LooksFrom(EpochId epoch) const;
  StreamPlace PlaceToLookAgain(const StreamPlace& reader) const;

  const std::shared_ptr<const StreamSpec> spec_;
  std::optional<EpochId> looked_;  // the epoch that is looked at: the reader's, or the next one
  std::optional<Order> order_;     // of that epoch, if it reads runs
  std::uint64_t window_ = 1;  // samples; in mode `sequential`, those of some extents
  // A heap, and by extent the position of its element. An element with another position is out of
  // date, and is dropped when it is met.
  std::vector<Need> needs_;
  std::vector<std::uint64_t> positions_;
  StreamPlace look_again_at_;
  StreamPlace reader_;  // at the last call of Take
  std::optional<std::uint64_t> readers_window_;  // of its epoch; nullopt: no runs, or not known
  std::uint32_t restarts_ = 0;
};

}  // namespace forebay::stream

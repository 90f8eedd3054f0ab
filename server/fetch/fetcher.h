// Fetcher: pins extents for a reader. Extents in RAM or on SSD are pinned at once; missing ones are
// staged first, unless the caller gets their samples from the node that owns them. An extent is
// read at most once at a time for all readers (single flight). Extents that no tier can hold are
// read from the GFS in pieces. Requests for missing extents begin in the order in which they are
// needed, as far as all their extents fit in RAM (pin_room.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "proto/contract/result.h"
#include "server/fetch/pin_room.h"
#include "server/fetch/row_source.h"
#include "server/io/clock.h"
#include "server/plan/membership.h"
#include "server/stage/stager.h"
#include "server/tier/extent_cache.h"

namespace forebay::fetch {

struct FetcherOptions {
  // Bytes of RAM that requests may pin while they wait for the GFS, and while they wait for other
  // nodes. These are two rooms, because nodes that wait for each other's extents must still have
  // memory for those that they read for others.
  std::uint64_t own_pin_bytes = ~std::uint64_t{0};
  std::uint64_t peer_pin_bytes = ~std::uint64_t{0};
  // How much of an extent that is at home in RAM counts against the room, in permille of its bytes.
  // Extents at home have space of their own, so all of them together must fit in the room.
  std::uint64_t home_permille = 1000;
  const io::Clock* clock = nullptr;  // borrowed; null: the system's

  // The bounds for a node with `home_bytes` of RAM for homes (plan::RamPlan). A quarter stays free
  // of what waits: pinned extents cannot be moved, so the memory between them may be too
  // fragmented for the next one.
  static FetcherOptions For(std::uint64_t home_bytes, bool has_other_nodes) {
    const std::uint64_t permille = has_other_nodes ? 375 : 750;
    return {.own_pin_bytes = home_bytes / 1000 * permille,
            .peer_pin_bytes = home_bytes / 1000 * 375,
            .home_permille = permille};
  }
};

// Thread-safe; everything passed in is borrowed.
class Fetcher {
 public:
  Fetcher(tier::ExtentCache& cache, stage::Stager& stager, const plan::Membership& nodes,
          const FetcherOptions& options = {});

  // Which extents a reader wants pinned.
  enum class Where : std::uint8_t {
    kHere,      // all
    kAnywhere,  // all but those that other nodes supply rows of: their references are null
  };
  // If every extent is there now, returns true and fills `refs`, which pin them. Always false for
  // an outdated data set (Dataset::is_outdated); Acquire then returns kFailedPrecondition.
  bool TryAcquire(const stage::Dataset& dataset, std::span<const ExtentId> extents, Need need,
                  std::vector<tier::ExtentRef>& refs, Where where = Where::kHere);

  // Call after TryAcquire(kAnywhere) returned false: whether other nodes supply rows of some of the
  // extents. They can be asked while those that this node reads itself are on their way.
  bool HasRowsElsewhere(const stage::Dataset& dataset, std::span<const ExtentId> extents,
                        std::span<const tier::ExtentRef> found) const;

  // Makes every extent resident, or readable in pieces (its reference is then on tier kGfs), and
  // calls `done` once, with the references in order, or the first error; within this call if all
  // are there. Extents that have arrived stay pinned until `done`, or until the request has failed,
  // so that a set that fits in the tiers is always obtained. An extent for which there is no
  // memory, or which is evicted again before it can be pinned, is read in pieces. If its data set
  // is compressed at staging, this is impossible: kUnavailable, with the settings to change.
  using Done = std::function<void(Result<std::vector<tier::ExtentRef>>)>;
  struct Asker {
    Need need = Need::kSamples;
    Where where = Where::kHere;
    // Whether somebody still waits for the extents; asked while the request waits for its turn,
    // perhaps under a mutex of PinRoom. If not, it ends with kCancelled. Null: somebody does.
    std::function<bool()> is_wanted = nullptr;
    // In how many steps of its reader the batch is needed; 0: now. Called as `is_wanted` is. The
    // number falls while the request waits (LookAgain). Null: it is not known, because the reader
    // is on another node.
    PinRoom::Steps steps = nullptr;
  };
  void Acquire(stage::Dataset& dataset, std::vector<ExtentId> extents, Asker asker, Done done);

  // Call after a reader has got a batch: others of its batches are needed sooner now.
  void LookAgain();
  // Requests that wait for their turn.
  std::size_t waiting() const { return own_pins_.waiting() + peer_pins_.waiting(); }
  // Whether one of them is needed now: memory is short for what readers wait for.
  bool IsAnyNeededNow() const {
    return own_pins_.IsAnyNeededNow() || peer_pins_.IsAnyNeededNow();
  }
  // Requests that have waited for longer than this no longer keep others from beginning: what they
  // wait for may never come. Call about once a second.
  void LendPinsOf(std::int64_t longer_than_ns);

  // Whether another node supplies the rows of the extent unless it is copied to this one: that node
  // reads it from the GFS, and no tier of this one has it.
  bool IsElsewhere(const stage::Dataset& dataset, ExtentId extent) const;
  std::size_t node_count() const { return nodes_.nodes().size(); }

  // Call after a read of `ref` returned wrong bytes: drops that copy, or its checksums if it was
  // read in pieces, so that the next Acquire fetches the extent again. If several readers report
  // one bad copy, the copy that replaced it stays.
  void ReportBad(const tier::ExtentRef& ref, const Error& found, std::int64_t now_ns);

 private:
  struct Request;
  bool IsRemote(const stage::Dataset& dataset, ExtentId extent, Where where) const {
    return where == Where::kAnywhere && !dataset.is_replaced() &&
           !nodes_.is_alone() && nodes_.FirstSupplier(dataset.group_key(extent)).has_value();
  }
  static stage::Stager::Access AccessFor(const Request& request, std::size_t index);
  static stage::Stager::Urgency UrgencyOf(const Request& request);
  std::vector<PinRoom::Pin> PlanPins(Request& request);
  std::uint64_t RoomBytes(const stage::Dataset& dataset, ExtentId extent,
                          std::uint64_t bytes) const;
  void WarnOfOversized(const stage::Dataset& dataset, std::uint64_t bytes,
                       std::uint64_t room_bytes);
  PinRoom& RoomOf(const Request& request);
  void AwaitTurn(const std::shared_ptr<Request>& request, PinRoom::Wish wish);
  void Begin(const std::shared_ptr<Request>& request);
  void BringMissing(const std::shared_ptr<Request>& request);
  void Bring(const std::shared_ptr<Request>& request, std::size_t index);
  void Arrived(const std::shared_ptr<Request>& request, std::size_t index,
               const Status& status);
  void Complete(const std::shared_ptr<Request>& request);
  void JoinFreeMemory(Request& request);

  tier::ExtentCache& cache_;
  stage::Stager& stager_;
  const plan::Membership& nodes_;
  const io::SteadyClock steady_clock_;
  const io::Clock& clock_;
  std::atomic<std::int64_t> warned_ns_ = 0;
  const std::uint64_t home_permille_;
  PinRoom own_pins_;
  PinRoom peer_pins_;
};

}  // namespace forebay::fetch

// Acquire waits for room to pin what the request needs, then demands each missing extent from the
// stager and counts arrivals. An extent can be evicted between its arrival and its pin; then it is
// demanded again, in ways that need less of the tiers each time (AccessFor), so that the request
// ends with its extents or an error. No thread waits.
#include "server/fetch/fetcher.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "proto/contract/limits.h"
#include "proto/contract/thread_annotations.h"
#include "server/io/log.h"
#include "server/stage/packed/packed_form.h"

namespace forebay::fetch {
namespace {

// The errors of a request whose extents could not be pinned. They name the settings to change.
Error TooShort(const Error& error) {
  return Error(ErrorCode::kUnavailable,
               error.message() +
                   ": the RAM tier is too small for the extents in use at once; raise "
                   "tier.ram.capacity, or lower batch, prefetch depth or order window");
}

// Not final: what evicts an extent before it is pinned is needed sooner, so the batch can have the
// extent once those before it are done.
Error TooSmall() {
  return Error(ErrorCode::kUnavailable,
               "extents are evicted before they are read: the tiers are too small for what is read "
               "at once; raise tier.ram.capacity or tier.ssd.capacity, use order 'block', or lower "
               "batch, prefetch depth or order window");
}

}  // namespace

struct Fetcher::Request {
  stage::Dataset* dataset = nullptr;
  std::vector<ExtentId> extents;
  Asker asker;
  Done done;
  PinRoom::Share share;      // null: the request pins nothing in RAM
  std::uint64_t steps = 0;   // until it is needed, when its turn came
  bool is_oversized = false;  // it is larger than the room, and cannot be read in pieces
  // Guards what follows while extents are demanded. Before that, and once none is missing, one
  // thread has the request for itself, so the members are not annotated.
  Mutex mutex;
  std::vector<tier::ExtentRef> refs;
  std::vector<int> arrivals;
  std::vector<char> is_short;  // not 0: the tiers had no memory for the extent
  std::size_t missing = 0;
  bool lacked_memory = false;  // that is why it has failed
  bool is_refused = false;     // it is not needed now, and memory is full of what is needed sooner
  std::optional<Error> error;

  // Everything is pinned now, so others may begin: what keeps the references waits for no memory
  // any more.
  void End(Result<std::vector<tier::ExtentRef>> outcome) {
    share.reset();
    done(std::move(outcome));
  }
};

Fetcher::Fetcher(tier::ExtentCache& cache, stage::Stager& stager, const plan::Membership& nodes,
                 const FetcherOptions& options)
    : cache_(cache),
      stager_(stager),
      nodes_(nodes),
      clock_(options.clock != nullptr ? *options.clock : steady_clock_),
      home_permille_(options.home_permille),
      own_pins_(options.own_pin_bytes, clock_),
      peer_pins_(options.peer_pin_bytes, clock_) {}

void Fetcher::LookAgain() {
  own_pins_.Serve();
  peer_pins_.Serve();
}

void Fetcher::LendPinsOf(std::int64_t longer_than_ns) {
  own_pins_.LendSharesOf(longer_than_ns);
  peer_pins_.LendSharesOf(longer_than_ns);
}

bool Fetcher::TryAcquire(const stage::Dataset& dataset, std::span<const ExtentId> extents,
                         Need need, std::vector<tier::ExtentRef>& refs, Where where) {
  // All keys are looked up in one call, which takes the cache's lock once for the batch.
  std::vector<tier::ExtentKey> keys;
  keys.reserve(extents.size());
  for (const ExtentId extent : extents) keys.push_back(dataset.key(extent));
  refs.resize(extents.size());
  cache_.Find(keys, refs);
  bool are_all = true;
  for (std::size_t i = 0; i < refs.size(); ++i) {
    if (refs[i] || IsRemote(dataset, extents[i], where)) continue;
    // Pieces are read from the GFS. What another node supplies is not, also if this node has
    // replaced that node for a while, and so knows the pieces.
    if (need == Need::kSamples) refs[i] = stager_.pieces().FindReadable(keys[i]);
    are_all = are_all && refs[i];
  }
  // Checked after the lookup, because a data set is marked outdated before other bytes are
  // published on a tier.
  return are_all && !dataset.is_outdated();
}

bool Fetcher::HasRowsElsewhere(const stage::Dataset& dataset, std::span<const ExtentId> extents,
                               std::span<const tier::ExtentRef> found) const {
  // Readers of an outdated data set get an error, from Acquire.
  if (dataset.is_outdated()) return false;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    if (!found[i] && IsRemote(dataset, extents[i], Where::kAnywhere)) return true;
  }
  return false;
}

void Fetcher::Acquire(stage::Dataset& dataset, std::vector<ExtentId> extents, Asker asker,
                      Done done) {
  auto request = std::make_shared<Request>();
  request->dataset = &dataset;
  request->extents = std::move(extents);
  request->asker = std::move(asker);
  request->done = std::move(done);
  request->arrivals.resize(request->extents.size());
  request->is_short.resize(request->extents.size());
  if (TryAcquire(dataset, request->extents, request->asker.need, request->refs,
                 request->asker.where)) {
    return request->End(std::move(request->refs));
  }
  if (dataset.is_outdated()) return request->End(dataset.Outdated());
  PinRoom::Wish wish{.pins = PlanPins(*request),
                     .steps = request->asker.steps,
                     .is_wanted = request->asker.is_wanted};
  request->steps = wish.steps ? wish.steps() : 0;
  if (!wish.pins.empty()) {
    request->share = RoomOf(*request).TryTake(wish, request->steps);
    if (!request->share) return AwaitTurn(request, std::move(wish));
  }
  BringMissing(request);
}

// Nothing is pinned while the request waits for its turn.
void Fetcher::AwaitTurn(const std::shared_ptr<Request>& request, PinRoom::Wish wish) {
  PinRoom& room = RoomOf(*request);
  request->refs.clear();
  request->share.reset();
  room.Take(std::move(wish), [this, request](PinRoom::Share share, std::uint64_t steps) {
    request->share = std::move(share);
    request->steps = steps;
    Begin(request);
  });
}

// Returns which extents the request pins in RAM, and their bytes there, at most. Extents on SSD,
// and those that are read in pieces, are left out. If the request is larger than the room, it also
// decides that the extents that do not fit are read in pieces, where that is possible: they would
// wait for memory that never becomes free.
std::vector<PinRoom::Pin> Fetcher::PlanPins(Request& request) {
  const stage::Dataset& dataset = *request.dataset;
  const std::uint64_t room_bytes = RoomOf(request).capacity_bytes();
  const bool has_pieces = stage::GfsPieces::CanRead(dataset);
  std::vector<PinRoom::Pin> pins;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < request.extents.size(); ++i) {
    const tier::ExtentRef& found = request.refs[i];
    if (found == nullptr || found->tier != tier::TierKind::kRam) continue;
    const std::uint64_t added = RoomBytes(dataset, request.extents[i], found->image_bytes);
    pins.push_back({.key = found->key, .bytes = added});
    bytes += added;
  }
  for (std::size_t i = 0; i < request.extents.size(); ++i) {
    const ExtentId extent = request.extents[i];
    if (request.refs[i] || IsRemote(dataset, extent, request.asker.where)) continue;
    const plan::HomeTier home = dataset.home(extent);
    const bool may_be_in_pieces = !dataset.IsRemote(extent) && has_pieces;
    const bool is_in_pieces = may_be_in_pieces && home == plan::HomeTier::kNone &&
                              request.asker.need == Need::kSamples;
    if (is_in_pieces || home == plan::HomeTier::kSsd) continue;
    const std::uint64_t added = RoomBytes(dataset, extent, dataset.ExpectedStoredBytes(extent));
    if (may_be_in_pieces && bytes + added > room_bytes) {
      request.is_short[i] = 1;
      continue;
    }
    pins.push_back({.key = dataset.key(extent), .bytes = added});
    bytes += added;
  }
  request.is_oversized = bytes > room_bytes && !has_pieces;
  if (request.is_oversized) WarnOfOversized(dataset, bytes, room_bytes);
  return pins;
}

std::uint64_t Fetcher::RoomBytes(const stage::Dataset& dataset, ExtentId extent,
                                 std::uint64_t bytes) const {
  return dataset.IsGuestInRam(extent) ? bytes : bytes / 1000 * home_permille_;
}

// At most once a minute, because each batch of the stream may be as large.
void Fetcher::WarnOfOversized(const stage::Dataset& dataset, std::uint64_t bytes,
                              std::uint64_t room_bytes) {
  constexpr std::int64_t kPauseNs = 60'000'000'000;
  const std::int64_t now_ns = clock_.NowNs();
  std::int64_t last_ns = warned_ns_.load();
  const bool is_due = last_ns == 0 || now_ns - last_ns >= kPauseNs;
  if (!is_due || !warned_ns_.compare_exchange_strong(last_ns, now_ns)) return;
  log::Warn("data set '{}': a batch needs about {} bytes of extents in RAM at the same time, of {} "
            "that batches may take there; it may fail, and it keeps other batches waiting; raise "
            "tier.ram.capacity, or lower batch, order window or extent",
            dataset.name(), bytes, room_bytes);
}

PinRoom& Fetcher::RoomOf(const Request& request) {
  for (std::size_t i = 0; i < request.extents.size(); ++i) {
    const bool asks_others = !request.refs[i] && IsRemote(*request.dataset, request.extents[i],
                                                          Where::kAnywhere);
    if (asks_others && request.asker.where == Where::kHere) return peer_pins_;
  }
  return own_pins_;
}

// The turn of a request that had to wait for room.
void Fetcher::Begin(const std::shared_ptr<Request>& request) {
  const Asker& asker = request->asker;
  if (asker.is_wanted && !asker.is_wanted()) {
    return request->End(Error(ErrorCode::kCancelled, "nobody wants the extents any more"));
  }
  if (TryAcquire(*request->dataset, request->extents, asker.need, request->refs, asker.where)) {
    return request->End(std::move(request->refs));
  }
  if (request->dataset->is_outdated()) return request->End(request->dataset->Outdated());
  BringMissing(request);
}

void Fetcher::BringMissing(const std::shared_ptr<Request>& request) {
  std::vector<std::size_t> missing;
  for (std::size_t i = 0; i < request->refs.size(); ++i) {
    const bool is_missing = !request->refs[i] && !IsRemote(*request->dataset, request->extents[i],
                                                           request->asker.where);
    if (is_missing) missing.push_back(i);
  }
  // All extents are here or remote: another node has come back since TryAcquire looked.
  if (missing.empty()) return request->End(std::move(request->refs));
  // Set before the first Demand, which may call back within the call and would otherwise see no
  // missing extents.
  request->missing = missing.size();
  for (const std::size_t index : missing) Bring(request, index);
}

// Chooses how to demand an extent, by how often it arrived and could not be pinned.
stage::Stager::Access Fetcher::AccessFor(const Request& request, std::size_t index) {
  using Access = stage::Stager::Access;
  const int arrivals = request.arrivals[index];
  if (request.is_short[index] != 0 && stage::GfsPieces::CanRead(*request.dataset)) {
    return Access::kPieces;
  }
  // An extent that vanished after it arrived (an SSD that accepts extents and cannot read them) is
  // fetched to RAM; if it vanishes from there too, it is read in pieces.
  if (arrivals > 1 && stage::GfsPieces::CanRead(*request.dataset)) return Access::kPieces;
  if (arrivals > 0) return Access::kInRam;
  return request.asker.need == Need::kSamples ? Access::kPiecesIfNoHome : Access::kOnTier;
}

stage::Stager::Urgency Fetcher::UrgencyOf(const Request& request) {
  using Urgency = stage::Stager::Urgency;
  if (!request.asker.steps) return Urgency::kSoon;
  return request.steps == 0 ? Urgency::kNow : Urgency::kAhead;
}

void Fetcher::Bring(const std::shared_ptr<Request>& request, std::size_t index) {
  const auto arrived = [this, request, index](const Status& status) {
    Arrived(request, index, status);
  };
  stager_.Demand(*request->dataset, request->extents[index], arrived,
                 AccessFor(*request, index), UrgencyOf(*request));
}

void Fetcher::Arrived(const std::shared_ptr<Request>& request, std::size_t index,
                      const Status& status) {
  tier::ExtentRef ref;
  // Looked up without the request's lock: the cache has locks of its own, and arrivals of other
  // extents need not wait.
  if (status.has_value()) {
    const tier::ExtentKey& key = request->dataset->key(request->extents[index]);
    ref = cache_.Find(key);
    if (!ref) ref = stager_.pieces().Find(key);
  }
  bool again = false;
  bool last = false;
  {
    MutexLock lock(request->mutex);
    // The extent was evicted between its arrival and its pin, or memory was short for as long as
    // the stager waits. Other readers will unpin extents, so it is demanded again.
    const bool is_short =
        !status.has_value() && status.error().code() == ErrorCode::kResourceExhausted;
    const bool is_gone = status.has_value() && !ref;
    const bool is_refused = is_short && UrgencyOf(*request) == stage::Stager::Urgency::kAhead;
    request->is_refused = request->is_refused || is_refused;
    if (is_short && !is_refused) request->is_short[index] = 1;
    if ((is_short || is_gone) && !request->is_refused) {
      // The request itself keeps the memory that it lacks. It ends, so that others have their turns
      // before the client asks for the batch again.
      const bool is_hopeless = is_short && request->is_oversized;
      again = !request->error && !is_hopeless &&
              ++request->arrivals[index] < limits::kExtentArrivalsMax;
    }
    if (!again && !request->error && !request->is_refused) {
      request->lacked_memory = is_short;
      if (is_short) request->error = TooShort(status.error());
      else if (is_gone) request->error = TooSmall();
    }
    if (!again && !request->error && !is_short && !status.has_value()) {
      request->error = status.error();
    }
    if (!again) {
      request->refs[index] = std::move(ref);
      last = --request->missing == 0;
    }
  }
  // Recursion is bounded by kExtentArrivalsMax, also if every Demand answers within its call.
  if (again) {
    Bring(request, index);
  } else if (last) {
    Complete(request);
  }
}

// All extents that were missing have arrived, or will not come.
void Fetcher::Complete(const std::shared_ptr<Request>& request) {
  // Asked once more at the end: an extent of a rebuilt data set has the same key and other bytes.
  if (request->dataset->is_outdated()) return request->End(request->dataset->Outdated());
  if (request->error) {
    if (request->lacked_memory) JoinFreeMemory(*request);
    return request->End(*request->error);
  }
  if (!request->is_refused) return request->End(std::move(request->refs));
  // Tried again when the batch is needed in half as many steps, at the latest when it is needed
  // now; until then the memory is left to what is needed sooner.
  request->is_refused = false;
  AwaitTurn(request, {.pins = PlanPins(*request),
                      .steps = request->asker.steps,
                      .steps_max = request->steps / 2,
                      .is_wanted = request->asker.is_wanted});
}

// Memory may have been short because the extents that the request has pinned lie scattered, so that
// no run of free memory is long enough for another one. Its reader asks again, and would pin them
// where they lie, again and again. So they are moved together now, while nobody uses them.
void Fetcher::JoinFreeMemory(Request& request) {
  request.refs.clear();
  const stage::Dataset& dataset = *request.dataset;
  const std::shared_ptr<const stage::PackedForm> form = dataset.form();
  std::uint64_t bytes = 0;  // that a load allocates at a time, at most
  for (const ExtentId extent : request.extents) {
    bytes = std::max({bytes, dataset.catalog()->extent(extent).bytes,
                      form ? form->ImageBytesMax(extent) : 0});
  }
  static_cast<void>(cache_.MakeRun(bytes));  // if not, the next attempt finds as little as this one
}

bool Fetcher::IsElsewhere(const stage::Dataset& dataset, ExtentId extent) const {
  if (!IsRemote(dataset, extent, Where::kAnywhere)) return false;
  // Nothing is read after this look-up, so it does not count as a hit of a tier.
  const tier::ExtentKey& key = dataset.key(extent);
  return !cache_.FindOn(key, tier::TierKind::kRam) && !cache_.FindOn(key, tier::TierKind::kSsd);
}

// Drops the copy that the reader used, and no other: the copy that lies on the tier now may be a
// new and sound one.
void Fetcher::ReportBad(const tier::ExtentRef& ref, const Error& found, std::int64_t now_ns) {
  if (ref->tier == tier::TierKind::kGfs) return stager_.pieces().Forget(ref, found);
  cache_.ReportBad(ref, found, now_ns);
}

}  // namespace forebay::fetch

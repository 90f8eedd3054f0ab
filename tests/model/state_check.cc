// A check compares two sources of one fact, for example the arena's counter of used bytes with the
// sum over the resident extents. SequenceRun calls the checks when no pass is under way. Threads of
// the rooms may still be about to release memory, so most checks look again until the fact holds,
// and fail after a minute.
#include "tests/model/state_check.h"

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>

#include <fmt/format.h>

#include "server/stage/dataset.h"
#include "server/tier/extent_cache.h"

namespace forebay::model {
namespace {

using stage::DatasetState;
using tier::TierKind;

constexpr auto kPatience = std::chrono::seconds(60);

// Looks until `is_so`, as an admin client does; nothing is decided by the pause.
bool LookUntil(const std::function<bool()>& is_so) {
  std::mutex mutex;
  std::condition_variable pause;
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!is_so()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::unique_lock lock(mutex);
    pause.wait_for(lock, std::chrono::microseconds(100));
  }
  return true;
}

Status AwaitState(stream::ServeFixture& rooms, bool may_be_staging) {
  DatasetState state{};
  const bool is_there = LookUntil([&] {
    state = rooms.dataset().progress().state;
    return state != DatasetState::kCataloguing &&
           (may_be_staging || state != DatasetState::kStaging);
  });
  if (is_there) return {};
  return Error(ErrorCode::kDeadlineExceeded,
               fmt::format("the data set is {} for a minute", stage::DatasetStateName(state)));
}

// Counts what the arena charges for an extent, which is its size rounded up, and not only its
// bytes.
std::uint64_t ResidentRamBytes(tier::ExtentCache& cache) {
  std::uint64_t bytes = 0;
  for (const tier::ExtentKey& key : cache.Resident(TierKind::kRam)) {
    const tier::ExtentRef extent = cache.FindOn(key, TierKind::kRam);
    // Another thread may have evicted the extent since Resident listed it; the caller then looks
    // again.
    if (extent) bytes += plan::FootprintBytes(extent->image_bytes);
  }
  return bytes;
}

std::string_view HomeName(plan::HomeTier home) {
  switch (home) {
    case plan::HomeTier::kRam: return "ram";
    case plan::HomeTier::kSsd: return "ssd";
    case plan::HomeTier::kNone: break;
  }
  return "nowhere";
}

}  // namespace

Error Difference(std::string what) { return Error(ErrorCode::kInternal, std::move(what)); }

// Each extent with its home and the tiers that have it: "0 ram (ram ssd), ...".
std::string DescribeTiers(stream::ServeFixture& rooms) {
  std::vector<std::string> tiers(rooms.dataset().catalog()->extent_count());
  for (const TierKind kind : {TierKind::kRam, TierKind::kSsd}) {
    for (const tier::ExtentKey& key : rooms.cache().Resident(kind)) {
      // The tiers may still have copies of objects that were replaced; these have other keys.
      const auto extent = rooms.dataset().ExtentOf(key);
      if (extent) tiers[extent->value()] += kind == TierKind::kRam ? " ram" : " ssd";
    }
  }
  std::string text;
  for (std::uint32_t i = 0; i < tiers.size(); ++i) {
    text += fmt::format("{}{} {} ({})", i == 0 ? "" : ", ", i,
                        HomeName(rooms.dataset().home(ExtentId(i))),
                        tiers[i].empty() ? "-" : tiers[i].substr(1));
  }
  return text;
}

std::vector<bool> ResidentExtents(stream::ServeFixture& rooms) {
  const auto catalog = rooms.dataset().catalog();
  std::vector<bool> resident(catalog->extent_count(), false);
  for (const TierKind kind : {TierKind::kRam, TierKind::kSsd}) {
    for (const tier::ExtentKey& key : rooms.cache().Resident(kind)) {
      const auto extent = rooms.dataset().ExtentOf(key);
      if (extent) resident[extent->value()] = true;
    }
  }
  return resident;
}

Status AwaitIdle(stream::ServeFixture& rooms) { return AwaitState(rooms, false); }

Status AwaitCatalogued(stream::ServeFixture& rooms) { return AwaitState(rooms, true); }

Status CheckMemory(stream::ServeFixture& rooms) {
  std::uint64_t used = 0, resident = 0;
  // A difference that lasts is a leak, or memory that was freed too early.
  const bool is_exact = LookUntil([&] {
    used = rooms.arena().used_bytes();
    resident = ResidentRamBytes(rooms.cache());
    return used == resident;
  });
  if (is_exact) return {};
  return Difference(fmt::format("{} bytes of the RAM tier are in use, of extents {}", used,
                                resident));
}

Status CheckRoom(stream::ServeFixture& rooms, const plan::TierSpace& room_at_start) {
  const stage::Dataset& dataset = rooms.dataset();
  // The room of homes is added up from the planned sizes, not from what lies on the tiers, because
  // room is reserved before an extent is loaded.
  plan::TierSpace taken;
  if (const auto catalog = dataset.catalog()) {
    for (std::uint32_t i = 0; i < catalog->extent_count(); ++i) {
      const plan::Footprint footprint =
          dataset.FootprintOf(ExtentId(i), dataset.PlannedBytes(ExtentId(i)));
      const plan::HomeTier home = dataset.home(ExtentId(i));
      if (home == plan::HomeTier::kRam) taken.ram_bytes += footprint.ram_bytes;
      if (home == plan::HomeTier::kSsd) taken.ssd_bytes += footprint.ssd_bytes;
    }
  }
  const plan::TierSpace left = rooms.stager().space_left();
  if (left.ram_bytes + taken.ram_bytes != room_at_start.ram_bytes) {
    return Difference(fmt::format("RAM: {} bytes are left for extents, {} are taken by homes, of "
                                  "{}", left.ram_bytes, taken.ram_bytes,
                                  room_at_start.ram_bytes));
  }
  // A tier that was retired offers nothing. Extents that were found at the start have their homes
  // beside room_at_start, and give their room to it when they leave.
  const std::uint64_t capacity = rooms.store() ? rooms.store()->capacity_bytes() : 0;
  if (left.ssd_bytes + taken.ssd_bytes > capacity) {
    return Difference(fmt::format("SSD: {} bytes are left for extents, {} are taken by homes, of "
                                  "{}", left.ssd_bytes, taken.ssd_bytes, capacity));
  }
  return {};
}

Status CheckStaged(stream::ServeFixture& rooms) {
  std::string missing;
  const auto is_there = [&] {
    const std::vector<bool> resident = ResidentExtents(rooms);
    for (std::uint32_t i = 0; i < resident.size(); ++i) {
      const plan::HomeTier home = rooms.dataset().home(ExtentId(i));
      // Any tier will do: a reader needs no GFS for an extent that lies on another tier than its
      // home.
      if (resident[i] || home == plan::HomeTier::kNone) continue;
      missing = fmt::format("extent {}, whose home is {}", i, HomeName(home));
      return false;
    }
    return true;
  };
  if (LookUntil(is_there)) return {};
  return Difference(fmt::format("the data set is staged, and {}, is on no tier; {}", missing,
                                DescribeTiers(rooms)));
}

Status CheckEmptied(stream::ServeFixture& rooms, bool is_ssd_sound) {
  tier::ExtentCache& cache = rooms.cache();
  for (const TierKind kind : {TierKind::kRam, TierKind::kSsd}) {
    for (const tier::ExtentKey& key : cache.Resident(kind)) FOREBAY_TRY(cache.Evict(key, kind));
  }
  if (!LookUntil([&] { return rooms.arena().used_bytes() == 0; })) {
    return Difference(fmt::format("{} bytes of the RAM tier are in use after everything was "
                                  "evicted", rooms.arena().used_bytes()));
  }
  // Slots are no extents, so an eviction does not free them; the streams must have done that.
  if (!LookUntil([&] { return rooms.slots().used_bytes() == 0; })) {
    return Difference(fmt::format("{} bytes of slots are in use without a stream",
                                  rooms.slots().used_bytes()));
  }
  // An SSD that has failed may have kept segments that it could not remove.
  if (rooms.store() != nullptr && is_ssd_sound && rooms.store()->used_bytes() != 0) {
    return Difference(fmt::format("{} bytes of the SSD are in use after everything was evicted",
                                  rooms.store()->used_bytes()));
  }
  return {};
}

}  // namespace forebay::model

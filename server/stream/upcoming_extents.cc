// A heap has each extent with the position at which the epoch needs it next. An extent that was
// taken comes back to the heap for the next window that needs it, because a large extent may have
// runs in several ones.
#include "server/stream/upcoming_extents.h"

#include <algorithm>
#include <limits>
#include <span>

#include "server/stream/sample_positions.h"

namespace forebay::stream {
namespace {

// In mode `sequential`: how many extents of the mean size a "window" has.
constexpr double kSequentialExtents = 8;
// How far ahead of the reader extents count, in quarters of a window. Not a whole window, so that
// ranks on other nodes that are a little slower have left the window before, whose extents then
// make way.
constexpr std::uint64_t kQuartersAhead = 3;
// After a refusal the reader has to read this part of a window. Memory becomes free where a window
// ends, and that is not known exactly.
constexpr std::uint64_t kPausesPerWindow = 16;
// A place at which no reader ever is.
constexpr StreamPlace kNowhere{.epoch = EpochId(std::numeric_limits<std::uint32_t>::max()),
                               .position = std::numeric_limits<std::uint64_t>::max()};

}  // namespace

std::uint64_t UpcomingExtents::WindowEnd(std::uint64_t position) const {
  return std::min(position / window_ * window_ + window_, spec_->plan.sample_count());
}

std::uint64_t UpcomingExtents::FirstNeed(const Order& order, std::uint32_t extent,
                                         std::uint64_t from) const {
  const catalog::ExtentInfo info = spec_->catalog->extent(ExtentId(extent));
  Positions positions;
  const std::size_t found = FindPositions(*spec_->selection, order, info.first_sample.value(),
                                          info.sample_count, positions);
  std::uint64_t first = std::numeric_limits<std::uint64_t>::max();
  for (const std::uint64_t position : std::span(positions).first(found)) {
    if (position >= from) first = std::min(first, position);
  }
  return first;
}

void UpcomingExtents::Add(std::uint32_t extent, std::uint64_t from) {
  const std::uint64_t first = FirstNeed(*order_, extent, from);
  positions_[extent] = first;
  if (first >= spec_->plan.sample_count()) return;
  needs_.push_back({.position = first, .extent = extent});
  std::push_heap(needs_.begin(), needs_.end());
}

void UpcomingExtents::Begin(const StreamPlace& place) {
  looked_ = place.epoch;
  needs_.clear();
  window_ = 1;
  order_.reset();
  if (!spec_->ReadsRuns(place.epoch)) return;
  order_.emplace(spec_->order, place.epoch);
  positions_.assign(spec_->catalog->extent_count(), 0);
  for (std::uint32_t extent = 0; extent < spec_->catalog->extent_count(); ++extent) {
    if (!spec_->dataset->IsRemote(ExtentId(extent))) Add(extent, place.position);
  }
  const std::uint64_t samples = spec_->plan.sample_count();
  window_ = WindowSamples(spec_->order.ShapeOf(place.epoch), samples);
  if (window_ == 0 && !needs_.empty()) {
    const double left = static_cast<double>(samples - std::min(place.position, samples));
    const double in_part = static_cast<double>(needs_.size()) / spec_->catalog->part_count();
    window_ = static_cast<std::uint64_t>(left / in_part * kSequentialExtents);
  }
  window_ = std::max<std::uint64_t>(1, window_);
}

bool UpcomingExtents::BeginNextEpoch(const StreamPlace& reader) {
  const bool is_near = reader.position + Distance() >= spec_->plan.sample_count();
  if (*looked_ != reader.epoch || !needs_.empty() || !is_near) return false;
  if (!spec_->WillReadOn(reader.epoch)) return false;
  Begin({.epoch = EpochId(reader.epoch.value() + 1)});
  return true;
}

std::uint64_t UpcomingExtents::Distance() const {
  return std::max<std::uint64_t>(1, window_ / 4 * kQuartersAhead);
}

// Batches of one pull are answered in any order, so a place a little behind is none to go back to.
bool UpcomingExtents::HasGoneBack(const StreamPlace& reader) const {
  if (reader.epoch < reader_.epoch) return true;
  return readers_window_ && reader.epoch == reader_.epoch &&
         reader.position < reader_.position &&
         reader_.position - reader.position > *readers_window_;
}

bool UpcomingExtents::LooksFrom(EpochId epoch) const {
  return looked_ && *looked_ >= epoch && looked_->value() - epoch.value() <= 1;
}

std::optional<ExtentId> UpcomingExtents::Take(const StreamPlace& reader) {
  const bool goes_back = HasGoneBack(reader);
  reader_ = reader;
  if (goes_back) ++restarts_;
  if (restarts_ > kRestartsMax) {
    looked_.reset();
    readers_window_.reset();
    look_again_at_ = kNowhere;
    return std::nullopt;
  }
  if (goes_back || !LooksFrom(reader.epoch)) {
    Begin(reader);
    look_again_at_ = reader;
  }
  if (*looked_ == reader.epoch) {
    readers_window_ = order_ ? std::optional(window_) : std::nullopt;
  }
  if (reader < look_again_at_) return std::nullopt;
  const std::uint64_t samples = spec_->plan.sample_count();
  do {
    // Both are positions in the epoch that is looked at.
    const bool is_next = *looked_ != reader.epoch;
    const std::uint64_t from = is_next ? 0 : reader.position;
    const std::uint64_t seen = reader.position + Distance();
    std::uint64_t end = 0;
    if (!is_next) {
      end = WindowEnd(seen);
    } else if (seen >= samples) {
      end = WindowEnd(seen - samples);
    }
    while (!needs_.empty() && needs_.front().position < end) {
      const Need need = needs_.front();
      std::pop_heap(needs_.begin(), needs_.end());
      needs_.pop_back();
      if (positions_[need.extent] != need.position) continue;
      // The batches of a reader that has passed this position have asked for the extent themselves.
      // A later part of the epoch may need it again.
      const bool is_passed = need.position < from;
      Add(need.extent, is_passed ? from : WindowEnd(need.position));
      if (!is_passed) return ExtentId(need.extent);
    }
  } while (BeginNextEpoch(reader));
  look_again_at_ = PlaceToLookAgain(reader);
  return std::nullopt;
}

// Returns where the next window comes near. It may be one of this epoch, or of the next one.
StreamPlace UpcomingExtents::PlaceToLookAgain(const StreamPlace& reader) const {
  const std::uint64_t samples = spec_->plan.sample_count();
  if (needs_.empty() && !spec_->WillReadOn(*looked_)) {
    // The reader may read on although it has not said so. The last number has none behind it.
    const bool has_next = looked_->value() < kNowhere.epoch.value();
    return has_next ? StreamPlace{.epoch = EpochId(looked_->value() + 1)} : kNowhere;
  }
  // Where the next window begins, in the epoch that is looked at.
  const std::uint64_t next =
      needs_.empty() ? samples : needs_.front().position / window_ * window_;
  if (next >= Distance()) return {.epoch = *looked_, .position = next - Distance()};
  // It comes near before the epoch that is looked at begins. The epoch behind that one is not
  // looked at before, however short they are.
  if (needs_.empty()) return {.epoch = *looked_};
  return {.epoch = reader.epoch, .position = samples - std::min(samples, Distance() - next)};
}

void UpcomingExtents::PutBack(ExtentId extent, const StreamPlace& reader) {
  // The stream may be in another epoch by now.
  if (!LooksFrom(reader.epoch)) return;
  if (*looked_ != reader.epoch && spec_->ReadsRuns(reader.epoch)) {
    // Another call of Take may have begun the next epoch, but the extent is needed before that.
    // Then this epoch is looked at once more; what is on a tier by now costs the stager a look.
    const Order order(spec_->order, reader.epoch);
    const bool is_needed_before = FirstNeed(order, extent.value(), reader.position) <
                                  spec_->plan.sample_count();
    if (is_needed_before) Begin(reader);
  }
  if (!order_) return;
  Add(extent.value(), *looked_ == reader.epoch ? reader.position : 0);
  look_again_at_ = {.epoch = reader.epoch,
                    .position = reader.position +
                                std::max<std::uint64_t>(1, window_ / kPausesPerWindow)};
}

}  // namespace forebay::stream

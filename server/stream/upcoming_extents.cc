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
constexpr std::uint64_t kSequentialExtents = 8;
// How far ahead of the reader extents count, in quarters of a window. Not a whole window, so that
// ranks on other nodes that are a little slower have left the window before, whose extents then
// make way.
constexpr std::uint64_t kQuartersAhead = 3;
// After a refusal the reader has to read this part of a window. Memory becomes free where a window
// ends, and that is not known exactly.
constexpr std::uint64_t kPausesPerWindow = 16;

}  // namespace

std::uint64_t UpcomingExtents::WindowEnd(std::uint64_t position) const {
  return std::min(position / window_ * window_ + window_, spec_->plan.sample_count());
}

void UpcomingExtents::Add(std::uint32_t extent, std::uint64_t from) {
  const catalog::ExtentInfo info = spec_->catalog->extent(ExtentId(extent));
  Positions positions;
  const std::size_t found = FindPositions(*spec_->selection, *order_, info.first_sample.value(),
                                          info.sample_count, positions);
  std::uint64_t first = std::numeric_limits<std::uint64_t>::max();
  for (const std::uint64_t position : std::span(positions).first(found)) {
    if (position >= from) first = std::min(first, position);
  }
  positions_[extent] = first;
  if (first >= spec_->plan.sample_count()) return;
  needs_.push_back({.position = first, .extent = extent});
  std::push_heap(needs_.begin(), needs_.end());
}

void UpcomingExtents::Begin(const StreamPlace& reader) {
  needs_.clear();
  positions_.assign(spec_->catalog->extent_count(), 0);
  look_again_at_ = reader;
  order_.emplace(spec_->order, reader.epoch);
  const std::uint64_t samples = spec_->plan.sample_count();
  const std::uint32_t extents = spec_->catalog->extent_count();
  window_ = WindowSamples(spec_->order.ShapeOf(reader.epoch), samples);
  if (window_ == 0) {
    const std::uint64_t in_part = std::max(1U, extents / spec_->catalog->part_count());
    window_ = std::max<std::uint64_t>(1, kSequentialExtents * samples / in_part);
  }
  for (std::uint32_t extent = 0; extent < extents; ++extent) {
    if (!spec_->dataset->IsRemote(ExtentId(extent))) Add(extent, reader.position);
  }
}

std::optional<ExtentId> UpcomingExtents::Take(const StreamPlace& reader) {
  const StreamPlace next_epoch{.epoch = EpochId(reader.epoch.value() + 1), .position = 0};
  if (!spec_->ReadsRuns(reader.epoch)) {
    order_.reset();
    look_again_at_ = next_epoch;
    return std::nullopt;
  }
  if (!order_ || order_->epoch() != reader.epoch) Begin(reader);
  if (reader < look_again_at_) return std::nullopt;
  const std::uint64_t distance = std::max<std::uint64_t>(1, window_ / 4 * kQuartersAhead);
  const std::uint64_t end = WindowEnd(reader.position + distance);
  while (!needs_.empty() && needs_.front().position < end) {
    const Need need = needs_.front();
    std::pop_heap(needs_.begin(), needs_.end());
    needs_.pop_back();
    if (positions_[need.extent] != need.position) continue;
    Add(need.extent, WindowEnd(need.position));
    // The batches of windows that the reader has left have asked for their extents themselves.
    if (WindowEnd(need.position) > reader.position) return ExtentId(need.extent);
  }
  look_again_at_ = next_epoch;
  if (!needs_.empty()) {
    const std::uint64_t window_begin = needs_.front().position / window_ * window_;
    look_again_at_ = {.epoch = reader.epoch, .position = window_begin - distance};
  }
  return std::nullopt;
}

void UpcomingExtents::PutBack(ExtentId extent, const StreamPlace& reader) {
  // The stream may be in another epoch by now.
  if (!order_ || order_->epoch() != reader.epoch) return;
  Add(extent.value(), reader.position);
  look_again_at_ = {.epoch = reader.epoch,
                    .position = reader.position +
                                std::max<std::uint64_t>(1, window_ / kPausesPerWindow)};
}

}  // namespace forebay::stream

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
  for (std::uint32_t extent = 0; extent < spec_->catalog->extent_count(); ++extent) {
    if (!spec_->dataset->IsRemote(ExtentId(extent))) Add(extent, reader.position);
  }
  const std::uint64_t samples = spec_->plan.sample_count();
  window_ = WindowSamples(spec_->order.ShapeOf(reader.epoch), samples);
  if (window_ == 0 && !needs_.empty()) {
    const double left = static_cast<double>(samples - std::min(reader.position, samples));
    const double in_part = static_cast<double>(needs_.size()) / spec_->catalog->part_count();
    window_ = static_cast<std::uint64_t>(left / in_part * kSequentialExtents);
  }
  window_ = std::max<std::uint64_t>(1, window_);
}

// Batches of one pull are answered in any order, so a place a little behind is none to go back to.
bool UpcomingExtents::HasGoneBack(const StreamPlace& reader) const {
  return order_ && reader.epoch == reader_.epoch && reader.position < reader_.position &&
         reader_.position - reader.position > window_;
}

std::optional<ExtentId> UpcomingExtents::Take(const StreamPlace& reader) {
  // The last epoch that can be named has none after it.
  const bool is_last = reader.epoch.value() == std::numeric_limits<std::uint32_t>::max();
  const StreamPlace next_epoch{
      .epoch = is_last ? reader.epoch : EpochId(reader.epoch.value() + 1),
      .position = is_last ? std::numeric_limits<std::uint64_t>::max() : 0};
  const bool goes_back = reader.epoch < reader_.epoch || HasGoneBack(reader);
  reader_ = reader;
  if (goes_back) ++restarts_;
  if (!spec_->ReadsRuns(reader.epoch) || restarts_ > kRestartsMax) {
    order_.reset();
    look_again_at_ = next_epoch;
    return std::nullopt;
  }
  if (goes_back || !order_ || order_->epoch() != reader.epoch) Begin(reader);
  if (reader < look_again_at_) return std::nullopt;
  const std::uint64_t distance = std::max<std::uint64_t>(1, window_ / 4 * kQuartersAhead);
  const std::uint64_t end = WindowEnd(reader.position + distance);
  while (!needs_.empty() && needs_.front().position < end) {
    const Need need = needs_.front();
    std::pop_heap(needs_.begin(), needs_.end());
    needs_.pop_back();
    if (positions_[need.extent] != need.position) continue;
    // The batches of a reader that has passed this position have asked for the extent themselves.
    // A later part of the epoch may need it again.
    const bool is_passed = need.position < reader.position;
    Add(need.extent, is_passed ? reader.position : WindowEnd(need.position));
    if (!is_passed) return ExtentId(need.extent);
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

#include "server/stream/packed/slot_board.h"

#include <algorithm>

#include "proto/contract/check.h"

namespace forebay::stream {

BatchSlot::BatchSlot(SlotLayout layout, std::size_t rows)
    : layout_(std::move(layout)),
      rows_(rows),
      states_(layout_.begins.size() * rows, State::kEmpty) {}

bool BatchSlot::IsFilled(std::size_t field, std::size_t row) const {
  std::lock_guard lock(mutex_);
  return states_[field * rows_ + row] == State::kFilled;
}

Status BatchSlot::AllocateLocked(tier::RamArena& slots) {
  if (block_.valid() || layout_.total_bytes == 0) return {};
  FOREBAY_ASSIGN(block_, slots.Allocate(layout_.total_bytes));
  return {};
}

Status BatchSlot::Allocate(tier::RamArena& slots) {
  std::lock_guard lock(mutex_);
  is_over_ = false;
  is_owned_ = true;
  return AllocateLocked(slots);
}

void BatchSlot::Disown() {
  std::lock_guard lock(mutex_);
  is_owned_ = false;
}

std::span<std::byte> BatchSlot::Row(std::size_t field, std::size_t row) const {
  const std::uint64_t bytes = layout_.row_bytes[field];
  return block_.bytes().subspan(layout_.begins[field] + row * bytes, bytes);
}

bool BatchSlot::Claim(std::size_t field, std::size_t row) {
  std::unique_lock lock(mutex_);
  State& state = StateOf(field, row);
  settled_.wait(lock, [&] { return state != State::kClaimed; });
  if (state == State::kFilled) return false;
  state = State::kClaimed;
  return true;
}

std::span<std::byte> BatchSlot::TryClaim(std::size_t field, std::size_t row,
                                         tier::RamArena& slots) {
  std::lock_guard lock(mutex_);
  State& state = StateOf(field, row);
  if (is_over_ || state != State::kEmpty || !AllocateLocked(slots).has_value()) return {};
  state = State::kClaimed;
  return Row(field, row);
}

void BatchSlot::Settle(std::size_t field, std::size_t row, bool is_filled) {
  {
    std::lock_guard lock(mutex_);
    FOREBAY_CHECK(StateOf(field, row) == State::kClaimed);
    StateOf(field, row) = is_filled ? State::kFilled : State::kEmpty;
  }
  settled_.notify_all();
}

tier::ArenaBlock BatchSlot::Take() {
  std::unique_lock lock(mutex_);
  return TakeLocked(lock);
}

void BatchSlot::Abandon() {
  std::unique_lock lock(mutex_);
  if (!is_owned_) static_cast<void>(TakeLocked(lock));
}

tier::ArenaBlock BatchSlot::TakeLocked(std::unique_lock<std::mutex>& lock) {
  is_over_ = true;
  settled_.wait(lock, [&] { return std::ranges::find(states_, State::kClaimed) == states_.end(); });
  std::ranges::fill(states_, State::kEmpty);
  return std::move(block_);
}

std::shared_ptr<BatchSlot> SlotBoard::Open(const BatchName& name, std::uint64_t bytes_max) {
  const Result<StepSlice> slice = SliceOf(*spec_, name);
  if (!slice.has_value()) return nullptr;
  Result<SlotLayout> layout = LayOutRows(spec_->catalog->fields(), slice->count);
  if (!layout.has_value() || layout->total_bytes > bytes_max) return nullptr;
  auto slot = std::make_shared<BatchSlot>(std::move(*layout), slice->count);
  std::lock_guard lock(mutex_);
  places_.push_back({.epoch = name.epoch, .first = slice->first,
                     .end = slice->first + slice->count, .slot = slot});
  return slot;
}

void SlotBoard::Drop(const std::shared_ptr<BatchSlot>& slot) {
  std::lock_guard lock(mutex_);
  std::erase_if(places_, [&](const Place& place) { return place.slot == slot; });
}

void SlotBoard::Abandon() {
  std::vector<Place> places;
  {
    std::lock_guard lock(mutex_);
    places = places_;
  }
  for (const Place& place : places) place.slot->Abandon();
}

void SlotBoard::FindRows(const Order& order, std::uint64_t first, std::uint32_t count,
                         const BatchSlot& own, std::vector<WantedRow>& rows) const {
  rows.clear();
  std::vector<Place> others;
  {
    std::lock_guard lock(mutex_);
    for (const Place& place : places_) {
      if (place.epoch == order.epoch() && place.slot.get() != &own) others.push_back(place);
    }
  }
  if (others.empty()) return;
  std::vector<std::uint64_t> positions;
  std::vector<std::uint32_t> selected;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint64_t index = spec_->selection->IndexOf(SampleId(first + i));
    if (index >= spec_->selection->size()) continue;
    positions.push_back(index);
    selected.push_back(i);
  }
  order.Inverse(positions);
  for (std::size_t i = 0; i < positions.size(); ++i) {
    for (const Place& place : others) {
      if (positions[i] < place.first || positions[i] >= place.end) continue;
      rows.push_back({.index = selected[i], .slot = place.slot,
                      .row = static_cast<std::uint32_t>(positions[i] - place.first),
                      .end_position = place.end});
    }
  }
}

}  // namespace forebay::stream

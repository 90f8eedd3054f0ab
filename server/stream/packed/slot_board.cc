// Each row of a shared field is empty, claimed by one thread, or filled. BatchSlot's mutex guards
// the states and the slot's memory, but not the bytes: the thread that has claimed a row writes it
// without the mutex. A thread that decodes a chunk for its own batch may claim rows of other
// batches only with TryClaim, which does not wait; otherwise two batches could wait for each other.
// Called by the workers that assemble batches, and by whatever thread closes a stream.
#include "server/stream/packed/slot_board.h"

#include <algorithm>

#include "proto/contract/check.h"

namespace forebay::stream {

BatchSlot::BatchSlot(SlotLayout layout, std::size_t rows)
    : layout_(std::move(layout)),
      rows_(rows),
      states_(layout_.begins.size() * rows, State::kEmpty) {}

bool BatchSlot::IsFilled(std::size_t field, std::size_t row) const {
  const MutexLock lock(mutex_);
  return states_[field * rows_ + row] == State::kFilled;
}

Status BatchSlot::AllocateLocked(tier::RamArena& slots) {
  // Another batch may have got the memory already, when it filled a row ahead.
  if (block_.valid() || layout_.total_bytes == 0) return {};
  FOREBAY_ASSIGN(block_, slots.Allocate(layout_.total_bytes));
  return {};
}

Status BatchSlot::Allocate(tier::RamArena& slots) {
  const MutexLock lock(mutex_);
  // The attempt before may have ended with Take. From here on other batches may fill rows again.
  is_over_ = false;
  is_owned_ = true;
  return AllocateLocked(slots);
}

void BatchSlot::Disown() {
  const MutexLock lock(mutex_);
  is_owned_ = false;
}

std::span<std::byte> BatchSlot::Row(std::size_t field, std::size_t row) const {
  // No lock: the memory stays in place while the caller has claimed a row or runs an attempt.
  const std::uint64_t bytes = layout_.row_bytes[field];
  return block_.bytes().subspan(layout_.begins[field] + row * bytes, bytes);
}

bool BatchSlot::Claim(std::size_t field, std::size_t row) {
  const MutexLock lock(mutex_);
  State& state = StateOf(field, row);
  // Whoever has the claim is decoding, and does not wait for anything of this batch. If its chunk
  // proves damaged, the row is empty again, and this batch decodes the sample itself.
  while (state == State::kClaimed) claim_ended_.Wait(mutex_);
  if (state == State::kFilled) return false;
  state = State::kClaimed;
  return true;
}

std::span<std::byte> BatchSlot::TryClaim(std::size_t field, std::size_t row,
                                         tier::RamArena& slots) {
  const MutexLock lock(mutex_);
  State& state = StateOf(field, row);
  // A lack of memory is no error here: the sample is decoded again for the batch that wants it.
  if (is_over_ || state != State::kEmpty || !AllocateLocked(slots).has_value()) return {};
  state = State::kClaimed;
  return Row(field, row);
}

void BatchSlot::EndClaim(std::size_t field, std::size_t row, bool is_filled) {
  {
    const MutexLock lock(mutex_);
    FOREBAY_CHECK(StateOf(field, row) == State::kClaimed);
    StateOf(field, row) = is_filled ? State::kFilled : State::kEmpty;
  }
  // All, because Claim and Take wait on one variable for different things.
  claim_ended_.NotifyAll();
}

tier::ArenaBlock BatchSlot::Take() {
  const MutexLock lock(mutex_);
  return TakeLocked();
}

void BatchSlot::Abandon() {
  const MutexLock lock(mutex_);
  // A batch that is being assembled at this moment takes its memory itself, at its end.
  if (!is_owned_) static_cast<void>(TakeLocked());
}

tier::ArenaBlock BatchSlot::TakeLocked() {
  // First, so that no other batch claims a row while this call waits for the claims that exist.
  is_over_ = true;
  while (std::ranges::find(states_, State::kClaimed) != states_.end()) claim_ended_.Wait(mutex_);
  // The batch has its rows now. If it is tried again, it begins with new memory.
  std::ranges::fill(states_, State::kEmpty);
  return std::move(block_);
}

std::shared_ptr<BatchSlot> SlotBoard::Open(const BatchName& name, std::uint64_t bytes_max) {
  const Result<StepSlice> slice = SliceOf(*spec_, name);
  if (!slice.has_value()) return nullptr;
  Result<SlotLayout> layout = LayOutRows(spec_->catalog->fields(), slice->count);
  // The batch is still served, from a slot of its own that no other batch fills ahead.
  if (!layout.has_value() || layout->total_bytes > bytes_max) return nullptr;
  auto slot = std::make_shared<BatchSlot>(std::move(*layout), slice->count);
  const MutexLock lock(mutex_);
  places_.push_back({.epoch = name.epoch, .first = slice->first,
                     .end = slice->first + slice->count, .slot = slot});
  return slot;
}

void SlotBoard::Drop(const std::shared_ptr<BatchSlot>& slot) {
  const MutexLock lock(mutex_);
  std::erase_if(places_, [&](const Place& place) { return place.slot == slot; });
}

void SlotBoard::Abandon() {
  std::vector<Place> places;
  {
    const MutexLock lock(mutex_);
    // A copy, because BatchSlot::Abandon may wait for a thread that needs this mutex to go on.
    places = places_;
  }
  for (const Place& place : places) place.slot->Abandon();
}

void SlotBoard::FindRows(const Order& order, std::uint64_t first, std::uint32_t count,
                         const BatchSlot& own, std::vector<WantedRow>& rows) const {
  rows.clear();
  // Copied, because the inverse permutation below takes long. A slot that is dropped meanwhile
  // refuses the claim.
  std::vector<Place> others;
  {
    const MutexLock lock(mutex_);
    for (const Place& place : places_) {
      if (place.epoch == order.epoch() && place.slot.get() != &own) others.push_back(place);
    }
  }
  // The usual case of a stream with one credit: nothing has to be computed.
  if (others.empty()) return;
  std::vector<std::uint64_t> positions;
  std::vector<std::uint32_t> selected;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint64_t index = spec_->selection->IndexOf(SampleId(first + i));
    // The chunk holds samples that the stream's selection leaves out.
    if (index >= spec_->selection->size()) continue;
    positions.push_back(index);
    selected.push_back(i);
  }
  // One call for all: it permutes several of them side by side.
  order.Inverse(positions);
  for (std::size_t i = 0; i < positions.size(); ++i) {
    for (const Place& place : others) {
      // A stream has few credits, so a search costs less than an index. Rows that repeat a sample
      // to fill the last batch are not found; their batch fills them itself.
      if (positions[i] < place.first || positions[i] >= place.end) continue;
      rows.push_back({.index = selected[i], .slot = place.slot,
                      .row = static_cast<std::uint32_t>(positions[i] - place.first),
                      .end_position = place.end});
    }
  }
}

}  // namespace forebay::stream

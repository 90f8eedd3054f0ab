// SlotBoard: the slots of a stream's batches that were asked for and are not delivered yet. A batch
// that decodes a chunk also writes the chunk's other samples into the slots of the batches that
// will need them, so that the chunk need not be decoded again for these.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "proto/contract/order.h"
#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/stream/slot_layout.h"
#include "server/stream/stream_spec.h"
#include "server/tier/ram/ram_arena.h"

namespace forebay::stream {

// The slot of one packed batch. A row of a shared field is claimed before it is written, so that
// two threads never write the same row, and counts as filled once its bytes are verified.
// Thread-safe, except for the methods that only the batch itself may call.
class BatchSlot {
 public:
  // Fields with smaller rows are not shared, because copying a row costs less than claiming it.
  static constexpr std::uint64_t kSharedRowBytesMin = 4096;

  BatchSlot(SlotLayout layout, std::size_t rows);

  const SlotLayout& layout() const { return layout_; }
  bool IsShared(std::size_t field) const { return layout_.row_bytes[field] >= kSharedRowBytesMin; }
  bool IsFilled(std::size_t field, std::size_t row) const;

  // For the batch itself: allocates memory for the rows, unless the slot has some already.
  // kResourceExhausted: no memory is free. The memory stays until Disown, which ends an attempt.
  Status Allocate(tier::RamArena& slots);
  void Disown();
  std::span<std::byte> Row(std::size_t field, std::size_t row) const
      FOREBAY_NO_THREAD_SAFETY_ANALYSIS;

  // For the batch itself: claims a row of a shared field, and waits while another batch writes it.
  // False: the row is filled already.
  bool Claim(std::size_t field, std::size_t row);
  // For another batch: claims a row and returns its memory. Never waits. Returns an empty span if
  // the row is claimed or filled, if no memory is free, or if the slot's batch has ended.
  std::span<std::byte> TryClaim(std::size_t field, std::size_t row, tier::RamArena& slots);
  // Ends a claim. `is_filled`: the row's bytes are there and verified.
  void EndClaim(std::size_t field, std::size_t row, bool is_filled);

  // For the batch itself, when it ends: waits while others write, then returns the memory. After
  // that no row is filled, until Allocate is called again.
  tier::ArenaBlock Take();
  // For anybody: frees the memory, unless an attempt of the batch owns it.
  void Abandon();

 private:
  enum class State : std::uint8_t { kEmpty, kClaimed, kFilled };
  State& StateOf(std::size_t field, std::size_t row) FOREBAY_REQUIRES(mutex_) {
    return states_[field * rows_ + row];
  }
  Status AllocateLocked(tier::RamArena& slots) FOREBAY_REQUIRES(mutex_);
  tier::ArenaBlock TakeLocked() FOREBAY_REQUIRES(mutex_);

  const SlotLayout layout_;
  const std::size_t rows_;
  mutable Mutex mutex_;
  CondVar claim_ended_;
  tier::ArenaBlock block_ FOREBAY_GUARDED_BY(mutex_);
  std::vector<State> states_ FOREBAY_GUARDED_BY(mutex_);  // [field][row]
  bool is_owned_ FOREBAY_GUARDED_BY(mutex_) = false;
  bool is_over_ FOREBAY_GUARDED_BY(mutex_) = false;
};

// The claim on a row of another batch. Destroying it ends the claim; if Fill was not called by
// then, the row may be claimed again. Move-only.
class RowClaim {
 public:
  RowClaim(std::shared_ptr<BatchSlot> slot, std::size_t field, std::size_t row)
      : slot_(std::move(slot)), field_(field), row_(row) {}
  RowClaim(RowClaim&& other) noexcept = default;
  RowClaim& operator=(RowClaim&& other) = delete;
  ~RowClaim() {
    if (slot_) slot_->EndClaim(field_, row_, is_filled_);
  }
  void Fill() { is_filled_ = true; }

 private:
  std::shared_ptr<BatchSlot> slot_;
  std::size_t field_ = 0, row_ = 0;
  bool is_filled_ = false;
};

// A row that needs one of the samples that FindRows was asked about.
struct WantedRow {
  std::uint32_t index = 0;  // of the sample, among those
  std::shared_ptr<BatchSlot> slot;
  std::uint32_t row = 0;
  std::uint64_t end_position = 0;  // where the row's batch ends in the order
};

// Thread-safe.
class SlotBoard {
 public:
  explicit SlotBoard(std::shared_ptr<const StreamSpec> spec) : spec_(std::move(spec)) {}

  // Returns the slot of a batch that was asked for, without memory yet. Null if the name is wrong,
  // or if the slot would need more than `bytes_max`. Other batches find the slot until it is
  // dropped.
  std::shared_ptr<BatchSlot> Open(const BatchName& name, std::uint64_t bytes_max);
  void Drop(const std::shared_ptr<BatchSlot>& slot);
  // Call when the stream has been closed: frees slots that other batches have begun to fill for
  // batches that do not run.
  void Abandon();

  // Finds rows for the samples [first, first + count) of the data set, in slots of the order's
  // epoch other than `own`.
  void FindRows(const Order& order, std::uint64_t first, std::uint32_t count,
                const BatchSlot& own, std::vector<WantedRow>& rows) const;

 private:
  struct Place {
    EpochId epoch;
    std::uint64_t first = 0, end = 0;  // positions
    std::shared_ptr<BatchSlot> slot;
  };

  const std::shared_ptr<const StreamSpec> spec_;
  mutable Mutex mutex_;
  std::vector<Place> places_ FOREBAY_GUARDED_BY(mutex_);  // as many as the stream has credits
};

// The slots of a stream, as one of its batches sees them. Borrowed.
struct OpenSlots {
  std::shared_ptr<BatchSlot> own;  // null: not shared
  const SlotBoard* board = nullptr;
  const Order* order = nullptr;  // of the batch's epoch
};

}  // namespace forebay::stream

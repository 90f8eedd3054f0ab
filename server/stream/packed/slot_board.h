// SlotBoard: the slots of a stream's batches that are on their way. Whoever decodes a chunk for one
// of them puts each sample straight into the row that wants it, whichever batch that is.
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
// two never write one, and filled for good once its bytes are right. Thread-safe, except where a
// method says that it is the batch's own.
class BatchSlot {
 public:
  // Fields with smaller rows are not shared: a copy costs less than to ask about them.
  static constexpr std::uint64_t kSharedRowBytesMin = 4096;

  BatchSlot(SlotLayout layout, std::size_t rows);

  const SlotLayout& layout() const { return layout_; }
  bool IsShared(std::size_t field) const { return layout_.row_bytes[field] >= kSharedRowBytesMin; }
  bool IsFilled(std::size_t field, std::size_t row) const;

  // The batch's own: memory for the rows, unless there is some. kResourceExhausted where none is
  // free. Until Disown, which ends an attempt, the memory stays in any case.
  Status Allocate(tier::RamArena& slots);
  void Disown();
  std::span<std::byte> Row(std::size_t field, std::size_t row) const
      FOREBAY_NO_THREAD_SAFETY_ANALYSIS;

  // The batch's own: claims a row of a shared field, unless it is filled; waits while another
  // writes it.
  bool Claim(std::size_t field, std::size_t row);
  // For another batch: never waits. The row's memory, or none where it is claimed or filled, there
  // is no memory, or the batch is over.
  std::span<std::byte> TryClaim(std::size_t field, std::size_t row, tier::RamArena& slots);
  // Ends a claim.
  void Settle(std::size_t field, std::size_t row, bool is_filled);

  // The batch's own, at its end: waits while others write, then gives the memory away. Rows are
  // not filled afterwards; Allocate begins anew.
  tier::ArenaBlock Take();
  // The same for who is not the batch, as long as no attempt has the memory.
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
  CondVar settled_;
  tier::ArenaBlock block_ FOREBAY_GUARDED_BY(mutex_);
  std::vector<State> states_ FOREBAY_GUARDED_BY(mutex_);  // [field][row]
  bool is_owned_ FOREBAY_GUARDED_BY(mutex_) = false;
  bool is_over_ FOREBAY_GUARDED_BY(mutex_) = false;
};

// A row of another batch, to be written. Unless it is filled, someone else may claim it again.
// Move-only.
class RowClaim {
 public:
  RowClaim(std::shared_ptr<BatchSlot> slot, std::size_t field, std::size_t row)
      : slot_(std::move(slot)), field_(field), row_(row) {}
  RowClaim(RowClaim&& other) noexcept = default;
  RowClaim& operator=(RowClaim&& other) = delete;
  ~RowClaim() {
    if (slot_) slot_->Settle(field_, row_, is_filled_);
  }
  void Fill() { is_filled_ = true; }

 private:
  std::shared_ptr<BatchSlot> slot_;
  std::size_t field_ = 0, row_ = 0;
  bool is_filled_ = false;
};

// A row that wants a sample: sample `index` of those that were asked about.
struct WantedRow {
  std::uint32_t index = 0;
  std::shared_ptr<BatchSlot> slot;
  std::uint32_t row = 0;
  std::uint64_t end_position = 0;  // behind its batch
};

// Thread-safe.
class SlotBoard {
 public:
  explicit SlotBoard(std::shared_ptr<const StreamSpec> spec) : spec_(std::move(spec)) {}

  // The slot of a batch that was asked for, without memory yet; null where the name is wrong, or
  // it needs more than `bytes_max`. Others find it until it is dropped.
  std::shared_ptr<BatchSlot> Open(const BatchName& name, std::uint64_t bytes_max);
  void Drop(const std::shared_ptr<BatchSlot>& slot);
  // The stream has been closed: frees what others have begun to fill of batches that do not run.
  void Abandon();

  // Which of `count` samples of the data set, from `first` on, batches of the order's epoch other
  // than `own` want.
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

// What a batch knows of the slots of its stream, borrowed.
struct OpenSlots {
  std::shared_ptr<BatchSlot> own;  // null: not shared
  const SlotBoard* board = nullptr;
  const Order* order = nullptr;  // of the batch's epoch
};

}  // namespace forebay::stream

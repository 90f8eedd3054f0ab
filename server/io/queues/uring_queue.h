// UringQueue: the IoQueue over one io_uring. UringBackend creates it; tests read its counters.
#pragma once

#include <liburing.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "proto/contract/result.h"
#include "server/io/io_backend.h"
#include "server/io/queues/transfer.h"
#include "server/io/queues/uring_backend.h"

namespace forebay::io {

// Every operation has a slot from Submit to its completion. A slot waits in `waiting_` until the
// kernel takes it: first without an entry of the submission ring, then (the first `prepared_`
// slots) with one. Partial submission, a full ring and resumption after a short transfer all mean
// that slots wait longer.
class UringQueue final : public IoQueue {
 public:
  static Result<std::unique_ptr<UringQueue>> Create(const QueueOptions& options,
                                                    const UringOptions& uring);
  ~UringQueue() override;
  UringQueue(const UringQueue&) = delete;
  UringQueue& operator=(const UringQueue&) = delete;

  Status Submit(std::span<const Operation> operations) override;
  std::size_t Wait(std::size_t count_min, std::vector<Completion>& completions,
                   std::optional<std::int64_t> timeout_ms) override;
  std::size_t in_flight() const override { return slots_.size() - free_.size(); }
  std::size_t depth() const override { return slots_.size(); }

  // For tests and metrics: calls of io_uring_submit, and resumed transfers.
  struct Counters {
    std::uint64_t submit_calls = 0;
    std::uint64_t resumed = 0;
  };
  const Counters& counters() const { return counters_; }

 private:
  using SlotIndex = std::uint32_t;

  // Slot indices in order of arrival; never more than the queue's depth.
  class SlotRing {
   public:
    explicit SlotRing(std::size_t capacity) : slots_(capacity) {}
    std::size_t size() const { return size_; }
    SlotIndex at(std::size_t i) const { return slots_[(begin_ + i) % slots_.size()]; }
    void Push(SlotIndex slot) { slots_[(begin_ + size_++) % slots_.size()] = slot; }
    void Pop(std::size_t count) {
      begin_ = (begin_ + count) % slots_.size();
      size_ -= count;
    }

   private:
    std::vector<SlotIndex> slots_;
    std::size_t begin_ = 0;
    std::size_t size_ = 0;
  };

  explicit UringQueue(std::size_t depth);
  Status Open(const UringOptions& uring);
  void Pump();
  void PrepareWaiting();
  void Prepare(io_uring_sqe* sqe, SlotIndex slot);
  void NoteSubmitError(int system_errno);
  std::size_t Reap(std::vector<Completion>& completions);
  bool TakeAnswer(SlotIndex slot, std::int32_t answer, std::vector<Completion>& completions);
  std::size_t FailWaiting(std::vector<Completion>& completions);
  void WaitInKernel(std::size_t count, std::optional<std::int64_t> timeout_ns);

  io_uring ring_ = {};
  bool is_open_ = false;
  bool is_enabled_ = false;  // a ring starts disabled, so that its first submitter owns it
  std::vector<Transfer> slots_;
  std::vector<SlotIndex> free_;
  SlotRing waiting_;
  std::size_t prepared_ = 0;
  std::size_t in_kernel_ = 0;
  int submit_failures_ = 0;     // temporary failures in a row while the kernel had no operation
  std::optional<Error> broken_;  // the permanent failure after which nothing is submitted
  Counters counters_;
};

}  // namespace forebay::io

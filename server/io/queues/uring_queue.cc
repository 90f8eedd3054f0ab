// One io_uring. Pump moves waiting slots into the submission ring and submits them; Reap takes the
// completions, and Advance (transfer.h) decides whether a slot is done or waits again. Wait repeats
// both until enough slots are done. Measured reasons for the flags are in the README.
#include "server/io/queues/uring_queue.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <optional>
#include <string>

#include "proto/contract/check.h"
#include "server/io/queues/operation_rules.h"

namespace forebay::io {
namespace {

constexpr std::size_t kReapBatch = 64;
constexpr std::size_t kBlockingReadBytesMin = 64 << 10;  // for smaller reads a worker costs more
constexpr int kSubmitFailuresMax = 1000;             // one millisecond apart, so one second

std::int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Answers of the kernel after which the same call may succeed.
bool IsTemporary(int system_errno) {
  return system_errno == EAGAIN || system_errno == EBUSY || system_errno == EINTR;
}

// Creates the best ring that this kernel supports. Newer kernels have flags that make a ring
// faster; an older kernel refuses them with EINVAL, and the next set has fewer.
int InitRing(io_uring* ring, std::uint32_t submission_entries,
             std::uint32_t completion_entries, bool* is_disabled) {
  constexpr std::uint32_t kCooperative = IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG;
  constexpr std::array<std::uint32_t, 3> kFlagSets = {
      IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_R_DISABLED | kCooperative, kCooperative, 0};
  int rc = -EINVAL;
  for (std::size_t i = 0; i < kFlagSets.size() && rc == -EINVAL; ++i) {
    io_uring_params params = {};
    params.flags = kFlagSets[i] | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP;
    params.cq_entries = completion_entries;
    *ring = {};
    rc = io_uring_queue_init_params(submission_entries, ring, &params);
    *is_disabled = (params.flags & IORING_SETUP_R_DISABLED) != 0;
  }
  return rc;
}

// A direct system call, because Debian's liburing 2.3 declares io_uring_enable_rings but does not
// export it.
Status EnableRing(io_uring* ring) {
  const long rc = ::syscall(SYS_io_uring_register, ring->ring_fd, IORING_REGISTER_ENABLE_RINGS,
                            nullptr, 0);
  if (rc < 0) return FileError(errno, "enable an io_uring");
  ring->flags &= ~IORING_SETUP_R_DISABLED;
  return {};
}

}  // namespace

Result<std::unique_ptr<UringQueue>> UringQueue::Create(const QueueOptions& options,
                                                       const UringOptions& uring) {
  std::unique_ptr<UringQueue> queue(new UringQueue(options.depth));
  FOREBAY_TRY(queue->Open(uring));
  return queue;
}

UringQueue::UringQueue(std::size_t depth) : slots_(depth), waiting_(depth) {
  free_.reserve(depth);
  for (std::size_t i = depth; i > 0; --i) free_.push_back(static_cast<SlotIndex>(i - 1));
}

Status UringQueue::Open(const UringOptions& uring) {
  const auto depth = static_cast<std::uint32_t>(slots_.size());
  const std::uint32_t submission_entries =
      std::bit_ceil(uring.submission_entries != 0 ? uring.submission_entries : depth);
  const std::uint32_t completion_entries =
      std::bit_ceil(uring.completion_entries != 0 ? uring.completion_entries : 2 * depth);
  bool is_disabled = false;
  const int rc = InitRing(&ring_, submission_entries,
                          std::max(submission_entries, completion_entries), &is_disabled);
  if (rc < 0) return FileError(-rc, "make an io_uring of depth " + std::to_string(depth));
  is_open_ = true;
  is_enabled_ = !is_disabled;
  return {};
}

UringQueue::~UringQueue() {
  if (!is_open_) return;
  // Operations that the kernel has taken must end before their memory can be freed. Those that it
  // never saw need no wait.
  while (in_kernel_ > 0) {
    io_uring_cqe* cqe = nullptr;
    const int rc = io_uring_wait_cqe(&ring_, &cqe);
    // If the ring cannot be waited for, nobody knows when the kernel is done with the memory (as in
    // WaitInKernel).
    FOREBAY_CHECK(rc == 0 || IsTemporary(-rc));
    if (rc == 0) {
      io_uring_cqe_seen(&ring_, cqe);
      --in_kernel_;
    }
  }
  io_uring_queue_exit(&ring_);
}

Status UringQueue::Submit(std::span<const Operation> operations) {
  if (broken_.has_value()) return *broken_;
  FOREBAY_TRY(CheckOperations(operations, {in_flight(), depth()}));
  if (operations.empty()) return {};
  // The first submitter becomes the ring's owner (SINGLE_ISSUER), so the ring is enabled here and
  // not by the thread that created it.
  if (!is_enabled_) {
    FOREBAY_TRY(EnableRing(&ring_));
    is_enabled_ = true;
  }
  for (const Operation& operation : operations) {
    const SlotIndex slot = free_.back();
    free_.pop_back();
    slots_[slot] = TransferOf(operation);
    waiting_.Push(slot);
  }
  Pump();
  return {};
}

// Hands waiting slots to the kernel until none is left or the kernel takes no more. The next Submit
// or Wait tries the rest again.
void UringQueue::Pump() {
  while (waiting_.size() > 0 && !broken_.has_value()) {
    PrepareWaiting();
    ++counters_.submit_calls;
    // The kernel takes entries in their order, so the taken slots are the first of waiting_.
    const int taken = io_uring_submit(&ring_);
    if (taken < 0) {
      NoteSubmitError(-taken);
      return;
    }
    if (taken == 0) return;
    submit_failures_ = 0;
    FOREBAY_CHECK(static_cast<std::size_t>(taken) <= prepared_);
    waiting_.Pop(static_cast<std::size_t>(taken));
    prepared_ -= static_cast<std::size_t>(taken);
    in_kernel_ += static_cast<std::size_t>(taken);
  }
}

// Fills entries of the submission ring for waiting slots, in their order.
void UringQueue::PrepareWaiting() {
  while (prepared_ < waiting_.size()) {
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    if (sqe == nullptr) return;  // the submission ring is full; the next round takes the rest
    Prepare(sqe, waiting_.at(prepared_));
    ++prepared_;
  }
}

void UringQueue::Prepare(io_uring_sqe* sqe, SlotIndex slot) {
  const Transfer& transfer = slots_[slot];
  const int fd = transfer.file->fd();
  switch (transfer.kind) {
    case OpKind::kRead:
      io_uring_prep_read(sqe, fd, transfer.next_memory(), transfer.next_bytes(),
                         transfer.next_offset());
      break;
    case OpKind::kWrite:
      io_uring_prep_write(sqe, fd, transfer.next_memory(), transfer.next_bytes(),
                          transfer.next_offset());
      break;
    case OpKind::kDataSync: io_uring_prep_fsync(sqe, fd, IORING_FSYNC_DATASYNC); break;
  }
  // Some file systems (FUSE, network ones) block within the submission. A batch of large reads
  // would then run one after another, so the kernel is told to give them to its workers.
  const bool may_block = transfer.kind == OpKind::kRead && !transfer.file->is_direct() &&
                         transfer.next_bytes() >= kBlockingReadBytesMin;
  if (may_block) sqe->flags |= IOSQE_ASYNC;
  io_uring_sqe_set_data64(sqe, slot);
}

// Decides whether a failed submission is tried again or breaks the queue.
void UringQueue::NoteSubmitError(int system_errno) {
  // If the kernel has operations, a completion will make room. If it has none, it is short of
  // memory for the request itself, and gets a bounded time to recover.
  if (IsTemporary(system_errno)) {
    // A single failure says little, so it is only counted; any success resets the count (Pump).
    if (in_kernel_ > 0 || ++submit_failures_ < kSubmitFailuresMax) return;
  }
  broken_ = FileError(system_errno, "submit to an io_uring");
}

std::size_t UringQueue::Wait(std::size_t count_min, std::vector<Completion>& completions,
                             std::optional<std::int64_t> timeout_ms) {
  const std::size_t wanted = std::min(count_min, in_flight());
  const std::int64_t begin_ns = timeout_ms.has_value() ? NowNs() : 0;
  std::size_t count = 0;
  while (true) {
    // Reaping first makes room; what is submitted then includes the rest of short transfers.
    count += Reap(completions);
    Pump();
    if (broken_.has_value()) count += FailWaiting(completions);
    if (count >= wanted) return count;
    std::optional<std::int64_t> left_ns;
    if (timeout_ms.has_value()) {
      const std::int64_t passed_ns = NowNs() - begin_ns;
      // Compared in milliseconds, because a huge timeout would overflow in nanoseconds.
      if (passed_ns / 1'000'000 >= *timeout_ms) return count;
      constexpr std::int64_t kTimeoutMsMax = 1'000'000'000;
      left_ns = std::min(*timeout_ms, kTimeoutMsMax) * 1'000'000 - passed_ns;
    }
    WaitInKernel(wanted - count, left_ns);
  }
}

void UringQueue::WaitInKernel(std::size_t count, std::optional<std::int64_t> timeout_ns) {
  if (in_kernel_ == 0) {
    // Only refused submissions are left. Wait one millisecond before they are tried again.
    ::poll(nullptr, 0, 1);
    return;
  }
  __kernel_timespec timeout = {};
  if (timeout_ns.has_value()) {
    const std::int64_t left_ns = std::max<std::int64_t>(*timeout_ns, 0);
    timeout.tv_sec = left_ns / 1'000'000'000;
    timeout.tv_nsec = left_ns % 1'000'000'000;
  }
  // If slots still wait for the kernel, any one completion may make room for them.
  std::size_t wait_count = waiting_.size() > 0 ? 1 : std::min(count, in_kernel_);
  // The kernel refuses to wait for more completions than its ring has entries.
  wait_count = std::min<std::size_t>(wait_count, *ring_.cq.kring_entries);
  io_uring_cqe* cqe = nullptr;
  const int rc = io_uring_wait_cqes(&ring_, &cqe, static_cast<unsigned>(wait_count),
                                    timeout_ns.has_value() ? &timeout : nullptr, nullptr);
  // Any other answer means that completions never arrive, while the kernel may still write into
  // their memory. To go on would deliver bytes that change (docs/design.md, P1).
  FOREBAY_CHECK(rc >= 0 || rc == -ETIME || IsTemporary(-rc));
}

// Takes all completions that are ready, without waiting. Returns the number of finished operations.
std::size_t UringQueue::Reap(std::vector<Completion>& completions) {
  std::array<io_uring_cqe*, kReapBatch> batch;
  std::size_t count = 0;
  while (in_kernel_ > 0) {
    const unsigned ready = io_uring_peek_batch_cqe(&ring_, batch.data(), kReapBatch);
    if (ready == 0) return count;
    for (unsigned i = 0; i < ready; ++i) {
      const auto slot = static_cast<SlotIndex>(io_uring_cqe_get_data64(batch[i]));
      // The kernel returns what Prepare has stored, so another number means that the ring is
      // damaged.
      FOREBAY_CHECK(slot < slots_.size());
      --in_kernel_;
      if (TakeAnswer(slot, batch[i]->res, completions)) ++count;
    }
    io_uring_cq_advance(&ring_, ready);
  }
  return count;
}

// Returns true if the slot is done. Otherwise it waits again, for the rest of its transfer.
bool UringQueue::TakeAnswer(SlotIndex slot, std::int32_t answer,
                            std::vector<Completion>& completions) {
  Transfer& transfer = slots_[slot];
  std::optional<Result<std::uint64_t>> outcome = Advance(transfer, answer);
  if (!outcome) {
    ++counters_.resumed;
    waiting_.Push(slot);
    return false;
  }
  completions.push_back({transfer.tag, *std::move(outcome)});
  free_.push_back(slot);
  return true;
}

// Completes all waiting slots with the failure of the ring.
std::size_t UringQueue::FailWaiting(std::vector<Completion>& completions) {
  const std::size_t count = waiting_.size();
  for (std::size_t i = 0; i < count; ++i) {
    const SlotIndex slot = waiting_.at(i);
    completions.push_back({slots_[slot].tag, broken_->WithContext(Describe(slots_[slot]))});
    free_.push_back(slot);
  }
  waiting_.Pop(count);
  // The entries that were filled stay in the submission ring, but nothing is submitted any more.
  prepared_ = 0;
  return count;
}

}  // namespace forebay::io

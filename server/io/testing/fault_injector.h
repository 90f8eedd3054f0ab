// FaultInjector: decides which operation fails, and counts, so that a test can prove that its
// fault happened. Part of forebay::io_testing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"

namespace forebay::io {

// What the daemon asks of the I/O interface, as one kind of countable operation each.
enum class IoCall : std::uint8_t {
  kRead, kWrite, kDataSync,                      // of an IoQueue
  kInfo, kResize,                                // of a File; kResize: preallocate, truncate
  kOpen, kCreate, kStat, kList, kMakeDirectory,  // of a Directory; kCreate: also append
  kRename, kRemove, kSyncDirectory, kFreeSpace,
};

enum class FaultKind : std::uint8_t {
  kEio,          // fails, nothing done
  kEnospc,       // the same; only what needs space
  kErofs,        // the same; only what changes something, as of a device that went read-only
  kInterrupted,  // EINTR that outlived every retry below the interface; nothing done
  kShort,        // reads and writes: half is moved, and only half reported
  kStall,        // done, but not answered before ReleaseStalls
  kBitFlip,      // reads and writes: one bit inverted, success reported
  kTornWrite,    // writes: only the first half reaches the file, success reported
};

// True where the kind can happen to the call at all.
bool Applies(FaultKind kind, IoCall call);

struct Fault {
  FaultKind kind = FaultKind::kEio;
  // Only this one; otherwise whatever the kind applies to.
  std::optional<IoCall> call = std::nullopt;
  std::uint64_t nth = 1;       // 1-based among those; a sweep runs it to candidates_seen()
  bool is_persistent = false;  // the nth and all after it, otherwise the nth alone
  std::uint64_t seed = 1;      // which bit flips
  std::string path = {};       // only where the object's path ends so; it counts no others
};

// Thread-safe. One injector may serve several back ends.
class FaultInjector {
 public:
  struct Decision {
    FaultKind kind = FaultKind::kEio;
    std::uint64_t operation = 0;  // its number among all seen, 1-based
    std::uint64_t random = 0;     // of the seed and the operation
    std::uint64_t stall_ticket = 0;
  };

  // Replaces the armed fault and counts its candidates from zero.
  void Arm(const Fault& fault);
  void Disarm();

  // Counts the operation and says what is to happen to it, if anything.
  std::optional<Decision> Decide(IoCall call, std::string_view path = {});

  std::uint64_t operations_seen() const;  // since construction
  std::uint64_t candidates_seen() const;  // since Arm: operations that the fault applies to
  std::uint64_t faults_injected() const;  // since construction

  // Lets go of everything stalled so far. What stalls later waits for the next call.
  void ReleaseStalls();
  bool IsReleased(std::uint64_t stall_ticket) const;
  // Blocks until the ticket is released, or `timeout_ms` has passed (nullopt: no limit).
  void AwaitRelease(std::uint64_t stall_ticket, std::optional<std::int64_t> timeout_ms);

 private:
  mutable Mutex mutex_;
  CondVar released_;
  std::optional<Fault> fault_ FOREBAY_GUARDED_BY(mutex_);
  std::uint64_t operations_seen_ FOREBAY_GUARDED_BY(mutex_) = 0;
  std::uint64_t candidates_seen_ FOREBAY_GUARDED_BY(mutex_) = 0;
  std::uint64_t faults_injected_ FOREBAY_GUARDED_BY(mutex_) = 0;
  std::uint64_t release_count_ FOREBAY_GUARDED_BY(mutex_) = 0;
};

// The error of kEio, kEnospc, kErofs and kInterrupted: as the kernel's, tagged "injected fault at
// operation N", so that a test can tell it from a real one.
Error InjectedError(const FaultInjector::Decision& decision);

}  // namespace forebay::io

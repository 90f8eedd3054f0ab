// FaultInjector: decides which operation fails, and counts operations and faults, so that a test
// can prove that its fault happened. Part of forebay::io_testing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"

namespace forebay::io {

// The calls of the I/O interface that can fail.
enum class IoCall : std::uint8_t {
  kRead, kWrite, kDataSync,                      // IoQueue
  kInfo, kResize,                                // File; kResize: preallocate, truncate
  kOpen, kCreate, kStat, kList, kMakeDirectory,  // Directory; kCreate: also append
  kRename, kRemove, kSyncDirectory, kFreeSpace,
};

enum class FaultKind : std::uint8_t {
  kEio,          // the call fails and does nothing
  kEnospc,       // as kEio; only calls that need space
  kErofs,        // as kEio; only calls that change something: the device became read-only
  kInterrupted,  // as kEio; EINTR that persisted through every retry below the interface
  kStale,        // as kEio; ESTALE: the handle is of a file system that was mounted again
  kShort,        // reads and writes: half of the bytes is moved, and reported as moved
  kStall,        // the call is done, but not answered before ReleaseStalls
  kBitFlip,      // reads and writes: one bit is inverted, success is reported
  kTornWrite,    // writes: only the first half reaches the file, success is reported
};

// True if a fault of this kind can happen to the call.
bool Applies(FaultKind kind, IoCall call);

struct Fault {
  FaultKind kind = FaultKind::kEio;
  // Only this call. Unset: every call that the kind applies to.
  std::optional<IoCall> call = std::nullopt;
  std::uint64_t nth = 1;       // which of these calls, from 1; a sweep tries 1 to candidates_seen()
  bool is_persistent = false;  // true: the nth and all later ones; false: only the nth
  std::uint64_t seed = 1;      // decides which bit is inverted
  std::string path = {};       // only calls for a path that ends so; others do not count
};

// Thread-safe. One injector may serve several back ends.
class FaultInjector {
 public:
  struct Decision {
    FaultKind kind = FaultKind::kEio;
    std::uint64_t operation = 0;  // number of the operation among all seen, from 1
    std::uint64_t random = 0;     // derived from seed and operation
    std::uint64_t stall_ticket = 0;
  };

  // Replaces the armed fault and counts its candidates from zero.
  void Arm(const Fault& fault);
  void Disarm();

  // Counts the operation and decides about it. nullopt: it happens normally.
  std::optional<Decision> Decide(IoCall call, std::string_view path = {});

  std::uint64_t operations_seen() const;  // since construction
  std::uint64_t candidates_seen() const;  // since Arm: operations that the fault applies to
  std::uint64_t faults_injected() const;  // since construction

  // Releases everything that is stalled now. Later stalls wait for the next call.
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

// The error of kEio, kEnospc, kErofs, kInterrupted and kStale: the kernel's error with the text
// "injected fault at operation N", by which a test can tell it from a real error.
Error InjectedError(const FaultInjector::Decision& decision);

}  // namespace forebay::io

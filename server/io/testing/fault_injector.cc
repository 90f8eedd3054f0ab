// Counts the calls that an armed fault applies to, under one mutex, and picks the nth. Stalls hold
// a ticket, which is the number of releases so far: ReleaseStalls increments it and so releases
// all.
#include "server/io/testing/fault_injector.h"

#include <cerrno>
#include <chrono>
#include <string>

#include "proto/contract/mix64.h"
#include "server/io/posix/posix_file.h"

namespace forebay::io {
namespace {

int ErrnoOf(FaultKind kind) {
  switch (kind) {
    case FaultKind::kEnospc: return ENOSPC;
    case FaultKind::kErofs: return EROFS;
    case FaultKind::kInterrupted: return EINTR;
    case FaultKind::kStale: return ESTALE;
    default: return EIO;
  }
}

}  // namespace

bool Applies(FaultKind kind, IoCall call) {
  switch (kind) {
    case FaultKind::kEio: case FaultKind::kInterrupted: case FaultKind::kStale:
    case FaultKind::kStall:
      return true;
    case FaultKind::kEnospc:
      return call == IoCall::kWrite || call == IoCall::kDataSync || call == IoCall::kResize ||
             call == IoCall::kCreate || call == IoCall::kMakeDirectory ||
             call == IoCall::kRename || call == IoCall::kSyncDirectory;
    case FaultKind::kErofs:
      return call == IoCall::kWrite || call == IoCall::kDataSync || call == IoCall::kResize ||
             call == IoCall::kCreate || call == IoCall::kMakeDirectory ||
             call == IoCall::kRename || call == IoCall::kRemove ||
             call == IoCall::kSyncDirectory;
    case FaultKind::kShort: case FaultKind::kBitFlip:
      return call == IoCall::kRead || call == IoCall::kWrite;
    case FaultKind::kTornWrite: return call == IoCall::kWrite;
  }
  return false;
}

void FaultInjector::Arm(const Fault& fault) {
  MutexLock lock(mutex_);
  fault_ = fault;
  candidates_seen_ = 0;
}

void FaultInjector::Disarm() {
  MutexLock lock(mutex_);
  fault_.reset();
}

std::optional<FaultInjector::Decision> FaultInjector::Decide(IoCall call,
                                                               std::string_view path) {
  MutexLock lock(mutex_);
  ++operations_seen_;
  if (!fault_.has_value() || !Applies(fault_->kind, call)) return std::nullopt;
  if (fault_->call.has_value() && *fault_->call != call) return std::nullopt;
  if (!path.ends_with(fault_->path)) return std::nullopt;
  ++candidates_seen_;
  const bool is_hit = candidates_seen_ == fault_->nth ||
                      (fault_->is_persistent && candidates_seen_ > fault_->nth);
  if (!is_hit) return std::nullopt;
  ++faults_injected_;
  const std::uint64_t random = Mix64(fault_->seed * kGolden64 + operations_seen_);
  return Decision{fault_->kind, operations_seen_, random, release_count_};
}

std::uint64_t FaultInjector::operations_seen() const {
  MutexLock lock(mutex_);
  return operations_seen_;
}

std::uint64_t FaultInjector::candidates_seen() const {
  MutexLock lock(mutex_);
  return candidates_seen_;
}

std::uint64_t FaultInjector::faults_injected() const {
  MutexLock lock(mutex_);
  return faults_injected_;
}

void FaultInjector::ReleaseStalls() {
  MutexLock lock(mutex_);
  ++release_count_;
  released_.NotifyAll();
}

bool FaultInjector::IsReleased(std::uint64_t stall_ticket) const {
  MutexLock lock(mutex_);
  return release_count_ > stall_ticket;
}

void FaultInjector::AwaitRelease(std::uint64_t stall_ticket,
                                 std::optional<std::int64_t> timeout_ms) {
  MutexLock lock(mutex_);
  const auto is_released = [&]() FOREBAY_REQUIRES(mutex_) { return release_count_ > stall_ticket; };
  if (timeout_ms.has_value()) {
    released_.WaitFor(mutex_, std::chrono::milliseconds(*timeout_ms), is_released);
  } else {
    while (!is_released()) released_.Wait(mutex_);
  }
}

Error InjectedError(const FaultInjector::Decision& decision) {
  return FileError(ErrnoOf(decision.kind),
                   "injected fault at operation " + std::to_string(decision.operation));
}

}  // namespace forebay::io

// GfsFilesystem: a read-only pass-through of a folder that costs what a shared GFS costs.
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "bench/gfs_emu/fault_table.h"
#include "bench/gfs_emu/gfs_counters.h"
#include "bench/gfs_emu/gfs_presets.h"
#include "bench/gfs_emu/rate_queue.h"
#include "bench/gfs_emu/stream_tracker.h"
#include "proto/contract/result.h"
#include "proto/contract/unique_fd.h"

namespace forebay::bench {

// The state behind the FUSE operations (gfs_operations.cc), free of FUSE itself. Objects are
// numbered by path and never forgotten: counters outlive the kernel's interest in an inode. A
// remount makes numbers stale: their objects get new ones when they are next looked up. The
// root keeps its number, because the control file is reached through it.
// All public calls are thread-safe. Those that return a deadline (CLOCK_MONOTONIC, ns) leave
// the waiting to the caller.
class GfsFilesystem {
 public:
  struct Object {
    explicit Object(std::string object_path) : path(std::move(object_path)) {}
    const std::string path;  // beneath the backing folder, "." for its root
    std::atomic<std::uint64_t> opens = 0;
    std::mutex mutex;
    StreamTracker streams;  // guarded by mutex
  };
  // What a client asks for: an operation by way of the object `number`, concerning `path`. They
  // differ in a look-up, whose number is the folder's.
  struct Arrival {
    pid_t thread_id = 0;
    GfsOperation operation = GfsOperation::kRead;
    std::uint64_t number = 0;
    std::string path;
  };

  static constexpr std::uint64_t kRootNumber = 1;

  GfsFilesystem(UniqueFd backing, const GfsProfile& profile);

  int backing_fd() const { return backing_.get(); }
  const GfsProfile& profile() const { return profile_; }

  // The number of `path`, new or known.
  std::uint64_t NumberOf(const std::string& path);
  Object& object(std::uint64_t number);

  // Counts a look-up, getattr, opendir or readdir and returns when it is answered.
  std::int64_t ChargeMetadata(pid_t thread_id, GfsOperation operation);
  std::int64_t ChargeOpen(pid_t thread_id, Object& object);
  // Likewise for `bytes` at `offset` of `object`, which the disks deliver in turn.
  struct ReadRange {
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
  };
  std::int64_t ChargeRead(pid_t thread_id, Object& object, const ReadRange& range);
  // The fault to inject into what has arrived, counted.
  std::optional<Fault> TakeFault(const Arrival& arrival);

  std::string CountersJson() const;
  // Executes lines of "reset", "clear" and "fault ..." (README.md). Stops at the first error.
  Status Control(std::string_view commands);
  // How often "clear" was executed: whoever left requests without an answer resumes them then.
  std::uint64_t clear_count() const { return faults_.clear_count(); }

 private:
  struct Number {
    Object* object = nullptr;
    bool is_stale = false;
  };

  Status ControlLine(std::string_view line);
  Status AddFault(FaultRule rule);
  void MakeStale(const std::string& pattern);
  bool IsStale(std::uint64_t number) const;
  void ResetCounters();

  const UniqueFd backing_;
  const GfsProfile profile_;
  RateQueue disks_;
  RateQueue opens_;
  RateQueue metadata_;
  GfsCounters counters_;
  FaultTable faults_;

  mutable std::mutex objects_mutex_;
  std::unordered_map<std::string, std::unique_ptr<Object>> objects_;  // by path
  std::vector<Number> numbers_;                                       // number n is at n - 1
  std::unordered_map<std::string, std::uint64_t> number_of_path_;     // the one that is not stale
};

// CLOCK_MONOTONIC in nanoseconds.
std::int64_t MonotonicNs();

}  // namespace forebay::bench

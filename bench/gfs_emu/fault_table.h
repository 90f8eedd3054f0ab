// FaultTable: the faults that gfs_emu is asked to inject, and how many of them it injected.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/contract/result.h"

namespace forebay::bench {

// What a client asks of the GFS. A stat of a path is a look-up and a getattr of what it found;
// fstat is a getattr, and so is the kernel's permission check of a folder on the way to a path.
enum class GfsOperation : std::uint8_t { kRead, kOpen, kGetattr, kLookup, kReaddir };
std::string_view GfsOperationName(GfsOperation operation);  // "read", "open", ...

enum class FaultKind : std::uint8_t {
  kError,    // the operation fails with an errno
  kStall,    // the operation is answered late
  kShort,    // the read answers half of what there is, as a truncated object would
  kFlip,     // one bit of the read's answer is wrong
  kHang,     // the operation is not answered, until `clear`
  kOutage,   // every operation fails with an errno for a stated time
  kRemount,  // what was opened or looked up before is stale for ever; what is opened now is well
};

struct FaultRule {
  FaultKind kind = FaultKind::kError;
  std::string pattern;            // glob over the path beneath the mount point
  std::uint32_t operations = 0;   // a bit for each GfsOperation
  pid_t client = 0;               // the only process that it concerns; 0: all of them
  std::uint64_t after = 0;        // matching operations that pass before the first fault
  std::uint64_t count = 1;        // faults to inject; 0: without end
  std::int64_t ms = 1000;         // how long a stall or an outage lasts
  int error_number = 0;           // of kError and kOutage
  std::uint64_t seen = 0;         // matching operations so far
  std::uint64_t injected = 0;
  std::optional<std::int64_t> until_ns;  // the end of an outage that has begun

  bool Concerns(GfsOperation operation) const {
    return (operations >> static_cast<unsigned>(operation) & 1U) != 0;
  }
  // "eio", "stall", "outage", ...: the word that Parse reads.
  std::string KindName() const;
};

struct Fault {
  FaultKind kind = FaultKind::kError;
  std::int64_t ms = 0;
  int error_number = 0;
  std::uint64_t clear_count = 0;  // of the table, when the fault befell the operation
};

// Thread-safe. Times are CLOCK_MONOTONIC in nanoseconds, given by the caller.
class FaultTable {
 public:
  static constexpr std::size_t kRulesMax = 64;

  // Parses "KIND GLOB [ops=LIST] [after=N] [count=N] [ms=N] [errno=NAME] [client=PID]" (README.md
  // says which words belong to which kind). The error says which word is wrong.
  static Result<FaultRule> Parse(std::string_view text);

  // An outage without `after` begins at `now_ns`. kResourceExhausted beyond kRulesMax.
  Status Add(FaultRule rule, std::int64_t now_ns);
  void Clear();
  std::uint64_t clear_count() const;  // how often
  // The fault that befalls this operation of the process `client`. Counts the operation against
  // every rule that matches, and the fault against the first that injects one.
  std::optional<Fault> Take(const std::string& path, GfsOperation operation, pid_t client,
                            std::int64_t now_ns);
  // Counts an operation on something that a remount made stale against the rule that did it.
  void CountStale(const std::string& path);
  std::vector<FaultRule> Snapshot() const;

 private:
  mutable std::mutex mutex_;
  std::vector<FaultRule> rules_;
  std::uint64_t clear_count_ = 0;
};

}  // namespace forebay::bench

// DiskFaults: this process's writing calls counted, and one of them the last before SIGKILL, or
// some of them on a full disk. The source file defines the C library's functions again: a target of
// its own, for a test that means it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace forebay::train::testing {

// Calls count from 1: open for writing, mkdir, write, fsync, ftruncate, rename, unlinkat. 0: never.
struct DiskFaultPlan {
  std::uint64_t kill_at = 0;
  // Before the call has done anything; else when it is done, of a write with half of it.
  bool kills_before = false;
  // What needs space fails with ENOSPC from this call on, for so many calls.
  std::uint64_t full_from = 0;
  std::uint64_t full_calls = 0;
};

// Memory that a process shares with the children it forks: a child arms it, its parent reads what
// came to pass, whatever became of the child. One at a time in a process.
class DiskFaults {
 public:
  DiskFaults();
  ~DiskFaults();
  DiskFaults(const DiskFaults&) = delete;
  DiskFaults& operator=(const DiskFaults&) = delete;

  // From here on; forgets what was before.
  void Arm(const DiskFaultPlan& plan);

  std::uint64_t calls() const;
  std::uint64_t refused() const;  // with ENOSPC
  // That succeeded, in their order: from, to.
  std::vector<std::pair<std::string, std::string>> Renames() const;
};

}  // namespace forebay::train::testing

// GfsCounters: who asked the emulated GFS for what.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace forebay::bench {

struct GfsCounts {
  std::uint64_t opens = 0;
  std::uint64_t reads = 0;      // as the kernel sends them: at most 1 MiB each
  std::uint64_t bytes = 0;      // answered
  std::uint64_t seeks = 0;
  std::uint64_t lookups = 0;
  std::uint64_t getattrs = 0;
  std::uint64_t readdirs = 0;   // opendir and readdir
  std::uint64_t faults = 0;     // injected
};

// Totals and shares by client process. Requests name threads; a thread is filed under its
// process, "0" where it ended before it could be asked. Thread-safe.
class GfsCounters {
 public:
  struct Client {
    std::string program;
    GfsCounts counts;
  };

  void Add(pid_t thread_id, std::uint64_t GfsCounts::*counter, std::uint64_t amount);
  // The process of a thread, as `clients` files it.
  pid_t ClientOf(pid_t thread_id);
  void Reset();
  GfsCounts total() const;
  std::map<pid_t, Client> clients() const;

 private:
  pid_t ProcessOf(pid_t thread_id);

  mutable std::mutex mutex_;
  GfsCounts total_;
  std::map<pid_t, Client> clients_;
  std::map<pid_t, pid_t> process_of_thread_;
};

}  // namespace forebay::bench

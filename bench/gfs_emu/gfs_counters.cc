// Counts by client, so that a figure of a benchmark can be given to the process that caused it, and
// the traffic of other processes on the mount is seen. FUSE names the thread of a request; /proc
// tells its process, and the answer is kept because /proc is slow.
#include "bench/gfs_emu/gfs_counters.h"

#include <fstream>

namespace forebay::bench {
namespace {

// Threads remembered; beyond it the memory starts anew.
constexpr std::size_t kThreadsMax = 65'536;

std::string ProgramOf(pid_t process_id) {
  // The kernel's name of the program, at most 15 characters, which is enough to tell clients apart.
  std::ifstream comm("/proc/" + std::to_string(process_id) + "/comm");
  std::string program;
  std::getline(comm, program);
  return program;
}

}  // namespace

pid_t GfsCounters::ProcessOf(pid_t thread_id) {
  const auto known = process_of_thread_.find(thread_id);
  if (known != process_of_thread_.end()) return known->second;
  std::ifstream status("/proc/" + std::to_string(thread_id) + "/status");
  pid_t process_id = 0;
  for (std::string word; status >> word;) {
    if (word == "Tgid:") {
      status >> process_id;
      break;
    }
  }
  // Forgetting costs another look into /proc per thread. Numbers of threads are used again by the
  // kernel, so a run that starts very many short threads may file some under an earlier process.
  if (process_of_thread_.size() >= kThreadsMax) process_of_thread_.clear();
  process_of_thread_[thread_id] = process_id;
  return process_id;
}

void GfsCounters::Add(pid_t thread_id, std::uint64_t GfsCounts::*counter, std::uint64_t amount) {
  // All requests share one lock. It is held also while /proc is read, which happens once per
  // thread.
  const std::lock_guard lock(mutex_);
  total_.*counter += amount;
  const pid_t process_id = ProcessOf(thread_id);
  // The name is asked for once, at the first request: a client that has ended cannot be asked
  // later.
  const auto [client, added] = clients_.try_emplace(process_id);
  if (added) client->second.program = ProgramOf(process_id);
  client->second.counts.*counter += amount;
}

pid_t GfsCounters::ClientOf(pid_t thread_id) {
  const std::lock_guard lock(mutex_);
  return ProcessOf(thread_id);
}

void GfsCounters::Reset() {
  const std::lock_guard lock(mutex_);
  total_ = {};
  clients_.clear();
  process_of_thread_.clear();
}

GfsCounts GfsCounters::total() const {
  const std::lock_guard lock(mutex_);
  return total_;
}

std::map<pid_t, GfsCounters::Client> GfsCounters::clients() const {
  const std::lock_guard lock(mutex_);
  return clients_;
}

}  // namespace forebay::bench

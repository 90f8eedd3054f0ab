// Threads of a rank: what the configuration says, else the cores that this process may use, shared
// by the ranks of the node. A launcher that binds ranks to cores has already divided them.
#include "trainer/core/machine/thread_plan.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace forebay::train {

std::uint32_t PlanThreads(const ThreadFacts& facts) {
  if (facts.requested > 0) return facts.requested;
  const std::uint32_t ranks = std::max(facts.local_ranks, 1U);
  // If all ranks together may use no more than the cores that there are, the launcher has bound
  // each to its own.
  const bool bound = std::uint64_t{facts.allowed_cores} * ranks <= facts.online_cores;
  return std::max(bound ? facts.allowed_cores : facts.allowed_cores / ranks, 1U);
}

ThreadFacts MeasureThreadFacts(std::uint32_t requested, std::uint32_t local_ranks) {
  ThreadFacts facts;
  facts.requested = requested;
  facts.local_ranks = local_ranks;
  const long online = ::sysconf(_SC_NPROCESSORS_ONLN);
  facts.online_cores = online > 0 ? static_cast<std::uint32_t>(online) : 1;
  facts.allowed_cores = facts.online_cores;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) == 0) {
    facts.allowed_cores = static_cast<std::uint32_t>(std::max(CPU_COUNT(&allowed), 1));
  }
  return facts;
}

void ApplyWaitPolicy(const char* policy, char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  // The OpenMP library has read the variable before main, so that only a new start of the program
  // makes it count. The variable is then set, and this function returns at once.
  if (::setenv("OMP_WAIT_POLICY", policy, 0) != 0) return;
  // By its own path, so that `ps` and `pkill` know it by its name.
  std::error_code unknown;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", unknown);
  if (!unknown) ::execv(self.c_str(), argv);
}

}  // namespace forebay::train

// PlanThreads: how many threads LibTorch uses. By itself it would take one, or, under a launcher,
// every core of the node in every rank.
#pragma once

#include <cstdint>

namespace forebay::train {

struct ThreadFacts {
  std::uint32_t requested = 0;     // by configuration; 0: decide
  std::uint32_t online_cores = 1;  // of the node
  std::uint32_t allowed_cores = 1; // by this process's affinity mask
  std::uint32_t local_ranks = 1;
};

// Returns at least 1. If a launcher has bound each rank to cores of its own, the rank uses them
// all. Otherwise the ranks of a node share its allowed cores evenly.
std::uint32_t PlanThreads(const ThreadFacts& facts);

// The facts of this process.
ThreadFacts MeasureThreadFacts(std::uint32_t requested, std::uint32_t local_ranks);

// Sets $OMP_WAIT_POLICY to `policy` if it is unset, and starts this program again, because OpenMP
// reads the variable once, before main. Returns if there is nothing to do or exec fails.
void ApplyWaitPolicy(const char* policy, char** argv);

}  // namespace forebay::train

// ProbeLinks: measures the links between the ranks at the start of a job, and finds the bucket size
// that reduces gradients fastest on them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "proto/contract/result.h"
#include "trainer/comm/communicator.h"

namespace forebay::train {

struct ProbeRequest {
  std::uint64_t gradient_bytes = 0;  // that a rank reduces in a step; 0: buckets are not tried
  // Ranks that are equal modulo this reduce together, as the replicas of a stage do.
  std::uint32_t stages = 1;
  std::uint64_t budget_ns = 1'500'000'000;
  std::function<std::uint64_t()> now_ns = {};  // monotonic
};

struct BucketTime {
  std::uint64_t bucket_bytes = 0;
  std::uint64_t reduction_ns = 0;  // of the whole sample; the mean over the ranks
};

// The figures are 0 in a job of one rank.
struct LinkProbe {
  // The slowest pair of neighbouring ranks, all pairs at work: half of a round trip takes
  // message_ns + bytes * ns_per_byte. 0 for one rank.
  std::uint64_t message_ns = 0;
  double ns_per_byte = 0;
  std::uint64_t sample_bytes = 0;   // that were reduced in each try
  std::vector<BucketTime> tried = {};  // ascending; empty where nothing is reduced
  std::uint64_t bucket_bytes = 0;   // the fastest; 0 where none was tried
};

// Collective: every rank passes the same request and gets the same answer. Every bucket size is
// tried round by round while the budget lasts, at least once. The shortest time of a size counts.
Result<LinkProbe> ProbeLinks(Communicator& communicator, const ProbeRequest& request);

// "4.0 us + 0.25 ns/byte a message; 48 MiB are reduced in 31.0 ms by 256 KiB: buckets of 256 KiB".
std::string Describe(const LinkProbe& probe);

}  // namespace forebay::train

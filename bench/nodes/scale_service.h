// What the nodes of a large job do beside moving samples, with the classes of the daemons: they
// probe each other, share the caps on the GFS, and look ahead in the order for what they read next.
// Time is simulated, so a minute of 16,384 nodes takes some seconds.
#pragma once

#include <cstdint>

#include "proto/contract/order_spec.h"
#include "proto/contract/result.h"
#include "server/stage/dataset.h"

namespace forebay::bench {

// The probers of all nodes (server/probe), in a network with up to 20 ms of latency.
struct Probing {
  // Of one node in one second, answers too, while nothing is lost.
  double messages = 0;
  double bytes = 0;    // without the headers of HTTP/2 and TCP
  double known_s = 0;  // until all nodes know of all that were lost at once; -1: not within 180 s
  std::uint64_t wrong_verdicts = 0;  // nodes that were taken for dead, and live
};
// `lost_count`: nodes, fewer than all.
Probing ProbingOf(std::uint32_t node_count, std::uint32_t lost_count, std::uint64_t seed);

// The shares of all nodes of a cap on bytes per second (stage::CapShare).
struct Politeness {
  double asks = 0;          // requests for loans and leases, of one node in one second
  double most_of_cap = 0;   // the rates of all nodes together, at most at any time, over the cap
  double used_of_cap = 0;   // what is used where one of four nodes reads as fast as it may
  double after_of_cap = 0;  // likewise, from 10 to 20 s after nodes were lost at once
};
Politeness PolitenessOf(std::uint32_t node_count, std::uint32_t lost_count, std::uint64_t seed);

// What node 0 reads ahead of need for a stream of that order (stream::UpcomingExtents).
struct Prefetch {
  double begin_s = 0;         // CPU time of the call that begins an epoch
  double window_s = 0;        // of all calls for the first window, without that one
  std::uint64_t extents = 0;  // of this node that the first window needs
};
// `dataset` has its catalog. The order is one of windows of runs, or sequential.
Result<Prefetch> PrefetchOf(stage::Dataset& dataset, const OrderShape& shape,
                            std::uint32_t node_count, std::uint32_t batch, std::uint64_t seed);

}  // namespace forebay::bench

// The model of a large job: what the traffic that scale_traffic.h counts, with the real order and
// the real owners, takes on a machine. Everything that is assumed stands in this header: the
// machines, and the formulas between bytes and seconds. Units: bytes, seconds, bytes per second.
// All are doubles, because 10^10 samples of a megabyte are more bytes than a product of integers
// should hold.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

namespace forebay::bench {

// One way of a link carries so much of its nominal rate as payload: a full Ethernet frame of 1,514
// bytes has 1,448 bytes of TCP payload (headers of Ethernet, IPv4 and TCP with time stamps).
inline constexpr double kPayloadOfLink = 1448.0 / 1514.0;

// A machine. Rates of nodes are those of each node; a link has its rate in both directions at the
// same time, and the network between the links is taken to have no bottleneck (full bisection).
struct Machine {
  std::string_view name;
  double link_bytes_per_s = 0;      // one interface, because a daemon uses one
  double tier_bytes = 0;            // RAM and SSD of a node that may hold data
  double gfs_bytes_per_s = 0;       // of all clients together, for large sequential reads
  double gfs_node_bytes_per_s = 0;  // of one client
  double gfs_opens_per_s = 0;       // of all clients together
  std::string_view source;
};

// Public descriptions where there are some. What is not published is assumed, and `source` says so;
// give other numbers with the options of scale_bench.
inline constexpr std::array<Machine, 4> kMachines = {{
    {.name = "tsubame",
     .link_bytes_per_s = 100e9 / 8,
     .tier_bytes = 128e9 + 1.6e12,
     .gfs_bytes_per_s = 150e9,
     .gfs_node_bytes_per_s = 2e9,
     .gfs_opens_per_s = 50e3,
     .source = "TSUBAME3.0, announced 2017: nodes with 256 GB of memory, 2 TB of NVMe SSD and four "
               "Omni-Path links of 100 Gb/s, of which a daemon uses one; Lustre with 150 GB/s. "
               "Assumed: half of the memory and 80 % of the SSD hold data, 2 GB/s for a client, "
               "50,000 opens/s"},
    {.name = "abci",
     .link_bytes_per_s = 100e9 / 8,
     .tier_bytes = 192e9 + 1.28e12,
     .gfs_bytes_per_s = 150e9,
     .gfs_node_bytes_per_s = 2e9,
     .gfs_opens_per_s = 50e3,
     .source = "ABCI of 2018: nodes with 384 GiB of memory, 1.6 TB of NVMe SSD and two links of "
               "InfiniBand EDR (100 Gb/s), of which a daemon uses one. Assumed: the rest as for "
               "tsubame"},
    {.name = "fugaku",
     .link_bytes_per_s = 6.8e9,
     .tier_bytes = 8e9 + 87 * 1073741824.0,
     .gfs_bytes_per_s = 1e12,
     .gfs_node_bytes_per_s = 1e9,
     .gfs_opens_per_s = 100e3,
     .source = "Fugaku-like: 32 GiB of memory, Tofu D with 28 Gb/s x 2 lanes for a port (6.8 GB/s "
               "after coding), 87 GiB of first-layer storage for a node (RIKEN R-CCS, About "
               "Fugaku, and user guide). Assumed: 8 GB of the memory, a GFS of 1 TB/s, as FEFS on "
               "the K computer had, 1 GB/s for a client, 100,000 opens/s"},
    {.name = "400g",
     .link_bytes_per_s = 400e9 / 8,
     .tier_bytes = 512e9 + 6e12,
     .gfs_bytes_per_s = 1e12,
     .gfs_node_bytes_per_s = 10e9,
     .gfs_opens_per_s = 200e3,
     .source = "assumed: a link of 400 Gb/s, 1 TB of memory and 7.5 TB of SSD, a GFS of 1 TB/s"},
}};

constexpr const Machine* FindMachine(std::string_view name) {
  for (const Machine& machine : kMachines) {
    if (machine.name == name) return &machine;
  }
  return nullptr;
}

// --- links ---------------------------------------------------------------------------------

// The time in which the link of a node moves what it receives and sends: both ways at once.
constexpr double LinkSeconds(double received_bytes, double sent_bytes, double link_bytes_per_s) {
  return std::max(received_bytes, sent_bytes) / (link_bytes_per_s * kPayloadOfLink);
}

// The time of some steps whose batches are asked for in advance: computing and moving overlap, so
// the longer of both.
constexpr double WindowSeconds(double compute_s, double link_s) {
  return std::max(compute_s, link_s);
}

// The share of the time in which the accelerators wait: in [0, 1).
constexpr double StallShare(double compute_s, double link_s) {
  const double whole = WindowSeconds(compute_s, link_s);
  return whole > 0 ? (whole - compute_s) / whole : 0;
}

// How many nodes ask one owner for a part of one step, if each node takes `batch` samples at random
// from `nodes` equal owners: the owner has none of a batch with probability (1 - 1/nodes)^batch.
inline double ExpectedAskers(double nodes, double batch) {
  return (nodes - 1) * (1 - std::pow(1 - 1 / nodes, batch));
}

// --- the GFS -------------------------------------------------------------------------------

// Reads of several nodes at the same time end when the GFS has served all of them, and the node
// with most bytes its own.
constexpr double GfsSeconds(double bytes, double largest_of_node, double opens,
                            const Machine& machine) {
  return std::max({bytes / machine.gfs_bytes_per_s, largest_of_node / machine.gfs_node_bytes_per_s,
                   opens / machine.gfs_opens_per_s});
}

// Bytes that each epoch after the first one reads from the GFS: those that are on no tier.
constexpr double EpochGfsBytes(double set_bytes, double nodes, const Machine& machine) {
  return std::max(0.0, set_bytes - nodes * machine.tier_bytes);
}

// --- samples instead of all ----------------------------------------------------------------

// The standard error of the mean of `count` values that were drawn at random from `population`.
constexpr double StandardError(double deviation, double count, double population) {
  if (count >= population || count <= 0) return 0;
  // Without std::sqrt, which is not constexpr in this library, this would be no constant.
  return deviation * __builtin_sqrt((1 - count / population) / count);
}

}  // namespace forebay::bench

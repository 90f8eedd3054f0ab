// ReadingCost: what one node reads in an epoch, and from where, under each mode of the order. It is
// a pure function of the data set's size, the node's tiers and the rates of its sources.
//
// The model, for N nodes that share a data set of S bytes evenly:
//
//   - Each node keeps its share, S / N, in RAM, then on SSD. What fits on neither is read from the
//     GFS in every epoch.
//   - Each node's readers get S / N bytes an epoch, and other nodes hold (N - 1) / N of them,
//     because daemons spread extents by hashing, whatever the mode. With `keeps_home_shares`,
//     `partial` gets only the exchanged samples from others, q * (N - 1) / N of what is read.
//     Copies of others' extents, as far as the tiers have space for them beside the share, save
//     their part of that.
//   - What is on no tier is read sample by sample in `global` and `partial`. In `block`, extents
//     are read whole, as long as those of a window fit into the sixteenth of RAM that extents pass
//     through. A run that does not end with an extent shares one with another run, so an extent of
//     e samples is read 1 + (e - 1) / b times.
//   - The sources work at the same time, so the slowest one decides.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "proto/contract/order_spec.h"

namespace forebay::cli {

enum class ReadSource : std::uint8_t { kRam = 0, kSsd = 1, kLink = 2, kGfs = 3 };
inline constexpr std::size_t kReadSources = 4;
std::string_view ReadSourceName(ReadSource source);  // "RAM", "SSD", "link", "GFS"

struct DatasetSize {
  std::uint64_t samples = 0;  // at least 1
  double bytes = 0;
  double extents = 1;  // at least 1; all count as equally large
};

struct JobFigures {
  std::uint64_t nodes = 1;
  double ram_bytes = 0;  // of a node's tiers
  double ssd_bytes = 0;
  double copies_bytes = 0;  // that a node may keep of other nodes' extents (key `copies`)
  // How fast one node reads from each source, in bytes per second; all are above 0.
  std::array<double, kReadSources> rates = {};
  double gfs_reads_per_s = 0;  // above 0
  bool keeps_home_shares = false;
};

// The cost of reading one epoch, for one node.
struct ReadingCost {
  std::array<double, kReadSources> bytes = {};
  double gfs_reads = 0;  // requests
  // The time that the slowest source takes, and which one it is.
  double seconds = 0;
  ReadSource slowest = ReadSource::kRam;
};

ReadingCost CostOf(const OrderShape& shape, const DatasetSize& dataset, const JobFigures& job);

// The bytes of a node's share that get no place of their own on its tiers. Daemons leave a part of
// each tier free, so this may be above 0 where CostOf has a share read from the tiers alone. Where
// it is above 0, a daemon refuses modes that need the whole set (NeedsWholeSet).
double BytesWithoutHome(const DatasetSize& dataset, const JobFigures& job);

}  // namespace forebay::cli

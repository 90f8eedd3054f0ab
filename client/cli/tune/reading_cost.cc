// All numbers are doubles: the answer is an estimate, and half a sample does no harm. Requests to
// the GFS are counted beside its bytes, because a file system that delivers gigabytes per second in
// large reads delivers only some thousand small ones. That difference is why `block` exists.
#include "client/cli/tune/reading_cost.h"

#include <algorithm>

namespace forebay::cli {
namespace {

// The part of the RAM tier that extents pass through (server/plan/placement.h).
constexpr double kPassingPart = 1.0 / 16;
// A daemon leaves a part of each tier free. In RAM, blocks do not fill all of it, or extents pass
// through it on their way to SSD. On SSD, eviction needs it (watermark_low_permille of
// server/tier/extent_cache.h).
constexpr double kUnfilledPart = 1.0 / 32;
constexpr double kSsdHomePart = 0.94;

double& At(std::array<double, kReadSources>& values, ReadSource source) {
  return values[static_cast<std::size_t>(source)];
}

// How often a window's extents are read, if they fit into memory together; 0 if they do not.
double ReadsOfAnExtent(const OrderShape& shape, const DatasetSize& dataset,
                       const JobFigures& job) {
  const double extent_bytes = dataset.bytes / dataset.extents;
  const double room = std::max(job.ram_bytes * kPassingPart, 2 * extent_bytes);
  // Nothing is shuffled, so one extent after the other passes through.
  if (shape.mode == OrderMode::kSequential) return 1;
  if (shape.mode != OrderMode::kBlock) return 0;
  const auto samples = static_cast<double>(dataset.samples);
  const double run = std::min(static_cast<double>(shape.block_samples), samples);
  const double extent = samples / dataset.extents;
  // One run is the whole set, and shares no extent with another one.
  const double reads = run >= samples ? 1 : 1 + std::max(0.0, extent - 1) / run;
  const double window = std::min(run * static_cast<double>(shape.window_runs), samples);
  const double window_bytes = dataset.bytes * window / samples * reads;
  // The window is shared: each node holds the extents of it that the node owns.
  return window_bytes / static_cast<double>(job.nodes) <= room ? reads : 0;
}

// The part of what a node's readers get that other nodes supply.
double PartOfOthers(const OrderShape& shape, const DatasetSize& dataset, const JobFigures& job) {
  // Without this, what others own would be 0 below, and their copies a part of nothing.
  if (job.nodes == 1) return 0;
  const double share = dataset.bytes / static_cast<double>(job.nodes);
  const double of_others = dataset.bytes - share;
  const double space = std::max(0.0, job.ram_bytes + job.ssd_bytes - share);
  const double copied = std::min({job.copies_bytes, space, of_others}) / of_others;
  const double part = (1 - 1 / static_cast<double>(job.nodes)) * (1 - copied);
  if (!job.keeps_home_shares || shape.mode != OrderMode::kPartial) return part;
  return part * shape.exchange_millionths / kExchangeMillionths;
}

}  // namespace

std::string_view ReadSourceName(ReadSource source) {
  switch (source) {
    case ReadSource::kRam: return "RAM";
    case ReadSource::kSsd: return "SSD";
    case ReadSource::kLink: return "link";
    case ReadSource::kGfs: return "GFS";
  }
  return "unknown";
}

ReadingCost CostOf(const OrderShape& shape, const DatasetSize& dataset, const JobFigures& job) {
  const double share = dataset.bytes / static_cast<double>(job.nodes);
  const double in_ram = std::min(share, job.ram_bytes);
  const double on_ssd = std::min(share - in_ram, job.ssd_bytes);
  const double on_no_tier = share - in_ram - on_ssd;
  ReadingCost cost;
  // Every byte of the set is read once per epoch, so a node reads its whole share for itself and
  // the others, and gets as much as it supplies.
  At(cost.bytes, ReadSource::kRam) = in_ram;
  At(cost.bytes, ReadSource::kSsd) = on_ssd;
  At(cost.bytes, ReadSource::kLink) = share * PartOfOthers(shape, dataset, job);
  if (on_no_tier > 0) {
    const double reads = ReadsOfAnExtent(shape, dataset, job);
    const double unit = reads > 0 ? dataset.bytes / dataset.extents
                                  : dataset.bytes / static_cast<double>(dataset.samples);
    At(cost.bytes, ReadSource::kGfs) = on_no_tier * std::max(1.0, reads);
    cost.gfs_reads = At(cost.bytes, ReadSource::kGfs) / unit;
  }
  for (std::size_t i = 0; i < kReadSources; ++i) {
    const auto source = static_cast<ReadSource>(i);
    double seconds = cost.bytes[i] / job.rates[i];
    if (source == ReadSource::kGfs) {
      seconds = std::max(seconds, cost.gfs_reads / job.gfs_reads_per_s);
    }
    if (seconds > cost.seconds) {
      cost.seconds = seconds;
      cost.slowest = source;
    }
  }
  return cost;
}

double BytesWithoutHome(const DatasetSize& dataset, const JobFigures& job) {
  const double ram_part = 1 - (job.ssd_bytes > 0 ? kPassingPart : kUnfilledPart);
  const double homes = job.ram_bytes * ram_part + job.ssd_bytes * kSsdHomePart;
  return std::max(0.0, dataset.bytes / static_cast<double>(job.nodes) - homes);
}

}  // namespace forebay::cli

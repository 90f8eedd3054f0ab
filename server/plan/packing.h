// Packing: whether a data set is better stored compressed or raw on this node, from what a trial
// measured. Arithmetic over estimates, for one node alone: nothing that nodes must agree on.
#pragma once

#include <cstdint>
#include <string>

namespace forebay::plan {

// Defaults for what has not been measured. Of one node; a tier's own measured figures replace
// them.
inline constexpr double kRamBytesPerSecond = 12e9;  // gathered to slots, all workers together
inline constexpr double kSsdBytesPerSecond = 3e9;   // one NVMe drive, extents' pieces
inline constexpr double kGfsBytesPerSecond = 1e9;   // this node's share of it

enum class OrderKind : std::uint8_t { kSequential, kBlock, kGlobal };

// The order in which samples are expected to be read.
struct ExpectedOrder {
  OrderKind kind = OrderKind::kGlobal;
  std::uint64_t block_samples = 0, window_runs = 0;  // of kBlock
};

struct DecodeFacts {
  std::uint64_t samples_per_chunk = 1;
  std::uint64_t sample_bytes = 1;
  std::uint64_t dataset_bytes = 0;        // raw
  std::uint64_t decoded_cache_bytes = 0;
};

// Bytes decoded per byte delivered, 1 to samples_per_chunk. Sequential: 1. Block: 1 where the
// window's chunks fit the decoded cache; runs that do not begin and end with a chunk decode one
// more at most. Otherwise, and for global: a sample costs its whole chunk, unless that is still
// kept, which is as probable as its share of the data set in the cache.
double ExpectedAmplification(const ExpectedOrder& order, const DecodeFacts& facts);

struct PackingFacts {
  std::uint64_t raw_bytes = 0;       // of the data set
  double ratio = 1;                  // raw bytes / stored ones
  double decode_bytes_per_second = 0;  // of one core, decoded bytes
  double encode_bytes_per_second = 0;  // of one core, raw bytes
  std::uint32_t decode_cores = 1, encode_cores = 1;
  double amplification = 1;          // ExpectedAmplification
  bool needs_all_resident = true;    // a global order is not served from the GFS
  std::uint64_t ram_bytes = 0, ssd_bytes = 0;  // room for extents
  double ram_bytes_per_second = kRamBytesPerSecond;
  double ssd_bytes_per_second = kSsdBytesPerSecond;
  double gfs_bytes_per_second = kGfsBytesPerSecond;
};

struct PackingAdvice {
  bool is_packed = false;
  // Delivered per second once all is staged that fits; 0: the order cannot be served at all.
  double raw_bytes_per_second = 0, packed_bytes_per_second = 0;
  std::string reason;  // one line for logs and status
};

// Packed where it delivers more. Raw is read from each tier, one after the other. Packed delivers
// at the rate of its slower stage: drives and the GFS, or the cores, which take all of it from
// memory, decode it, and pack what came from the GFS: what lies on no tier is read raw again, and
// packed again. Numbers that make no sense (0 cores, ratio 0) advise raw.
PackingAdvice AdvisePacking(const PackingFacts& facts);

}  // namespace forebay::plan

#include "server/plan/packing.h"

#include <algorithm>

#include <fmt/format.h>

namespace forebay::plan {
namespace {

double Share(double part, double whole) { return whole <= 0 ? 1 : std::min(1.0, part / whole); }

// Where the bytes of a data set lie, as shares of it.
struct Spread {
  double ram = 0, ssd = 0, gfs = 0;
};

Spread SpreadOf(const PackingFacts& facts, double stored_bytes) {
  Spread spread;
  spread.ram = Share(static_cast<double>(facts.ram_bytes), stored_bytes);
  spread.ssd = std::min(1 - spread.ram,
                        Share(static_cast<double>(facts.ssd_bytes), stored_bytes));
  spread.gfs = std::max(0.0, 1 - spread.ram - spread.ssd);
  if (spread.gfs < 1e-9) spread.gfs = 0;
  return spread;
}

double Rate(double seconds_per_byte) { return seconds_per_byte <= 0 ? 0 : 1 / seconds_per_byte; }

double RawRate(const PackingFacts& facts) {
  const Spread spread = SpreadOf(facts, static_cast<double>(facts.raw_bytes));
  if (spread.gfs > 0 && facts.needs_all_resident) return 0;
  return Rate(spread.ram / facts.ram_bytes_per_second +
              spread.ssd / facts.ssd_bytes_per_second +
              spread.gfs / facts.gfs_bytes_per_second);
}

double PackedRate(const PackingFacts& facts) {
  const Spread spread = SpreadOf(facts, static_cast<double>(facts.raw_bytes) / facts.ratio);
  if (spread.gfs > 0 && facts.needs_all_resident) return 0;
  // A chunk that is decoded again is read again. Drives and the GFS are waited for while others
  // decode; through memory every byte goes on the core that decodes it, which checks it first.
  const double read_bytes = facts.amplification / facts.ratio;
  const double waiting = read_bytes * spread.ssd / facts.ssd_bytes_per_second +
                         spread.gfs / facts.gfs_bytes_per_second;
  const double checking = read_bytes / facts.ram_bytes_per_second;
  const double decoding =
      facts.amplification / (facts.decode_bytes_per_second * facts.decode_cores);
  const double encoding =
      spread.gfs / (facts.encode_bytes_per_second * facts.encode_cores);
  return Rate(std::max(waiting, checking + decoding + encoding));
}

std::string RateText(double bytes_per_second) {
  if (bytes_per_second <= 0) return "not at all";
  return fmt::format("{:.2f} GB/s", bytes_per_second / 1e9);
}

}  // namespace

double ExpectedAmplification(const ExpectedOrder& order, const DecodeFacts& facts) {
  const double chunk = static_cast<double>(std::max<std::uint64_t>(1, facts.samples_per_chunk));
  const double cache = static_cast<double>(facts.decoded_cache_bytes);
  const double sample = static_cast<double>(facts.sample_bytes);
  if (order.kind == OrderKind::kSequential || chunk <= 1) return 1;
  if (order.kind == OrderKind::kBlock && order.block_samples > 0) {
    const double block = static_cast<double>(order.block_samples);
    const bool is_aligned = order.block_samples % facts.samples_per_chunk == 0;
    const double once = is_aligned ? 1 : std::min(chunk, (block + chunk - 1) / block);
    const double window_bytes =
        static_cast<double>(order.window_runs) * block * once * sample;
    if (window_bytes <= cache) return once;
    // Of the window's chunks the cache holds a share; the others are decoded for each sample.
    const double kept = cache / window_bytes;
    return once * kept + chunk * (1 - kept);
  }
  const double kept = Share(cache, static_cast<double>(facts.dataset_bytes));
  return kept + chunk * (1 - kept);
}

PackingAdvice AdvisePacking(const PackingFacts& facts) {
  PackingAdvice advice;
  const bool makes_sense =
      facts.ratio > 0 && facts.amplification >= 1 && facts.decode_bytes_per_second > 0 &&
      facts.encode_bytes_per_second > 0 && facts.decode_cores > 0 && facts.encode_cores > 0 &&
      facts.ram_bytes_per_second > 0 && facts.ssd_bytes_per_second > 0 &&
      facts.gfs_bytes_per_second > 0;
  if (!makes_sense) {
    advice.reason = "nothing was measured";
    return advice;
  }
  advice.raw_bytes_per_second = RawRate(facts);
  advice.packed_bytes_per_second = PackedRate(facts);
  advice.is_packed =
      facts.ratio > 1 && advice.packed_bytes_per_second > advice.raw_bytes_per_second;
  advice.reason = fmt::format(
      "{:.2f}x smaller, decoded at {:.2f} GB/s by each of {} cores, {:.1f} times; predicted are "
      "{} packed, {} raw",
      facts.ratio, facts.decode_bytes_per_second / 1e9, facts.decode_cores, facts.amplification,
      RateText(advice.packed_bytes_per_second), RateText(advice.raw_bytes_per_second));
  return advice;
}

}  // namespace forebay::plan

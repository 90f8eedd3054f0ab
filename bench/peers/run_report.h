// RunReport: the JSON that every contender of a benchmark prints on its last line; and the clocks
// and summaries that benchmarks share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/peers/delivery_digest.h"
#include "proto/contract/result.h"

namespace forebay::bench {

// One timed epoch, or the untimed one before them.
struct EpochReport {
  double seconds = 0;
  double cpu_seconds = 0;  // user and system time of this process
  std::uint64_t context_switches = 0;  // of this process, voluntary or not
  DeliveryDigest digest = {};
};

// Waits of one consumer for its batches, in milliseconds.
struct WaitReport {
  double first_ms = 0;
  double p50_ms = 0;
  double p99_ms = 0;
  double max_ms = 0;
  double total_ms = 0;
};

struct RunReport {
  std::string contender;
  std::string settings;
  EpochReport check = {};                // untimed, with the content digest; samples 0: not run
  std::vector<EpochReport> epochs = {};  // timed
  WaitReport waits = {};
  std::vector<double> au = {};           // accelerator utilisation by epoch; empty: not emulated
  std::vector<double> connects_ms = {};  // connect to first batch; empty: not measured
};

// Hashes are hexadecimal strings: JSON numbers are not exact beyond 2^53.
std::string ToJson(const RunReport& report);
// Prints `report`, or its error on the standard error stream. Returns the program's exit status.
int PrintReport(const char* program, const Result<RunReport>& report);

// User and system seconds of this process so far, of all its threads.
double CpuSeconds();
// Context switches of this process so far, of all its threads.
std::uint64_t ContextSwitches();
// CLOCK_MONOTONIC in seconds.
double NowSeconds();
// The median and both ends of the values of several rounds: a mean would hide that one round was
// disturbed.
struct Spread {
  double median = 0, low = 0, high = 0;
};
// Requires at least one value.
Spread SpreadOf(std::vector<double> values);
// Percentiles of `waits_ms`; reorders it.
WaitReport SummariseWaits(std::vector<double>& waits_ms);

}  // namespace forebay::bench

// The clocks and the JSON that all C++ contenders share, so that a ratio of two figures never
// compares two ways of measuring.
#include "bench/peers/run_report.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <numeric>

namespace forebay::bench {
namespace {

nlohmann::json EpochJson(const EpochReport& epoch) {
  return {{"seconds", epoch.seconds},
          {"cpu_seconds", epoch.cpu_seconds},
          {"context_switches", epoch.context_switches},
          // The harness compares digests between contenders and epochs: a run that skipped,
          // repeated or changed a sample does not count, however fast it was.
          {"samples", epoch.digest.samples},
          {"bytes", epoch.digest.bytes},
          {"byte_sum", fmt::format("{:016x}", epoch.digest.byte_sum)},
          {"sums_digest", fmt::format("{:016x}", epoch.digest.sums)},
          {"content_digest", fmt::format("{:016x}", epoch.digest.content)},
          {"places_digest", fmt::format("{:016x}", epoch.digest.places)}};
}

}  // namespace

std::string ToJson(const RunReport& report) {
  nlohmann::json json = {{"contender", report.contender},
                         {"settings", report.settings},
                         {"check", nullptr},
                         {"epochs", nlohmann::json::array()},
                         {"waits",
                          {{"first_ms", report.waits.first_ms},
                           {"p50_ms", report.waits.p50_ms},
                           {"p99_ms", report.waits.p99_ms},
                           {"max_ms", report.waits.max_ms},
                           {"total_ms", report.waits.total_ms}}}};
  // null says that no untimed epoch was run, which the harness tells apart from an epoch without
  // samples.
  if (report.check.digest.samples > 0) json["check"] = EpochJson(report.check);
  for (const EpochReport& epoch : report.epochs) json["epochs"].push_back(EpochJson(epoch));
  if (!report.au.empty()) json["au"] = report.au;
  if (!report.connects_ms.empty()) json["connects_ms"] = report.connects_ms;
  return json.dump();
}

int PrintReport(const char* program, const Result<RunReport>& report) {
  if (!report) {
    std::fprintf(stderr, "%s: %s\n", program, report.error().ToString().c_str());
    return EXIT_FAILURE;
  }
  std::printf("%s\n", ToJson(*report).c_str());
  return EXIT_SUCCESS;
}

double CpuSeconds() {
  // RUSAGE_SELF counts all threads of the process, also those that have ended.
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

std::uint64_t ContextSwitches() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_nvcsw + usage.ru_nivcsw);
}

double NowSeconds() {
  timespec now{};
  // Wall-clock time: a loader that sleeps while it waits for bytes has to answer for that.
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

Spread SpreadOf(std::vector<double> values) {
  std::ranges::sort(values);
  return {.median = values[values.size() / 2], .low = values.front(), .high = values.back()};
}

WaitReport SummariseWaits(std::vector<double>& waits_ms) {
  WaitReport report;
  if (waits_ms.empty()) return report;
  // The first wait has a figure of its own, because it contains the start of the pipeline. It is
  // taken before the sort.
  report.first_ms = waits_ms.front();
  report.total_ms = std::accumulate(waits_ms.begin(), waits_ms.end(), 0.0);
  std::ranges::sort(waits_ms);
  // The nearest rank above, without interpolation: a percentile is a wait that was really measured.
  const auto at = [&](double fraction) {
    const auto index = static_cast<std::size_t>(fraction * static_cast<double>(waits_ms.size()));
    return waits_ms[std::min(index, waits_ms.size() - 1)];
  };
  report.p50_ms = at(0.5);
  report.p99_ms = at(0.99);
  report.max_ms = waits_ms.back();
  return report;
}

}  // namespace forebay::bench

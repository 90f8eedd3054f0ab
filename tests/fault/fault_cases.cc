// fault_cases: the fault matrix as a program: lists it, runs one case, or runs all of it and
// random cases until the time is over (README.md).
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>

#include "proto/contract/mix64.h"
#include "tests/fault/case_run.h"
#include "tests/fault/expectation.h"
#include "tests/fault/fault_case.h"

namespace forebay::fault {
namespace {

using std::chrono::steady_clock;

struct Options {
  bool list = false;
  bool quick = false;
  std::string name;
  double minutes = 20;
  std::uint64_t seed = 0;
  unsigned lanes = 3;
};

// Results of cases that run side by side. Thread-safe.
class Tally {
 public:
  void Add(const FaultCase& fault_case, const CaseReport& report) {
    const std::lock_guard lock(mutex_);
    const std::string_view awaited = WhyAwaited(fault_case);
    const char* const outcome = !report.skipped.empty()   ? "SKIP"
                                : report.problems.empty() ? "ok"
                                : awaited.empty()         ? "FAIL"
                                                          : "WAIT";
    std::printf("%-4s %6.1f s %5llu faults  %s\n", outcome, report.seconds,
                static_cast<unsigned long long>(report.faults), fault_case.Name().c_str());
    if (!report.skipped.empty()) {
      ++skipped_[report.skipped];
    } else if (report.problems.empty()) {
      ++passed_;
      if (!awaited.empty()) std::printf("  was awaited: %s\n", std::string(awaited).c_str());
    } else if (!awaited.empty()) {
      ++awaited_[std::string(awaited)];
      std::printf("  %s\n", report.problems.front().c_str());
    } else {
      failed_.push_back(fault_case.Name());
      std::printf("%s\n", report.Text().c_str());
    }
    faults_ += report.faults;
    std::fflush(stdout);
  }

  // An exit status.
  int Summarise(std::uint64_t seed) const {
    std::printf("%llu cases passed, %zu failed, %llu faults injected; seed %llu\n",
                static_cast<unsigned long long>(passed_), failed_.size(),
                static_cast<unsigned long long>(faults_), static_cast<unsigned long long>(seed));
    for (const auto& [reason, count] : skipped_) {
      std::printf("%llu skipped: %s\n", static_cast<unsigned long long>(count), reason.c_str());
    }
    for (const auto& [reason, count] : awaited_) {
      std::printf("%llu await a mend: %s\n", static_cast<unsigned long long>(count),
                  reason.c_str());
    }
    for (const std::string& name : failed_) {
      std::printf("again: fault_cases --case %s\n", name.c_str());
    }
    return failed_.empty() && passed_ > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
  }

 private:
  std::mutex mutex_;
  std::uint64_t passed_ = 0;
  std::uint64_t faults_ = 0;
  std::map<std::string, std::uint64_t> skipped_;  // by reason
  std::map<std::string, std::uint64_t> awaited_;  // likewise
  std::vector<std::string> failed_;
};

// Cases for several lanes. Thread-safe.
class Cases {
 public:
  explicit Cases(const Options& options)
      : has_end_(options.quick),
        end_(steady_clock::now() +
             std::chrono::duration_cast<steady_clock::duration>(
                 std::chrono::duration<double>(options.minutes * 60))),
        random_state_(options.seed),
        cases_(options.quick ? QuickSelection(options.seed) : WholeMatrix(options.seed)) {
    for (std::size_t i = cases_.size(); i > 1; --i) {
      std::swap(cases_[i - 1], cases_[NextWord64(random_state_) % i]);
    }
  }
  // Of the selection, or until the time is over.
  std::optional<FaultCase> Next() {
    const std::lock_guard lock(mutex_);
    if (has_end_ ? next_ == cases_.size() : steady_clock::now() >= end_) return std::nullopt;
    return next_ < cases_.size() ? cases_[next_++] : RandomCase(random_state_);
  }

 private:
  const bool has_end_;
  const steady_clock::time_point end_;
  std::mutex mutex_;
  std::uint64_t random_state_;
  std::vector<FaultCase> cases_;
  std::size_t next_ = 0;
};

int RunMany(const Options& options) {
  std::printf("fault_cases: seed %llu (FOREBAY_FAULT_SEED), %u side by side\n",
              static_cast<unsigned long long>(options.seed), options.lanes);
  Cases cases(options);
  Tally tally;
  std::vector<std::thread> lanes;
  for (unsigned i = 0; i < options.lanes; ++i) {
    lanes.emplace_back([&] {
      while (const auto fault_case = cases.Next()) {
        tally.Add(*fault_case, CaseRun(*fault_case).Run());
      }
    });
  }
  for (std::thread& lane : lanes) lane.join();
  return tally.Summarise(options.seed);
}

int RunOne(const Options& options) {
  const auto fault_case = ParseCase(options.name);
  if (!fault_case) {
    std::fprintf(stderr, "fault_cases: no such case: %s (see --list)\n", options.name.c_str());
    return EXIT_FAILURE;
  }
  if (const auto reason = WhyExcluded(*fault_case); !reason.empty()) {
    std::fprintf(stderr, "fault_cases: excluded: %s\n", std::string(reason).c_str());
    return EXIT_FAILURE;
  }
  Tally tally;
  tally.Add(*fault_case, CaseRun(*fault_case).Run());
  return tally.Summarise(fault_case->seed);
}

int Run(int argc, char** argv) {
  Options options;
  options.seed = std::random_device{}();
  CLI::App app("fault_cases: forebayd under faults of the GFS and of the SSD");
  app.add_flag("--list", options.list, "Print the names of all cases, or with --quick of those");
  app.add_flag("--quick", options.quick, "Run the selection that continuous integration runs");
  app.add_option("--case", options.name, "Run the case of this name");
  app.add_option("--minutes", options.minutes,
                 "Run the whole matrix in a random order, then random cases, for so long")
      ->envname("FOREBAY_SOAK_MINUTES")->capture_default_str();
  app.add_option("--seed", options.seed, "Of orders and random cases")
      ->envname("FOREBAY_FAULT_SEED")->capture_default_str();
  app.add_option("--lanes", options.lanes, "Cases side by side")
      ->check(CLI::Range(1, 64))->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  if (options.list) {
    for (const FaultCase& fault_case :
         options.quick ? QuickSelection(options.seed) : WholeMatrix(options.seed)) {
      std::printf("%s\n", fault_case.Name().c_str());
    }
    return EXIT_SUCCESS;
  }
  return options.name.empty() ? RunMany(options) : RunOne(options);
}

}  // namespace
}  // namespace forebay::fault

int main(int argc, char** argv) { return forebay::fault::Run(argc, argv); }

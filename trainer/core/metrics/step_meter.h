// StepMeter: accounts of a rank's steps, as JSON lines in a file; over all ranks, as a line during
// the run and as a table at its end.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "proto/contract/result.h"
#include "trainer/comm/communicator.h"
#include "trainer/core/metrics/line_file.h"
#include "trainer/core/metrics/step_account.h"
#include "trainer/schedule/step_plan.h"

namespace forebay::train {

// In the folder of metrics: the loss curve and evaluations, and the closing figures.
inline constexpr const char* kLossCurveFile = "run.jsonl";
inline constexpr const char* kScalarsFile = "scalars.csv";
inline constexpr const char* kSummaryFile = "summary.json";

struct MeterOptions {
  std::string folder = {};  // of rank-00000.jsonl ...; made where it is not there; empty: no files
  bool append = false;      // a resumed run goes on in its files
  double peak_gflops = 0;   // of one rank, for the utilisation; 0: unknown
};

// A step as the meter sees it.
struct MeteredStep {
  std::uint64_t global_step = 0;
  std::uint32_t epoch = 0;
  std::uint64_t step = 0;     // within the epoch
  std::uint64_t samples = 0;  // over all ranks
};

// One rank's sums over a run or a window of it.
struct RankTotals {
  std::uint64_t steps = 0;
  std::uint64_t samples = 0;
  double flops = 0;
  double peak_gflops = 0;
  StepAccount account = {};

  double TeraflopsPerSecond() const;  // over step_ns
  // Part of the rank's peak, 0..1; negative: not known.
  double Utilisation() const;
};

// The share, 0..1, of the ranks' time within the plan in which they did nothing useful.
double BubbleOf(const std::vector<RankTotals>& ranks);

// Not thread-safe. `communicator` outlives it.
class StepMeter {
 public:
  static Result<StepMeter> Open(const MeterOptions& options, Communicator& communicator);

  // Call it before the first step and after each change of the layout. Errors of this call, Step
  // and Flush concern the file, which then lacks some lines; the meter continues.
  Status BeginLayout(const Layout& layout, const StepForecast& forecast);
  // Writes a line. It may stay in memory for a second, but at most until the next Flush.
  Status Step(const MeteredStep& step, const StepAccount& account);

  Status Flush();

  // Where the time went since the last call, in percent over all ranks: one line, the same on every
  // rank. Collective; costs one small reduction.
  Result<std::string> Window();
  // The sums over the whole run, by rank. Collective.
  Result<std::vector<RankTotals>> Finish();

 private:
  StepMeter(const MeterOptions& options, Communicator& communicator)
      : options_(options), communicator_(&communicator) {}
  Status Line(const nlohmann::ordered_json& line);
  Result<std::vector<RankTotals>> Gather(const RankTotals& own);

  MeterOptions options_;
  Communicator* communicator_;
  StepForecast forecast_;
  RankTotals window_;
  RankTotals run_;
  std::uint64_t unflushed_ns_ = 0;
  LineFile file_;
};

// "compute 81.2 %, wait_recv 9.0 %, ...; 0.051 TFLOP/s, MFU 62 %; bubble 14 % (predicted 12 %)".
std::string TimeLine(const std::vector<RankTotals>& ranks, double predicted_bubble);

// A row by rank, ending in a newline.
std::string RankTable(const std::vector<RankTotals>& ranks);

}  // namespace forebay::train

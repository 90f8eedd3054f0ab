// StepTrace: traces of steps in the format of chrome://tracing and Perfetto. They show what the
// simulator predicted and what ranks measured.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "proto/contract/result.h"
#include "trainer/comm/communicator.h"
#include "trainer/schedule/plan_simulator.h"
#include "trainer/schedule/run/plan_runner.h"
#include "trainer/schedule/step_plan.h"

namespace forebay::train {

// The spans as a JSON document; each rank is a row.
std::string ToChromeTrace(const StepPlan& plan, const std::vector<PlanSpan>& spans);

// Steps of a run, counted from 0 over all epochs; both ends belong to it.
struct StepRange {
  std::uint64_t first = 1;
  std::uint64_t last = 0;

  bool Has(std::uint64_t step) const { return step >= first && step <= last; }
};

// "10-12", or "10". kInvalidArgument for anything else, with what is allowed.
Result<StepRange> ParseStepRange(std::string_view text);

struct TraceOptions {
  std::string path = {};  // of the file that rank 0 writes; empty: no trace
  StepRange steps = {};
};

// Collects the spans of all ranks over some steps. Clocks are set to zero at a barrier before the
// first one, so that rows of different nodes agree to within the time of a message. What the
// simulator predicted is shown beside what was measured, as a process of its own. Every rank makes
// all calls for the same step. Not thread-safe.
class StepTrace {
 public:
  explicit StepTrace(TraceOptions options) : options_(std::move(options)) {}

  bool Covers(std::uint64_t step) const {
    return !options_.path.empty() && options_.steps.Has(step);
  }
  // Call it before the first step that is covered; later calls do nothing. Collective.
  Status Begin(Communicator& communicator, std::uint64_t (*now_ns)());
  // Adds the spans of a step that is covered, and what was predicted for its plan.
  void Add(std::uint64_t step, const StepPlan& plan, const RankReport& report,
           const Simulation& predicted);
  // Rank 0 writes the file, once: at the last step, or at the end of a run that ends before it.
  // Does nothing if no step was covered. A file that cannot be written is not an error of this
  // call: rank 0 has it in failure(). Collective.
  Status Write(Communicator& communicator);
  Status failure() const { return failure_; }

 private:
  void AddEvents(const StepPlan& plan, std::uint64_t step, int process,
                 const std::vector<PlanSpan>& spans, std::uint64_t offset_ns);

  TraceOptions options_;
  bool begun_ = false;
  bool written_ = false;
  Status failure_;
  std::uint64_t zero_ns_ = 0;  // by this rank's clock
  std::string events_;         // JSON objects, each behind a comma
};

}  // namespace forebay::train

// Each rank turns its spans into JSON events as it goes, and rank 0 gathers the texts at the end.
// Times are relative to a barrier before the first traced step, because the clocks of nodes differ.
// Predicted spans come from the simulator of rank 0 and form a process of their own in the viewer.
#include "trainer/core/metrics/step_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "trainer/core/config/number_list.h"
#include "trainer/core/metrics/text_file.h"

namespace forebay::train {
namespace {

using Json = nlohmann::ordered_json;

// Process ids of the trace: the viewer shows the two as groups, one above the other.
constexpr int kMeasured = 0;
constexpr int kPredicted = 1;

// A complete event ("X") of the trace format; times are in microseconds.
Json EventOf(const StepPlan& plan, const PlanSpan& span, int process, std::uint64_t offset_ns) {
  const Instruction& instruction = plan.programs[span.rank].instructions[span.instruction];
  return {{"name", Describe(plan, span.rank, instruction)},
          {"cat", OpName(instruction.op)},
          {"ph", "X"},
          {"pid", process},
          {"tid", span.rank},
          {"ts", static_cast<double>(offset_ns + span.begin_ns) * 1e-3},
          {"dur", static_cast<double>(span.end_ns - span.begin_ns) * 1e-3}};
}

// A metadata event ("M"): the title of a group or of a row.
Json NameEvent(const char* kind, int process, std::uint32_t row, const std::string& name) {
  return {{"name", kind},
          {"ph", "M"},
          {"pid", process},
          {"tid", row},
          {"args", {{"name", name}}}};
}

// Every rank's text, at rank 0; empty elsewhere.
Result<std::string> Gather(const std::string& own, Communicator& communicator) {
  std::vector<double> sizes(communicator.size());
  sizes[communicator.rank()] = static_cast<double>(own.size());
  // Sizes first, because a broadcast needs the same length on every rank.
  FOREBAY_TRY(communicator.AllReduceSum(std::span<double>(sizes)));
  std::string all;
  for (std::uint32_t rank = 0; rank < communicator.size(); ++rank) {
    std::vector<std::byte> text(static_cast<std::size_t>(sizes[rank]));
    if (rank == communicator.rank()) std::memcpy(text.data(), own.data(), own.size());
    FOREBAY_TRY(communicator.Broadcast(text, rank));
    if (communicator.rank() != 0) continue;
    all.append(reinterpret_cast<const char*>(text.data()), text.size());
  }
  return all;
}

}  // namespace

std::string ToChromeTrace(const StepPlan& plan, const std::vector<PlanSpan>& spans) {
  Json events = Json::array();
  for (const PlanSpan& span : spans) events.push_back(EventOf(plan, span, kMeasured, 0));
  return Json{{"traceEvents", std::move(events)}}.dump();
}

Result<StepRange> ParseStepRange(std::string_view text) {
  // A range is written without spaces, unlike lists.
  const bool has_space = text.find(' ') != std::string_view::npos;
  const auto ends = ParseNumbers<std::uint64_t>(text, '-');
  if (ends && !has_space && !ends->empty() && ends->size() <= 2 && ends->front() <= ends->back()) {
    return StepRange{.first = ends->front(), .last = ends->back()};
  }
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("\"{}\": must be a step, or a first and a last one such as \"10-12\"",
                           text));
}

Status StepTrace::Begin(Communicator& communicator, std::uint64_t (*now_ns)()) {
  if (begun_) return {};
  // Before the barrier: a rank whose barrier failed must not enter it again alone.
  begun_ = true;
  // All ranks leave the barrier at nearly the same time, which is time zero of each.
  FOREBAY_TRY(communicator.Barrier());
  zero_ns_ = now_ns();
  if (communicator.rank() != 0) return {};
  const std::pair<int, const char*> processes[] = {{kMeasured, "measured"},
                                                   {kPredicted, "predicted"}};
  for (const auto& [process, name] : processes) {
    events_ += ",\n" + NameEvent("process_name", process, 0, name).dump();
    for (std::uint32_t rank = 0; rank < communicator.size(); ++rank) {
      events_ +=
          ",\n" + NameEvent("thread_name", process, rank, fmt::format("rank {}", rank)).dump();
    }
  }
  return {};
}

void StepTrace::AddEvents(const StepPlan& plan, std::uint64_t step, int process,
                          const std::vector<PlanSpan>& spans, std::uint64_t offset_ns) {
  for (const PlanSpan& span : spans) {
    Json event = EventOf(plan, span, process, offset_ns);
    event["args"] = {{"step", step}};
    // Kept as text, which takes less memory than the objects and is what is sent.
    events_ += ",\n" + event.dump();
  }
}

void StepTrace::Add(std::uint64_t step, const StepPlan& plan, const RankReport& report,
                    const Simulation& predicted) {
  // Spans are relative to the step, events to the barrier.
  const std::uint64_t offset_ns = report.began_ns - std::min(report.began_ns, zero_ns_);
  AddEvents(plan, step, kMeasured, report.spans, offset_ns);
  const bool leads = !report.spans.empty() && report.spans.front().rank == 0;
  if (leads) AddEvents(plan, step, kPredicted, predicted.spans, offset_ns);
}

Status StepTrace::Write(Communicator& communicator) {
  if (!begun_ || written_) return {};
  // Before the gathering: it is collective, and nobody would join a second one.
  written_ = true;
  FOREBAY_ASSIGN(const std::string events, Gather(events_, communicator));
  events_.clear();
  if (communicator.rank() != 0) return {};
  const Status written =
      WriteTextFile(options_.path, "{\"traceEvents\":[\n" + events.substr(2) + "\n]}\n");
  // Not returned: the other ranks go on, and a trace is not worth the run.
  if (!written.has_value()) failure_ = written.error().WithContext("run.trace_file");
  return {};
}

}  // namespace forebay::train

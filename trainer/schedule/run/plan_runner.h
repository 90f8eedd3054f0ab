// PlanRunner: executes one rank's list of a checked plan, step after step.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "proto/contract/result.h"
#include "trainer/comm/collectives.h"
#include "trainer/comm/transport/counting_transport.h"
#include "trainer/comm/transport/transport.h"
#include "trainer/comm/watchdog/progress.h"
#include "trainer/schedule/plan_simulator.h"
#include "trainer/schedule/run/stage_worker.h"
#include "trainer/schedule/step_plan.h"

namespace forebay::train {

struct RunnerOptions {
  std::uint64_t timeout_ns = 1'800'000'000'000;  // of one wait
  std::function<std::uint64_t()> now_ns;          // monotonic
  bool traces = false;                            // fills in RankReport::spans
  Progress* progress = nullptr;                   // is told each instruction
};

// Which samples a step trains on. All ranks know it, and messages carry it.
struct StepIdentity {
  std::uint64_t step = 0;
  std::vector<std::uint64_t> samples_hashes;  // by micro-batch of the step
};

// Where one rank's time went; `times` as the simulator's, without idle_ns and peak_bytes.
struct RankReport {
  RankTimes times;
  std::uint64_t update_ns = 0;  // of times.compute_ns
  std::uint64_t began_ns = 0;   // by RunnerOptions::now_ns
  std::uint64_t step_ns = 0;
  LaneBytes sent_bytes = {};
  std::vector<PlanSpan> spans;
};

// Not thread-safe. Plan, worker and transport outlive it. While an instruction waits, sends and
// collectives that are under way continue. After an error the step is lost: abort the transport, so
// that no peer waits.
class PlanRunner {
 public:
  // The plan must have passed CheckPlan. The transport's rank selects the list.
  PlanRunner(const StepPlan& plan, StageWorker& worker, Transport& transport,
             RunnerOptions options);

  // Errors name the instruction. kDeadlineExceeded if a peer is not heard of for the timeout.
  Result<RankReport> RunStep(const StepIdentity& identity);

 private:
  struct PendingSend {
    Ticket ticket = 0;
    std::uint32_t buffer = 0;
    std::vector<std::uint32_t> frees;  // once it is done
  };

  const Buffer& BufferAt(std::uint32_t index) const;
  MessageTag TagOf(const Instruction& instruction) const;
  void Note(const Instruction& instruction) const;
  Status Execute(const Instruction& instruction);
  Status Send(const Instruction& instruction);
  Status Receive(const Instruction& instruction);
  // Waits for what the instruction needs of the buffers that are being swapped in.
  Status AwaitSwaps(const Instruction& instruction);
  Status EndCollective(const Instruction& instruction);
  // Buffers that are still being sent are released when they have gone out.
  void Release(const std::vector<std::uint32_t>& buffers);
  // Continues what is under way, without waiting. Returns the transfers that are waited for.
  Result<std::vector<Ticket>> Progress();
  Status DrainSends();
  void Account(const Instruction& instruction, std::uint64_t ns);

  const StepPlan& plan_;
  const RankProgram& program_;
  StageWorker& worker_;
  CountingTransport transport_;
  LaneBytes counted_bytes_ = {};  // before this step
  RunnerOptions options_;
  const StepIdentity* identity_ = nullptr;
  std::vector<PendingSend> sends_;
  std::vector<std::uint32_t> returning_;  // buffers that are being swapped in
  CollectiveQueue collectives_;
  RankReport report_;
};

}  // namespace forebay::train

// Follows one rank's list and keeps, for every class of memory, the bytes that are live and their
// peak. Unlike the checker it looks at classes one by one, so the sum of the peaks may exceed the
// peak of the sum.
#include "trainer/schedule/memory/plan_peaks.h"

#include <algorithm>
#include <vector>

namespace forebay::train {
namespace {

// The class under which reports show a buffer. Messages are what is sent, received or summed.
MemoryClass ClassOf(BufferKind kind) {
  switch (kind) {
    case BufferKind::kInput:
    case BufferKind::kTarget: return MemoryClass::kInputs;
    case BufferKind::kSaved:
    case BufferKind::kValue: return MemoryClass::kSaved;
    case BufferKind::kReceived:
    case BufferKind::kOutput:
    case BufferKind::kArrivedGradient:
    case BufferKind::kLeavingGradient:
    case BufferKind::kReduced: break;
  }
  return MemoryClass::kMessages;
}

// The live bytes of each class, and their highest level so far.
class LiveBytes {
 public:
  explicit LiveBytes(const std::vector<Buffer>& buffers)
      : buffers_(buffers), there_(buffers.size()) {}

  // A swap that comes back before it has ended has not left.
  void Add(std::uint32_t buffer) {
    Count(buffer, buffers_[buffer].bytes);
    const auto at = static_cast<std::size_t>(ClassOf(buffers_[buffer].kind));
    peaks_[at] = std::max(peaks_[at], live_[at]);
  }
  void Remove(std::uint32_t buffer) { Count(buffer, 0); }
  void SwapOut(std::uint32_t buffer) { Count(buffer, buffers_[buffer].fixed_bytes); }
  // For memory that is no buffer: it exists during one instruction, or all the time.
  void Pass(MemoryClass memory, std::uint64_t bytes) {
    std::uint64_t& peak = peaks_[static_cast<std::size_t>(memory)];
    peak = std::max(peak, bytes);
  }
  const MemoryPeaks& peaks() const { return peaks_; }

 private:
  void Count(std::uint32_t buffer, std::uint64_t bytes) {
    const auto at = static_cast<std::size_t>(ClassOf(buffers_[buffer].kind));
    live_[at] += bytes;
    live_[at] -= there_[buffer];
    there_[buffer] = bytes;
  }

  const std::vector<Buffer>& buffers_;
  std::vector<std::uint64_t> there_;  // bytes, by buffer
  MemoryPeaks live_ = {};
  MemoryPeaks peaks_ = {};
};

}  // namespace

std::string_view Name(MemoryClass memory) {
  switch (memory) {
    case MemoryClass::kResident: return "resident";
    case MemoryClass::kSaved: return "saved";
    case MemoryClass::kMessages: return "messages";
    case MemoryClass::kInputs: return "inputs";
    case MemoryClass::kScratch: return "scratch";
  }
  return "?";
}

// In the order of the list. That is exact for one rank but for messages, whose buffers may live
// until they have gone out.
MemoryPeaks PeaksByClass(const StepPlan& plan, std::uint32_t rank) {
  const RankProgram& program = plan.programs.at(rank);
  LiveBytes live(program.buffers);
  live.Pass(MemoryClass::kResident, program.resident_bytes);
  for (const Instruction& instruction : program.instructions) {
    // What an instruction makes is there while it runs, and what it frees is there until it ends.
    for (const std::uint32_t buffer : instruction.makes) live.Add(buffer);
    if (instruction.op == Op::kSwapIn || instruction.op == Op::kRecompute) {
      live.Add(instruction.needs.front());
    } else if (instruction.op == Op::kSwapEnd) {
      live.SwapOut(instruction.needs.front());
    } else if (instruction.op == Op::kDrop) {
      live.Remove(instruction.needs.front());
    }
    live.Pass(MemoryClass::kScratch, ScratchBytes(plan, rank, instruction));
    for (const std::uint32_t buffer : instruction.frees) live.Remove(buffer);
  }
  return live.peaks();
}

}  // namespace forebay::train

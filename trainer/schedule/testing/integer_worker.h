// A StageWorker whose tensors are single integers, for tests: what a module computes depends on
// all that it should be given, and on nothing else, so that a message that is lost, repeated or
// mixed up changes the result.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "trainer/schedule/model_graph.h"
#include "trainer/schedule/run/stage_worker.h"

namespace forebay::train {

inline std::uint64_t Mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = a * 0x9e3779b97f4a7c15ULL ^ (b + 0x7f4a7c15ULL);
  x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9ULL;
  return x ^ (x >> 32);
}

// What one micro-batch makes of a chain of modules: the definition that workers are held against.
class IntegerModel {
 public:
  explicit IntegerModel(const ModelGraph& graph) : graph_(graph) {}

  // The modules whose output `module` takes: its predecessor and its skips, ascending.
  std::vector<std::uint32_t> SourcesOf(std::uint32_t module) const {
    std::vector<std::uint32_t> sources;
    for (const SkipEdge& skip : graph_.skips) {
      if (skip.to == module) sources.push_back(skip.from);
    }
    if (module > 0) sources.push_back(module - 1);
    std::ranges::sort(sources);
    return sources;
  }
  static std::uint64_t Input(std::uint32_t micro_batch) { return Mix(1, micro_batch); }
  static std::uint64_t Target(std::uint32_t micro_batch) { return Mix(2, micro_batch); }
  // values: of the sources, in their order; the input for module 0.
  static std::uint64_t Value(std::uint32_t module, const std::vector<std::uint64_t>& values) {
    std::uint64_t mixed = module;
    for (const std::uint64_t value : values) mixed = Mix(mixed, value);
    return mixed;
  }
  // What a module hands back to one of its sources.
  static std::uint64_t Handed(std::uint64_t gradient, std::uint64_t source_value) {
    return Mix(gradient, source_value);
  }
  // A module's parameter gradient: small, so that sums of doubles are exact.
  static double Parameter(std::uint64_t gradient, std::uint64_t value) {
    return static_cast<double>(Mix(gradient, value) & 0xffff);
  }

  // Sums of parameter gradients over the micro-batches, by module.
  std::vector<double> Gradients(std::uint32_t micro_batches) const {
    const auto count = static_cast<std::uint32_t>(graph_.modules.size());
    std::vector<double> sums(count);
    for (std::uint32_t micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
      std::vector<std::uint64_t> values(count);
      for (std::uint32_t module = 0; module < count; ++module) {
        std::vector<std::uint64_t> taken;
        if (module == 0) taken.push_back(Input(micro_batch));
        for (const std::uint32_t source : SourcesOf(module)) taken.push_back(values[source]);
        values[module] = Value(module, taken);
      }
      std::vector<std::uint64_t> gradients(count);
      gradients.back() = Mix(values.back(), Target(micro_batch));
      for (std::uint32_t module = count; module-- > 0;) {
        sums[module] += Parameter(gradients[module], values[module]);
        for (const std::uint32_t source : SourcesOf(module)) {
          gradients[source] += Handed(gradients[module], values[source]);
        }
      }
    }
    return sums;
  }

 private:
  ModelGraph graph_;
};

class IntegerWorker : public StageWorker {
 public:
  IntegerWorker(const ModelGraph& graph, const StageSplit& split, const StepPlan& plan,
                std::uint32_t rank)
      : model_(graph), plan_(plan), rank_(rank), sums_(graph.modules.size()) {
    const std::uint32_t stage = plan.layout.StageOf(rank);
    begin_ = split.begins[stage];
    end_ = stage + 1 < split.stages() ? split.begins[stage + 1]
                                      : static_cast<std::uint32_t>(graph.modules.size());
    last_ = end_ == graph.modules.size();
  }

  const std::vector<double>& sums() const { return sums_; }
  std::size_t updates() const { return updates_; }
  bool empty() const { return work_.empty(); }

  Status Feed(const Buffer& buffer) override {
    Work& work = work_[buffer.micro_batch];
    (buffer.kind == BufferKind::kInput ? work.input : work.target) =
        buffer.kind == BufferKind::kInput ? IntegerModel::Input(buffer.micro_batch)
                                          : IntegerModel::Target(buffer.micro_batch);
    return {};
  }

  Status Forward(std::uint32_t micro_batch, std::uint32_t module) override {
    Work& work = work_[micro_batch];
    const bool whole = module == kAllModules;
    for (std::uint32_t at = whole ? begin_ : module; at < (whole ? end_ : module + 1); ++at) {
      FOREBAY_TRY(Compute(work, at));
    }
    if (!plan_.trains) evaluated_ = Mix(evaluated_, work.values[end_ - 1]);
    return {};
  }

  Status Backward(std::uint32_t micro_batch, std::uint32_t module) override {
    Work& work = work_[micro_batch];
    const bool whole = module == kAllModules;
    if (whole || module + 1 == end_) {
      work.gradients.clear();
      for (const auto& [edge, bytes] : work.arrived) {
        work.gradients[EdgeOf(edge).from_module] += Load(bytes);
      }
      if (last_) work.gradients[end_ - 1] += Mix(work.values[end_ - 1], work.target);
    }
    for (std::uint32_t at = whole ? end_ : module + 1; at-- > (whole ? begin_ : module);) {
      FOREBAY_TRY(GoBack(work, at));
    }
    work.complete = whole || module == begin_;
    return {};
  }

  Result<std::span<const std::byte>> Outgoing(const Buffer& buffer) override {
    Work& work = work_[buffer.micro_batch];
    std::vector<std::byte>& bytes = buffer.kind == BufferKind::kOutput
                                        ? work.outputs[buffer.edge]
                                        : work.leaving[buffer.edge];
    if (buffer.kind == BufferKind::kOutput && bytes.empty()) {
      bytes = Store(work.values[EdgeOf(buffer.edge).from_module], buffer.bytes);
    }
    return std::span<const std::byte>(bytes);
  }

  Result<std::span<std::byte>> Incoming(const Buffer& buffer) override {
    Work& work = work_[buffer.micro_batch];
    std::vector<std::byte>& bytes = buffer.kind == BufferKind::kReceived
                                        ? work.received[buffer.edge]
                                        : work.arrived[buffer.edge];
    bytes.assign(buffer.bytes, std::byte{0xee});
    return std::span<std::byte>(bytes);
  }

  void Release(const Buffer& buffer) override {
    if (!work_.contains(buffer.micro_batch)) return;  // ended with the buffer before
    Work& work = work_[buffer.micro_batch];
    switch (buffer.kind) {
      case BufferKind::kSaved:
        if (buffer.module == kAllModules) work.values.clear();
        if (buffer.module == kAllModules) work.graphs.clear();
        work.graphs.erase(buffer.module);
        break;
      case BufferKind::kValue: work.values.erase(buffer.module); break;
      case BufferKind::kReceived: work.received.erase(buffer.edge); break;
      case BufferKind::kOutput:
        work.outputs.erase(buffer.edge);
        work.values.erase(EdgeOf(buffer.edge).from_module);
        break;
      case BufferKind::kArrivedGradient: work.arrived.erase(buffer.edge); break;
      case BufferKind::kLeavingGradient: work.leaving.erase(buffer.edge); break;
      case BufferKind::kReduced: break;  // the collective's own
      default: break;
    }
    if (!plan_.trains && work.received.empty() && work.outputs.empty()) {
      work.values.clear();
      work.graphs.clear();
    }
    if ((work.complete || !plan_.trains) && work.values.empty() && work.graphs.empty() &&
        work.received.empty() &&
        work.outputs.empty() && work.arrived.empty() && work.leaving.empty()) {
      work_.erase(buffer.micro_batch);
    }
  }

  Result<std::unique_ptr<PendingCollective>> MakeCollective(std::uint32_t id,
                                                            const CollectiveTag& tag) override {
    const Collective& collective = plan_.collectives[id];
    FOREBAY_ASSIGN(Members members, MakeMembers(collective.members, rank_));
    if (collective.kind == CollectiveKind::kGradients && !reduces_) {
      // The first bucket carries all sums, the others nothing: what counts is their order.
      reduces_ = true;
      return std::unique_ptr<PendingCollective>(std::make_unique<AllReduce<double>>(
          std::move(members), tag, std::span(sums_).subspan(begin_, end_ - begin_)));
    }
    own_[id] = {static_cast<double>(rank_)};
    all_[id].resize(members.count());
    return std::unique_ptr<PendingCollective>(std::make_unique<AllGather>(
        std::move(members), tag, std::as_bytes(std::span(own_[id])),
        std::as_writable_bytes(std::span(all_[id]))));
  }

  Status EndCollective(std::uint32_t id) override {
    const auto gathered = all_.find(id);
    if (gathered == all_.end()) return {};
    const std::vector<std::uint32_t>& members = plan_.collectives[id].members;
    for (std::size_t at = 0; at < members.size(); ++at) {
      if (gathered->second[at] != static_cast<double>(members[at])) return Missing("member");
    }
    return {};
  }

  Status Move(Op op, const Buffer& buffer) override {
    if (op == Op::kSwapEnd) return {};
    Work& work = work_[buffer.micro_batch];
    if (buffer.module == kAllModules) {
      const bool leaves = op == Op::kSwapOut || op == Op::kDrop;
      (leaves ? work.away : work.graphs) = std::exchange(leaves ? work.graphs : work.away, {});
      return {};
    }
    const bool value = buffer.kind == BufferKind::kValue;
    auto& here = value ? work.values : work.graphs;
    auto& away = value ? work.away_values : work.away;
    if (op == Op::kRecompute) return Compute(work, buffer.module);
    auto& from = op == Op::kSwapIn ? away : here;
    if (!from.contains(buffer.module)) return Missing("moved value");
    if (op != Op::kDrop) (op == Op::kSwapIn ? here : away)[buffer.module] = from[buffer.module];
    from.erase(buffer.module);
    return {};
  }

  Status AwaitBack(const Buffer&) override { return {}; }

  Status Update() override {
    ++updates_;
    return {};
  }

 private:
  struct Work {
    std::uint64_t input = 0;
    std::uint64_t target = 0;
    std::map<std::uint32_t, std::uint64_t> values;  // by module: made here
    std::map<std::uint32_t, std::uint64_t> graphs;  // by module: its value, as backward needs it
    std::map<std::uint32_t, std::uint64_t> away;    // graphs on the host
    std::map<std::uint32_t, std::uint64_t> away_values;
    std::map<std::uint32_t, std::uint64_t> gradients;  // of outputs, half way backward
    std::map<std::uint32_t, std::vector<std::byte>> received;  // by edge, as all below
    std::map<std::uint32_t, std::vector<std::byte>> outputs;
    std::map<std::uint32_t, std::vector<std::byte>> arrived;
    std::map<std::uint32_t, std::vector<std::byte>> leaving;
    std::map<std::uint32_t, std::uint64_t> sums;  // of leaving gradients, by edge
    bool complete = false;                        // all the way back
  };

  const StageEdge& EdgeOf(std::uint32_t edge) const { return plan_.stages.edges[edge]; }
  Result<std::uint64_t> ValueOf(const Work& work, std::uint32_t module) const {
    const auto made = work.values.find(module);
    if (made != work.values.end()) return made->second;
    for (const auto& [edge, bytes] : work.received) {
      if (EdgeOf(edge).from_module == module) return Load(bytes);
    }
    return Missing("value");
  }
  Status Compute(Work& work, std::uint32_t module) {
    std::vector<std::uint64_t> taken;
    if (module == 0) taken.push_back(work.input);
    for (const std::uint32_t source : model_.SourcesOf(module)) {
      FOREBAY_ASSIGN(const std::uint64_t value, ValueOf(work, source));
      taken.push_back(value);
    }
    work.values[module] = IntegerModel::Value(module, taken);
    work.graphs[module] = work.values[module];
    return {};
  }
  Status GoBack(Work& work, std::uint32_t module) {
    if (!work.graphs.contains(module)) return Missing("saved value");
    const std::uint64_t gradient = work.gradients[module];
    sums_[module] += IntegerModel::Parameter(gradient, work.graphs[module]);
    for (const std::uint32_t source : model_.SourcesOf(module)) {
      FOREBAY_ASSIGN(const std::uint64_t value, ValueOf(work, source));
      const std::uint64_t back = IntegerModel::Handed(gradient, value);
      work.gradients[source] += back;
      for (const auto& [edge, bytes] : work.received) {
        const std::vector<std::uint32_t>& users = EdgeOf(edge).to_modules;
        if (EdgeOf(edge).from_module != source) continue;
        if (std::ranges::find(users, module) == users.end()) continue;
        work.sums[edge] += back;
        work.leaving[edge] = Store(work.sums[edge], EdgeOf(edge).bytes);
      }
    }
    return {};
  }
  static Error Missing(const char* what) {
    return Error(ErrorCode::kInternal, std::string("a ") + what + " is missing");
  }
  // The integer, repeated and cut to the message's size, so that any size can be tested.
  static std::vector<std::byte> Store(std::uint64_t value, std::uint64_t bytes) {
    std::vector<std::byte> stored(bytes);
    for (std::size_t at = 0; at < bytes; ++at) {
      stored[at] = static_cast<std::byte>(value >> (8 * (at % 8)));
    }
    return stored;
  }
  static std::uint64_t Load(const std::vector<std::byte>& bytes) {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes.data(), std::min<std::size_t>(bytes.size(), 8));
    return value;
  }

  IntegerModel model_;
  const StepPlan& plan_;
  std::uint32_t rank_;
  std::uint32_t begin_ = 0;
  std::uint32_t end_ = 0;
  bool last_ = false;
  bool reduces_ = false;
  std::uint64_t evaluated_ = 0;
  std::size_t updates_ = 0;
  std::map<std::uint32_t, Work> work_;
  std::vector<double> sums_;
  std::map<std::uint32_t, std::array<double, 1>> own_;
  std::map<std::uint32_t, std::vector<double>> all_;
};

}  // namespace forebay::train

#include "trainer/exec/share_measure.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace forebay::train {
namespace {

// Numbers and names as words of 64 bits; either written or read back, so that both sides have one
// order.
class Words {
 public:
  Words() = default;
  explicit Words(std::vector<std::uint64_t> words) : words_(std::move(words)), reads_(true) {}

  template <typename Number>
  void Pass(Number& number) {
    if (!reads_) {
      words_.push_back(static_cast<std::uint64_t>(number));
    } else if (at_ < words_.size()) {
      number = static_cast<Number>(words_[at_++]);
    } else {
      short_ = true;
    }
  }

  // The length of something whose elements take a word at least.
  template <typename Sequence>
  void PassSize(Sequence& sequence) {
    std::uint64_t size = sequence.size();
    Pass(size);
    if (!reads_ || short_) return;
    short_ = size > words_.size() - at_;
    if (!short_) sequence.resize(size);
  }

  bool complete() const { return !short_ && at_ == words_.size(); }
  std::vector<std::uint64_t>& words() { return words_; }

 private:
  std::vector<std::uint64_t> words_;
  bool reads_ = false;
  std::size_t at_ = 0;
  bool short_ = false;
};

void PassModule(Words& words, ModuleProfile& module) {
  words.PassSize(module.name);
  for (char& letter : module.name) words.Pass(letter);
  for (std::uint64_t* const number :
       {&module.forward_ns, &module.backward_ns, &module.parameter_bytes, &module.saved_bytes,
        &module.output_bytes, &module.fixed_bytes, &module.forward_scratch_bytes,
        &module.backward_scratch_bytes, &module.statistics_bytes}) {
    words.Pass(*number);
  }
}
// A new figure of a module has to travel, too.
static_assert(sizeof(ModuleProfile) == sizeof(std::string) + 9 * sizeof(std::uint64_t));

void PassMeasure(Words& words, ModelMeasure& measure) {
  words.Pass(measure.saved_exactly);
  words.Pass(measure.graph.input_bytes);
  words.Pass(measure.graph.target_bytes);
  words.PassSize(measure.graph.modules);
  for (ModuleProfile& module : measure.graph.modules) PassModule(words, module);
  words.PassSize(measure.graph.skips);
  for (SkipEdge& skip : measure.graph.skips) {
    words.Pass(skip.from);
    words.Pass(skip.to);
  }
  words.PassSize(measure.outputs);
  for (PartOutput& output : measure.outputs) {
    words.PassSize(output.shape);
    for (std::int64_t& extent : output.shape) words.Pass(extent);
    words.Pass(output.type);
  }
  words.PassSize(measure.flops);
  for (double& flops : measure.flops) words.Pass(flops);  // counts: whole numbers
}

}  // namespace

Status ShareMeasure(ModelMeasure& measure, std::size_t parts, Communicator& communicator) {
  if (communicator.size() == 1) return {};
  const bool leads = communicator.rank() == 0;
  Words sent;
  if (leads) PassMeasure(sent, measure);
  std::array<std::uint64_t, 1> size = {sent.words().size()};
  FOREBAY_TRY(communicator.Broadcast(std::as_writable_bytes(std::span(size)), 0));
  sent.words().resize(size[0]);
  FOREBAY_TRY(communicator.Broadcast(std::as_writable_bytes(std::span(sent.words())), 0));
  if (leads) return {};
  Words received(std::move(sent.words()));
  measure = {};
  PassMeasure(received, measure);
  if (received.complete() && measure.graph.modules.size() == parts &&
      measure.outputs.size() == parts && measure.flops.size() == parts) {
    return {};
  }
  return Error(ErrorCode::kDataLoss,
               "rank 0's measurement of the model is not of this rank's model: do all ranks run "
               "the same program with the same configuration?");
}

}  // namespace forebay::train

// LibTorch calls an observer at the beginning and end of every operator. Products and convolutions
// are counted from the shapes of their inputs, two operations for a multiplication and an addition.
// Operators that are called inside of a counted one are skipped, or they would count twice.
#include "trainer/exec/measure/flop_count.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>

#include <string_view>

#include "proto/contract/check.h"

namespace forebay::train {
namespace {

struct Counter {
  bool counts = false;
  int depth = 0;  // of operators that are counted: what they are made of is not counted again
  double flops = 0;
};
thread_local Counter counter;

enum class Kind { kNone, kProduct, kConvolution, kConvolutionBackward };

Kind KindOf(std::string_view name) {
  // Everything else is additions over elements, which cost bandwidth and few operations.
  if (name == "aten::mm" || name == "aten::addmm" || name == "aten::bmm" ||
      name == "aten::baddbmm") {
    return Kind::kProduct;
  }
  if (name == "aten::convolution") return Kind::kConvolution;
  if (name == "aten::convolution_backward") return Kind::kConvolutionBackward;
  return Kind::kNone;
}

double Elements(const at::Tensor& tensor) { return static_cast<double>(tensor.numel()); }

// The last two tensors of a product are its factors: {..., m, k} and {..., k, n}.
double ProductFlops(c10::ArrayRef<const c10::IValue> inputs) {
  const std::size_t first = inputs.size() > 2 && inputs[2].isTensor() ? 1 : 0;
  const at::Tensor& left = inputs[first].toTensor();
  const at::Tensor& right = inputs[first + 1].toTensor();
  return 2 * Elements(left) * static_cast<double>(right.size(-1));
}

// For each element of the smaller side, which is the output or, transposed, the input: it meets the
// weights of one of its channels.
double FlopsPerElement(const at::Tensor& weight) {
  return 2 * Elements(weight) / static_cast<double>(weight.size(0));
}

// The gradients of input and weight each take what the forward pass took. Which of them are asked
// for is in the output mask.
double BackwardFlops(c10::ArrayRef<const c10::IValue> inputs) {
  constexpr std::size_t kTransposed = 7;
  constexpr std::size_t kOutputMask = 10;
  const at::Tensor& smaller = inputs[inputs[kTransposed].toBool() ? 1 : 0].toTensor();
  const double once = FlopsPerElement(inputs[2].toTensor()) * Elements(smaller);
  const c10::List<bool> wanted = inputs[kOutputMask].toBoolList();
  return once * ((wanted.get(0) ? 1 : 0) + (wanted.get(1) ? 1 : 0));
}

// Of a convolution whose output is not there yet. LibTorch 2 shows inputs at the beginning only.
struct Awaited final : at::ObserverContext {
  explicit Awaited(double flops) : flops_per_element(flops) {}
  double flops_per_element;
};

std::unique_ptr<at::ObserverContext> BeganConvolution(c10::ArrayRef<const c10::IValue> inputs) {
  constexpr std::size_t kTransposed = 6;
  const double per_element = FlopsPerElement(inputs[1].toTensor());
  if (!inputs[kTransposed].toBool()) return std::make_unique<Awaited>(per_element);
  counter.flops += per_element * Elements(inputs[0].toTensor());
  return nullptr;
}

// Called by LibTorch at the beginning of each operator on this thread.
std::unique_ptr<at::ObserverContext> Began(const at::RecordFunction& function) {
  if (!counter.counts) return nullptr;
  const Kind kind = KindOf(function.name());
  if (kind == Kind::kNone || counter.depth++ > 0) return nullptr;
  if (kind == Kind::kProduct) counter.flops += ProductFlops(function.inputs());
  if (kind == Kind::kConvolutionBackward) counter.flops += BackwardFlops(function.inputs());
  if (kind == Kind::kConvolution) return BeganConvolution(function.inputs());
  return nullptr;
}

void Ended(const at::RecordFunction& function, at::ObserverContext* context) {
  if (!counter.counts) return;
  const Kind kind = KindOf(function.name());
  // Began has counted the same kinds up, so the depth comes back to 0.
  if (kind == Kind::kNone || --counter.depth > 0 || context == nullptr) return;
  const auto& awaited = static_cast<const Awaited&>(*context);
  counter.flops += awaited.flops_per_element * Elements(function.outputs()[0].toTensor());
}

}  // namespace

FlopCount::FlopCount() {
  FOREBAY_CHECK(!counter.counts);
  counter = {.counts = true};
  handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&Began, &Ended)
                                           .needsInputs(true)
                                           .needsOutputs(true)
                                           .scopes({at::RecordScope::FUNCTION}));
}

FlopCount::~FlopCount() {
  at::removeCallback(handle_);
  counter.counts = false;
}

double FlopCount::flops() const { return counter.flops; }

}  // namespace forebay::train

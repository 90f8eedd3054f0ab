#include "trainer/exec/flop_count.h"

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

// Of a forward pass. Every element of the smaller side, the output or, transposed, the input,
// meets the weights of one of its channels.
double ConvolutionFlops(const at::Tensor& input, const at::Tensor& output,
                        const at::Tensor& weight, bool transposed) {
  const double weights = Elements(weight) / static_cast<double>(weight.size(0));
  return 2 * Elements(transposed ? input : output) * weights;
}

double BackwardFlops(c10::ArrayRef<const c10::IValue> inputs) {
  constexpr std::size_t kTransposed = 7;
  constexpr std::size_t kOutputMask = 10;
  const double once = ConvolutionFlops(inputs[1].toTensor(), inputs[0].toTensor(),
                                       inputs[2].toTensor(), inputs[kTransposed].toBool());
  const c10::List<bool> wanted = inputs[kOutputMask].toBoolList();
  return once * ((wanted.get(0) ? 1 : 0) + (wanted.get(1) ? 1 : 0));
}

std::unique_ptr<at::ObserverContext> Began(const at::RecordFunction& function) {
  if (!counter.counts) return nullptr;
  const Kind kind = KindOf(function.name());
  if (kind == Kind::kNone || counter.depth++ > 0) return nullptr;
  if (kind == Kind::kProduct) counter.flops += ProductFlops(function.inputs());
  if (kind == Kind::kConvolutionBackward) counter.flops += BackwardFlops(function.inputs());
  return nullptr;
}

void Ended(const at::RecordFunction& function, at::ObserverContext*) {
  if (!counter.counts) return;
  const Kind kind = KindOf(function.name());
  if (kind == Kind::kNone || --counter.depth > 0 || kind != Kind::kConvolution) return;
  constexpr std::size_t kTransposed = 6;
  const auto inputs = function.inputs();
  counter.flops += ConvolutionFlops(inputs[0].toTensor(), function.outputs()[0].toTensor(),
                                    inputs[1].toTensor(), inputs[kTransposed].toBool());
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

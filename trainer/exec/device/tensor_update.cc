// Sums of gradients and updates by LibTorch, with the bits of their counterparts for plain floats
// in numerics/. The formulas are the same text: here it is instantiated with a type whose
// operators are single operations of LibTorch.
#include "trainer/exec/device/tensor_update.h"

#include <ATen/core/grad_mode.h>

#include <array>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "proto/contract/check.h"
#include "trainer/numerics/optimiser_formulas.h"

namespace forebay::train {
namespace {

using Tensors = std::vector<torch::Tensor>;

// The type of the numbers in a formula: the flat tensors of all runs of parameters. Each operator
// is one operation of LibTorch on all of them, which on a GPU are a few kernels and not one for
// each run. None is fused with another, so that a sum of two products is a sum of two rounded
// products. Factors are floats, as in numerics/. An operator writes its result into an operand that
// is an intermediate result, because nobody else holds that, and makes new tensors otherwise:
// operators take operands by value, and the copy that is made of a variable is no intermediate
// result. The operators of assignment write into the tensors that the variable was made with:
// weights and states change where they lie.
class Floats {
 public:
  explicit Floats(Tensors tensors) : Floats(std::move(tensors), false) {}
  Floats(const Floats& other) : Floats(other.tensors_, false) {}
  Floats(Floats&& other) = default;
  Floats& operator=(const Floats&) = delete;
  ~Floats() = default;

  Floats& operator*=(float factor) {
    at::_foreach_mul_(tensors_, factor);
    return *this;
  }
  Floats& operator+=(const Floats& other) {
    if (!other.IsZero()) at::_foreach_add_(tensors_, other.tensors_);
    return *this;
  }
  Floats& operator-=(const Floats& other) {
    if (!other.IsZero()) at::_foreach_sub_(tensors_, other.tensors_);
    return *this;
  }

  friend Floats operator*(Floats one, float factor) {
    // Multiplying by one changes nothing, and a gradient that is not clipped is scaled by one. What
    // is multiplied by zero, as weights without decay are, need not be added.
    if (factor == 1.0F) return one;
    if (factor == 0.0F || one.IsZero()) return Made({});
    if (!one.is_intermediate_) return Made(at::_foreach_mul(one.tensors_, factor));
    one *= factor;
    return one;
  }
  friend Floats operator+(Floats one, float addend) {
    if (!one.is_intermediate_) return Made(at::_foreach_add(one.tensors_, addend));
    at::_foreach_add_(one.tensors_, addend);
    return one;
  }
  friend Floats operator+(Floats one, Floats other) {
    if (one.IsZero()) return other;
    if (other.IsZero()) return one;
    if (one.is_intermediate_) return std::move(one += other);
    if (other.is_intermediate_) return std::move(other += one);
    return Made(at::_foreach_add(one.tensors_, other.tensors_));
  }
  friend Floats operator*(Floats one, const Floats& other) {
    if (one.IsZero() || other.IsZero()) return Made({});
    if (!one.is_intermediate_) return Made(at::_foreach_mul(one.tensors_, other.tensors_));
    at::_foreach_mul_(one.tensors_, other.tensors_);
    return one;
  }
  friend Floats operator/(Floats one, const Floats& other) {
    if (one.IsZero()) return one;
    if (!one.is_intermediate_) return Made(at::_foreach_div(one.tensors_, other.tensors_));
    at::_foreach_div_(one.tensors_, other.tensors_);
    return one;
  }
  // The square root, rounded as IEEE 754 says. The one of MKL, which LibTorch may take on a
  // processor, is not; there the root of doubles is taken and rounded.
  friend Floats Root(const Floats& one) {
    if (!one.tensors_.front().is_cpu()) return Made(at::_foreach_sqrt(one.tensors_));
    Tensors roots;
    for (const torch::Tensor& tensor : one.tensors_) {
      roots.push_back(tensor.to(torch::kFloat64).sqrt_().to(torch::kFloat32));
    }
    return Made(std::move(roots));
  }

 private:
  Floats(Tensors tensors, bool is_intermediate)
      : tensors_(std::move(tensors)), is_intermediate_(is_intermediate) {}
  static Floats Made(Tensors tensors) { return {std::move(tensors), true}; }
  // Zeros that were never made.
  bool IsZero() const { return tensors_.empty(); }

  Tensors tensors_;
  bool is_intermediate_;
};

// The variables refer to the memory of weights and states, which the formula's assignments change.
template <typename Formula, std::size_t... State>
void UpdateBy(const OptimiserOptions& options, const UpdateStep& step,
              const TensorsToUpdate& tensors, std::index_sequence<State...>) {
  Floats weight(tensors.weights);
  std::array<Floats, sizeof...(State)> own = {Floats(tensors.states[State])...};
  Formula::Update(Formula::FactorsOf(options, step), weight, Floats(tensors.gradients),
                  own[State]...);
}

// Finds the formula that has the optimiser's name, and applies it.
template <typename... Formula>
void UpdateByName(const std::tuple<Formula...>*, const OptimiserOptions& options,
                  const UpdateStep& step, const TensorsToUpdate& tensors) {
  const auto try_formula = [&]<typename One>(const One*) {
    if (One::kName != options.optimiser->name) return false;
    UpdateBy<One>(options, step, tensors, std::make_index_sequence<One::kStates.size()>());
    return true;
  };
  FOREBAY_CHECK((try_formula(static_cast<const Formula*>(nullptr)) || ...));
}

// The place of a parameter in a flat tensor, with the parameter's shape.
torch::Tensor PieceOf(const torch::Tensor& flat, std::size_t offset, const torch::Tensor& like) {
  return flat.narrow(0, static_cast<std::int64_t>(offset), like.numel()).view(like.sizes());
}

}  // namespace

torch::Tensor TensorMemory::Make(std::size_t floats) const {
  return torch::empty({static_cast<std::int64_t>(floats)}, device_);
}

void TensorMemory::Clear(torch::Tensor& buffer) const { buffer.zero_(); }

void TensorMemory::Put(const torch::Tensor& piece, std::size_t offset,
                       torch::Tensor& buffer) const {
  const torch::NoGradGuard no_grad;
  PieceOf(buffer, offset, piece).copy_(piece);
}

void TensorMemory::AddThrough(const torch::Tensor& piece, std::size_t offset,
                              std::span<torch::Tensor* const> nodes) const {
  const torch::NoGradGuard no_grad;
  torch::Tensor addend = piece;
  for (torch::Tensor* const node : nodes) addend = PieceOf(*node, offset, piece).add_(addend);
}

void TensorMemory::AddWhole(const torch::Tensor& addend, torch::Tensor& sum) const {
  sum.add_(addend);
}

void UpdateTensors(const OptimiserOptions& options, const UpdateStep& step,
                   const TensorsToUpdate& tensors) {
  if (tensors.weights.empty()) return;
  FOREBAY_CHECK(tensors.states.size() == options.optimiser->states.size());
  const torch::NoGradGuard no_grad;
  UpdateByName(static_cast<const OptimiserFormulas*>(nullptr), options, step, tensors);
}

// The conversion copies: how kernels sum may depend on where memory begins.
double SquaredNorm(const torch::Tensor& values) {
  return values.to(torch::kFloat64).square().sum().item<double>();
}

// The largest magnitude tells: it is not a number where one of the values is none. It reads the
// values once and writes nothing.
bool IsFinite(const torch::Tensor& values) {
  if (values.numel() == 0) return true;
  constexpr double kLargest = std::numeric_limits<double>::infinity();
  return std::isfinite(at::linalg_vector_norm(values, kLargest).item<float>());
}

}  // namespace forebay::train

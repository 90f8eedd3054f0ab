// Sums of gradients and updates by LibTorch, with the bits of their counterparts for plain floats
// in numerics/. The formulas are the same text: here it is instantiated with a type whose
// operators are single operations of LibTorch.
#include "trainer/exec/device/tensor_update.h"

#include <ATen/core/grad_mode.h>

#include <array>
#include <tuple>
#include <utility>

#include "proto/contract/check.h"
#include "trainer/numerics/optimiser_formulas.h"

namespace forebay::train {
namespace {

// The type of the numbers in a formula: a flat tensor. Each operator is one operation of LibTorch,
// none of them fused, so that a sum of two products is a sum of two rounded products. Factors are
// floats, as in numerics/. An operator writes its result into an operand that is an intermediate
// result, because nobody else holds that, and makes a new tensor otherwise: operators take operands
// by value, and the copy that is made of a variable is no intermediate result. An assignment writes
// into the tensor that the variable was made with: weights and states change where they lie.
class Floats {
 public:
  explicit Floats(torch::Tensor tensor) : Floats(std::move(tensor), false) {}
  Floats(const Floats& other) : Floats(other.tensor_, false) {}
  Floats(Floats&& other) = default;
  Floats& operator=(const Floats& other) {
    if (this != &other) tensor_.copy_(other.tensor_);
    return *this;
  }
  ~Floats() = default;

  friend Floats operator*(Floats one, float factor) {
    // Multiplying by one changes nothing, and a gradient that is not clipped is scaled by one.
    if (factor == 1.0F) return one;
    return Made(one.is_intermediate_ ? one.tensor_.mul_(factor) : one.tensor_.mul(factor));
  }
  friend Floats operator+(Floats one, float addend) {
    return Made(one.is_intermediate_ ? one.tensor_.add_(addend) : one.tensor_.add(addend));
  }
  friend Floats operator+(Floats one, Floats other) {
    if (other.is_intermediate_) return Made(other.tensor_.add_(one.tensor_));
    return Made(one.is_intermediate_ ? one.tensor_.add_(other.tensor_)
                                  : one.tensor_.add(other.tensor_));
  }
  friend Floats operator-(Floats one, const Floats& other) {
    return Made(one.is_intermediate_ ? one.tensor_.sub_(other.tensor_)
                                  : one.tensor_.sub(other.tensor_));
  }
  friend Floats operator*(Floats one, const Floats& other) {
    return Made(one.is_intermediate_ ? one.tensor_.mul_(other.tensor_)
                                  : one.tensor_.mul(other.tensor_));
  }
  friend Floats operator/(Floats one, const Floats& other) {
    return Made(one.is_intermediate_ ? one.tensor_.div_(other.tensor_)
                                  : one.tensor_.div(other.tensor_));
  }
  // The square root, rounded as IEEE 754 says. The one of MKL, which LibTorch may take on a
  // processor, is not; there the root of doubles is taken and rounded.
  friend Floats Root(const Floats& one) {
    if (!one.tensor_.is_cpu()) return Made(one.tensor_.sqrt());
    return Made(one.tensor_.to(torch::kFloat64).sqrt_().to(torch::kFloat32));
  }

 private:
  Floats(torch::Tensor tensor, bool is_intermediate)
      : tensor_(std::move(tensor)), is_intermediate_(is_intermediate) {}
  static Floats Made(torch::Tensor tensor) { return {std::move(tensor), true}; }

  torch::Tensor tensor_;
  bool is_intermediate_;
};

// The variables refer to the memory of weights and states, which the formula's assignments change.
template <typename Formula, std::size_t... State>
void UpdateBy(const OptimiserOptions& options, const UpdateStep& step,
              const torch::Tensor& weights, const torch::Tensor& gradient,
              const std::vector<torch::Tensor>& states, std::index_sequence<State...>) {
  Floats weight(weights);
  std::array<Floats, sizeof...(State)> own = {Floats(states[State])...};
  Formula::Update(Formula::FactorsOf(options, step), weight, Floats(gradient), own[State]...);
}

// Finds the formula that has the optimiser's name, and applies it.
template <typename... Formula>
void UpdateByName(const std::tuple<Formula...>*, const OptimiserOptions& options,
                  const UpdateStep& step, const torch::Tensor& weights,
                  const torch::Tensor& gradient, const std::vector<torch::Tensor>& states) {
  const auto try_formula = [&]<typename One>(const One*) {
    if (One::kName != options.optimiser->name) return false;
    UpdateBy<One>(options, step, weights, gradient, states,
                  std::make_index_sequence<One::kStates.size()>());
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
                   const torch::Tensor& weights, const torch::Tensor& gradient,
                   const std::vector<torch::Tensor>& states) {
  FOREBAY_CHECK(states.size() == options.optimiser->states.size());
  const torch::NoGradGuard no_grad;
  UpdateByName(static_cast<const OptimiserFormulas*>(nullptr), options, step, weights, gradient,
               states);
}

// The conversion copies: how kernels sum may depend on where memory begins.
double SquaredNorm(const torch::Tensor& values) {
  return values.to(torch::kFloat64).square().sum().item<double>();
}

}  // namespace forebay::train

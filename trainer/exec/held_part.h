// HeldPart: a part of the model on this rank, with its weights and the optimiser's state. What
// moves when the layout changes, what a checkpoint holds and what the digest covers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/exec/model.h"
#include "trainer/numerics/gradient_sum.h"
#include "trainer/numerics/optimiser.h"

namespace forebay::train {

struct HeldParameter {
  std::string name;        // "part.layer.weight"
  std::size_t offset = 0;  // floats, within the part
  std::size_t count = 0;
  bool decays = true;      // weight decay: not for biases and normalisation (one dimension)
  std::vector<std::uint64_t> shape = {};
};

// One tensor of a part, as checkpoints name it.
struct HeldTensor {
  enum class Kind : std::uint8_t { kWeight, kBuffer, kState };
  Kind kind = Kind::kWeight;
  std::string name;  // "part.layer.weight"; of a state "part.layer.weight/momentum"
  std::vector<std::uint64_t> shape;
  std::span<float> values;
};

// What an optimiser's states are called in checkpoints, OptimiserStates(kind) of them.
std::vector<std::string> StateNames(OptimiserKind kind);

// Not thread-safe. Weights are single precision and lie in one piece.
class HeldPart {
 public:
  // Makes the part with first weights from `seed` and its name; optimiser state is zero.
  // kFailedPrecondition where a parameter or buffer is not of single precision.
  static Result<std::unique_ptr<HeldPart>> Make(const ModelPart& spec, std::uint64_t seed,
                                                OptimiserKind optimiser);

  const std::string& name() const { return name_; }
  const std::shared_ptr<Part>& part() const { return part_; }
  const std::vector<HeldParameter>& parameters() const { return parameters_; }
  std::size_t floats() const { return weights_.size(); }
  std::span<float> weights() { return weights_; }
  std::span<float> state(std::size_t which) { return states_.at(which); }
  std::size_t states() const { return states_.size(); }

  // Hands the gradients of the last backward pass to `sum`, where the part's begin at float
  // `offset`, and forgets them.
  void GiveGradients(GradientSum& sum, std::size_t offset);

  // One update, parameter by parameter.
  void Update(const OptimiserOptions& options, const UpdateStep& step,
              std::span<const float> gradient);

  // All that another rank needs to hold this part: weights, states, buffers, in this order.
  std::vector<float> Pack() const;
  // The reverse. kDataLoss where the size differs.
  Status Unpack(std::span<const float> packed);

  // All that Pack has, by name; the spans are the part's own memory.
  std::vector<HeldTensor> Tensors();

  // XXH3 of name, weights and buffers.
  std::uint64_t Digest() const;

 private:
  HeldPart() = default;
  std::vector<std::span<float>> Buffers() const;

  std::string name_;
  std::shared_ptr<Part> part_;
  std::vector<HeldParameter> parameters_;
  std::vector<torch::Tensor> tensors_;   // the parameters: views of weights_
  std::vector<torch::Tensor> buffers_;
  std::vector<std::string> buffer_names_;
  std::vector<std::string> state_names_;
  std::vector<float> weights_;
  std::vector<std::vector<float>> states_;
};

}  // namespace forebay::train

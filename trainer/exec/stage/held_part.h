// HeldPart: a part of the model on this rank, with its weights and the optimiser's state. It is
// what moves when the layout changes, what a checkpoint stores and what the digest covers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/exec/device/tensor_update.h"
#include "trainer/exec/model.h"
#include "trainer/numerics/gradient_sum.h"
#include "trainer/numerics/optimiser.h"

namespace forebay::train {

struct HeldParameter {
  std::string name;        // "part.layer.weight"
  std::size_t offset = 0;  // floats, within the part
  std::size_t count = 0;
  bool decays = true;      // weight decay: not for biases and normalisation (one dimension)
  bool trains = true;      // false: frozen, as its part registered it; it stays as it is
  std::vector<std::uint64_t> shape = {};
};

// One tensor of a part, under the name that it has in checkpoints.
struct HeldTensor {
  enum class Kind : std::uint8_t { kWeight, kBuffer, kState };
  Kind kind = Kind::kWeight;
  std::string name;  // "part.layer.weight"; of a state "part.layer.weight/momentum"
  std::vector<std::uint64_t> shape;
  std::span<float> values;
};

// Not thread-safe. Weights are single precision and lie in one piece, as each state of the
// optimiser does: in plain memory of the processor, or in that of a GPU.
class HeldPart {
 public:
  // Makes the part with first weights that depend on `seed` and its name. Optimiser state is zero.
  // kFailedPrecondition if a parameter or buffer does not have single precision.
  static Result<std::unique_ptr<HeldPart>> Make(const ModelPart& spec, std::uint64_t seed,
                                                const Optimiser& optimiser,
                                                const torch::Device& device = torch::kCPU);

  const std::string& name() const { return name_; }
  const std::shared_ptr<Part>& part() const { return part_; }
  const std::vector<HeldParameter>& parameters() const { return parameters_; }
  std::size_t floats() const { return floats_; }

  // Adds the gradients of the last backward pass to `sum`, where the part's gradients begin at
  // float `offset`, and forgets them. The plain floats are for a processor only.
  void GiveGradients(GradientSum& sum, std::size_t offset);
  void GiveGradients(TensorGradientSum& sum, std::size_t offset);

  // One update of what is trained, from a gradient of floats().
  void Update(const OptimiserOptions& options, const UpdateStep& step,
              std::span<const float> gradient);
  // Adds what is trained to the tensors that UpdateTensors updates: those that decay, and those
  // that do not. The gradient, of floats(), lies where the part is.
  void AddTrained(const torch::Tensor& gradient, TensorsToUpdate& decaying,
                  TensorsToUpdate& constant) const;

  // Everything that another rank needs to hold this part: weights, states, buffers, in this order.
  std::vector<float> Pack() const;
  // The reverse of Pack. kDataLoss if the size differs.
  Status Unpack(std::span<const float> packed);

  // The same data by name. On a processor the spans are the part's own memory. On a GPU they are a
  // copy that is valid until the next call, and Publish makes what is written into it the part's.
  std::vector<HeldTensor> Tensors();
  void Publish();

  // XXH3 of name, weights and buffers.
  std::uint64_t Digest() const;

 private:
  // Consecutive parameters that are trained and decay alike.
  struct Run {
    std::size_t offset = 0;
    std::size_t count = 0;
    bool decays = true;
  };

  HeldPart() = default;
  void AddToRuns(const HeldParameter& parameter);
  torch::Tensor Room(const torch::Device& device);
  // Weights, states, buffers where the host can read them: copies, of a GPU.
  std::vector<torch::Tensor> OnHost() const;
  void Take(const std::vector<torch::Tensor>& host);

  std::string name_;
  std::shared_ptr<Part> part_;
  std::vector<HeldParameter> parameters_;
  std::vector<Run> runs_;
  std::size_t floats_ = 0;
  std::vector<torch::Tensor> tensors_;  // the parameters: views of the weights
  std::vector<torch::Tensor> buffers_;
  std::vector<std::string> buffer_names_;
  std::vector<std::string> state_names_;
  std::vector<std::vector<float>> rooms_;  // of a processor: what memory_ lies in
  std::vector<torch::Tensor> memory_;      // weights, states: flat
  std::vector<torch::Tensor> host_;        // as Tensors gave them
};

}  // namespace forebay::train

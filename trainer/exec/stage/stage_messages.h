// StageMessages: the tensors that a pipeline stage exchanges with other stages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include <torch/types.h>

#include "trainer/exec/measure/measure_model.h"
#include "trainer/schedule/step_plan.h"

namespace forebay::train {

// sum = gradient + sum, or the gradient where there is no sum yet. Users of a tensor are added from
// the last to the first, so that each comes in front of the sum of the later ones.
void AddGradient(torch::Tensor& sum, const torch::Tensor& gradient);

// Forward, outputs of parts travel to later stages; backward, gradients of these outputs travel
// back. Both go along the edges of the plan. Messages are sent from and received into memory of the
// host, also where the stage computes on a GPU. Not thread-safe. Exceptions of LibTorch pass
// through.
class StageMessages {
 public:
  // `edges` of the plan and `outputs` of all parts of the model are borrowed.
  StageMessages(const std::vector<StageEdge>& edges, const std::vector<PartOutput>& outputs,
                const torch::Device& device)
      : edges_(edges), outputs_(outputs), device_(device) {}

  // Forgets the messages of the step before. `samples`, by micro-batch, are borrowed until the next
  // call.
  void BeginStep(const std::vector<std::uint32_t>& samples);

  // Uninitialised memory of the host for what a part hands on, of this micro-batch's size.
  torch::Tensor RoomFor(std::uint32_t micro_batch, std::uint32_t part) const;

  // Memory for a message that arrives: kReceived or kArrivedGradient.
  std::span<std::byte> Incoming(const Buffer& buffer);
  // The output of a part of an earlier stage, which has arrived, where this stage computes.
  torch::Tensor ReceivedValue(std::uint32_t micro_batch, std::uint32_t part);
  // The gradients that have arrived, each with the part whose output it is of, in the order in
  // which AddGradient wants them.
  std::vector<std::pair<std::uint32_t, torch::Tensor>> ArrivedGradients(
      std::uint32_t micro_batch);

  // Adds the gradient of the output of `source`, a part of an earlier stage, as `user` of this
  // stage has it.
  void AddLeavingGradient(std::uint32_t micro_batch, std::uint32_t source, std::uint32_t user,
                          const torch::Tensor& gradient);
  // All users have added theirs: the sums are made ready to be sent.
  void CompleteLeavingGradients(std::uint32_t micro_batch);

  // The bytes of a message that leaves. They stay where they are until the buffer is released;
  // those of a value on a processor are the tensor's own.
  std::span<const std::byte> OutgoingValue(const Buffer& buffer, const torch::Tensor& value);
  std::span<const std::byte> OutgoingGradient(const Buffer& buffer);

  // Frees a message's memory; nothing for buffers that are no message's.
  void Release(const Buffer& buffer);

 private:
  // Of one micro-batch, by edge, but for what is sent of values: by part, because one value may
  // leave along several edges.
  struct Mail {
    std::map<std::uint32_t, torch::Tensor> received;
    std::map<std::uint32_t, torch::Tensor> arrived;  // gradients
    std::map<std::uint32_t, torch::Tensor> leaving;  // gradients
    // Copies in the host's memory of what is on a GPU.
    std::map<std::uint32_t, torch::Tensor> sent_values;
    std::map<std::uint32_t, torch::Tensor> sent_gradients;
  };

  const std::vector<StageEdge>& edges_;
  const std::vector<PartOutput>& outputs_;
  const torch::Device device_;
  const std::vector<std::uint32_t>* samples_ = nullptr;
  std::map<std::uint32_t, Mail> mail_;  // by micro-batch
};

}  // namespace forebay::train

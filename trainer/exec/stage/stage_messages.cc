// A message is the whole tensor, in the host's memory and contiguous. Its size follows from the
// shape that the measurement found for the part's output and from the samples of the micro-batch,
// so that neither side has to send a shape.
#include "trainer/exec/stage/stage_messages.h"

#include <algorithm>
#include <functional>

#include "proto/contract/check.h"
#include "trainer/exec/device/device.h"

namespace forebay::train {
namespace {

// The tensor must be contiguous, as all outputs and gradients are here.
std::span<const std::byte> RawBytes(const torch::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.data_ptr()),
          static_cast<std::size_t>(tensor.nbytes())};
}

// `tensor` itself on a processor; else its copy in the host's memory, which is made once.
std::span<const std::byte> BytesOnHost(const torch::Tensor& tensor, torch::Tensor& copy) {
  if (tensor.is_cpu()) return RawBytes(tensor);
  if (!copy.defined()) copy = tensor.cpu();
  return RawBytes(copy);
}

}  // namespace

// Not in place: the first gradient may be a tensor that a graph or a message still holds.
void AddGradient(torch::Tensor& sum, const torch::Tensor& gradient) {
  sum = sum.defined() ? gradient + sum : gradient;
}

void StageMessages::BeginStep(const std::vector<std::uint32_t>& samples) {
  // Sizes of messages follow from them.
  samples_ = &samples;
  mail_.clear();
}

// Pinned if it goes on to a GPU.
torch::Tensor StageMessages::RoomFor(std::uint32_t micro_batch, std::uint32_t part) const {
  const PartOutput& output = outputs_[part];
  std::vector<std::int64_t> shape = {(*samples_)[micro_batch]};
  shape.insert(shape.end(), output.shape.begin(), output.shape.end());
  return HostRoom(shape, output.type, device_);
}

std::span<std::byte> StageMessages::Incoming(const Buffer& buffer) {
  Mail& mail = mail_[buffer.micro_batch];
  torch::Tensor& tensor = buffer.kind == BufferKind::kReceived ? mail.received[buffer.edge]
                                                               : mail.arrived[buffer.edge];
  tensor = RoomFor(buffer.micro_batch, edges_[buffer.edge].from_module);
  return {static_cast<std::byte*>(tensor.data_ptr()), static_cast<std::size_t>(tensor.nbytes())};
}

torch::Tensor StageMessages::ReceivedValue(std::uint32_t micro_batch, std::uint32_t part) {
  for (auto& [edge, tensor] : mail_[micro_batch].received) {
    if (edges_[edge].from_module != part) continue;
    // Copied to a GPU once, by the first of its users.
    tensor = OnDevice(tensor, device_);
    return tensor;
  }
  FOREBAY_CHECK(false);  // a checked plan has received what it needs
  return {};
}

std::vector<std::pair<std::uint32_t, torch::Tensor>> StageMessages::ArrivedGradients(
    std::uint32_t micro_batch) {
  Mail& mail = mail_[micro_batch];
  std::vector<std::uint32_t> edges;
  for (const auto& [edge, tensor] : mail.arrived) edges.push_back(edge);
  // Last user first: the stage that is cut at another place sums in the same order.
  std::ranges::sort(edges, std::greater(),
                    [&](std::uint32_t edge) { return edges_[edge].to_modules.back(); });
  std::vector<std::pair<std::uint32_t, torch::Tensor>> gradients;
  for (const std::uint32_t edge : edges) {
    gradients.emplace_back(edges_[edge].from_module, OnDevice(mail.arrived[edge], device_));
  }
  return gradients;
}

void StageMessages::AddLeavingGradient(std::uint32_t micro_batch, std::uint32_t source,
                                       std::uint32_t user, const torch::Tensor& gradient) {
  Mail& mail = mail_[micro_batch];
  // The edge along which the value arrived is the one along which its gradient leaves.
  for (const auto& [edge, tensor] : mail.received) {
    const StageEdge& crossed = edges_[edge];
    if (crossed.from_module == source &&
        std::ranges::find(crossed.to_modules, user) != crossed.to_modules.end()) {
      AddGradient(mail.leaving[edge], gradient);
    }
  }
}

// No user of the stage will add to them any more. A message is sent from one piece of memory.
void StageMessages::CompleteLeavingGradients(std::uint32_t micro_batch) {
  for (auto& [edge, tensor] : mail_[micro_batch].leaving) tensor = tensor.contiguous();
}

// An output that goes to several stages is copied from a GPU once.
std::span<const std::byte> StageMessages::OutgoingValue(const Buffer& buffer,
                                                        const torch::Tensor& value) {
  return BytesOnHost(value,
                     mail_[buffer.micro_batch].sent_values[edges_[buffer.edge].from_module]);
}

std::span<const std::byte> StageMessages::OutgoingGradient(const Buffer& buffer) {
  Mail& mail = mail_[buffer.micro_batch];
  return BytesOnHost(mail.leaving.at(buffer.edge), mail.sent_gradients[buffer.edge]);
}

void StageMessages::Release(const Buffer& buffer) {
  const auto found = mail_.find(buffer.micro_batch);
  if (found == mail_.end()) return;
  Mail& mail = found->second;
  switch (buffer.kind) {
    case BufferKind::kReceived: mail.received.erase(buffer.edge); break;
    case BufferKind::kOutput: mail.sent_values.erase(edges_[buffer.edge].from_module); break;
    case BufferKind::kArrivedGradient: mail.arrived.erase(buffer.edge); break;
    case BufferKind::kLeavingGradient:
      mail.leaving.erase(buffer.edge);
      mail.sent_gradients.erase(buffer.edge);
      break;
    case BufferKind::kInput:
    case BufferKind::kTarget:
    case BufferKind::kSaved:
    case BufferKind::kValue:
    case BufferKind::kReduced: break;  // of StageCompute, or of the collective
  }
}

}  // namespace forebay::train

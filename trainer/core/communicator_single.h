// The communicator of a run with one process: every collective is the identity.
#pragma once

#include "trainer/core/communicator.h"

namespace forebay::train {

class SingleCommunicator final : public Communicator {
 public:
  std::uint32_t rank() const override { return 0; }
  std::uint32_t size() const override { return 1; }
  std::uint32_t local_size() const override { return 1; }
  Status AllReduceSum(std::span<float>) override { return {}; }
  Status AllReduceSum(std::span<double>) override { return {}; }
  Status Broadcast(std::span<std::byte>, std::uint32_t root) override {
    if (root != 0) return Error(ErrorCode::kInvalidArgument, "broadcast from a rank not there");
    return {};
  }
  Status Barrier() override { return {}; }
  void Abort(int) override {}
};

}  // namespace forebay::train

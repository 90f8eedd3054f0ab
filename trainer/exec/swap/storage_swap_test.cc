// Saved tensors are recorded, leave memory and come back with their bytes; what somebody else
// holds stays. The tensors are those of small graphs.
#include "trainer/exec/swap/storage_swap.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <exception>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace forebay::train {
namespace {

constexpr std::int64_t kElements = 40'000;  // 160 KB
const SwapKey kGraph{BufferKind::kSaved, 0, 0};

std::vector<const torch::Tensor*> PointersTo(const SavedTensors& saved) {
  std::vector<const torch::Tensor*> tensors;
  for (const auto& entry : saved) tensors.push_back(&entry->tensor);
  return tensors;
}

// exp saves its output, sin its input: the same tensor, once; the product saves both factors.
struct Recorded {
  torch::Tensor input;
  torch::Tensor root;
  SavedTensors saved;

  explicit Recorded(double scale = 1.0) {
    input = (torch::linspace(-1, 1, kElements) * scale).requires_grad_();
    const SavedTensorRecording recording(saved);
    const torch::Tensor inner = torch::exp(input);
    root = (torch::sin(inner) * torch::cos(inner)).sum();
  }
  torch::Tensor Gradient() {
    torch::autograd::backward({root}, {});
    return input.grad();
  }
};

class StorageSwapTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { ASSERT_TRUE(InstallSavedTensorHooks().has_value()); }
};

TEST_F(StorageSwapTest, RecordsWhatAutogradSaves) {
  Recorded recorded;
  // exp, sin and cos of the input, and nothing of the input itself, are three storages.
  EXPECT_EQ(SavedBytes(recorded.saved, {}), 3U * kElements * sizeof(float));
  const std::vector<torch::Tensor> others = {recorded.saved[0]->tensor};
  EXPECT_EQ(SavedBytes(recorded.saved, others), 2U * kElements * sizeof(float));
}

TEST_F(StorageSwapTest, NothingIsRecordedOutsideOfARecording) {
  SavedTensors saved;
  { const SavedTensorRecording recording(saved); }
  const torch::Tensor input = torch::ones({4}).requires_grad_();
  torch::autograd::backward({torch::exp(input).sum()}, {});
  EXPECT_TRUE(saved.empty());
}

TEST_F(StorageSwapTest, MemoryGoesAndComesBack) {
  const torch::Tensor expected = Recorded().Gradient();
  Recorded recorded;
  StorageSwap swap({});
  ASSERT_TRUE(swap.Out(kGraph, PointersTo(recorded.saved)).has_value());
  swap.EndOut(kGraph);
  EXPECT_EQ(swap.figures().out_bytes, 3U * kElements * sizeof(float));
  for (const auto& entry : recorded.saved) EXPECT_EQ(entry->tensor.data_ptr(), nullptr);
  swap.In(kGraph);
  swap.AwaitBack(kGraph);
  EXPECT_EQ(swap.figures().in_bytes, swap.figures().out_bytes);
  EXPECT_TRUE(torch::equal(recorded.Gradient(), expected));
}

TEST_F(StorageSwapTest, WhatHasNotGoneNeedNotComeBack) {
  const torch::Tensor expected = Recorded().Gradient();
  Recorded recorded;
  StorageSwap swap({});
  ASSERT_TRUE(swap.Out(kGraph, PointersTo(recorded.saved)).has_value());
  swap.In(kGraph);
  swap.AwaitBack(kGraph);
  EXPECT_EQ(swap.figures().in_bytes, 0U);
  EXPECT_TRUE(torch::equal(recorded.Gradient(), expected));
}

// Addresses of freed storages are handed out again while others are away: graphs made and ended
// in between must not be mistaken for them.
TEST_F(StorageSwapTest, AddressesThatAreUsedAgainDoNoHarm) {
  constexpr std::uint32_t kGraphs = 6;
  std::vector<torch::Tensor> expected;
  for (std::uint32_t at = 0; at < kGraphs; ++at) expected.push_back(Recorded(at + 1).Gradient());
  StorageSwap swap({});
  std::vector<std::unique_ptr<Recorded>> graphs;
  std::set<const void*> addresses;
  std::size_t again = 0;
  for (std::uint32_t at = 0; at < kGraphs; ++at) {
    graphs.push_back(std::make_unique<Recorded>(at + 1));
    for (const auto& entry : graphs.back()->saved) {
      if (!addresses.insert(entry->tensor.data_ptr()).second) ++again;
    }
    const SwapKey key{BufferKind::kSaved, at, 0};
    ASSERT_TRUE(swap.Out(key, PointersTo(graphs.back()->saved)).has_value());
    swap.EndOut(key);
    Recorded(-1.0).Gradient();
  }
  EXPECT_GT(again, kGraphs) << "no address came twice: nothing is tested";
  for (std::uint32_t at = kGraphs; at-- > 0;) {
    const SwapKey key{BufferKind::kSaved, at, 0};
    swap.In(key);
    swap.AwaitBack(key);
    EXPECT_TRUE(torch::equal(graphs[at]->Gradient(), expected[at])) << at;
  }
}

TEST_F(StorageSwapTest, WhatSomebodyElseHoldsStays) {
  Recorded recorded;
  const torch::Tensor held = recorded.saved[0]->tensor.view({-1, 2});
  StorageSwap swap({});
  ASSERT_TRUE(swap.Out(kGraph, PointersTo(recorded.saved)).has_value());
  swap.EndOut(kGraph);
  EXPECT_EQ(swap.figures().kept_bytes, kElements * sizeof(float));
  EXPECT_EQ(swap.figures().out_bytes, 2U * kElements * sizeof(float));
  EXPECT_TRUE(torch::equal(held.flatten(), torch::exp(recorded.input.detach())));
  swap.In(kGraph);
  swap.AwaitBack(kGraph);
  EXPECT_TRUE(torch::equal(recorded.Gradient(), Recorded().Gradient()));
}

TEST_F(StorageSwapTest, SmallStoragesStay) {
  Recorded recorded;
  StorageSwap swap({.least_bytes = kElements * sizeof(float) + 1});
  ASSERT_TRUE(swap.Out(kGraph, PointersTo(recorded.saved)).has_value());
  EXPECT_EQ(swap.figures().out_bytes, 0U);
}

void ExpectRefused(Recorded& recorded) {
  try {
    recorded.Gradient();
    ADD_FAILURE() << "a modified tensor was used";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("modified in place"), std::string::npos)
        << error.what();
  }
}

TEST_F(StorageSwapTest, ModifiedTensorsAreRefused) {
  Recorded kept;
  kept.saved[0]->tensor.mul_(2);
  ExpectRefused(kept);
  // Before it goes and after it came back.
  for (const bool before : {true, false}) {
    Recorded recorded;
    StorageSwap swap({});
    if (before) recorded.saved[0]->tensor.add_(1);
    ASSERT_TRUE(swap.Out(kGraph, PointersTo(recorded.saved)).has_value());
    swap.EndOut(kGraph);
    swap.In(kGraph);
    swap.AwaitBack(kGraph);
    if (!before) recorded.saved[0]->tensor.add_(1);
    ExpectRefused(recorded);
  }
}

TEST_F(StorageSwapTest, AHostWithoutRoomIsAnError) {
  Recorded recorded;
  StorageSwap swap({.pool_bytes = 2 * kElements * sizeof(float)});
  const Status full = swap.Out(kGraph, PointersTo(recorded.saved));
  ASSERT_FALSE(full.has_value());
  EXPECT_EQ(full.error().code(), ErrorCode::kResourceExhausted);
  swap.Forget();
  // All room is there again, and nothing has been lost: what had begun to go never went.
  Recorded again;
  std::vector<const torch::Tensor*> tensors = PointersTo(again.saved);
  std::erase_if(tensors, [&](const torch::Tensor* tensor) {
    return tensor->data_ptr() == again.saved[0]->tensor.data_ptr();
  });
  EXPECT_TRUE(swap.Out(kGraph, tensors).has_value());
  EXPECT_TRUE(torch::equal(recorded.Gradient(), Recorded().Gradient()));
}

TEST_F(StorageSwapTest, AnEmulatedLinkIsAsSlowAsItSays) {
  Recorded recorded;
  StorageSwap swap({.link_bytes_per_ns = 0.16});  // 1 ms for 160 KB
  ASSERT_TRUE(swap.Out(kGraph, PointersTo(recorded.saved)).has_value());
  swap.EndOut(kGraph);
  EXPECT_GE(swap.figures().copy_ns, 3'000'000U);
  EXPECT_GT(swap.figures().wait_ns, 0U);
}

}  // namespace
}  // namespace forebay::train

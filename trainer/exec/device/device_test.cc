// The choice between processor and GPU, and memory of a GPU's kind; what needs a GPU is skipped
// without one.
#include "trainer/exec/device/device.h"

#include <gtest/gtest.h>
#include <torch/cuda.h>

#include <memory>
#include <string>

#include "trainer/exec/swap/host_pool.h"

namespace forebay::train {
namespace {

TEST(DeviceTest, AProcessorIsAlwaysThere) {
  const auto device = ChooseDevice("cpu", 3);
  ASSERT_TRUE(device.has_value()) << device.error().ToString();
  EXPECT_TRUE(device->is_cpu());
  EXPECT_EQ(DescribeDevice(*device), "");
  const torch::Tensor host = torch::ones({2, 3});
  EXPECT_EQ(OnDevice(host, *device).data_ptr(), host.data_ptr());
  EXPECT_FALSE(HostRoom({2, 3}, torch::kBFloat16, *device).is_pinned());
}

TEST(DeviceTest, AGpuIsTakenWhereThereIsOneAndElseRefusedWithTheRemedy) {
  const auto chosen = ChooseDevice("auto", 0);
  ASSERT_TRUE(chosen.has_value()) << chosen.error().ToString();
  EXPECT_EQ(chosen->is_cuda(), torch::cuda::is_available());
  const auto gpu = ChooseDevice("cuda", 0);
  if (torch::cuda::is_available()) {
    ASSERT_TRUE(gpu.has_value()) << gpu.error().ToString();
    EXPECT_EQ(OnDevice(torch::ones({2}), *gpu).sum().item<float>(), 2);
    return;
  }
  ASSERT_FALSE(gpu.has_value());
  EXPECT_EQ(gpu.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_NE(gpu.error().message().find("run.device = \"cuda\""), std::string::npos);
  EXPECT_NE(gpu.error().message().find("--device cpu"), std::string::npos);
}

TEST(DeviceTest, APoolTakesMemoryOfTheKindThatItIsGiven) {
  std::size_t taken = 0;
  HostPool pool(100, [&](std::size_t bytes) -> HostPool::Block {
    taken += bytes;
    return std::make_unique<std::byte[]>(bytes);
  });
  const auto block = pool.Take(60);
  ASSERT_TRUE(block.has_value());
  pool.Give(*block);
  ASSERT_TRUE(pool.Take(60).has_value());
  EXPECT_EQ(taken, 60U);
}

}  // namespace
}  // namespace forebay::train

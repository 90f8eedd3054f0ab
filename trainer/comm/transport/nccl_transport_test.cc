// Two ranks as threads with a GPU each; skipped where there are fewer. Without a GPU only the error
// is seen.
#include "trainer/comm/transport/nccl_transport.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <latch>
#include <thread>
#include <vector>

#include "trainer/comm/transport/local_transport.h"

namespace forebay::train::nccl_transport_test {

constexpr std::uint64_t kPatienceNs = 30'000'000'000;
constexpr std::size_t kBytes = std::size_t{1} << 20;
constexpr std::array<NcclLink, 2> kLinks = {NcclLink{0, 1, Lane::kActivation},
                                            NcclLink{1, 0, Lane::kGradient}};

int Devices() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

// Device memory full of one value.
class DeviceBytes {
 public:
  explicit DeviceBytes(int value) {
    EXPECT_EQ(cudaMalloc(&memory_, kBytes), cudaSuccess);
    EXPECT_EQ(cudaMemset(memory_, value, kBytes), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  ~DeviceBytes() { cudaFree(memory_); }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;

  std::span<std::byte> span() const { return {static_cast<std::byte*>(memory_), kBytes}; }
  int last() const {
    unsigned char value = 0;
    EXPECT_EQ(cudaMemcpy(&value, span().last(1).data(), 1, cudaMemcpyDeviceToHost), cudaSuccess);
    return value;
  }

 private:
  void* memory_ = nullptr;
};

void OnTwoGpus(const std::function<void(Transport&)>& body) {
  auto ends = MakeLocalTransports(2);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      auto transport = MakeNcclTransport(std::move(ends[static_cast<std::size_t>(rank)]), rank,
                                         kLinks);
      ASSERT_TRUE(transport.has_value()) << transport.error().ToString();
      body(**transport);
    });
  }
}

TEST(NcclTransportTest, WithoutAGpuTheFailedCallIsNamed) {
  if (Devices() > 0) GTEST_SKIP() << "this machine has a GPU";
  const auto transport = MakeNcclTransport(std::move(MakeLocalTransports(1).front()), 0, {});
  ASSERT_FALSE(transport.has_value());
  EXPECT_EQ(transport.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_NE(transport.error().message().find("cudaSetDevice"), std::string::npos);
}

TEST(NcclTransportTest, MessagesOfALinkArriveInOrderWhileTheOtherDirectionGoesOn) {
  if (Devices() < 2) GTEST_SKIP() << "needs two GPUs";
  OnTwoGpus([](Transport& transport) {
    const std::uint32_t peer = 1 - transport.rank();
    const Lane out = transport.rank() == 0 ? Lane::kActivation : Lane::kGradient;
    const Lane in = transport.rank() == 0 ? Lane::kGradient : Lane::kActivation;
    const DeviceBytes first(10 + static_cast<int>(transport.rank()));
    const DeviceBytes second(20 + static_cast<int>(transport.rank()));
    const DeviceBytes one(0);
    const DeviceBytes two(0);
    std::vector<Ticket> tickets = {
        transport.BeginSend(peer, out, {.step = 1}, first.span()).value(),
        transport.BeginSend(peer, out, {.step = 2}, second.span()).value(),
        transport.BeginReceive(peer, in, {.step = 1}, one.span()).value(),
        transport.BeginReceive(peer, in, {.step = 2}, two.span()).value()};
    std::swap(tickets[2], tickets[3]);  // whichever is waited for first
    for (const Ticket ticket : tickets) {
      ASSERT_TRUE(transport.Wait(ticket, kPatienceNs).has_value());
    }
    EXPECT_EQ(one.last(), 10 + static_cast<int>(peer));
    EXPECT_EQ(two.last(), 20 + static_cast<int>(peer));
  });
}

TEST(NcclTransportTest, AnotherMessageThanExpectedIsDataLoss) {
  if (Devices() < 2) GTEST_SKIP() << "needs two GPUs";
  std::latch seen(1);
  OnTwoGpus([&seen](Transport& transport) {
    const DeviceBytes memory(1);
    if (transport.rank() == 0) {
      EXPECT_TRUE(
          transport.BeginSend(1, Lane::kActivation, {.step = 1}, memory.span()).has_value());
      seen.wait();
      return transport.Abort(1);
    }
    const Ticket ticket =
        transport.BeginReceive(0, Lane::kActivation, {.step = 2}, memory.span()).value();
    EXPECT_EQ(transport.Wait(ticket, kPatienceNs).error().code(), ErrorCode::kDataLoss);
    seen.count_down();
    transport.Abort(1);
  });
}

TEST(NcclTransportTest, LinksThatThePlanHasNotAreRefused) {
  if (Devices() < 2) GTEST_SKIP() << "needs two GPUs";
  OnTwoGpus([](Transport& transport) {
    const DeviceBytes memory(1);
    const auto ticket =
        transport.BeginSend(1 - transport.rank(), Lane::kReduction, {}, memory.span());
    ASSERT_FALSE(ticket.has_value());
    EXPECT_EQ(ticket.error().code(), ErrorCode::kInvalidArgument);
  });
}

}  // namespace forebay::train::nccl_transport_test

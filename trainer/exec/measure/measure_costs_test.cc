// Costs that a plan is simulated with: an emulated link gives a known rate, and all ranks get the
// same figures.
#include "trainer/exec/measure/measure_costs.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "trainer/comm/transport/local_transport.h"

namespace forebay::train::measure_costs_test {

std::uint64_t NowNs() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() /
                                    std::chrono::nanoseconds(1));
}

TEST(MeasureCostsTest, SwapsPassTheEmulatedLink) {
  Communicator alone = Communicator::Alone();
  const auto costs =
      MeasureCosts({.swap = {.link_bytes_per_ns = 1.0}, .now_ns = NowNs}, alone);
  ASSERT_TRUE(costs.has_value()) << costs.error().ToString();
  EXPECT_LE(costs->swap.bytes_per_ns, 1.02);
  EXPECT_GT(costs->swap.bytes_per_ns, 0.3);
  EXPECT_GT(costs->update_ns_per_byte, 0.0);
  // There is nobody to talk to.
  EXPECT_EQ(costs->message.latency_ns, SimulationCosts().message.latency_ns);
  EXPECT_EQ(costs->collective.bytes_per_ns, SimulationCosts().collective.bytes_per_ns);
}

TEST(MeasureCostsTest, RanksAgreeAndBelieveTheProbeOfMessages) {
  auto ends = MakeLocalTransports(2);
  std::vector<SimulationCosts> answers(2);
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        Communicator communicator(std::move(ends[rank]));
        const auto costs = MeasureCosts({.links = {.message_ns = 5000, .ns_per_byte = 0.5},
                                         .bucket_bytes = 64U << 10,
                                         .now_ns = NowNs},
                                        communicator);
        ASSERT_TRUE(costs.has_value()) << costs.error().ToString();
        answers[rank] = *costs;
      });
    }
  }
  for (const SimulationCosts& costs : answers) {
    EXPECT_EQ(costs.message.latency_ns, 5000U);
    EXPECT_DOUBLE_EQ(costs.message.bytes_per_ns, 2.0);
    EXPECT_EQ(costs.update_ns_per_byte, answers[0].update_ns_per_byte);
    EXPECT_EQ(costs.swap.bytes_per_ns, answers[0].swap.bytes_per_ns);
    EXPECT_EQ(costs.collective.bytes_per_ns, answers[0].collective.bytes_per_ns);
    EXPECT_GT(costs.collective.bytes_per_ns, 0.0);
  }
}

}  // namespace forebay::train::measure_costs_test

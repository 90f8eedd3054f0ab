// What a daemon costs that nobody asks anything.
#include <poll.h>

#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "tests/integration/daemon_rig.h"

namespace forebay::integration {
namespace {

TEST(IdleCostTest, AnIdleDaemonUsesLessThanAHundredthOfACore) {
  const DaemonRig rig;
  const auto daemon = rig.Start();
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 4; ++i) clients.push_back(std::make_unique<RawClient>(rig.socket_path()));
  AwaitStaged(*clients[0]);
  RawStream stream(*clients[1]);
  stream.Write(GoodOpen(clients[1]->Describe(kDataset), 64));
  ASSERT_TRUE(stream.Read().has_value()) << "an open stream that asks for nothing";
  constexpr int kWindowMs = 2000;
  const std::uint64_t before_ns = daemon->CpuNs();
  ASSERT_GT(before_ns, 0U) << "the kernel does not say what threads use";
  poll(nullptr, 0, kWindowMs);  // the window itself; nothing is waited for
  const std::uint64_t used_ns = daemon->CpuNs() - before_ns;
  EXPECT_LT(used_ns, kWindowMs * 1'000'000ULL / 100) << used_ns / 1000 << " us in 2 s";
  RecordProperty("used_us", static_cast<int>(used_ns / 1000));
}

}  // namespace
}  // namespace forebay::integration

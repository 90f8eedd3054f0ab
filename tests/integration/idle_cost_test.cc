// What a daemon costs that nobody asks anything.
#include <poll.h>

#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "tests/integration/daemon_rig.h"

namespace forebay::integration {
namespace {

// A core that is shared with others counts more time than was used, so little of it can be held
// against the daemon; a thread that polls shows in how often it wakes up, one that spins in both.
TEST(IdleCostTest, AnIdleDaemonSleeps) {
  const DaemonRig rig;
  const auto daemon = rig.Start();
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 4; ++i) clients.push_back(std::make_unique<RawClient>(rig.socket_path()));
  AwaitStaged(*clients[0]);
  RawStream stream(*clients[1]);
  stream.Write(GoodOpen(clients[1]->Describe(kDataset), 64));
  ASSERT_TRUE(stream.Read().has_value()) << "an open stream that asks for nothing";
  constexpr int kWindowMs = 2000;
  const DaemonProcess::CpuUse before = daemon->TotalCpuUse();
  ASSERT_GT(before.run_ns, 0U) << "the kernel does not say what threads use";
  poll(nullptr, 0, kWindowMs);  // the window itself; nothing is waited for
  const DaemonProcess::CpuUse after = daemon->TotalCpuUse();
  const std::uint64_t turns = after.turns - before.turns;
  const std::uint64_t run_ns = after.run_ns - before.run_ns;
  EXPECT_LT(turns, kWindowMs / 10U) << "times in 2 s";
  EXPECT_LT(run_ns, kWindowMs * 1'000'000ULL / 10) << run_ns / 1000 << " us in 2 s";
  RecordProperty("turns", static_cast<int>(turns));
  RecordProperty("run_us", static_cast<int>(run_ns / 1000));
}

}  // namespace
}  // namespace forebay::integration

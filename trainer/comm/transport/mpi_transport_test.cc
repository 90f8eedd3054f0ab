// The suite over MPI: this process is one of the ranks.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <utility>

#include "trainer/comm/launch.h"
#include "trainer/comm/transport/mpi_transport.h"
#include "trainer/comm/transport/transport_suite.h"

namespace forebay::train {
namespace {

std::unique_ptr<Transport>& World() {
  static std::unique_ptr<Transport> world;
  return world;
}

TEST(MpiTransportTest, TheLauncherTellsOfAsManyRanksAsMpi) {
  const Launch launch = FindLaunch([](const char* name) { return std::getenv(name); });
  EXPECT_TRUE(launch.through_mpi);
  EXPECT_EQ(launch.processes, World()->size()) << launch.sign;
  EXPECT_TRUE(CheckRanksOfLaunch(launch, World()->size()).has_value());
}

TEST(MpiTransportTest, SecondInitialisationIsRefused) {
  const auto second = MakeMpiTransport();
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code(), ErrorCode::kFailedPrecondition);
}

}  // namespace

void ForEachRank(const std::function<void(Transport&)>& body) { body(*World()); }

}  // namespace forebay::train

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  auto world = forebay::train::MakeMpiTransport();
  if (!world.has_value()) return 1;
  forebay::train::World() = *std::move(world);
  const int failed = RUN_ALL_TESTS();
  forebay::train::World().reset();
  return failed;
}

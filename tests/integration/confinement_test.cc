// What clients are given is for reading.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include <gtest/gtest.h>

#include "tests/integration/daemon_rig.h"

namespace forebay::integration {
namespace {

class ConfinementTest : public ::testing::Test {
 protected:
  ConfinementTest() : daemon_(rig_.Start()), client_(rig_.socket_path()) {
    EXPECT_GE(client_.socket().regions.size(), 2U) << "an arena and slots";
  }

  DaemonRig rig_;
  std::unique_ptr<DaemonProcess> daemon_;
  RawClient client_;
};

TEST_F(ConfinementTest, RegionsCannotBeMappedWritable) {
  for (const UniqueFd& region : client_.socket().regions) {
    EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, region.get(), 0),
              MAP_FAILED);
    EXPECT_EQ(mmap(nullptr, 4096, PROT_WRITE, MAP_SHARED, region.get(), 0), MAP_FAILED);
  }
}

TEST_F(ConfinementTest, AReadOnlyMappingCannotBeMadeWritable) {
  for (const UniqueFd& region : client_.socket().regions) {
    void* memory = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, region.get(), 0);
    ASSERT_NE(memory, MAP_FAILED);
    EXPECT_NE(mprotect(memory, 4096, PROT_READ | PROT_WRITE), 0);
    munmap(memory, 4096);
  }
}

TEST_F(ConfinementTest, RegionsCannotBeWrittenCutGrownOrUnsealed) {
  for (std::size_t i = 0; i < client_.socket().regions.size(); ++i) {
    const int fd = client_.socket().regions[i].get();
    EXPECT_LT(pwrite(fd, "x", 1, 0), 0);
    EXPECT_NE(ftruncate(fd, 0), 0);
    EXPECT_NE(ftruncate(fd, static_cast<off_t>(client_.socket().entries[i].bytes * 2)), 0);
    EXPECT_NE(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
    EXPECT_NE(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0) << "no new seals either";
  }
}

TEST_F(ConfinementTest, ReopeningThemDoesNotHelp) {
  for (const UniqueFd& region : client_.socket().regions) {
    const std::string name = "/proc/self/fd/" + std::to_string(region.get());
    const UniqueFd again(open(name.c_str(), O_RDWR | O_CLOEXEC));
    if (!again.valid()) continue;  // refused at once, as good
    EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, again.get(), 0),
              MAP_FAILED);
    EXPECT_LT(pwrite(again.get(), "x", 1, 0), 0);
    EXPECT_NE(ftruncate(again.get(), 0), 0);
  }
}

TEST_F(ConfinementTest, AfterAllThatEveryByteIsRight) {
  for (const UniqueFd& region : client_.socket().regions) {
    (void)!pwrite(region.get(), "garbage", 7, 0);
  }
  const EpochCounts counts = ReadEpoch(client_);
  EXPECT_EQ(counts.error, "");
  EXPECT_EQ(counts.distinct, 4096U);
  EXPECT_EQ(counts.wrong, 0U);
}

}  // namespace
}  // namespace forebay::integration

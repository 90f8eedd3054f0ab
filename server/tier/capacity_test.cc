// Texts of capacities, valid and not, and the memory limit as read from files like the kernel's.
#include "server/tier/capacity.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "server/io/testing/io_test_fixture.h"

namespace forebay::tier {
namespace {

using io::testing::CodeOf;
using io::testing::Take;
using io::testing::TempFolder;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

// A fake root of the file system with the files that the kernel would show.
class FakeRoot {
 public:
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path full = folder_.path() + path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }
  void WriteMemory(std::uint64_t kib) {
    Write("/proc/meminfo", "MemFree:   1 kB\nMemTotal:       " + std::to_string(kib) +
                               " kB\nBuffers: 2 kB\n");
  }
  std::uint64_t Limit() const { return MemoryLimitBytes(folder_.path()); }

 private:
  TempFolder folder_;
};

TEST(ParseCapacity, NumbersWithUnits) {
  EXPECT_EQ(Take(ParseCapacity("8GiB", 0)), 8 * kGiB);
  EXPECT_EQ(Take(ParseCapacity("500MB", 0)), 500'000'000U);
  EXPECT_EQ(Take(ParseCapacity("4096", 0)), 4096U);
  EXPECT_EQ(Take(ParseCapacity("7B", 0)), 7U);
  EXPECT_EQ(Take(ParseCapacity("3kB", 0)), 3000U);
  EXPECT_EQ(Take(ParseCapacity("3KiB", 0)), 3072U);
  EXPECT_EQ(Take(ParseCapacity("2 gib ", 0)), 2 * kGiB);
  EXPECT_EQ(Take(ParseCapacity("2TiB", 0)), 2048 * kGiB);
  EXPECT_EQ(Take(ParseCapacity("1PB", 0)), 1'000'000'000'000'000U);
}

TEST(ParseBytes, IsACapacityWithoutPercentagesAndMayBe0) {
  EXPECT_EQ(Take(ParseBytes(" 2 gib ")), 2 * kGiB);
  EXPECT_EQ(Take(ParseBytes("0")), 0U);
  EXPECT_EQ(Take(ParseBytes("0MiB")), 0U);
  for (const char* text : {"25%", "%", "", "MiB", "8G", "16384PiB"}) {
    EXPECT_EQ(CodeOf(ParseBytes(text)), ErrorCode::kInvalidArgument) << text;
  }
}

TEST(ParseCapacity, PercentagesOfTheWhole) {
  EXPECT_EQ(Take(ParseCapacity("25%", 1000)), 250U);
  EXPECT_EQ(Take(ParseCapacity("100 %", ~std::uint64_t{0})), ~std::uint64_t{0});
  EXPECT_EQ(Take(ParseCapacity("1%", 199)), 1U);
  EXPECT_EQ(Take(ParseCapacity("1%", 5)), 1U);  // never nothing
}

TEST(ParseCapacity, LargestThatFits) {
  EXPECT_EQ(Take(ParseCapacity("18446744073709551615", 0)), ~std::uint64_t{0});
  EXPECT_EQ(Take(ParseCapacity("16383PiB", 0)), std::uint64_t{16383} << 50);
  EXPECT_EQ(CodeOf(ParseCapacity("16384PiB", 0)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(ParseCapacity("18446744073709551616", 0)), ErrorCode::kInvalidArgument);
}

TEST(ParseCapacity, RefusesWhatIsNoCapacity) {
  for (const char* text : {"", " ", "GiB", "-1GiB", "+1GiB", "1.5GiB", "8GiBs", "8 G iB", "0",
                           "0GiB", "0%", "101%", "25%%", "%", "0x10", "8\nGiB", "1e9", "8G"}) {
    EXPECT_EQ(CodeOf(ParseCapacity(text, 1000)), ErrorCode::kInvalidArgument) << text;
  }
}

TEST(ParseCapacity, PercentageOfTheUnknownIsAnError) {
  const auto capacity = ParseCapacity("25%", 0);
  ASSERT_EQ(CodeOf(capacity), ErrorCode::kFailedPrecondition);
  EXPECT_NE(capacity.error().message().find("25%"), std::string::npos);
}

TEST(ParseCapacity, MessageShowsLittleOfALongText) {
  const auto capacity = ParseCapacity(std::string(100'000, 'x'), 0);
  ASSERT_FALSE(capacity.has_value());
  EXPECT_LT(capacity.error().message().size(), 300U);
}

TEST(MemoryLimit, MachineWithoutCgroups) {
  FakeRoot root;
  root.WriteMemory(1'000'000);
  EXPECT_EQ(root.Limit(), 1'024'000'000U);
}

TEST(MemoryLimit, VersionTwoGroupAndItsAncestors) {
  FakeRoot root;
  root.WriteMemory(64 << 20);
  root.Write("/proc/self/cgroup", "0::/job.slice/step_0/task\n");
  root.Write("/sys/fs/cgroup/job.slice/step_0/task/memory.max", "max\n");
  EXPECT_EQ(root.Limit(), 64 * kGiB);
  root.Write("/sys/fs/cgroup/job.slice/memory.max", std::to_string(16 * kGiB) + "\n");
  EXPECT_EQ(root.Limit(), 16 * kGiB);
  root.Write("/sys/fs/cgroup/job.slice/step_0/memory.max", std::to_string(4 * kGiB) + "\n");
  EXPECT_EQ(root.Limit(), 4 * kGiB);
}

TEST(MemoryLimit, VersionOneGroup) {
  FakeRoot root;
  root.WriteMemory(64 << 20);
  root.Write("/proc/self/cgroup", "5:cpu,cpuacct:/a\n4:hugetlb,memory:/slurm/uid_1/job_2\n");
  root.Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(root.Limit(), 64 * kGiB);
  root.Write("/sys/fs/cgroup/memory/slurm/uid_1/job_2/memory.limit_in_bytes",
             std::to_string(2 * kGiB) + "\n");
  EXPECT_EQ(root.Limit(), 2 * kGiB);
}

TEST(MemoryLimit, ContainerSeesItsGroupAtTheMount) {
  FakeRoot root;
  root.WriteMemory(64 << 20);
  root.Write("/proc/self/cgroup", "0::/docker/0123456789\n");
  root.Write("/sys/fs/cgroup/memory.max", std::to_string(kGiB) + "\n");
  EXPECT_EQ(root.Limit(), kGiB);
}

TEST(MemoryLimit, HybridMountOfVersionTwo) {
  FakeRoot root;
  root.WriteMemory(64 << 20);
  root.Write("/proc/self/cgroup", "0::/x\n");
  root.Write("/sys/fs/cgroup/unified/x/memory.max", std::to_string(3 * kGiB) + "\n");
  EXPECT_EQ(root.Limit(), 3 * kGiB);
}

TEST(MemoryLimit, ThisMachineHasOne) { EXPECT_GT(MemoryLimitBytes(), 0U); }

TEST(MemoryLimit, NothingToReadIsZero) {
  EXPECT_EQ(FakeRoot().Limit(), 0U);
}

TEST(MemoryLimit, DamagedFilesDoNotCount) {
  FakeRoot root;
  root.Write("/proc/meminfo", "MemTotal: many kB\n");
  EXPECT_EQ(root.Limit(), 0U);
  root.WriteMemory(1024);
  root.Write("/proc/self/cgroup", "nonsense\n0:\n::::\n0::relative\n");
  root.Write("/sys/fs/cgroup/memory.max", "-5\n");
  EXPECT_EQ(root.Limit(), 1024 * 1024U);
}

}  // namespace
}  // namespace forebay::tier

// The real gfs_emu, mounted in temporary folders and read through the kernel.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "bench/gfs_emu/gfs_presets.h"
#include "proto/contract/unique_fd.h"

namespace forebay::bench {
namespace {

constexpr std::size_t kMiB = 1024 * 1024;
constexpr std::size_t kSampleBytes = 114'660;

double Seconds(const std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Byte `i` of every test object.
char PatternByte(std::size_t i) { return static_cast<char>((i * 2654435761U) >> 13); }

bool IsMounted(const std::filesystem::path& mount) {
  std::ifstream mounts("/proc/self/mountinfo");
  std::string needle = " ";
  needle.append(mount.string()).append(" ");
  for (std::string line; std::getline(mounts, line);) {
    if (line.find(needle) != std::string::npos) return true;
  }
  return false;
}

// A gfs_emu process: mounted once the constructor has seen its "ready", unmounted by Stop.
class GfsProcess {
 public:
  explicit GfsProcess(std::vector<std::string> arguments) {
    std::array<int, 2> pipe_fds{};
    if (pipe2(pipe_fds.data(), O_CLOEXEC) != 0) return;
    output_ = UniqueFd(pipe_fds[0]);
    UniqueFd write_end(pipe_fds[1]);
    arguments.insert(arguments.begin(), GFS_EMU_BINARY);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(write_end.get(), STDOUT_FILENO);
      execv(GFS_EMU_BINARY, argv.data());
      _exit(127);
    }
  }
  ~GfsProcess() { Stop(); }
  GfsProcess(const GfsProcess&) = delete;
  GfsProcess& operator=(const GfsProcess&) = delete;

  // The first line of its output, or what there was of it when it ended.
  std::string ReadLine() {
    std::string line;
    char byte = 0;
    while (read(output_.get(), &byte, 1) == 1 && byte != '\n') line.push_back(byte);
    return line;
  }

  // Ends it with SIGTERM; its exit status, or -1.
  int Stop() {
    if (pid_ <= 0) return -1;
    kill(pid_, SIGTERM);
    return Wait();
  }

  int Wait() {
    int status = 0;
    if (waitpid(pid_, &status, 0) != pid_) return -1;
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  UniqueFd output_;
  pid_t pid_ = -1;
};

class GfsEmu : public testing::Test {
 protected:
  void SetUp() override {
    if (access("/dev/fuse", R_OK | W_OK) != 0) GTEST_SKIP() << "no /dev/fuse on this machine";
    std::string pattern = (std::filesystem::temp_directory_path() / "gfs_emu.XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    std::filesystem::create_directories(backing() / "class0");
    std::filesystem::create_directories(mount());
  }

  void TearDown() override {
    process_.reset();
    if (folder_.empty()) return;
    EXPECT_FALSE(IsMounted(mount()));
    std::filesystem::remove_all(folder_);
  }

  std::filesystem::path backing() const { return folder_ / "backing"; }
  std::filesystem::path mount() const { return folder_ / "mount"; }

  void MakeObject(const std::string& name, std::size_t bytes) {
    std::vector<char> content(bytes);
    for (std::size_t i = 0; i < bytes; ++i) content[i] = PatternByte(i);
    std::ofstream(backing() / name, std::ios::binary)
        .write(content.data(), static_cast<std::streamsize>(bytes));
  }

  void Mount(std::vector<std::string> options) {
    std::vector<std::string> arguments = {backing().string(), mount().string()};
    arguments.insert(arguments.end(), options.begin(), options.end());
    process_ = std::make_unique<GfsProcess>(std::move(arguments));
    ASSERT_EQ(process_->ReadLine(), "ready " + mount().string());
  }

  UniqueFd OpenObject(const std::string& name) {
    return UniqueFd(open((mount() / name).c_str(), O_RDONLY | O_CLOEXEC));
  }

  nlohmann::json Counters() {
    std::ifstream file(mount() / ".gfs_emu" / "counters.json");
    return nlohmann::json::parse(file);
  }

  // True where gfs_emu accepted the command.
  bool Control(const std::string& command) {
    const UniqueFd fd(open((mount() / ".gfs_emu" / "control").c_str(), O_WRONLY | O_CLOEXEC));
    return write(fd.get(), command.data(), command.size()) ==
           static_cast<ssize_t>(command.size());
  }

  std::filesystem::path folder_;
  std::unique_ptr<GfsProcess> process_;
};

TEST_F(GfsEmu, ShowsTheSameBytesAndNames) {
  MakeObject("class0/a.bin", 3 * kMiB + 17);
  Mount({"--preset", "unlimited"});
  const UniqueFd fd = OpenObject("class0/a.bin");
  std::vector<char> content(4 * kMiB);
  ASSERT_EQ(read(fd.get(), content.data(), content.size()),
            static_cast<ssize_t>(3 * kMiB + 17));
  for (std::size_t i = 0; i < 3 * kMiB + 17; ++i) ASSERT_EQ(content[i], PatternByte(i)) << i;
  EXPECT_EQ(std::filesystem::file_size(mount() / "class0/a.bin"), 3 * kMiB + 17);
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(mount())) {
    names.push_back(entry.path().filename());
  }
  EXPECT_EQ(names, std::vector<std::string>{"class0"});  // the control folder is hidden
  EXPECT_FALSE(OpenObject("class0/none.bin").valid());
}

TEST_F(GfsEmu, SeesAChangeOfTheBackingFileAtOnce) {
  MakeObject("a.bin", 1000);
  Mount({"--preset", "unlimited"});
  EXPECT_EQ(std::filesystem::file_size(mount() / "a.bin"), 1000U);
  MakeObject("a.bin", 500);
  EXPECT_EQ(std::filesystem::file_size(mount() / "a.bin"), 500U);
}

TEST_F(GfsEmu, IsReadOnly) {
  MakeObject("a.bin", 1000);
  Mount({"--preset", "unlimited"});
  EXPECT_EQ(open((mount() / "a.bin").c_str(), O_WRONLY | O_CLOEXEC), -1);
  EXPECT_EQ(errno, EROFS);
  EXPECT_EQ(open((mount() / "b.bin").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600), -1);
  EXPECT_EQ(unlink((mount() / "a.bin").c_str()), -1);
}

TEST_F(GfsEmu, TheBandwidthCapIsHeldWithinTenPercent) {
  MakeObject("a.bin", 64 * kMiB);
  MakeObject("b.bin", 64 * kMiB);
  Mount({"--preset", "tsubame3", "--bandwidth-mb-per-s", "100"});
  const auto begin = std::chrono::steady_clock::now();
  const auto read_all = [this](const std::string& name) {
    const UniqueFd fd = OpenObject(name);
    std::vector<char> buffer(4 * kMiB);
    while (read(fd.get(), buffer.data(), buffer.size()) > 0) {
    }
  };
  std::thread other(read_all, "b.bin");  // the pool is shared
  read_all("a.bin");
  other.join();
  const double rate = 2 * 64 * static_cast<double>(kMiB) / Seconds(begin);
  EXPECT_GT(rate, 90e6);
  EXPECT_LT(rate, 110e6);
  EXPECT_EQ(Counters()["total"]["bytes"], 128 * kMiB);
  EXPECT_EQ(Counters()["total"]["seeks"], 0);
}

TEST_F(GfsEmu, RandomReadsCollapseAsOnTsubame) {
  MakeObject("a.bin", 256 * kMiB);
  Mount({"--preset", "tsubame3"});
  const UniqueFd fd = OpenObject("a.bin");
  std::vector<char> buffer(4 * kMiB);
  auto begin = std::chrono::steady_clock::now();
  while (read(fd.get(), buffer.data(), buffer.size()) > 0) {
  }
  const double sequential = 256 * static_cast<double>(kMiB) / Seconds(begin);
  ASSERT_TRUE(Control("reset"));
  constexpr std::size_t kReads = 300;
  constexpr std::size_t kSlots = 256 * kMiB / kSampleBytes;
  begin = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < kReads; ++i) {
    const std::size_t slot = (i * 1009 + 500) % kSlots;  // far from the one before
    ASSERT_EQ(pread(fd.get(), buffer.data(), kSampleBytes,
                    static_cast<off_t>(slot * kSampleBytes)),
              static_cast<ssize_t>(kSampleBytes));
  }
  const double random = static_cast<double>(kReads * kSampleBytes) / Seconds(begin);
  EXPECT_NEAR(sequential / random, 150.0 / 9.0, 0.15 * 150.0 / 9.0);
  EXPECT_EQ(Counters()["total"]["seeks"], kReads);
}

TEST_F(GfsEmu, OpensAreLimited) {
  MakeObject("a.bin", 100);
  Mount({"--preset", "tsubame3", "--opens-per-s", "500", "--open-latency-us", "0"});
  const auto begin = std::chrono::steady_clock::now();
  constexpr int kOpens = 500;
  for (int i = 0; i < kOpens; ++i) ASSERT_TRUE(OpenObject("a.bin").valid());
  EXPECT_NEAR(Seconds(begin), 1.0, 0.1);
  EXPECT_EQ(Counters()["total"]["opens"], kOpens);
  EXPECT_EQ(Counters()["objects"]["opened"], 1);
  EXPECT_EQ(Counters()["objects"]["opens_max"], kOpens);
}

TEST_F(GfsEmu, CountersAreExactAndFiledByProcess) {
  MakeObject("a.bin", 10 * kMiB);
  Mount({"--preset", "unlimited"});
  const UniqueFd fd = OpenObject("a.bin");
  // One call of 4 MiB into whole pages is four requests, none of them a seek.
  const std::unique_ptr<void, void (*)(void*)> buffer(std::aligned_alloc(4096, 4 * kMiB), free);
  ASSERT_EQ(pread(fd.get(), buffer.get(), 4 * kMiB, 0), static_cast<ssize_t>(4 * kMiB));
  ASSERT_EQ(pread(fd.get(), buffer.get(), 1000, 8 * kMiB), 1000);
  const nlohmann::json counters = Counters();
  const nlohmann::json& total = counters["total"];
  EXPECT_EQ(total["opens"], 1);
  EXPECT_EQ(total["reads"], 5);
  EXPECT_EQ(total["bytes"], 4 * kMiB + 1000);
  EXPECT_EQ(total["seeks"], 1);
  EXPECT_EQ(total["faults"], 0);
  ASSERT_EQ(counters["clients"].size(), 1U);
  EXPECT_EQ(counters["clients"][std::to_string(getpid())]["bytes"], 4 * kMiB + 1000);
  // Reads of another thread belong to the same process.
  std::thread([&] { EXPECT_EQ(pread(fd.get(), buffer.get(), 500, 0), 500); }).join();
  EXPECT_EQ(Counters()["clients"][std::to_string(getpid())]["bytes"], 4 * kMiB + 1500);
  ASSERT_TRUE(Control("reset"));
  EXPECT_EQ(Counters()["total"]["bytes"], 0);
}

TEST_F(GfsEmu, InjectsAndCountsEveryKindOfFault) {
  MakeObject("a.bin", kMiB);
  MakeObject("b.bin", kMiB);
  Mount({"--preset", "unlimited"});
  ASSERT_TRUE(Control("fault eio a.bin after=1 count=1\nfault short a.bin after=2\n"
                      "fault flip a.bin after=3 count=1\nfault stall a.bin after=4 ms=300"));
  const UniqueFd fd = OpenObject("a.bin");
  std::vector<char> buffer(1000);
  const auto read_once = [&] { return pread(fd.get(), buffer.data(), buffer.size(), 0); };
  const auto is_intact = [&] {
    for (std::size_t i = 0; i < buffer.size(); ++i) {
      if (buffer[i] != PatternByte(i)) return false;
    }
    return true;
  };
  EXPECT_EQ(read_once(), 1000);
  EXPECT_EQ(read_once(), -1);
  EXPECT_EQ(errno, EIO);
  EXPECT_EQ(read_once(), 500);
  EXPECT_EQ(read_once(), 1000);
  EXPECT_FALSE(is_intact());
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(read_once(), 1000);
  EXPECT_GE(Seconds(begin), 0.29);
  EXPECT_EQ(read_once(), 1000);
  EXPECT_TRUE(is_intact());
  const UniqueFd other = OpenObject("b.bin");
  EXPECT_EQ(pread(other.get(), buffer.data(), buffer.size(), 0), 1000);
  EXPECT_EQ(Counters()["total"]["faults"], 4);
  for (const auto& rule : Counters()["faults"]) EXPECT_EQ(rule["injected"], 1) << rule;
  EXPECT_FALSE(Control("fault melt a.bin"));
  EXPECT_FALSE(Control("explode"));
}

TEST_F(GfsEmu, RefusesABusyMountPoint) {
  Mount({"--preset", "unlimited"});
  GfsProcess second({backing().string(), mount().string()});
  EXPECT_EQ(second.ReadLine(), "");
  EXPECT_EQ(second.Wait(), EXIT_FAILURE);
  GfsProcess onto_files({mount().string(), backing().string()});
  EXPECT_EQ(onto_files.Wait(), EXIT_FAILURE);  // not empty
}

TEST_F(GfsEmu, UnmountsOnSignalEvenWhileAReadStalls) {
  MakeObject("a.bin", kMiB);
  Mount({"--preset", "unlimited"});
  ASSERT_TRUE(Control("fault stall a.bin count=0 ms=3600000"));
  std::thread reader([this] {
    const UniqueFd fd = OpenObject("a.bin");
    char byte = 0;
    EXPECT_LE(pread(fd.get(), &byte, 1, 0), 1);  // whatever the unmount makes of it
  });
  while (Counters()["total"]["faults"] == 0) std::this_thread::yield();
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(process_->Stop(), EXIT_SUCCESS);
  EXPECT_LT(Seconds(begin), 5);
  reader.join();
  EXPECT_FALSE(IsMounted(mount()));
  EXPECT_TRUE(std::filesystem::is_empty(mount()));
}

}  // namespace
}  // namespace forebay::bench

// GfsEmuFixture: a folder behind a mounted gfs_emu, for tests of gfs_emu itself.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "bench/gfs_emu/testing/gfs_process.h"
#include "proto/contract/unique_fd.h"

namespace forebay::bench {

inline double SecondsSince(const std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

class GfsEmuFixture : public testing::Test {
 protected:
  // Byte `i` of every test object.
  static char PatternByte(std::size_t i) { return static_cast<char>((i * 2654435761U) >> 13); }

  void SetUp() override {
    if (!GfsProcess::IsPossible()) GTEST_SKIP() << "no /dev/fuse on this machine";
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

  void Mount(const std::vector<std::string>& options) {
    std::vector<std::string> arguments = {backing().string(), mount().string()};
    arguments.insert(arguments.end(), options.begin(), options.end());
    process_ = std::make_unique<GfsProcess>(arguments);
    ASSERT_TRUE(process_->AwaitReady());
  }

  UniqueFd OpenObject(const std::string& name) {
    return UniqueFd(open((mount() / name).c_str(), O_RDONLY | O_CLOEXEC));
  }
  nlohmann::json Counters() { return process_->Counters(); }
  bool Control(const std::string& lines) { return process_->Control(lines); }
  // Returns once gfs_emu has injected so many faults.
  void AwaitFaults(std::uint64_t count) {
    while (process_->InjectedCount() < count) std::this_thread::yield();
  }

  std::filesystem::path folder_;
  std::unique_ptr<GfsProcess> process_;
};

}  // namespace forebay::bench

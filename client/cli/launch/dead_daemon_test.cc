// The files of a daemon that was killed are removed; those of a daemon that lives, of another one,
// and of somebody else are not.
#include "client/cli/launch/dead_daemon.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/contract/unique_fd.h"

namespace forebay::cli::dead_daemon_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DeadDaemonTest : public ::testing::Test {
 protected:
  static constexpr std::array<pid_t, 2> kDaemons = {4711, 4712};

  DeadDaemonTest() {
    std::string name = std::filesystem::temp_directory_path() / "fbdeadXXXXXX";
    root_ = mkdtemp(name.data());
    std::filesystem::create_directory(folder());
    Write("forebayd.lock", "4712\n");
    for (const char* const file :
         {"forebayd.sock", "forebayd.nodes", "forebayd.nodes.new", "forebayd.leaves",
          "forebayd.before"}) {
      Write(file, "");
    }
  }
  ~DeadDaemonTest() override { std::filesystem::remove_all(root_); }

  std::filesystem::path folder() const { return root_ / "run"; }
  std::string socket() const { return folder() / "forebayd.sock"; }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder() / name) << text;
  }
  std::set<std::string> Files() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder())) {
      names.insert(entry.path().filename());
    }
    return names;
  }
  void Remove() const {
    const Status removed = RemoveFilesOfDead(socket(), kDaemons);
    EXPECT_TRUE(removed.has_value()) << removed.error().ToString();
  }

  std::filesystem::path root_;
};

TEST_F(DeadDaemonTest, NothingIsLeftOfIt) {
  Remove();
  EXPECT_FALSE(std::filesystem::exists(folder()));
  Remove();  // there is nothing any more
}

TEST_F(DeadDaemonTest, AFileOfSomebodyElseStaysWithTheDirectory) {
  Write("notes", "");
  Remove();
  EXPECT_THAT(Files(), ElementsAre("notes"));
}

TEST_F(DeadDaemonTest, ADaemonThatHasTakenItsPlaceKeepsItsFiles) {
  const std::set<std::string> before = Files();
  for (const char* const text : {"4713\n", "", "x"}) {
    Write("forebayd.lock", text);
    Remove();
    EXPECT_EQ(Files(), before) << text;
  }
}

TEST_F(DeadDaemonTest, ALockThatIsHeldKeepsTheFiles) {
  const std::set<std::string> before = Files();
  const UniqueFd held(open((folder() / "forebayd.lock").c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(flock(held.get(), LOCK_EX | LOCK_NB), 0);
  Remove();
  EXPECT_EQ(Files(), before);
}

TEST_F(DeadDaemonTest, WithoutALockOrBehindALinkNothingIsRemoved) {
  std::filesystem::create_directory_symlink(folder(), root_ / "link");
  const std::set<std::string> before = Files();
  EXPECT_TRUE(RemoveFilesOfDead(root_ / "link" / "forebayd.sock", kDaemons).has_value());
  EXPECT_EQ(Files(), before);
  std::filesystem::rename(folder() / "forebayd.lock", root_ / "lock");
  std::filesystem::create_symlink(root_ / "lock", folder() / "forebayd.lock");
  Remove();
  EXPECT_EQ(Files(), before);
  std::filesystem::remove(folder() / "forebayd.lock");
  Remove();
  EXPECT_THAT(Files(), ::testing::SizeIs(before.size() - 1));
}

TEST_F(DeadDaemonTest, WhatCannotBeRemovedIsNamed) {
  std::filesystem::remove(folder() / "forebayd.nodes");
  std::filesystem::create_directory(folder() / "forebayd.nodes");
  const Status removed = RemoveFilesOfDead(socket(), kDaemons);
  ASSERT_FALSE(removed.has_value());
  EXPECT_THAT(removed.error().message(), HasSubstr("run/forebayd.nodes"));
}

}  // namespace forebay::cli::dead_daemon_test

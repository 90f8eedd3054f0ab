// Confinement: nothing outside the root is ever opened, with either method of resolving paths.
#include "proto/contract/printable.h"
#include "server/io/posix/posix_directory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/fs.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <thread>

#include "server/io/posix/posix_file.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/refused_call_fixture.h"

namespace forebay::io::testing {
namespace {

namespace fs = std::filesystem;

void WriteText(const std::string& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::string ReadText(const File& file) {
  std::string text(64, '\0');
  const ssize_t bytes =
      ::pread(dynamic_cast<const PosixFile&>(file).fd(), text.data(), text.size(), 0);
  text.resize(bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
  return text;
}

// Every path below a folder, with kind, size and target, to prove that nothing changed there.
std::string Snapshot(const std::string& path) {
  std::vector<std::string> lines;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(path)) {
    std::string line = entry.path().string();
    if (entry.is_symlink()) line += " -> " + fs::read_symlink(entry.path()).string();
    if (entry.is_regular_file()) line += " " + std::to_string(entry.file_size());
    lines.push_back(std::move(line));
  }
  std::sort(lines.begin(), lines.end());
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  return all;
}

// <folder>/root is the root; nothing in <folder>/outside may ever be opened.
class ConfinementTest : public ::testing::TestWithParam<ResolveMethod> {
 protected:
  void SetUp() override {
    root_ = folder_ / "root";
    outside_ = folder_ / "outside";
    fs::create_directories(root_ + "/d/e");
    fs::create_directories(outside_ + "/d");
    WriteText(root_ + "/f", "inside");
    WriteText(root_ + "/d/f", "inside");
    WriteText(root_ + "/d/e/f", "inside");
    WriteText(outside_ + "/f", "outside");
    WriteText(outside_ + "/d/f", "outside");
    PosixDirectoryOptions options;
    options.method = GetParam();
    directory_ = Take(PosixDirectory::Create(root_, options));
    if (directory_->method() == ResolveMethod::kOpenat2 &&
        DetectResolveMethod(AT_FDCWD) != ResolveMethod::kOpenat2) {
      GTEST_SKIP() << "this kernel has no openat2";
    }
  }
  void Link(const std::string& target, const std::string& name) {
    fs::create_symlink(target, root_ + "/" + name);
  }

  TempFolder folder_;
  std::string root_;
  std::string outside_;
  std::unique_ptr<PosixDirectory> directory_;
};

TEST_P(ConfinementTest, FollowsLinksThatStayBeneath) {
  Link("f", "to_file");
  Link("d", "to_directory");
  Link("e/../../to_file", "d/up_and_along");
  Link("./d//./e/", "untidy");
  Link("..", "d/parent");
  Link("to_directory/e", "chain");
  for (const char* path : {"f", "to_file", "to_directory/f", "to_directory/e/f",
                           "d/up_and_along", "untidy/f", "d/parent/f", "d/parent/d/parent/f",
                           "chain/f", "d/parent/chain/f"}) {
    SCOPED_TRACE(path);
    EXPECT_EQ(ReadText(*Take(directory_->Open(path, OpenMode::kRead))), "inside");
    EXPECT_TRUE(Take(directory_->Stat(path)).is_regular);
  }
  EXPECT_TRUE(Take(directory_->Stat("d/parent")).is_directory);
  EXPECT_EQ(Take(directory_->List("to_directory")).size(), 4U);
  const std::vector<DirectoryEntry> entries = Take(directory_->List(""));
  for (const DirectoryEntry& entry : entries) {
    EXPECT_NE(entry.is_directory, entry.is_regular) << entry.name;
  }
}

TEST_P(ConfinementTest, ListsALinkThatLeadsNowhereAsNeitherFileNorDirectory) {
  fs::create_directories(root_ + "/links");
  Link("../../outside/f", "links/leaves");
  Link("missing", "links/dangles");
  Link("loops", "links/loops");
  Link("../f/x", "links/runs_through_a_file");
  const std::vector<DirectoryEntry> entries = Take(directory_->List("links"));
  EXPECT_EQ(entries.size(), 4U);
  for (const DirectoryEntry& entry : entries) {
    EXPECT_FALSE(entry.is_directory || entry.is_regular) << entry.name;
  }
}

TEST_P(ConfinementTest, RefusesHostileNames) {
  Link("/", "slash");
  Link(outside_, "absolute");
  Link(outside_ + "/f", "absolute_file");
  Link(root_ + "/f", "absolute_inside");
  Link("../outside", "relative");
  Link("../outside/f", "relative_file");
  Link("..", "parent");
  Link("../root/f", "out_and_in");
  Link("d/../../outside/f", "through");
  Link("d/e/../../../outside", "deep");
  Link("relative", "chain1");
  Link("chain1", "chain2");
  Link("d/../chain2", "chain3");
  Link("loop_b", "loop_a");
  Link("loop_a", "loop_b");
  Link("self", "self");
  Link("../../../../../../../../../../etc", "etc");
  Link("/proc/self/root", "magic_root");
  Link("/proc/self/cwd", "magic_cwd");
  Link("../../outside", "d/two_up");
  Link("../../../outside", "d/e/three_up");
  Link("missing", "dangling");
  Link("../outside/made", "dangling_outside");
  const std::string nul = std::string("f\0g", 3);
  std::vector<std::string> names = {
      "..", "../f", "../outside/f", "../root/f", "d/..", "d/../f", "d/../../outside/f",
      "d/e/../../../outside/f", "./../outside/f", "/", "/f", "//f", "/etc/passwd", "/proc/self/mem",
      "/dev/null", "", ".", "./f", "f/", "d/", "d//f", "d/./f", "f/.", "d/e/..", "...//..",
      nul, std::string(1, '\0'), std::string("../outside\0/f", 13), std::string(256, 'x'),
      std::string(5'000, 'y'), std::string(1'000'000, '/'), "d/" + std::string(300, 'z'),
      "slash", "slash/etc/passwd", "absolute", "absolute/f", "absolute/d/f", "absolute_file",
      "absolute_inside", "relative", "relative/f", "relative/d/f", "relative_file", "parent",
      "parent/f", "parent/outside/f", "parent/root/f", "out_and_in", "through", "deep/f",
      "chain1/f",
      "chain2/f", "chain3/f", "chain3/d/f", "loop_a", "loop_b/f", "self", "self/f", "etc/passwd",
      "magic_root/etc/passwd", "magic_cwd/f", "d/two_up/f", "d/e/three_up/f", "dangling",
      "dangling_outside", "dangling/f", "f/f", "missing/f"};
  std::string many;
  for (int i = 0; i < 1'000; ++i) many += "../";
  names.push_back(many + "etc/passwd");
  ASSERT_GE(names.size(), 60U);

  const std::string before = Snapshot(outside_);
  for (const std::string& name : names) {
    SCOPED_TRACE(Quoted(name));
    const Result<std::unique_ptr<File>> opened = directory_->Open(name, OpenMode::kRead);
    ASSERT_FALSE(opened.has_value());
    const ErrorCode code = opened.error().code();
    EXPECT_TRUE(code == ErrorCode::kPermissionDenied || code == ErrorCode::kInvalidArgument ||
                code == ErrorCode::kNotFound)
        << opened.error().ToString();
    EXPECT_LT(opened.error().message().size(), 500U);
    EXPECT_FALSE(directory_->Open(name, OpenMode::kReadDirect).has_value());
    EXPECT_FALSE(name != "" && directory_->Stat(name).has_value());
    EXPECT_FALSE(name != "" && directory_->List(name).has_value());
    EXPECT_FALSE(name != "" && directory_->Sync(name).has_value());
    EXPECT_FALSE(name != "dangling" && directory_->Open(name, OpenMode::kAppend).has_value());
    for (const std::string& below : {name + "/x", name + "/f", name + "/d"}) {
      EXPECT_FALSE(directory_->Open(below, OpenMode::kCreate).has_value());
      EXPECT_FALSE(directory_->Open(below, OpenMode::kAppend).has_value());
    }
  }
  EXPECT_EQ(Snapshot(outside_), before);
}

TEST_P(ConfinementTest, ChangesNothingThroughLinksThatLeave) {
  Link("../outside", "relative");
  Link(outside_, "absolute");
  const std::string before = Snapshot(outside_);
  for (const std::string link : {"relative", "absolute"}) {
    SCOPED_TRACE(link);
    constexpr ErrorCode kDenied = ErrorCode::kPermissionDenied;
    EXPECT_EQ(CodeOf(directory_->Open(link + "/new", OpenMode::kCreate)), kDenied);
    EXPECT_EQ(CodeOf(directory_->Open(link + "/f", OpenMode::kAppend)), kDenied);
    EXPECT_EQ(CodeOf(directory_->MakeDirectory(link + "/new")), kDenied);
    EXPECT_EQ(CodeOf(directory_->Rename("f", link + "/f")), kDenied);
    EXPECT_EQ(CodeOf(directory_->Rename(link + "/f", "g")), kDenied);
    EXPECT_EQ(CodeOf(directory_->Unlink(link + "/f")), kDenied);
    EXPECT_EQ(CodeOf(directory_->RemoveDirectory(link + "/d")), kDenied);
    EXPECT_EQ(CodeOf(directory_->List(link)), kDenied);
    EXPECT_EQ(CodeOf(directory_->Sync(link)), kDenied);
    EXPECT_EQ(CodeOf(directory_->Stat(link + "/f")), kDenied);
  }
  EXPECT_EQ(Snapshot(outside_), before);
  const std::vector<DirectoryEntry> entries = Take(directory_->List(""));
  for (const DirectoryEntry& entry : entries) {
    if (entry.name != "relative" && entry.name != "absolute") continue;
    EXPECT_FALSE(entry.is_directory || entry.is_regular) << entry.name;
  }
  FOREBAY_EXPECT_OK(directory_->Unlink("relative"));
  EXPECT_EQ(Snapshot(outside_), before);
}

TEST_P(ConfinementTest, CreatesNothingWhereALinkAlreadyStands) {
  Link("../outside/made", "dangling_outside");
  EXPECT_EQ(CodeOf(directory_->Open("dangling_outside", OpenMode::kCreate)),
            ErrorCode::kAlreadyExists);
  EXPECT_EQ(CodeOf(directory_->Open("dangling_outside", OpenMode::kAppend)),
            ErrorCode::kPermissionDenied);
  EXPECT_FALSE(fs::exists(outside_ + "/made"));
}

TEST_P(ConfinementTest, MagicLinksAreNoWayOut) {
  PosixDirectoryOptions options;
  options.method = GetParam();
  const auto self = Take(PosixDirectory::Create("/proc/self", options));
  for (const char* path : {"root/etc/passwd", "cwd/x", "exe", "fd/0"}) {
    SCOPED_TRACE(path);
    const auto opened = self->Open(path, OpenMode::kRead);
    ASSERT_FALSE(opened.has_value());
    EXPECT_NE(opened.error().code(), ErrorCode::kUnknown);
  }
}

TEST_P(ConfinementTest, OpensRegularFilesOnlyAndNeverHangs) {
  ASSERT_EQ(::mkfifo((root_ + "/fifo").c_str(), 0600), 0);
  const UniqueFd server(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof(address.sun_path), "%s/socket", root_.c_str());
  ASSERT_EQ(::bind(server.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  for (const char* path : {"fifo", "socket", "d"}) {
    for (const OpenMode mode : {OpenMode::kRead, OpenMode::kReadDirect, OpenMode::kAppend}) {
      const auto opened = directory_->Open(path, mode);
      ASSERT_FALSE(opened.has_value()) << path;
      EXPECT_EQ(opened.error().code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(opened.error().message().find("is not a regular file"), std::string::npos);
    }
    const FileInfo info = Take(directory_->Stat(path));
    EXPECT_FALSE(info.is_regular);
  }
  PosixDirectoryOptions options;
  options.method = GetParam();
  const auto devices = Take(PosixDirectory::Create("/dev", options));
  EXPECT_EQ(CodeOf(devices->Open("null", OpenMode::kRead)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(devices->Open("zero", OpenMode::kAppend)), ErrorCode::kInvalidArgument);
}

TEST_P(ConfinementTest, FilesAreClosedOnExecAndBlocking) {
  for (const OpenMode mode : {OpenMode::kRead, OpenMode::kReadDirect, OpenMode::kAppend}) {
    const auto file = Take(directory_->Open("f", mode));
    const int fd = dynamic_cast<const PosixFile&>(*file).fd();
    EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
    EXPECT_EQ(::fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
    EXPECT_EQ((::fcntl(fd, F_GETFL) & O_DIRECT) != 0, file->is_direct());
    EXPECT_EQ((::fcntl(fd, F_GETFL) & O_APPEND) != 0, mode == OpenMode::kAppend);
  }
}

TEST_P(ConfinementTest, NewEntriesArePrivate) {
  const auto file = Take(directory_->Open("new", OpenMode::kCreate));
  FOREBAY_EXPECT_OK(directory_->MakeDirectory("new_directory"));
  EXPECT_EQ(fs::status(root_ + "/new").permissions(),
            fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(fs::status(root_ + "/new_directory").permissions(), fs::perms::owner_all);
}

TEST_P(ConfinementTest, FallsBackToBufferedWhereDirectIsRefused) {
  PosixDirectoryOptions options;
  options.method = GetParam();
  const auto self = Take(PosixDirectory::Create("/proc/self", options));
  const auto file = Take(self->Open("stat", OpenMode::kReadDirect));
  EXPECT_FALSE(file->is_direct());
  EXPECT_FALSE(ReadText(*file).empty());
}

TEST_P(ConfinementTest, HoldsItsRootThroughARename) {
  fs::rename(root_, folder_ / "moved");
  fs::create_directories(root_);
  WriteText(root_ + "/f", "replaced");
  EXPECT_EQ(ReadText(*Take(directory_->Open("f", OpenMode::kRead))), "inside");
}

TEST_P(ConfinementTest, ListsNoMoreThanItsLimit) {
  PosixDirectoryOptions options;
  options.method = GetParam();
  options.list_entries_max = 2;
  const auto directory = Take(PosixDirectory::Create(root_, options));
  EXPECT_EQ(Take(directory->List("")).size(), 2U);
  WriteText(root_ + "/g", "");
  EXPECT_EQ(CodeOf(directory->List("")), ErrorCode::kResourceExhausted);
}

// A thread swaps the directory "d" with a symlink to outside, as fast as possible, while "d/f" is
// opened: every open must give the file inside or be refused.
TEST_P(ConfinementTest, ASwappedSymlinkNeverLeadsOutside) {
  Link("../outside/d", "evil");
  const std::string a = root_ + "/d";
  const std::string b = root_ + "/evil";
  std::atomic<bool> is_done = false;
  std::thread swapper([&] {
    while (!is_done) {
      ::syscall(SYS_renameat2, AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE);
    }
  });
  int inside = 0;
  int refused = 0;
  int wrong = 0;
  for (int i = 0; i < 200'000 && wrong == 0 && (i < 4'000 || inside < 100 || refused < 100); ++i) {
    const auto opened = directory_->Open(i % 2 == 0 ? "d/f" : "evil/f", OpenMode::kRead);
    if (!opened.has_value()) {
      const ErrorCode code = opened.error().code();
      wrong += code != ErrorCode::kPermissionDenied && code != ErrorCode::kUnavailable ? 1 : 0;
      ++refused;
    } else {
      wrong += ReadText(**opened) != "inside" ? 1 : 0;
      ++inside;
    }
  }
  is_done = true;
  swapper.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GE(inside, 100);
  EXPECT_GE(refused, 100);
}

INSTANTIATE_TEST_SUITE_P(
    Methods, ConfinementTest,
    ::testing::Values(ResolveMethod::kOpenat2, ResolveMethod::kComponentWise),
    [](const ::testing::TestParamInfo<ResolveMethod>& method) {
      return method.param == ResolveMethod::kOpenat2 ? "Openat2" : "ComponentWise";
    });

TEST(UninterruptedTest, ACallIsMadeAgainWhileItIsInterruptedAndNotForEver) {
  int calls = 0;
  const auto fails_until = [&](int last, int failure) {
    calls = 0;
    return Uninterrupted([&calls, last, failure] {
      if (++calls == last) return 7;
      errno = failure;
      return -1;
    });
  };
  EXPECT_EQ(fails_until(1, EINTR), 7);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(fails_until(5, EINTR), 7);
  EXPECT_EQ(calls, 5);
  EXPECT_EQ(fails_until(5, EIO), -1);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(errno, EIO);
  EXPECT_EQ(fails_until(limits::kInterruptMax + 2, EINTR), -1);
  EXPECT_EQ(calls, limits::kInterruptMax + 1);
  EXPECT_EQ(errno, EINTR);
}

TEST(UninterruptedTest, AStatThatIsAlwaysInterruptedFailsAndSaysSo) {
  const TempFolder folder;
  WriteText(folder / "f", "inside");
  const bool did_run = RunWithRefusedCall(SYS_statx, EINTR, [&] {
    const auto directory = Take(PosixDirectory::Create(folder.path()));
    EXPECT_EQ(ErrnoOf(directory->Stat("f")), EINTR);
  });
  if (!did_run) GTEST_SKIP() << "seccomp filters cannot be installed here";
}

// An entry that is taken for nothing would be left out of a catalog without a word.
TEST(ListTest, ALinkThatCannotBeFollowedNowIsAnErrorAndNotNothing) {
  const TempFolder folder;
  fs::create_directories(folder / "d");
  fs::create_symlink("missing", folder / "d/link");
  PosixDirectoryOptions options;
  options.method = ResolveMethod::kComponentWise;  // the one that calls readlinkat
  const auto directory = Take(PosixDirectory::Create(folder.path(), options));
  const std::vector<DirectoryEntry> entries = Take(directory->List("d"));
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_FALSE(entries[0].is_directory || entries[0].is_regular);
  for (const int refusal : {EMFILE, EIO, ESTALE, EACCES}) {
    const bool did_run = RunWithRefusedCall(SYS_readlinkat, static_cast<unsigned>(refusal), [&] {
      const auto listed = directory->List("d");
      ASSERT_FALSE(listed.has_value());
      EXPECT_EQ(listed.error().system_errno(), refusal);
      EXPECT_NE(listed.error().message().find("d/link"), std::string::npos)
          << listed.error().message();
    });
    if (!did_run) GTEST_SKIP() << "seccomp filters cannot be installed here";
  }
}

TEST(StatTest, TimesBeyond64BitsOfNanosecondsAreTheLargestOrSmallestOnes) {
  const TempFolder folder;
  WriteText(folder / "f", "");
  const auto directory = Take(PosixDirectory::Create(folder.path()));
  const auto set_time = [&](std::int64_t seconds) {
    const struct timespec times[2] = {{seconds, 5}, {seconds, 5}};
    EXPECT_EQ(::utimensat(AT_FDCWD, (folder / "f").c_str(), times, 0), 0);
    struct stat kept = {};
    EXPECT_EQ(::stat((folder / "f").c_str(), &kept), 0);
    return kept.st_mtim.tv_sec == seconds;
  };
  ASSERT_TRUE(set_time(-2));  // 1969
  EXPECT_EQ(Take(directory->Stat("f")).mtime_ns, -1'999'999'995);
  constexpr std::int64_t kSecondsMax = std::numeric_limits<std::int64_t>::max() / 1'000'000'000;
  int kept_count = 0;
  for (const std::int64_t seconds : {kSecondsMax + 1, kSecondsMax * 2, -kSecondsMax - 2}) {
    if (!set_time(seconds)) continue;  // beyond what the file system keeps
    ++kept_count;
    EXPECT_EQ(Take(directory->Stat("f")).mtime_ns,
              seconds > 0 ? std::numeric_limits<std::int64_t>::max()
                          : std::numeric_limits<std::int64_t>::min());
  }
  if (kept_count == 0) GTEST_SKIP() << "this file system keeps no such times";
}

TEST(ResolveMethodTest, FallsBackWhereOpenat2IsRefused) {
  const TempFolder folder;
  WriteText(folder / "f", "inside");
  for (const int refusal : {ENOSYS, EPERM}) {
    const bool did_run = RunWithRefusedCall(SYS_openat2, static_cast<unsigned>(refusal), [&] {
      const auto directory = Take(PosixDirectory::Create(folder.path()));
      EXPECT_EQ(directory->method(), ResolveMethod::kComponentWise);
      EXPECT_EQ(ReadText(*Take(directory->Open("f", OpenMode::kRead))), "inside");
    });
    if (!did_run) GTEST_SKIP() << "seccomp filters cannot be installed here";
  }
}

TEST(ResolveMethodTest, AnyOtherRefusalIsNotAMissingCall) {
  const TempFolder folder;
  const bool did_run = RunWithRefusedCall(SYS_openat2, EMFILE, [&] {
    const auto directory = Take(PosixDirectory::Create(folder.path()));
    EXPECT_EQ(directory->method(), ResolveMethod::kOpenat2);
    EXPECT_EQ(CodeOf(directory->Open("f", OpenMode::kRead)), ErrorCode::kResourceExhausted);
  });
  if (!did_run) GTEST_SKIP() << "seccomp filters cannot be installed here";
}

}  // namespace
}  // namespace forebay::io::testing

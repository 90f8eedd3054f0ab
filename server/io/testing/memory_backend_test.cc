// What only the in-memory back end has: capacity, bit rot and power loss.
#include "server/io/testing/memory_backend.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <map>

#include "server/io/testing/io_test_fixture.h"

namespace forebay::io::testing {
namespace {

class MemoryBackendTest : public ::testing::Test {
 protected:
  MemoryBackendTest() {
    FOREBAY_EXPECT_OK(memory_.AddDirectory("/ssd"));
    Reopen();
  }
  void Reopen() {
    directory_ = Take(memory_.OpenDirectory("/ssd"));
    queue_ = Take(memory_.CreateQueue({8}));
  }
  std::unique_ptr<File> Write(std::string_view path, std::span<const std::byte> bytes) {
    std::unique_ptr<File> file = Take(directory_->Open(path, OpenMode::kCreate));
    FOREBAY_EXPECT_OK(WriteFully(*queue_, *file, 0, bytes));
    return file;
  }
  void Publish(std::string_view path, std::span<const std::byte> bytes) {
    const std::unique_ptr<File> file = Write(path, bytes);
    FOREBAY_EXPECT_OK(DataSync(*queue_, *file));
    FOREBAY_EXPECT_OK(directory_->Sync(""));
  }

  MemoryBackend memory_;
  std::unique_ptr<Directory> directory_;
  std::unique_ptr<IoQueue> queue_;
};

TEST_F(MemoryBackendTest, SyncedDataUnderASyncedNameSurvives) {
  Publish("a", Pattern(10'000));
  memory_.Crash();
  EXPECT_EQ(Take(memory_.FileBytes("/ssd/a")), Pattern(10'000));
}

TEST_F(MemoryBackendTest, UnsyncedDataUnderASyncedNameIsLost) {
  Write("a", Pattern(100));
  FOREBAY_EXPECT_OK(directory_->Sync(""));
  memory_.Crash();
  EXPECT_TRUE(Take(memory_.FileBytes("/ssd/a")).empty());
}

TEST_F(MemoryBackendTest, SyncedDataUnderAnUnsyncedNameIsLost) {
  FOREBAY_EXPECT_OK(DataSync(*queue_, *Write("a", Pattern(100))));
  memory_.Crash();
  EXPECT_EQ(CodeOf(memory_.FileBytes("/ssd/a")), ErrorCode::kNotFound);
}

TEST_F(MemoryBackendTest, UnsyncedRenamesAndRemovalsAreUndone) {
  Publish("a", Pattern(100, 1));
  Publish("b", Pattern(100, 2));
  FOREBAY_EXPECT_OK(directory_->Rename("a", "c"));
  FOREBAY_EXPECT_OK(directory_->Unlink("b"));
  memory_.Crash();
  Reopen();
  EXPECT_EQ(Take(memory_.FileBytes("/ssd/a")), Pattern(100, 1));
  EXPECT_EQ(Take(memory_.FileBytes("/ssd/b")), Pattern(100, 2));
  EXPECT_EQ(Take(directory_->List("")).size(), 2U);
}

TEST_F(MemoryBackendTest, OverwritesKeepTheirSyncedPartOnly) {
  Publish("a", Pattern(1'000, 1));
  const std::unique_ptr<File> file = Take(directory_->Open("a", OpenMode::kAppend));
  FOREBAY_EXPECT_OK(WriteFully(*queue_, *file, 0, Pattern(50, 2)));
  FOREBAY_EXPECT_OK(DataSync(*queue_, *file));
  FOREBAY_EXPECT_OK(WriteFully(*queue_, *file, 0, Pattern(50, 3)));
  FOREBAY_EXPECT_OK(file->Truncate(10));
  memory_.Crash();
  std::vector<std::byte> wanted = Pattern(1'000, 1);
  const std::vector<std::byte> tail = Pattern(50, 2);
  wanted.insert(wanted.end(), tail.begin(), tail.end());
  EXPECT_EQ(Take(memory_.FileBytes("/ssd/a")), wanted);
}

TEST_F(MemoryBackendTest, TruncateThenGrowSyncsZeros) {
  Publish("a", Pattern(1'000, 1));
  const std::unique_ptr<File> file = Take(directory_->Open("a", OpenMode::kAppend));
  FOREBAY_EXPECT_OK(file->Truncate(10));
  FOREBAY_EXPECT_OK(file->Truncate(20));
  FOREBAY_EXPECT_OK(DataSync(*queue_, *file));
  memory_.Crash();
  std::vector<std::byte> wanted = Pattern(10, 1);
  wanted.resize(20);
  EXPECT_EQ(Take(memory_.FileBytes("/ssd/a")), wanted);
}

TEST_F(MemoryBackendTest, RandomSubsetsKeepWholeBlocksOfEitherState) {
  std::map<bool, int> was_directory_kept;
  int mixed = 0;
  for (std::uint64_t seed = 1; seed <= 64; ++seed) {
    MemoryBackend memory;
    FOREBAY_EXPECT_OK(memory.AddFile("/ssd/a", Pattern(4'096, 1)));
    const auto directory = Take(memory.OpenDirectory("/ssd"));
    const auto queue = Take(memory.CreateQueue({8}));
    const auto file = Take(directory->Open("b", OpenMode::kCreate));
    FOREBAY_EXPECT_OK(directory->Rename("a", "c"));
    FOREBAY_EXPECT_OK(WriteFully(*queue, *file, 0, Pattern(4'096, 2)));
    memory.Crash({CrashMode::kRandomSubset, seed, 512});
    const bool is_renamed = memory.FileBytes("/ssd/c").has_value();
    EXPECT_NE(is_renamed, memory.FileBytes("/ssd/a").has_value());
    ++was_directory_kept[is_renamed];
    if (!is_renamed) continue;
    const std::vector<std::byte> bytes = Take(memory.FileBytes("/ssd/b"));
    const std::vector<std::byte> written = Pattern(4'096, 2);
    ASSERT_TRUE(bytes.empty() || bytes.size() == 4'096);
    int kept = 0;
    for (std::size_t block = 0; block * 512 < bytes.size(); ++block) {
      const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(block * 512);
      const bool is_new = std::equal(begin, begin + 512, written.begin() + (begin - bytes.begin()));
      if (!is_new) {
        EXPECT_EQ(std::count(begin, begin + 512, std::byte{0}), 512);
      }
      kept += is_new ? 1 : 0;
    }
    mixed += kept > 0 && kept < 8 ? 1 : 0;
  }
  EXPECT_GT(was_directory_kept[true], 10);
  EXPECT_GT(was_directory_kept[false], 10);
  EXPECT_GT(mixed, 5);
}

TEST_F(MemoryBackendTest, RenameWithoutDataKeepsNamesAlone) {
  const std::unique_ptr<File> file = Write("temp", Pattern(100));
  FOREBAY_EXPECT_OK(directory_->Rename("temp", "final"));
  memory_.Crash({CrashMode::kRenameWithoutData});
  EXPECT_TRUE(Take(memory_.FileBytes("/ssd/final")).empty());
}

TEST_F(MemoryBackendTest, HandlesOfBeforeTheCrashAreDead) {
  const std::unique_ptr<File> file = Write("a", Pattern(100));
  memory_.Crash();
  std::vector<std::byte> buffer(10);
  EXPECT_EQ(CodeOf(RunOne(*queue_, ReadOf(*file, 0, buffer))), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(CodeOf(RunOne(*queue_, WriteOf(*file, 0, buffer))), ErrorCode::kUnavailable);
  EXPECT_EQ(CodeOf(RunOne(*queue_, SyncOf(*file))), ErrorCode::kUnavailable);
  EXPECT_EQ(CodeOf(file->Info()), ErrorCode::kUnavailable);
  EXPECT_EQ(CodeOf(file->Truncate(1)), ErrorCode::kUnavailable);
  EXPECT_EQ(CodeOf(directory_->List("")), ErrorCode::kUnavailable);
  EXPECT_EQ(CodeOf(directory_->Open("a", OpenMode::kRead)), ErrorCode::kUnavailable);
}

TEST_F(MemoryBackendTest, FullFileSystemRefusesGrowthUntilSpaceIsFreed) {
  memory_.SetCapacity(1'000);
  const std::unique_ptr<File> file = Write("a", Pattern(600));
  EXPECT_EQ(Take(directory_->FreeSpace()).free_bytes, 400U);
  const std::unique_ptr<File> other = Take(directory_->Open("b", OpenMode::kCreate));
  const Result<std::uint64_t> full = RunOne(*queue_, WriteOf(*other, 0, Pattern(401)));
  EXPECT_EQ(ErrnoOf(full), ENOSPC);
  EXPECT_EQ(CodeOf(full), ErrorCode::kResourceExhausted);
  EXPECT_EQ(ErrnoOf(other->Preallocate(401)), ENOSPC);
  EXPECT_EQ(Take(other->Info()).bytes, 0U);
  FOREBAY_EXPECT_OK(directory_->Unlink("a"));
  EXPECT_EQ(Take(directory_->FreeSpace()).free_bytes, 1'000U);
  FOREBAY_EXPECT_OK(WriteFully(*queue_, *other, 0, Pattern(1'000)));
  memory_.Crash();
  EXPECT_EQ(Take(Take(memory_.OpenDirectory("/ssd"))->FreeSpace()).free_bytes, 1'000U);
}

TEST_F(MemoryBackendTest, BitRotIsDurableAndSilent) {
  Publish("a", Pattern(100));
  const FileInfo before = Take(directory_->Stat("a"));
  FOREBAY_EXPECT_OK(memory_.FlipBit("/ssd/a", 8 * 42 + 3));
  EXPECT_EQ(Take(directory_->Stat("a")).mtime_ns, before.mtime_ns);
  memory_.Crash();
  std::vector<std::byte> wanted = Pattern(100);
  wanted[42] ^= std::byte{8};
  EXPECT_EQ(Take(memory_.FileBytes("/ssd/a")), wanted);
  EXPECT_EQ(CodeOf(memory_.FlipBit("/ssd/a", 800)), ErrorCode::kOutOfRange);
  EXPECT_EQ(CodeOf(memory_.FlipBit("/ssd/b", 0)), ErrorCode::kNotFound);
}

TEST_F(MemoryBackendTest, ANewVersionHasANewTime) {
  Publish("a", Pattern(100));
  const FileInfo before = Take(directory_->Stat("a"));
  FOREBAY_EXPECT_OK(memory_.AddFile("/ssd/a", Pattern(100, 5)));
  EXPECT_GT(Take(directory_->Stat("a")).mtime_ns, before.mtime_ns);
}

TEST_F(MemoryBackendTest, FallsBackToBufferedWithoutDirect) {
  MemoryOptions options;
  options.has_direct = false;
  MemoryBackend memory(options);
  FOREBAY_EXPECT_OK(memory.AddFile("/ssd/a", Pattern(100)));
  const auto directory = Take(memory.OpenDirectory("/ssd"));
  EXPECT_FALSE(Take(directory->Open("a", OpenMode::kReadDirect))->is_direct());
}

}  // namespace
}  // namespace forebay::io::testing

// TableSpool returns the same bytes from memory and from its scratch file; every refusal.
#include "server/catalog/storage/table_spool.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>

#include <gmock/gmock.h>

#include "proto/contract/limits.h"
#include "server/catalog/testing/catalog_test_fixture.h"

namespace forebay::catalog {
namespace {

using ::testing::HasSubstr;

class TableSpoolTest : public ::testing::Test {
 protected:
  ~TableSpoolTest() override { std::filesystem::remove_all(directory_); }

  static std::string MakeDirectory() {
    std::string path = (std::filesystem::temp_directory_path() / "forebay_spool_XXXXXX").string();
    EXPECT_NE(::mkdtemp(path.data()), nullptr);
    return path;
  }
  static void Fill(TableSpool& spool, const std::vector<std::byte>& bytes, std::size_t piece) {
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      const std::size_t count = std::min(piece, bytes.size() - at);
      ASSERT_TRUE(spool.Append(std::span(bytes).subspan(at, count)).has_value());
    }
  }

  const std::string directory_ = MakeDirectory();
  const std::vector<std::byte> bytes_ = TextBytes(PatternText(3'000'000, 7));
};

TEST_F(TableSpoolTest, ReadsBackWhatWasAppendedInMemoryAndBeyond) {
  for (const std::uint64_t table_bytes : {0U, 1000U, 2'999'999U, 3'000'000U}) {
    for (const std::size_t piece : {17U, 4096U, 1'500'000U}) {
      TableSpool spool({.directory = directory_, .table_bytes = table_bytes});
      Fill(spool, bytes_, piece);
      ASSERT_EQ(spool.size(), bytes_.size());
      EXPECT_EQ(spool.has_spilled(), table_bytes < bytes_.size());
      for (const std::size_t at : {0U, 999U, 1'048'570U, 2'999'990U}) {
        std::vector<std::byte> read(std::min<std::size_t>(100'000, bytes_.size() - at));
        ASSERT_TRUE(spool.Read(at, read).has_value());
        EXPECT_TRUE(std::equal(read.begin(), read.end(), &bytes_[at])) << at;
      }
      std::vector<std::byte> whole;
      ASSERT_TRUE(spool.ForEachPiece([&](std::span<const std::byte> part) -> Status {
        whole.insert(whole.end(), part.begin(), part.end());
        return {};
      }).has_value());
      EXPECT_EQ(whole, bytes_);
    }
  }
}

TEST_F(TableSpoolTest, ReaderTakesRowsAcrossItsBuffer) {
  TableSpool spool({.directory = directory_, .table_bytes = 4096});
  Fill(spool, bytes_, 1000);
  SpoolReader reader(spool);
  std::size_t at = 0;
  for (std::size_t count = 1; at + count <= bytes_.size(); at += count, count = 1 + at % 9973) {
    const auto row = reader.Take(count);
    ASSERT_TRUE(row.has_value());
    ASSERT_TRUE(std::equal(row->begin(), row->end(), &bytes_[at])) << at;
  }
  EXPECT_EQ(reader.Take(bytes_.size() - at + 1).error().code(), ErrorCode::kDataLoss);
}

TEST_F(TableSpoolTest, StartIsReplacedWhereverItLies) {
  for (const std::uint64_t table_bytes : {0U, 100U, 10'000'000U}) {
    TableSpool spool({.directory = directory_, .table_bytes = table_bytes});
    Fill(spool, bytes_, 1'000'001);
    const std::vector<std::byte> start(512, std::byte{0xAB});
    ASSERT_TRUE(spool.ReplaceStart(start).has_value());
    auto image = spool.Release();
    ASSERT_TRUE(image.has_value());
    const std::span<const std::byte> bytes = image->bytes();
    ASSERT_EQ(bytes.size(), bytes_.size());
    EXPECT_TRUE(std::equal(start.begin(), start.end(), bytes.begin()));
    EXPECT_TRUE(std::equal(bytes.begin() + 512, bytes.end(), bytes_.begin() + 512));
    EXPECT_EQ(spool.size(), 0U);
  }
}

// The file has no name at any time.
TEST_F(TableSpoolTest, NothingIsToBeLeftBehind) {
  TableSpool spool({.directory = directory_, .table_bytes = 0});
  Fill(spool, bytes_, 1000);
  ASSERT_TRUE(spool.has_spilled());
  EXPECT_TRUE(std::filesystem::is_empty(directory_));
}

TEST_F(TableSpoolTest, WithoutADirectoryTheSecondBoundHolds) {
  const std::size_t count = limits::kBuildTableNoScratchBytesMax;
  void* const zeros = ::mmap(nullptr, count, PROT_READ,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(zeros, MAP_FAILED);
  TableSpool spool({.directory = "", .table_bytes = 100});
  Fill(spool, bytes_, 1000);
  EXPECT_FALSE(spool.has_spilled());
  const Status refused = spool.Append({static_cast<const std::byte*>(zeros), count});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kResourceExhausted);
  EXPECT_THAT(refused.error().message(), HasSubstr("kBuildTableNoScratchBytesMax"));
  EXPECT_EQ(::munmap(zeros, count), 0);
}

TEST_F(TableSpoolTest, AMissingDirectoryIsNamed) {
  TableSpool spool({.directory = directory_ + "/gone", .table_bytes = 10});
  const Status refused = spool.Append(bytes_);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kNotFound);
  EXPECT_THAT(refused.error().message(), HasSubstr("/gone"));
}

TEST_F(TableSpoolTest, AFileThatCannotGrowIsAnError) {
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  ASSERT_NE(std::signal(SIGXFSZ, SIG_IGN), SIG_ERR);
  rlimit small = before;
  small.rlim_cur = 1'000'000;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  TableSpool spool({.directory = directory_, .table_bytes = 10});
  const Status refused = spool.Append(bytes_);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), HasSubstr("scratch file"));
}

}  // namespace
}  // namespace forebay::catalog

// Whole documents: replaced, refused with their path, and never left in part on a full disk.
#include "trainer/core/metrics/text_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <string>

#include "trainer/testing/temp_folder.h"

namespace forebay::train {
namespace {

std::string TextOf(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(TextFile, ReplacesWhatIsThere) {
  const testing::TempFolder folder;
  const std::filesystem::path path = folder.path() / "summary.json";
  ASSERT_TRUE(WriteTextFile(path, "a longer text").has_value());
  ASSERT_TRUE(WriteTextFile(path, "short").has_value());
  EXPECT_EQ(TextOf(path), "short");
}

TEST(TextFile, NamesPathThatCannotBeOpened) {
  const testing::TempFolder folder;
  const std::filesystem::path path = folder.path() / "missing" / "summary.json";
  const Status written = WriteTextFile(path, "text");
  ASSERT_FALSE(written.has_value());
  EXPECT_EQ(written.error().code(), ErrorCode::kNotFound);
  EXPECT_THAT(written.error().ToString(), ::testing::HasSubstr(path.string()));
}

TEST(TextFile, ReportsFullDiskAndLeavesDevices) {
  const Status written = WriteTextFile("/dev/full", "text");
  ASSERT_FALSE(written.has_value());
  EXPECT_EQ(written.error().system_errno(), ENOSPC);
  EXPECT_TRUE(std::filesystem::exists("/dev/full"));
}

}  // namespace
}  // namespace forebay::train

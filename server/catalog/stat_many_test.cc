// StatMany answers for every path, in order, whatever the number of threads behind it.
#include "server/catalog/stat_many.h"

#include <gtest/gtest.h>

#include "server/io/testing/memory_backend.h"

namespace forebay::catalog {
namespace {

TEST(StatMany, AnswersInOrderAndNamesWhatIsMissing) {
  io::MemoryBackend backend;
  std::vector<std::string> paths;
  for (std::size_t i = 0; i < 1000; ++i) {
    paths.push_back("f" + std::to_string(i));
    if (i == 777) continue;
    const std::vector<std::byte> bytes(i + 1);
    ASSERT_TRUE(backend.AddFile("/gfs/" + paths.back(), bytes).has_value());
  }
  auto root = backend.OpenDirectory("/gfs");
  ASSERT_TRUE(root.has_value());
  const auto results = StatMany(**root, paths);
  ASSERT_EQ(results.size(), paths.size());
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (i == 777) {
      ASSERT_FALSE(results[i].has_value());
      EXPECT_EQ(results[i].error().code(), ErrorCode::kNotFound);
    } else {
      ASSERT_TRUE(results[i].has_value());
      EXPECT_EQ(results[i]->bytes, i + 1);
    }
  }
}

TEST(StatMany, NoPathsAreNoWork) {
  io::MemoryBackend backend;
  ASSERT_TRUE(backend.AddDirectory("/gfs").has_value());
  auto root = backend.OpenDirectory("/gfs");
  ASSERT_TRUE(root.has_value());
  EXPECT_TRUE(StatMany(**root, {}).empty());
}

}  // namespace
}  // namespace forebay::catalog

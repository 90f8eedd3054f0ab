// StatMany answers for every path, in order, whatever the number of threads behind it.
#include "server/catalog/stat_many.h"

#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "server/io/testing/fault_injector.h"
#include "server/io/testing/faulty_backend.h"
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

// A GFS takes long for one request, so a slow one must not hold up the others.
TEST(StatMany, OtherRequestsAreSentWhileOneIsNotAnswered) {
  constexpr std::size_t kPaths = 200;
  io::MemoryBackend backend;
  std::vector<std::string> paths;
  for (std::size_t i = 0; i < kPaths; ++i) {
    paths.push_back("f" + std::to_string(i));
    ASSERT_TRUE(backend.AddFile("/gfs/" + paths.back(), {}).has_value());
  }
  io::FaultInjector injector;
  io::FaultyBackend faulty(backend, injector);
  auto root = faulty.OpenDirectory("/gfs");
  ASSERT_TRUE(root.has_value());
  injector.Arm({.kind = io::FaultKind::kStall, .call = io::IoCall::kStat});
  std::jthread releaser([&injector] {
    while (injector.candidates_seen() < kPaths) std::this_thread::yield();
    injector.ReleaseStalls();
  });
  for (const auto& result : StatMany(**root, paths)) EXPECT_TRUE(result.has_value());
  EXPECT_EQ(injector.faults_injected(), 1U);
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

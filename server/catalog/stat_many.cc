// Threads take the next path from a shared counter until none is left. The caller's thread works
// too, so a short list starts no thread at all.
#include "server/catalog/stat_many.h"

#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>

namespace forebay::catalog {
namespace {

constexpr std::size_t kThreadsMax = 8;
constexpr std::size_t kPathsPerThreadMin = 32;  // fewer do not repay the start of a thread

}  // namespace

std::vector<Result<io::FileInfo>> StatMany(io::Directory& root,
                                           std::span<const std::string> paths) {
  std::vector<Result<io::FileInfo>> results(paths.size(), io::FileInfo{});
  // A counter, and no fixed share per thread: one slow directory server does not hold up the rest.
  std::atomic<std::size_t> next = 0;
  auto work = [&] {
    for (std::size_t i = next++; i < paths.size(); i = next++) results[i] = root.Stat(paths[i]);
  };
  const std::size_t threads =
      std::clamp<std::size_t>(paths.size() / kPathsPerThreadMin, 1, kThreadsMax);
  std::vector<std::jthread> helpers;
  try {
    for (std::size_t i = 1; i < threads; ++i) helpers.emplace_back(work);
  } catch (const std::system_error&) {
    // No more threads for this process: those that there are, and this one, do it all.
  }
  work();
  helpers.clear();  // joins
  return results;
}

}  // namespace forebay::catalog

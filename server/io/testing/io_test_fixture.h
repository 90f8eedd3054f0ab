// Test support: temporary folders, patterns of bytes, and single operations on a queue.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/io/io_backend.h"

namespace forebay::io::testing {

// A new directory in the machine's temporary folder; removed by the destructor.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = ::testing::TempDir() + "/forebay_io_XXXXXX";
    if (const char* made = ::mkdtemp(pattern.data()); made != nullptr) path_ = made;
  }
  ~TempFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
};

// Bytes that depend on their index and a seed, so that a misplaced byte differs from the right one.
inline std::byte PatternByte(std::uint64_t index, std::uint64_t seed) {
  const std::uint64_t mixed = (index + 1) * 0x9E3779B97F4A7C15ULL + seed * 0xBF58476D1CE4E5B9ULL;
  return static_cast<std::byte>((mixed >> 29) & 0xFF);
}
inline std::vector<std::byte> Pattern(std::size_t bytes, std::uint64_t seed = 0) {
  std::vector<std::byte> pattern(bytes);
  for (std::size_t i = 0; i < bytes; ++i) pattern[i] = PatternByte(i, seed);
  return pattern;
}

inline Operation ReadOf(File& file, std::uint64_t offset, std::span<std::byte> buffer,
                        std::uint64_t tag = 0) {
  Operation operation;
  operation.kind = OpKind::kRead;
  operation.file = &file;
  operation.offset = offset;
  operation.buffer = buffer;
  operation.tag = tag;
  return operation;
}
inline Operation WriteOf(File& file, std::uint64_t offset, std::span<const std::byte> data,
                         std::uint64_t tag = 0) {
  Operation operation;
  operation.kind = OpKind::kWrite;
  operation.file = &file;
  operation.offset = offset;
  operation.data = data;
  operation.tag = tag;
  return operation;
}
inline Operation SyncOf(File& file, std::uint64_t tag = 0) {
  Operation operation;
  operation.kind = OpKind::kDataSync;
  operation.file = &file;
  operation.tag = tag;
  return operation;
}

// Submits one operation and waits for it. The queue must be idle.
inline Result<std::uint64_t> RunOne(IoQueue& queue, const Operation& operation) {
  FOREBAY_TRY(queue.Submit({&operation, 1}));
  std::vector<Completion> completions;
  while (completions.empty()) queue.Wait(1, completions);
  return std::move(completions.at(0).bytes);
}

// The value of a Result, or a failed test with the error's text.
template <typename T>
T Take(Result<T> result) {
  if (!result.has_value()) {
    ADD_FAILURE() << result.error().ToString();
    std::abort();
  }
  return std::move(*result);
}

template <typename T>
ErrorCode CodeOf(const Result<T>& result) {
  return result.has_value() ? static_cast<ErrorCode>(0) : result.error().code();
}
template <typename T>
int ErrnoOf(const Result<T>& result) {
  return result.has_value() ? 0 : result.error().system_errno();
}

#define FOREBAY_EXPECT_OK(expression)                                    \
  do {                                                                   \
    const auto& forebay_expect_result = (expression);                    \
    EXPECT_TRUE(forebay_expect_result.has_value())                       \
        << forebay_expect_result.error().ToString();                     \
  } while (false)

}  // namespace forebay::io::testing

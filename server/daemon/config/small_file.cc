#include "server/daemon/config/small_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include <fmt/format.h>

namespace forebay::daemon {

Result<std::string> ReadTextFile(const std::string& path, std::uint64_t bytes_max,
                                 std::string_view limit) {
  std::ifstream file(path, std::ios::binary);
  // errno is that of open(2), which ifstream leaves untouched.
  if (!file) {
    return Error(ErrorCode::kNotFound,
                 fmt::format("{} cannot be opened: {}", path, std::strerror(errno)));
  }
  std::string text;
  std::string block(1 << 16, '\0');
  // A block at a time, so that the memory follows the file and not the limit. A file that is longer
  // than the limit is noticed also if it is a pipe, whose length nobody knows.
  while (file && text.size() <= bytes_max) {
    file.read(block.data(), static_cast<std::streamsize>(block.size()));
    text.append(block, 0, static_cast<std::size_t>(file.gcount()));
  }
  // A short read sets only eof and fail.
  if (file.bad()) return Error(ErrorCode::kUnavailable, fmt::format("{} cannot be read", path));
  if (text.size() > bytes_max) {
    return Error(ErrorCode::kResourceExhausted,
                 fmt::format("{} exceeds {} ({})", path, limit, bytes_max));
  }
  return text;
}

}  // namespace forebay::daemon

// The functions that both sides of a transport share. Whatever CheckBatch accepts is opened beneath
// the root of the data set only (io::Directory), so it refuses paths that no node sends, and
// protects nothing that lies outside.
#include "server/stage/stat_source.h"

#include <algorithm>
#include <cstddef>
#include <string_view>

#include <fmt/format.h>

#include "proto/contract/byte_cursor.h"
#include "proto/contract/checksum.h"
#include "proto/contract/limits.h"
#include "proto/contract/printable.h"

namespace forebay::stage {
namespace {

bool IsComponent(std::string_view name) { return !name.empty() && name != "." && name != ".."; }

bool IsBeneathRoot(std::string_view path) {
  // A NUL would end the path early where it is given to the kernel.
  if (path.size() > limits::kPathBytesMax || path.find('\0') != path.npos) return false;
  for (;;) {
    const std::size_t slash = path.find('/');
    if (!IsComponent(path.substr(0, slash))) return false;
    if (slash == path.npos) return true;
    path.remove_prefix(slash + 1);
  }
}

}  // namespace

std::uint64_t BatchKey(std::uint64_t dataset, std::span<const std::string> paths) {
  ByteWriter writer;
  writer.Le<std::uint64_t>(dataset);
  // Each path behind its length, so that no two lists have the same bytes.
  for (const std::string& path : paths) writer.String(path);
  return Checksum(writer.bytes());
}

Status CheckBatch(std::span<const std::string> paths) {
  std::size_t bytes = 0;
  for (const std::string& path : paths) bytes += path.size();
  if (paths.empty() || paths.size() > limits::kStatPathsMax || bytes > limits::kStatPathBytesMax) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("sizes of {} files are asked for, whose paths have {} bytes together; "
                             "a batch has 1 to {} paths of at most {} bytes together",
                             paths.size(), bytes, limits::kStatPathsMax,
                             limits::kStatPathBytesMax));
  }
  const auto wrong = std::ranges::find_if_not(paths, IsBeneathRoot);
  if (wrong == paths.end()) return {};
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("{} is not a canonical path beneath the root of a data set",
                           Quoted(*wrong)));
}

}  // namespace forebay::stage

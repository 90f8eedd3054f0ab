// Keys in a pack may say anything, "../../.ssh/config" included. A path is taken apart and checked
// part by part, then each folder is opened relative to the one before without following links, so
// that a folder which is swapped for a link meanwhile leads nowhere.
#include "client/cli/inspect/safe_path.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "proto/contract/printable.h"

namespace forebay::cli {
namespace {

// The longest name that Linux file systems take.
constexpr std::size_t kPartBytesMax = 255;

}  // namespace

Result<std::vector<std::string>> SafePathParts(std::string_view path) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    // An absolute path begins with an empty part, so it is refused by the same test. The length is
    // that of the printable text, which is what becomes the file's name.
    if (part.empty() || part == "." || part == ".." || part.find('\0') != part.npos ||
        PrintableLine(part).size() > kPartBytesMax) {
      return Error(ErrorCode::kInvalidArgument,
                   "'" + PrintableLine(path.substr(0, kPartBytesMax)) +
                       "' is not a path beneath the folder and is not written; choose other "
                       "samples with --range or fields with --field");
    }
    parts.push_back(PrintableLine(part));  // files are listed on terminals too
    begin = end + 1;
  }
  return parts;
}

Result<FileBeneath> CreateBeneath(int folder, const std::string& name,
                                  std::span<const std::string> parts) {
  UniqueFd below;
  std::string path = name;
  for (const std::string& part : parts.first(parts.size() - 1)) {
    const int parent = below.valid() ? below.get() : folder;
    path += "/" + part;
    // Created first and opened then: a folder that is there already, from an earlier sample, is the
    // usual case.
    if (mkdirat(parent, part.c_str(), 0755) != 0 && errno != EEXIST) {
      return Error::FromErrno(errno, path + ": creating");
    }
    UniqueFd child(openat(parent, part.c_str(),
                          O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!child.valid()) {
      return Error::FromErrno(errno, path + ": opening; a link or a file in its place?");
    }
    below = std::move(child);
  }
  FOREBAY_ASSIGN(NewFile file,
                 NewFile::Create(below.valid() ? below.get() : folder, parts.back(),
                                 path + "/" + parts.back()));
  return FileBeneath{std::move(below), std::move(file)};
}

}  // namespace forebay::cli

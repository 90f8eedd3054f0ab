#include "compress/encode/publish_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "proto/contract/unique_fd.h"

namespace forebay::compress {
namespace {

Error Failed(int number, const std::string& part, const std::string& path) {
  if (number != EEXIST) return Error::FromErrno(number, path + ": naming the finished file");
  return Error(ErrorCode::kAlreadyExists,
               path + ": came to be while " + part + " was written, which is whole and stays; "
                      "move or remove " + path + ", then resume");
}

Status RenameInPlace(const std::string& part, const std::string& path) {
  if (renameat2(AT_FDCWD, part.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) == 0) return {};
  if (errno == EINVAL || errno == ENOSYS) return LinkInPlace(part, path);
  return Failed(errno, part, path);
}

}  // namespace

Status LinkInPlace(const std::string& part, const std::string& path) {
  if (link(part.c_str(), path.c_str()) != 0) return Failed(errno, part, path);
  if (unlink(part.c_str()) != 0) {
    return Error::FromErrno(errno, part + ": dropping the finished file's old name");
  }
  return {};
}

Status PublishFile(const std::string& part, const std::string& path, bool replace) {
  if (!replace) {
    FOREBAY_TRY(RenameInPlace(part, path));
  } else if (std::rename(part.c_str(), path.c_str()) != 0) {
    return Failed(errno, part, path);
  }
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const UniqueFd directory(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() < 0 || fsync(directory.get()) != 0) {
    return Error::FromErrno(errno, folder + ": syncing");
  }
  return {};
}

}  // namespace forebay::compress

// Gives a finished file its name, atomically, without replacing another file unless the caller
// wants that. Linux has one call for it (renameat2 with RENAME_NOREPLACE), which some file systems
// lack; there it is a hard link, or, where those are missing too, an empty file that reserves the
// name. Called by PackWriter; ReplaceFile also writes small files that lie beside packs.
#include "compress/encode/pack/publish_file.h"

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

// What file systems say of a call that they do not have. EPERM is a refusal elsewhere: then the
// next way is refused, too, and that error is returned.
bool IsUnsupported(int number) {
  return number == EINVAL || number == ENOSYS || number == EPERM || number == EOPNOTSUPP;
}

Status ReserveAndRename(const std::string& part, const std::string& path) {
  const UniqueFd reserved(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (reserved.get() < 0) return Failed(errno, part, path);
  if (std::rename(part.c_str(), path.c_str()) == 0) return {};
  const int number = errno;
  // The empty file was ours. Left there, it would look like a damaged pack.
  unlink(path.c_str());
  return Failed(number, part, path);
}

Status WriteDurably(const std::string& path, std::span<const std::byte> bytes) {
  const UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file.valid()) return Error::FromErrno(errno, path + ": creating");
  while (!bytes.empty()) {
    const ssize_t written = write(file.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Error::FromErrno(errno, path + ": writing");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  // Before the rename: otherwise a crash could leave the new name with an empty file.
  if (fdatasync(file.get()) != 0) return Error::FromErrno(errno, path + ": syncing");
  return {};
}

}  // namespace

Status NameNewFile(const std::string& part, const std::string& path, const NamingCalls& calls) {
  // The usual way: one call, which either names the file or finds the name taken.
  if (calls.rename_new(part.c_str(), path.c_str()) == 0) return {};
  if (!IsUnsupported(errno)) return Failed(errno, part, path);
  if (calls.link(part.c_str(), path.c_str()) != 0) {
    return IsUnsupported(errno) ? ReserveAndRename(part, path) : Failed(errno, part, path);
  }
  if (unlink(part.c_str()) != 0) {
    return Error::FromErrno(errno, part + ": dropping the finished file's old name");
  }
  return {};
}

Status PublishFile(const std::string& part, const std::string& path, bool replace) {
  if (!replace) {
    const NamingCalls calls = {.rename_new =
                                   [](const char* from, const char* to) {
                                     return renameat2(AT_FDCWD, from, AT_FDCWD, to,
                                                      RENAME_NOREPLACE);
                                   },
                               .link = ::link};
    FOREBAY_TRY(NameNewFile(part, path, calls));
  } else if (std::rename(part.c_str(), path.c_str()) != 0) {
    return Failed(errno, part, path);
  }
  // A rename is in the folder, so the folder must be synced, or a crash may undo it.
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const UniqueFd directory(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() < 0 || fsync(directory.get()) != 0) {
    return Error::FromErrno(errno, folder + ": syncing");
  }
  return {};
}

Status ReplaceFile(const std::string& path, std::span<const std::byte> bytes) {
  // Several processes may write the same file, such as packs of one job with the same predictor.
  const std::string part = path + "." + std::to_string(getpid()) + ".part";
  Status replaced = WriteDurably(part, bytes);
  if (replaced.has_value()) replaced = PublishFile(part, path, /*replace=*/true);
  if (!replaced.has_value()) unlink(part.c_str());
  return replaced;
}

}  // namespace forebay::compress

// Confinement of paths. With openat2 and RESOLVE_BENEATH the kernel does it in one call. Without
// it, ComponentWalk opens one component after another by descriptor and never by path, so a
// directory that is renamed during the walk stays the directory that was opened.
#include "server/io/posix/path_resolver.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <optional>
#include <vector>

#include "proto/contract/limits.h"
#include "proto/contract/printable.h"
#include "server/io/posix/posix_file.h"

namespace forebay::io {
namespace {

int OpenAt2(int root_fd, const char* path, const OpenRequest& request) {
  struct open_how how = {};
  how.flags = static_cast<std::uint64_t>(request.flags | O_CLOEXEC);
  how.mode = (request.flags & O_CREAT) != 0 ? request.mode : 0;
  // Magic links are those of /proc, which jump to any file of any process.
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  // A direct system call, because glibc has no function for it.
  return static_cast<int>(::syscall(SYS_openat2, root_fd, path, &how, sizeof(how)));
}

Status CheckComponent(std::string_view component, std::string_view path) {
  if (component == "..") {
    return Error(ErrorCode::kPermissionDenied, "path " + Quoted(path) + " contains '..'");
  }
  if (component.empty() || component == ".") {
    return Error(ErrorCode::kInvalidArgument,
                 "path " + Quoted(path) + " has an empty or '.' component");
  }
  if (component.size() > limits::kNameBytesMax) {
    return Error(ErrorCode::kInvalidArgument,
                 "path " + Quoted(path) + " has a component longer than kNameBytesMax=" +
                     std::to_string(limits::kNameBytesMax));
  }
  return {};
}

// OpenBeneath without openat2. It keeps a stack of the directories that it entered below the root,
// and the components that remain, in reverse order. ".." in a symlink pops the stack, so it can
// never climb above the root, whatever is renamed meanwhile.
class ComponentWalk {
 public:
  ComponentWalk(int root_fd, const OpenRequest& request) : root_fd_(root_fd), request_(request) {}

  // Returns the open descriptor, or a negative errno.
  // The loop ends: a component is taken from `todo_` in each round, and only symlinks and names
  // that were swapped add some, at most kLinkCountMax times.
  int Run(std::string_view path) {
    Push(path);
    while (!todo_.empty()) {
      const std::string name = std::move(todo_.back());
      todo_.pop_back();
      if (name == "..") {
        if (entered_.empty()) return -EXDEV;
        entered_.pop_back();
        continue;
      }
      if (const std::optional<int> end = Enter(name)) return *end;
    }
    // The path is empty, or it ended with "..": what is wanted is a directory that the walk has
    // entered.
    const int fd = ::openat(current(), ".", request_.flags | O_CLOEXEC, request_.mode);
    return fd >= 0 ? fd : -errno;
  }

 private:
  int current() const { return entered_.empty() ? root_fd_ : entered_.back().get(); }

  void Push(std::string_view path) {
    std::size_t end = path.size();
    while (true) {
      const std::size_t slash = end == 0 ? std::string_view::npos : path.rfind('/', end - 1);
      const std::size_t begin = slash == std::string_view::npos ? 0 : slash + 1;
      const std::string_view name = path.substr(begin, end - begin);
      if (!name.empty() && name != ".") todo_.emplace_back(name);
      if (begin == 0) return;
      end = slash;
    }
  }

  // Takes one step. Returns a descriptor or a negative errno if the walk is over.
  std::optional<int> Enter(const std::string& name) {
    const bool is_last = todo_.empty();
    // Directories on the way are opened with O_PATH: to pass through them takes the right to
    // search, not to read.
    const int flags = is_last ? request_.flags : O_PATH | O_DIRECTORY;
    UniqueFd fd(::openat(current(), name.c_str(), flags | O_NOFOLLOW | O_CLOEXEC,
                         request_.mode));
    const int open_errno = errno;
    if (fd.valid() && !IsLink(fd.get(), flags)) {
      if (is_last) return fd.Release();
      entered_.push_back(std::move(fd));
      return std::nullopt;
    }
    // A name that is a plain file comes here too; FollowLink finds that it is no symlink and keeps
    // the error.
    // ELOOP, or ENOTDIR beside O_DIRECTORY, is how O_NOFOLLOW reports a symlink.
    if (!fd.valid() && open_errno != ELOOP && open_errno != ENOTDIR) return -open_errno;
    return FollowLink(name, open_errno);
  }

  // O_PATH|O_NOFOLLOW opens a symlink itself instead of refusing it.
  static bool IsLink(int fd, int flags) {
    struct stat attributes = {};
    return (flags & O_PATH) != 0 && ::fstat(fd, &attributes) == 0 && S_ISLNK(attributes.st_mode);
  }

  // The name was a symlink when it was opened and is none now: another process swaps it. Tries the
  // name again, within the bound on symlinks. A file in place of a directory remains an error.
  std::optional<int> TryAgain(const std::string& name, int open_errno) {
    struct stat attributes = {};
    const bool is_known =
        ::fstatat(current(), name.c_str(), &attributes, AT_SYMLINK_NOFOLLOW) == 0;
    const bool was_swapped =
        is_known && (S_ISDIR(attributes.st_mode) || S_ISLNK(attributes.st_mode));
    if (!was_swapped) return -open_errno;
    if (++link_count_ > limits::kLinkCountMax) return -EAGAIN;
    Push(name);
    return std::nullopt;
  }

  // Replaces a symlink by the components of its target.
  std::optional<int> FollowLink(const std::string& name, int open_errno) {
    std::array<char, PATH_MAX> target;
    const ssize_t length = ::readlinkat(current(), name.c_str(), target.data(), target.size());
    if (length < 0 && errno == EINVAL) return TryAgain(name, open_errno);
    if (length < 0) return -errno;
    // readlinkat does not say that it cut a target, but a full buffer means that it may have.
    if (length == 0 || static_cast<std::size_t>(length) == target.size()) return -ENAMETOOLONG;
    if (target[0] == '/') return -EXDEV;
    if (++link_count_ > limits::kLinkCountMax) return -ELOOP;
    Push({target.data(), static_cast<std::size_t>(length)});
    return std::nullopt;
  }

  int root_fd_;
  const OpenRequest& request_;
  std::vector<UniqueFd> entered_;
  std::vector<std::string> todo_;
  int link_count_ = 0;
};

int OpenOnce(int root_fd, const std::string& path, const OpenRequest& request,
             ResolveMethod method) {
  if (method == ResolveMethod::kComponentWise) return ComponentWalk(root_fd, request).Run(path);
  const int fd = OpenAt2(root_fd, path.empty() ? "." : path.c_str(), request);
  return fd >= 0 ? fd : -errno;
}

}  // namespace

// The rules are about the text alone, so all back ends refuse the same paths, the ones in memory
// too. OpenBeneath checks where the names lead, for example through symbolic links.
Status CheckPath(std::string_view path, EmptyPath empty) {
  if (path.empty()) {
    if (empty == EmptyPath::kMeansRoot) return {};
    return Error(ErrorCode::kInvalidArgument, "the path is empty");
  }
  if (path.size() > limits::kPathBytesMax) {
    return Error(ErrorCode::kInvalidArgument,
                 "path of " + std::to_string(path.size()) + " bytes exceeds kPathBytesMax=" +
                     std::to_string(limits::kPathBytesMax) + ": " + Quoted(path));
  }
  if (path.find('\0') != std::string_view::npos) {
    return Error(ErrorCode::kInvalidArgument, "path " + Quoted(path) + " contains NUL");
  }
  if (path.front() == '/') {
    return Error(ErrorCode::kPermissionDenied, "path " + Quoted(path) + " is absolute");
  }
  std::size_t begin = 0;
  while (true) {
    const std::size_t slash = path.find('/', begin);
    FOREBAY_TRY(CheckComponent(path.substr(begin, slash - begin), path));
    if (slash == std::string_view::npos) return {};
    begin = slash + 1;
  }
}

std::pair<std::string_view, std::string_view> SplitLeaf(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return {std::string_view(), path};
  return {path.substr(0, slash), path.substr(slash + 1)};
}

// The call that the daemon will make is tried, because a version number says nothing about filters.
ResolveMethod DetectResolveMethod(int root_fd) {
  // An old kernel answers ENOSYS; seccomp filters that were written before openat2 answer EPERM.
  // Any other answer comes from the kernel's path walk and so proves that the call exists.
  UniqueFd fd(OpenAt2(root_fd, ".", {O_PATH | O_DIRECTORY, 0}));
  if (!fd.valid() && (errno == ENOSYS || errno == EPERM)) return ResolveMethod::kComponentWise;
  return ResolveMethod::kOpenat2;
}

Result<UniqueFd> OpenBeneath(int root_fd, std::string_view path, const OpenRequest& request,
                             ResolveMethod method) {
  const std::string terminated(path);
  int answer = -EAGAIN;
  // The kernel answers EAGAIN if a rename elsewhere raced with the resolution of "..". A repetition
  // costs microseconds.
  for (int i = 0; i < limits::kResolveRetryMax && (answer == -EAGAIN || answer == -EINTR); ++i) {
    answer = OpenOnce(root_fd, terminated, request, method);
  }
  if (answer < 0) return FileError(-answer, "open " + Quoted(path));
  return UniqueFd(answer);
}

}  // namespace forebay::io

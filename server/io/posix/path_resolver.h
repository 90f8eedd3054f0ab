// OpenBeneath: opens paths beneath a root and nowhere else (docs/design.md, P7).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "proto/contract/result.h"
#include "proto/contract/unique_fd.h"

namespace forebay::io {

enum class EmptyPath : std::uint8_t { kRefused, kMeansRoot };

// Checks the lexical rules of every back end. A path is '/'-separated and canonical (no empty and
// no "." component), has no NUL, at most limits::kPathBytesMax bytes and limits::kNameBytesMax per
// component; otherwise kInvalidArgument. An absolute path, or one with a ".." component, is
// kPermissionDenied.
Status CheckPath(std::string_view path, EmptyPath empty);

// Splits a checked path before its last component: "a/b/c" into {"a/b", "c"}, "c" into {"", "c"}.
std::pair<std::string_view, std::string_view> SplitLeaf(std::string_view path);

enum class ResolveMethod : std::uint8_t {
  kOpenat2,        // the kernel confines the path (Linux 5.6)
  kComponentWise,  // one openat(O_NOFOLLOW) per component; symlinks are expanded here
};

// The method that this kernel and its seccomp filters allow.
ResolveMethod DetectResolveMethod(int root_fd);

struct OpenRequest {
  int flags = 0;    // O_CLOEXEC is added
  mode_t mode = 0;  // only with O_CREAT
};

// Opens a path that CheckPath accepted ("" is the root itself) beneath `root_fd`. Follows symlinks
// that stay beneath the root; one that leaves it, or is absolute, is kPermissionDenied. Both
// methods give the same answers, also while another process renames directories and swaps
// symlinks.
Result<UniqueFd> OpenBeneath(int root_fd, std::string_view path, const OpenRequest& request,
                             ResolveMethod method);

}  // namespace forebay::io

// Opens paths beneath a root and nowhere else (promise P7).
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

// The lexical rules, shared by every back end: relative, '/'-separated, canonical (no empty
// and no "." component), no NUL, at most limits::kPathBytesMax bytes and
// limits::kNameBytesMax per component: kInvalidArgument. Absolute, or with a ".." component:
// kPermissionDenied.
Status CheckPath(std::string_view path, EmptyPath empty);

// A checked path split before its last component: {"a/b", "c"} of "a/b/c", {"", "c"} of "c".
std::pair<std::string_view, std::string_view> SplitLeaf(std::string_view path);

enum class ResolveMethod : std::uint8_t {
  kOpenat2,        // the kernel confines (Linux 5.6)
  kComponentWise,  // one openat(O_NOFOLLOW) per component, symlinks expanded by hand
};

// What this kernel and its seccomp filters allow.
ResolveMethod DetectResolveMethod(int root_fd);

struct OpenRequest {
  int flags = 0;    // O_CLOEXEC is added
  mode_t mode = 0;  // only with O_CREAT
};

// Opens a path that CheckPath accepted ("" is the root itself) beneath `root_fd`. Symlinks are
// followed while they stay beneath; one that leaves, an absolute one included, is
// kPermissionDenied. Both methods answer alike, also while somebody renames directories and
// swaps symlinks underneath.
Result<UniqueFd> OpenBeneath(int root_fd, std::string_view path, const OpenRequest& request,
                             ResolveMethod method);

}  // namespace forebay::io

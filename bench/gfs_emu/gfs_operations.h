// The FUSE operations of gfs_emu: they translate between libfuse and GfsFilesystem, and wait.
#pragma once

#define FUSE_USE_VERSION 314
#include <fuse3/fuse_lowlevel.h>

namespace forebay::bench {

class GfsFilesystem;
class ParkedRequests;

// The user data of the session. `session` is set once it exists, before it is mounted.
struct GfsMount {
  GfsFilesystem* filesystem = nullptr;
  ParkedRequests* parked = nullptr;
  fuse_session* session = nullptr;
};

// For fuse_session_new; its user data is a GfsMount*.
const fuse_lowlevel_ops& GfsOperations();

// The largest read that the kernel sends in one piece.
inline constexpr unsigned kGfsReadBytesMax = 1024 * 1024;

}  // namespace forebay::bench

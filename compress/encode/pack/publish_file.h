// Gives a finished file its name.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "proto/contract/result.h"

namespace forebay::compress {

// Renames `part`, whose bytes are on the disk, to `path`, and syncs the folder. Without `replace` a
// file at `path` is never replaced, even if it appeared a moment ago: the error is kAlreadyExists,
// and both files stay.
Status PublishFile(const std::string& part, const std::string& path, bool replace);

// Creates or replaces a file so that readers, and a machine that restarts after a crash, find the
// old content or `bytes` and nothing between. Several processes may do so at once: each writes
// a file PATH.PID.part first, which is removed after an error.
Status ReplaceFile(const std::string& path, std::span<const std::byte> bytes);

// The calls by which a file gets a name that no file has; each returns 0, or -1 and sets errno.
struct NamingCalls {
  int (*rename_new)(const char* from, const char* to);  // fails where there is a file
  int (*link)(const char* from, const char* to);
};

// What PublishFile does without `replace`. On file systems without RENAME_NOREPLACE (Lustre, older
// NFS) it makes a hard link, which fails if there is a file, and then removes the first name. On
// those without hard links (FAT, some FUSE and object stores) it creates an empty file at `path`,
// which fails if there is one, and renames `part` over it; a crash in between leaves the empty file
// and a complete `part`. Declared here for tests, which pass calls other than the system's.
Status NameNewFile(const std::string& part, const std::string& path, const NamingCalls& calls);

}  // namespace forebay::compress

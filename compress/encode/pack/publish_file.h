// Gives a finished file its name.
#pragma once

#include <string>

#include "proto/contract/result.h"

namespace forebay::compress {

// Renames PART, whose bytes are on the disk, to PATH and syncs the folder. Without `replace` a file
// at PATH stays what it is, whenever it came there: kAlreadyExists, and PART stays, too.
Status PublishFile(const std::string& part, const std::string& path, bool replace);

// The calls by which a file gets a name that no file has; each returns 0, or -1 and sets errno.
struct NamingCalls {
  int (*rename_new)(const char* from, const char* to);  // fails where there is a file
  int (*link)(const char* from, const char* to);
};

// What PublishFile does without `replace`. File systems that cannot rename so (Lustre, older NFS)
// give a second name, which fails where there is a file, and then take the first one away. Those
// without hard links (FAT, some FUSE and object stores) get an empty file at PATH, which fails
// where there is one, and PART is renamed over it; a crash in between leaves that empty file and a
// whole PART. Shown for tests, which bring other calls than the system's.
Status NameNewFile(const std::string& part, const std::string& path, const NamingCalls& calls);

}  // namespace forebay::compress

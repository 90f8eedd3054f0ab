// Gives a finished file its name.
#pragma once

#include <string>

#include "proto/contract/result.h"

namespace forebay::compress {

// Renames PART, whose bytes are on the disk, to PATH and syncs the folder. Without `replace` a file
// at PATH stays what it is, whenever it came there: kAlreadyExists, and PART stays, too.
Status PublishFile(const std::string& part, const std::string& path, bool replace);

// What PublishFile does without `replace` on file systems that cannot rename so (Lustre, older
// NFS): a second name, which fails where there is a file, and then one name less. Shown for tests.
Status LinkInPlace(const std::string& part, const std::string& path);

}  // namespace forebay::compress

// WriteTextFile: writes a whole document (summary, trace, report) to a file.
#pragma once

#include <filesystem>
#include <string_view>

#include "proto/contract/result.h"

namespace forebay::train {

// Replaces what `path` has by `text`. Errors name the path. A regular file that could not be
// written whole is removed, because a part of a document is of no use and may look like one.
// Does not wait until the bytes are on the disk: checkpoints need WriteSynced.
Status WriteTextFile(const std::filesystem::path& path, std::string_view text);

}  // namespace forebay::train

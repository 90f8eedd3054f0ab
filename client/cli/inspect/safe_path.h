// Files by names that come from a pack: they stay beneath their folder.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "client/cli/inspect/npy_file.h"
#include "proto/contract/result.h"
#include "proto/contract/unique_fd.h"

namespace forebay::cli {

// The parts of a relative path between its '/', each as PrintableLine. kInvalidArgument for one
// that is empty or absolute, has an empty part, ".", "..", a NUL byte, or a part of more than 255
// bytes.
Result<std::vector<std::string>> SafePathParts(std::string_view path);

// A new file beneath an open folder. Move-only.
struct FileBeneath {
  UniqueFd folder;  // the file's own; empty where that is the one that was given
  NewFile file;
};

// Creates a file, with the folders that it lacks; links on the way are not followed. `folder` is
// borrowed, `name` is its name for messages. Errors: kAlreadyExists for what is there, a system's.
Result<FileBeneath> CreateBeneath(int folder, const std::string& name,
                                  std::span<const std::string> parts);

}  // namespace forebay::cli

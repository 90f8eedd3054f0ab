// The command `forebay-train export`: writes the weights of a checkpoint as one file for other
// programs.
#pragma once

#include <filesystem>
#include <string>

#include "proto/contract/result.h"

namespace forebay::train {

// Writes weights and running statistics of the checkpoint in `folder`, which was verified, to a
// safetensors file, under the names that they have in its shards. The optimiser's state is left
// out. The file gets its name when it is complete and synced, so that a failed call leaves what was
// there. Returns the number of tensors and bytes, as text for people. Needs the memory of one
// tensor.
Result<std::string> ExportWeights(const std::filesystem::path& folder,
                                  const std::filesystem::path& output);

// Runs `forebay-train export CHECKPOINT -o FILE`; argv[1] is "export". CHECKPOINT is what --resume
// takes. Returns a line, or the help text, to print. kInvalidArgument for wrong words.
Result<std::string> ExportCommand(int argc, const char* const* argv);

}  // namespace forebay::train

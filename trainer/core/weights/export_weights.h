// The command `forebay-train export`: the weights of a checkpoint as one file for other programs.
#pragma once

#include <filesystem>
#include <string>

#include "proto/contract/result.h"

namespace forebay::train {

// Writes weights and running statistics of the checkpoint in `folder`, of which every byte was
// checked, to a safetensors file under the names that they have in its shards; the optimiser's
// state stays behind. The file gets its name when it is whole and synced: a failed call leaves
// what was there. Returns how many tensors and bytes it has, for people. Needs the memory of one
// tensor.
Result<std::string> ExportWeights(const std::filesystem::path& folder,
                                  const std::filesystem::path& output);

// `forebay-train export CHECKPOINT -o FILE`: argv[1] is "export". CHECKPOINT is what --resume
// takes. Returns a line, or the help text, to print. kInvalidArgument for wrong words.
Result<std::string> ExportCommand(int argc, const char* const* argv);

}  // namespace forebay::train

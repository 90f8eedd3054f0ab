// Decodes all of a pack and names what is damaged.
#pragma once

#include <string>
#include <vector>

#include "client/cli/command_context.h"
#include "client/cli/inspect/pack_survey.h"

namespace forebay::cli {

// Reads every chunk and key against every checksum, with progress on a terminal. What is damaged,
// a line each. Errors: a system's, which end it.
Result<std::vector<std::string>> VerifyPack(CommandContext& context, const OpenedPack& pack);

// `forebay verify` of pack files and sets: prints a line or an object for each and sets the exit
// code where something is damaged, missing or no pack.
Status VerifyPackFiles(CommandContext& context, const std::vector<std::string>& paths);

// Whether a NAME of `forebay verify` is a pack's path: it has a '/', or ends in .fbp or .fbset.
bool IsPackPath(const std::string& name);

}  // namespace forebay::cli

// Checks whether a daemon serves the data sets that a program is configured for. A client that
// starts with a configuration of its own, but finds the daemon of another program, must not train
// on other data that happen to have the same names.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "proto/contract/result.h"
#include "server/stage/dataset.h"

namespace forebay::daemon {

// `wanted` is the text of the program's configuration file. Every data set in it must be in
// `served` with the same keys that decide its content: path, format, keys of the format (files,
// shapes, suffixes, ...) and splits. Keys about staging may differ. kFailedPrecondition names the
// data set, the key and both values; kInvalidArgument or kNotFound: `wanted` is not a valid
// configuration.
Status CheckServes(const std::vector<stage::DatasetOptions>& served, std::string_view wanted);

// A digest of what nodes of one job must have alike: for each data set the keys that CheckServes
// compares, and those that decide how its extents are cut and stored.
std::uint64_t ContentDigest(const std::vector<stage::DatasetOptions>& datasets);

}  // namespace forebay::daemon

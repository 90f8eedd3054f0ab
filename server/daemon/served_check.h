// Whether a daemon serves what a program was configured for: a program must never train on the data
// of another one that happens to use the same names.
#pragma once

#include <string_view>
#include <vector>

#include "proto/contract/result.h"
#include "server/stage/dataset.h"

namespace forebay::daemon {

// `wanted` is the text of the program's configuration file. Every data set in it must be served
// with the same content: path, format, files, shapes, suffixes, splits. Its staging may differ.
// kFailedPrecondition names the data set, the key and both values; kInvalidArgument: no
// configuration.
Status CheckServes(const std::vector<stage::DatasetOptions>& served, std::string_view wanted);

}  // namespace forebay::daemon

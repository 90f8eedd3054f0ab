// Reads a small text file of the machine: the configuration, a list of hosts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "proto/contract/result.h"

namespace forebay::daemon {

// Returns the whole file; a pipe is read to its end. kNotFound: it cannot be opened;
// kResourceExhausted: it is longer than `bytes_max`, the limit of the name `limit`; kUnavailable:
// it cannot be read. Errors name the path.
Result<std::string> ReadTextFile(const std::string& path, std::uint64_t bytes_max,
                                 std::string_view limit);

}  // namespace forebay::daemon

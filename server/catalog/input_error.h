// Errors about bytes and names from outside: they name the file, the offset and the reason.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "proto/contract/result.h"

namespace forebay::catalog {

// `name` in single quotes, safe for a terminal and a log: bytes that do not print become \xNN,
// and what runs past 200 bytes is cut with "...".
std::string Quoted(std::string_view name);

// "'<file>' at offset <offset>: <reason>".
Error InputError(ErrorCode code, std::string_view file, std::uint64_t offset,
                 std::string_view reason);

}  // namespace forebay::catalog

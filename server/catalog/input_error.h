// Errors about bytes and names from outside: they name the file, the offset and the reason.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "proto/contract/result.h"

namespace forebay::catalog {

// Returns an error with the message "'<file>' at offset <offset>: <reason>".
Error InputError(ErrorCode code, std::string_view file, std::uint64_t offset,
                 std::string_view reason);

}  // namespace forebay::catalog

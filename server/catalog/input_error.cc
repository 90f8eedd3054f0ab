// The common form of parser errors.
#include "server/catalog/input_error.h"

#include "proto/contract/printable.h"

namespace forebay::catalog {

Error InputError(ErrorCode code, std::string_view file, std::uint64_t offset,
                 std::string_view reason) {
  return Error(code, Quoted(file) + " at offset " + std::to_string(offset) + ": " +
                         std::string(reason));
}

}  // namespace forebay::catalog

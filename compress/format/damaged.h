// The error for bytes that no encoder wrote, with one wording and one code for all parsers of
// compress.
#pragma once

#include <string>
#include <string_view>

#include "proto/contract/result.h"

namespace forebay::compress {

// kDataLoss. `part` names what was read ("block-rANS planes"), `what` what is wrong with it.
inline Error Damaged(std::string_view part, std::string_view what) {
  return Error(ErrorCode::kDataLoss, std::string(part).append(": ").append(what));
}

}  // namespace forebay::compress

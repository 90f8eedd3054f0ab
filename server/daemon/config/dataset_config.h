// Reads one [[dataset]] table. Kept apart from config.h, so that the TOML library is seen by two
// files only.
#pragma once

#include <toml++/toml.h>

#include "proto/contract/limits.h"
#include "proto/contract/result.h"
#include "server/stage/dataset.h"

namespace forebay::daemon {

// Errors name the key. Unknown keys are errors.
Result<stage::DatasetOptions> ReadDatasetTable(const toml::table& table);

// "4MiB", "512", "2GB": a byte count, within [min, max].
struct ByteBounds {
  std::uint64_t min = 0;
  std::uint64_t max = ~std::uint64_t{0};
};
inline constexpr ByteBounds kSlotsBounds = {.min = limits::kMiB, .max = 1024 * limits::kGiB};
inline constexpr ByteBounds kScrubBounds = {.min = 64 * limits::kKiB,
                                            .max = 1024 * limits::kGiB};
inline constexpr std::uint64_t kRetrySecondsMax = 86'400;  // a day
inline constexpr ByteBounds kRequestBounds = {.min = limits::kIoAlignmentBytes,
                                              .max = limits::kIoRequestBytesMax};
Result<std::uint64_t> ParseByteCount(const std::string& text, const ByteBounds& bounds);

}  // namespace forebay::daemon

// Reads one [[dataset]] table, and byte counts. Separate from config.h, so that only two sources
// compile the TOML library.
#pragma once

#include <toml++/toml.h>

#include "proto/contract/limits.h"
#include "proto/contract/result.h"
#include "server/stage/dataset.h"

namespace forebay::daemon {

// Errors name the key. Unknown keys are errors.
Result<stage::DatasetOptions> ReadDatasetTable(const toml::table& table);

// Parses a byte count such as "4MiB", "512" or "2GB", which must lie in [min, max].
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
// Caps of the job on its use of the GFS. Without a cap, the byte count is 0.
inline constexpr ByteBounds kCapBounds = {.min = 0, .max = 1'048'576 * limits::kGiB};
inline constexpr std::uint64_t kCapOpensMax = 1'000'000'000;
inline constexpr std::uint64_t kCapRequestsMax = 16'777'216;
Result<std::uint64_t> ParseByteCount(const std::string& text, const ByteBounds& bounds);

}  // namespace forebay::daemon

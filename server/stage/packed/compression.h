// The values of `[[dataset]] compress`.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace forebay::stage {

// The numbers are part of the keys of extents on the tiers: never renumber.
enum class Compression : std::uint8_t { kOff, kFast, kBalanced, kDense };

inline constexpr std::array<std::string_view, 4> kCompressionNames = {"off", "fast", "balanced",
                                                                      "dense"};

constexpr std::string_view CompressionName(Compression compression) {
  return kCompressionNames[static_cast<std::size_t>(compression)];
}

constexpr std::optional<Compression> ParseCompression(std::string_view name) {
  const auto found = std::ranges::find(kCompressionNames, name);
  if (found == kCompressionNames.end()) return std::nullopt;
  return static_cast<Compression>(found - kCompressionNames.begin());
}

}  // namespace forebay::stage

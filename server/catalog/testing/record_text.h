// Test support: IDX and .npy files as text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace forebay::catalog {

std::string IdxText(char type, const std::vector<std::uint32_t>& sizes, std::string_view data);
// Version 1.0, padded as NumPy does.
std::string NpyText(const std::string& dict, std::string_view data);

}  // namespace forebay::catalog

// An array of the codec suite's data sets: bytes in memory and what they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "proto/contract/result.h"

namespace forebay::bench {

// Samples lie on the first axis. Codecs of images see `frames` planes of rows x columns, where
// axes between the first and the last two are folded into rows.
struct ArrayInfo {
  std::string name;
  std::string dtype;  // u8, u16, i16, i32, f32
  std::size_t item_bytes = 1;
  std::vector<std::uint32_t> shape;
  std::optional<double> fill;      // value that marks holes
  std::optional<std::uint32_t> sequence;  // frames per independent sequence, where known

  std::uint32_t frames() const { return shape.front(); }
  std::uint32_t columns() const { return shape.size() > 1 ? shape.back() : 1; }
  std::uint32_t rows() const;
  std::size_t frame_bytes() const;
  std::size_t bytes() const { return frames() * frame_bytes(); }
};

struct CodecArray {
  ArrayInfo info;
  std::vector<std::byte> bytes;  // little-endian, C order
};

// Reads NAME.json and NAME.raw as prepare_sets.py leaves them, at most `frames` frames where it
// is not 0. Errors: NOT_FOUND, INVALID_ARGUMENT (description), DATA_LOSS (size).
Result<CodecArray> LoadArray(const std::filesystem::path& folder, const std::string& name,
                             std::uint32_t frames);

}  // namespace forebay::bench

// One row of block-rANS blocks, and the kernels that decode it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "compress/format/plane/block_rans_format.h"

namespace forebay::compress {

inline constexpr std::size_t kBlockRansHeadSymbols = 16;
inline constexpr std::uint32_t kBlockRansParts = kBlockRansSlots / 16;  // of 16 slots each

// The symbols of a class's lowest slots, for AVX2, which cannot look up one of 256 slots at once: a
// lane searches among 16 symbols. If a class has more, the last of them stands for all the others,
// which are looked up by slot, and its fields are zero.
struct alignas(64) BlockRansHead {
  // The slot before a symbol's first one, less 128; 127 where there is no symbol, and for the
  // first one, with which nobody compares.
  std::array<std::int8_t, kBlockRansHeadSymbols> before{};
  std::array<std::uint8_t, kBlockRansHeadSymbols> token{}, frequency{}, first{};
};

// A class by slot, an array for each thing that a lane looks up. Tokens of samples of up to 8 bits
// are shifted already.
struct alignas(64) BlockRansClass {
  std::array<std::uint8_t, kBlockRansSlots> token, frequency, bias;
  // The same for one lane at a time: bias | frequency << 8 | residual << 16, planes apart.
  std::array<std::uint32_t, kBlockRansSlots> entries;
  std::uint8_t shift = 0;           // planes of low bits
  std::uint8_t escape_slots_at = 0;  // slots from here on are escapes
  std::uint8_t tail_part = 0;  // parts from here on have symbols that `head` has not
  BlockRansHead head;
};

// The states and sections that blocks are read from. A kernel may load 128 bytes from any place in
// a section, because the 128 bytes of the states lie behind all sections.
struct BlockRansStream {
  alignas(64) std::array<std::uint8_t, kBlockRansLanes> low{}, high{};  // the lanes' states
  const std::byte* planes = nullptr;
  const std::byte* planes_end = nullptr;
  const std::byte* bytes = nullptr;
  const std::byte* bytes_end = nullptr;
  const std::byte* escapes = nullptr;
  const std::byte* escapes_end = nullptr;
};

// A row of blocks: 4 rows of samples, `blocks` x 16 columns. `above` is the row over them and
// `above_previous` the same of the previous frame, both zeros at the frame's top; `previous` is
// null in the first frame. All have `stride` samples from row to row.
template <typename T>
struct BlockRansRow {
  const std::uint8_t* codes = nullptr;  // their classes exist
  const BlockRansClass* classes = nullptr;  // of class 1 and so on
  std::uint32_t blocks = 0;
  T* samples = nullptr;
  const T* above = nullptr;
  const T* previous = nullptr;
  const T* above_previous = nullptr;
  std::size_t stride = 0;
  T mask = 0;  // of the valid bits
};

// Decodes a row of blocks; false when a section ended early. The reference.
template <typename T>
bool DecodeBlockRansRow(const BlockRansRow<T>& row, BlockRansStream& stream);

// The same in AVX-512, for samples of up to 8 bits and of 9 to 16.
bool DecodeBlockRansRowAvx512(const BlockRansRow<std::uint8_t>& row, BlockRansStream& stream);
bool DecodeBlockRansRowWideAvx512(const BlockRansRow<std::uint16_t>& row, BlockRansStream& stream);

// The same in AVX2.
bool DecodeBlockRansRowAvx2(const BlockRansRow<std::uint8_t>& row, BlockRansStream& stream);
bool DecodeBlockRansRowWideAvx2(const BlockRansRow<std::uint16_t>& row, BlockRansStream& stream);

}  // namespace forebay::compress

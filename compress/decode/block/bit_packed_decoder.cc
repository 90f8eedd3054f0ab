// Decodes bit-packed planes (docs/pack_planes.md): blocks of 4 x 16 residuals, stored as bit planes
// of one width per block, predicted from their neighbours and, where the block says so, from the
// previous frame. All widths are checked and added up first, so that the kernels read bit planes
// without a bound check. DecodeBitPackedRow is the portable kernel, which the others must agree
// with. Called by plane_decoder.cc.
#include "compress/decode/block/bit_packed_decoder.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "compress/decode/block/bit_packed_blocks.h"
#include "compress/decode/block/block_row_copy.h"
#include "compress/decode/inflate.h"
#include "compress/decode/isa.h"
#include "compress/decode/scratch_arena.h"
#include "compress/format/damaged.h"
#include "proto/contract/byte_cursor.h"

namespace forebay::compress {
namespace {

constexpr std::string_view kBitPackedPart = "bit-packed planes";  // in errors

// Scratch memory: two frames in whole blocks, a row of zeros that lies above the first row, and the
// two sections.
template <typename T>
struct BitPackedMemory {
  std::span<std::uint8_t> codes;  // a byte a block, of all frames
  std::array<std::span<T>, 2> frames;
  std::span<T> zeros;
  std::span<std::byte> planes;  // decompressed
  std::uint32_t block_rows = 0, block_columns = 0;
  std::size_t stride = 0;

  BitPackedMemory(const PlaneShape& shape, ScratchArena& arena)
      : block_rows(CountBlocks(shape.rows, kBlockRows)),
        block_columns(CountBlocks(shape.columns, kBlockColumns)),
        stride(std::size_t{block_columns} * kBlockColumns) {
    const std::size_t blocks = std::size_t{shape.frames} * block_rows * block_columns;
    codes = arena.Take<std::uint8_t>(blocks);
    // Frames in whole blocks, so that a kernel writes 16 x 4 samples without asking where a row
    // ends.
    for (auto& frame : frames) frame = arena.Take<T>(stride * block_rows * kBlockRows);
    zeros = arena.Take<T>(stride);
    // No block is wider than its samples, so this is enough for every body that PlaneBytes accepts.
    planes = arena.Take<std::byte>(blocks * shape.bits * sizeof(std::uint64_t));
  }
};

// Copies a section into `to`, which it fills exactly, or undoes its lz4.
Status ReadSection(bool compressed, std::span<const std::byte> section, std::span<std::byte> to,
                   const char* what) {
  if (!compressed) {
    if (section.size() != to.size()) return Damaged(kBitPackedPart, what);
    // Copied, so that the bytes lie in one place whether they were compressed or not.
    std::memcpy(to.data(), section.data(), to.size());
    return {};
  }
  return InflateLz4(section, to);
}

// Adds up the bytes of all bit planes from the widths of all blocks (the upper five bits of their
// bytes; the lower three name the predictor). A width beyond the samples' is an error. Afterwards
// kernels read planes without asking whether there are any left.
Result<std::size_t> PlaneBytes(std::span<const std::uint8_t> codes, std::uint32_t bits) {
  std::size_t planes = 0;
  std::uint32_t widest = 0;
  // At most 31 planes for each of the blocks of a chunk, so the sum cannot overflow.
  for (std::uint8_t code : codes) {
    const std::uint32_t width = code >> 3;
    planes += width;
    widest = std::max(widest, width);
  }
  if (widest > bits) return Damaged(kBitPackedPart, "residuals are wider than their samples");
  return planes * sizeof(std::uint64_t);
}

template <typename T>
const std::byte* DecodeRow(const BitPackedRow<T>& row, const std::byte* planes, Isa isa) {
#ifdef FOREBAY_X86_KERNELS
  if constexpr (sizeof(T) == 1) {
    if (isa == Isa::kAvx512) return DecodeBitPackedRowAvx512(row, planes);
    if (isa == Isa::kAvx2) return DecodeBitPackedRowAvx2(row, planes);
  }
#endif
  static_cast<void>(isa);
  return DecodeBitPackedRow(row, planes);
}

template <typename T>
Status DecodeFrames(const PlaneShape& shape, std::span<const std::byte> body,
                    std::uint32_t frames_wanted, Isa isa, const FrameOutput& out,
                    ScratchArena& arena) {
  BitPackedMemory<T> memory(shape, arena);
  ByteReader reader(body);
  const auto flags = reader.ReadLe<std::uint8_t>();
  const std::span<const std::byte> section = reader.Take(reader.ReadLe<std::uint32_t>());
  const std::span<const std::byte> planes = reader.Take(reader.remaining());
  if (!reader.ok()) return Damaged(kBitPackedPart, "the header ends early");
  // An unknown flag may mean another layout of the sections, so nothing behind it is read.
  if (flags > (kBitPackedCompressedCodes | kBitPackedCompressedPlanes)) {
    return Damaged(kBitPackedPart, "the flags are unknown");
  }
  FOREBAY_TRY(ReadSection((flags & kBitPackedCompressedCodes) != 0, section,
                          std::as_writable_bytes(memory.codes),
                          "the block bytes have the wrong length"));
  // All frames are counted, even if few are wanted: whether the section has the right length must
  // not depend on what is wanted.
  FOREBAY_ASSIGN(const std::size_t plane_bytes, PlaneBytes(memory.codes, shape.bits));
  const std::byte* next = planes.data();
  if ((flags & kBitPackedCompressedPlanes) != 0) {
    const std::span<std::byte> plain = memory.planes.first(plane_bytes);
    FOREBAY_TRY(ReadSection(true, planes, plain, "the planes have the wrong length"));
    next = plain.data();
  } else if (planes.size() != plane_bytes) {
    return Damaged(kBitPackedPart, "the planes have the wrong length");
  }
  std::ranges::fill(memory.zeros, T{0});
  const std::uint8_t* codes = memory.codes.data();
  // If blocks cover the frame exactly, they are decoded where the caller wants the frame.
  const bool is_whole = shape.columns == memory.stride && shape.rows % kBlockRows == 0;
  const T* previous = nullptr;
  for (std::uint32_t t = 0; t < frames_wanted; ++t) {
    const std::span<std::byte> place = out.At(t, shape.frame_samples() * sizeof(T));
    const bool in_place = is_whole && CanHoldBlocks<T>(place);
    T* const current =
        in_place ? reinterpret_cast<T*>(place.data()) : memory.frames[t % 2].data();
    for (std::uint32_t row = 0; row < memory.block_rows; ++row) {
      const std::size_t at = std::size_t{row} * kBlockRows * memory.stride;
      const T* const zeros = memory.zeros.data();
      // Above the first row lies a row of zeros, as the format says, in memory that all frames
      // share.
      next = DecodeRow<T>({.codes = codes,
                           .blocks = memory.block_columns,
                           .samples = current + at,
                           .above = row > 0 ? current + at - memory.stride : zeros,
                           .previous = previous != nullptr ? previous + at : nullptr,
                           .above_previous = previous != nullptr && row > 0
                                                 ? previous + at - memory.stride
                                                 : zeros,
                           .stride = memory.stride,
                           .mask = static_cast<T>((1U << shape.bits) - 1)},
                          next, isa);
      codes += memory.block_columns;
      if (in_place || place.empty()) continue;
      // Copy each row of blocks at once, while it lies in the nearest cache.
      const std::uint32_t rows = std::min(kBlockRows, shape.rows - row * kBlockRows);
      for (std::uint32_t y = 0; y < rows; ++y) {
        const std::size_t line = std::size_t{row} * kBlockRows + y;
        CopyBlockRow(current + at + y * memory.stride, shape.columns,
                     place.subspan(line * shape.columns * sizeof(T)));
      }
    }
    previous = current;
  }
  return {};
}

}  // namespace

template <typename T>
const std::byte* DecodeBitPackedRow(const BitPackedRow<T>& row, const std::byte* planes) {
  for (std::uint32_t block = 0; block < row.blocks; ++block) {
    const std::uint32_t width = row.codes[block] >> 3;
    const bool temporal = (row.codes[block] & kTemporalPredictor) != 0 && row.previous != nullptr;
    const auto spatial = static_cast<SpatialPredictor>(row.codes[block] & 3);
    std::array<std::uint32_t, kBlockSamples> residuals{};
    for (std::uint32_t plane = 0; plane < width; ++plane, planes += sizeof(std::uint64_t)) {
      for (std::uint32_t i = 0; i < kBlockSamples; ++i) {
        // A plane is a word of 64 bits in little-endian order, so bit i of it is bit i % 8 of byte
        // i / 8.
        const std::uint32_t bit = std::to_integer<std::uint32_t>(planes[i / 8]) >> (i % 8) & 1;
        residuals[i] |= bit << plane;
      }
    }
    // What predictors see. A temporal block is the spatial prediction of the differences between
    // two frames, so each neighbour is taken less the same pixel of the previous frame.
    const std::size_t x0 = std::size_t{block} * kBlockColumns;
    const auto seen = [&](std::int32_t y, std::ptrdiff_t x) -> std::uint32_t {
      // Left of the frame samples count as zero.
      if (x < 0) return 0;
      const auto at = static_cast<std::size_t>(x);
      const std::size_t line = static_cast<std::size_t>(std::max(y, 0)) * row.stride + at;
      const std::uint32_t here = y < 0 ? row.above[at] : row.samples[line];
      if (!temporal) return here;
      return here - (y < 0 ? row.above_previous[at] : row.previous[line]);
    };
    // Residuals of `width` bits are stored plus half their range, so that they have no sign.
    const std::uint32_t bias = width > 0 ? 1U << (width - 1) : 0;
    for (std::uint32_t i = 0; i < kBlockSamples; ++i) {
      const auto y = static_cast<std::int32_t>(i / kBlockColumns);
      const auto x = static_cast<std::ptrdiff_t>(x0 + i % kBlockColumns);
      std::uint32_t value = residuals[i] - bias;
      if (spatial == SpatialPredictor::kWest) value += seen(y, x - 1);
      if (spatial == SpatialPredictor::kNorth) value += seen(y - 1, x);
      if (spatial == SpatialPredictor::kGradient) {
        value += seen(y, x - 1) + seen(y - 1, x) - seen(y - 1, x - 1);
      }
      // Sums are modulo 2^32, and the mask keeps the bits of the sample: the result is right modulo
      // 2^bits whatever the intermediate sums were.
      const std::size_t at = static_cast<std::size_t>(y) * row.stride + static_cast<std::size_t>(x);
      if (temporal) value += row.previous[at];
      row.samples[at] = static_cast<T>(value & row.mask);
    }
  }
  return planes;
}

template const std::byte* DecodeBitPackedRow(const BitPackedRow<std::uint8_t>&, const std::byte*);
template const std::byte* DecodeBitPackedRow(const BitPackedRow<std::uint16_t>&, const std::byte*);

std::size_t BitPackedScratchBytes(const PlaneShape& shape) {
  ScratchArena arena;
  if (shape.bits <= 8) {
    // An arena without memory only counts.
    static_cast<void>(BitPackedMemory<std::uint8_t>(shape, arena));
  } else {
    static_cast<void>(BitPackedMemory<std::uint16_t>(shape, arena));
  }
  return arena.bytes();
}

Status DecodeBitPacked(const PlaneShape& shape, std::span<const std::byte> body,
                       std::uint32_t frames_wanted, Isa isa, const FrameOutput& out,
                       std::span<std::byte> scratch) {
  ScratchArena arena(scratch);
  return shape.bits <= 8
             ? DecodeFrames<std::uint8_t>(shape, body, frames_wanted, isa, out, arena)
             : DecodeFrames<std::uint16_t>(shape, body, frames_wanted, isa, out, arena);
}

}  // namespace forebay::compress

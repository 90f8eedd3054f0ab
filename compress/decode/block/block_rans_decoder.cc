// Decodes block-rANS planes (docs/pack_planes.md). Opens the sections of the body and checks all of
// the side information, so that kernels look classes up without a check; then decodes frame by
// frame, one row of blocks at a time, with the kernel of the instruction set. A frame is decoded in
// the caller's memory where whole blocks cover it, else in scratch, from where it is copied. After
// the last frame every section must have ended. Called by plane_decoder.cc.
#include "compress/decode/block/block_rans_decoder.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "compress/decode/block/block_rans_blocks.h"
#include "compress/decode/block/block_row_copy.h"
#include "compress/decode/inflate.h"
#include "compress/decode/isa.h"
#include "compress/decode/scratch_arena.h"
#include "compress/format/damaged.h"
#include "proto/contract/byte_cursor.h"
#include "proto/contract/check.h"

namespace forebay::compress {
namespace {

constexpr std::string_view kBlockRansPart = "block-rANS planes";  // in errors

// Scratch memory: two frames in whole blocks, a row of zeros that lies above the first row, and the
// side information.
template <typename T>
struct BlockRansMemory {
  std::span<std::byte> context;  // zstd's
  std::span<std::byte> side;
  std::span<BlockRansClass> classes;
  std::array<std::span<T>, 2> frames;
  std::span<T> zeros;
  std::uint32_t block_rows = 0, block_columns = 0;
  std::size_t stride = 0;

  BlockRansMemory(const PlaneShape& shape, ScratchArena& arena)
      : block_rows(CountBlocks(shape.rows, kBlockRows)),
        block_columns(CountBlocks(shape.columns, kBlockColumns)),
        stride(std::size_t{block_columns} * kBlockColumns) {
    // All sizes follow from the shape: a body cannot make the decoder need more.
    context = arena.Take<std::byte>(InflateScratchBytes());
    side = arena.Take<std::byte>(BlockRansSideBytesMax(shape));
    classes = arena.Take<BlockRansClass>(kBlockRansClassesMax);
    for (auto& frame : frames) frame = arena.Take<T>(stride * block_rows * kBlockRows);
    zeros = arena.Take<T>(stride);
  }
};

// The side information; decompressed if the body says so.
template <typename T>
Result<std::span<const std::byte>> OpenSide(const BlockRansMemory<T>& memory, bool compressed,
                                            std::span<const std::byte> section) {
  if (!compressed) return section;
  FOREBAY_ASSIGN(const std::size_t bytes, ZstdContentBytes(section));
  // The frame states its own size, and a hostile one may state any.
  if (bytes > memory.side.size()) {
    return Damaged(kBlockRansPart, "the side information is too long");
  }
  const std::span<std::byte> side = memory.side.first(bytes);
  // The checksum may be missing, because each sample has one of its own.
  FOREBAY_TRY(InflateZstd(section, ZstdChecksum::kOptional, side, memory.context));
  return std::span<const std::byte>(side);
}

// Fills the slots of one token, or of the escapes, with what lanes look up there.
void FillSlots(std::uint32_t first, std::uint32_t frequency, std::int32_t token, bool wide,
               BlockRansClass& to) {
  const auto residual = static_cast<std::uint16_t>(static_cast<std::uint32_t>(token)
                                                   << to.shift);
  // Samples of up to 8 bits are bytes, so the token is shifted here once and not in every block.
  // Wide kernels extend the token to 16 bits and shift it themselves.
  const auto narrow = static_cast<std::uint8_t>(wide ? static_cast<std::uint32_t>(token)
                                                     : residual);
  for (std::uint32_t i = 0; i < frequency; ++i) {
    to.token[first + i] = narrow;
    to.frequency[first + i] = static_cast<std::uint8_t>(frequency);
    to.bias[first + i] = static_cast<std::uint8_t>(i);
    to.entries[first + i] = i | frequency << 8 | std::uint32_t{residual} << 16;
  }
}

// Collects the first 16 symbols of a class, for kernels that search (BlockRansHead).
void FillHead(BlockRansClass& to) {
  BlockRansHead& head = to.head;
  head = {};
  // No slot is larger as a signed byte, so a search never takes a place without a symbol.
  head.before.fill(127);
  std::uint32_t symbol = 0, slot = 0;
  for (; slot < kBlockRansSlots && symbol < kBlockRansHeadSymbols;
       slot += to.frequency[slot], ++symbol) {
    // The slot before this one, less 128: slots are compared as signed bytes, with "greater than"
    // only.
    if (symbol > 0) head.before[symbol] = static_cast<std::int8_t>(static_cast<int>(slot) - 129);
    head.token[symbol] = to.token[slot];
    head.frequency[symbol] = to.frequency[slot];
    head.first[symbol] = static_cast<std::uint8_t>(slot);
  }
  // With at most 16 symbols the head has all of them, and there is no tail to look up.
  to.tail_part = kBlockRansParts;
  if (slot == kBlockRansSlots) return;
  // The last of the 16 stands for all symbols from its slot on; kernels look those up by slot.
  to.tail_part = head.first.back() / 16;
  head.token.back() = head.frequency.back() = head.first.back() = 0;
}

// A class: its planes, slots of escapes, and frequencies until all slots are taken.
Status ReadClass(std::uint8_t sample_bits, ByteReader& reader, BlockRansClass& to) {
  // A reader without bytes returns zeros, and a class of zeros has no slots for escapes: it is
  // refused.
  to.shift = reader.ReadLe<std::uint8_t>();
  const auto escapes = reader.ReadLe<std::uint8_t>();
  if (to.shift >= sample_bits || escapes == 0) {
    return Damaged(kBlockRansPart, "a class has an impossible shift, or no slots for escapes");
  }
  to.escape_slots_at = static_cast<std::uint8_t>(kBlockRansSlots - escapes);
  std::uint32_t next = 0;
  for (std::uint32_t rank = 0; next < to.escape_slots_at && rank < kBlockRansSlots; ++rank) {
    const auto frequency = reader.ReadLe<std::uint8_t>();
    // Compared before the slots are filled, which would otherwise run over the end of the table.
    if (frequency > to.escape_slots_at - next) {
      return Damaged(kBlockRansPart, "the frequencies of a class exceed its slots");
    }
    FillSlots(next, frequency, BlockRansToken(rank), sample_bits > 8, to);
    next += frequency;
  }
  if (next != to.escape_slots_at) {
    return Damaged(kBlockRansPart, "the frequencies of a class do not fill its slots");
  }
  // An escape's residual comes from a section of its own, so its slots have token 0.
  FillSlots(next, escapes, 0, sample_bits > 8, to);
  FillHead(to);
  return {};
}

// Classes and block bytes, of which the first `blocks_wanted` are looked at.
struct BlockRansSide {
  std::uint32_t classes = 0;
  const std::uint8_t* codes = nullptr;
};

Result<BlockRansSide> ReadSide(const PlaneShape& shape, std::span<const std::byte> bytes,
                               std::span<BlockRansClass> classes) {
  ByteReader reader(bytes);
  BlockRansSide side{.classes = reader.ReadLe<std::uint8_t>()};
  if (side.classes > kBlockRansClassesMax) {
    return Damaged(kBlockRansPart, "there are too many classes");
  }
  for (std::uint32_t i = 0; i < side.classes; ++i) {
    FOREBAY_TRY(ReadClass(shape.bits, reader, classes[i]));
  }
  if (!reader.ok() || reader.remaining() != CountBlocks(shape)) {
    return Damaged(kBlockRansPart, "the side information has the wrong length");
  }
  const std::span<const std::byte> codes = reader.Take(reader.remaining());
  // Borrowed: either from the body or from the scratch memory, and both outlive the frames.
  side.codes = reinterpret_cast<const std::uint8_t*>(codes.data());
  // One pass over the bytes of all blocks, with nothing but a maximum in it, checks them before
  // kernels use them as indices.
  std::uint8_t highest = 0;
  for (std::size_t i = 0; i < codes.size(); ++i) highest = std::max(highest, side.codes[i]);
  if (std::uint32_t{highest} >> 3 > side.classes) {
    return Damaged(kBlockRansPart, "a block names a class that does not exist");
  }
  return side;
}

// Whether all sections are used up and all lanes are back at the encoder's first state, 256.
bool AtEnd(const BlockRansStream& stream) {
  const auto all = [](const auto& states, std::uint8_t value) {
    return std::ranges::all_of(states, [=](std::uint8_t state) { return state == value; });
  };
  return stream.planes == stream.planes_end && stream.bytes == stream.bytes_end &&
         stream.escapes == stream.escapes_end && all(stream.low, 0) && all(stream.high, 1);
}

template <typename T>
bool DecodeRow(const BlockRansRow<T>& row, Isa isa, BlockRansStream& stream) {
#ifdef FOREBAY_X86_KERNELS
  const bool widest = isa == Isa::kAvx512;
  if (widest || isa == Isa::kAvx2) {
    if constexpr (sizeof(T) == 1) {
      return widest ? DecodeBlockRansRowAvx512(row, stream) : DecodeBlockRansRowAvx2(row, stream);
    } else {
      return widest ? DecodeBlockRansRowWideAvx512(row, stream)
                    : DecodeBlockRansRowWideAvx2(row, stream);
    }
  }
#endif
  static_cast<void>(isa);
  return DecodeBlockRansRow(row, stream);
}

// Decodes frames one after the other: in place if blocks cover them exactly, else in scratch
// memory, from where they are copied.
template <typename T>
class BlockRansFrames {
 public:
  BlockRansFrames(const PlaneShape& shape, const BlockRansMemory<T>& memory, const FrameOutput& out)
      : shape_(shape),
        memory_(memory),
        out_(out),
        is_whole_(shape.columns == memory.stride && shape.rows % kBlockRows == 0) {}

  Status Decode(std::uint32_t frames_wanted, const BlockRansSide& side, Isa isa,
                BlockRansStream& stream) {
    const std::uint8_t* codes = side.codes;
    const T* previous = nullptr;
    std::ranges::fill(memory_.zeros, T{0});
    for (std::uint32_t t = 0; t < frames_wanted; ++t) {
      const std::span<std::byte> place = out_.At(t, shape_.frame_samples() * sizeof(T));
      // The next frame is predicted from this one, wherever it was decoded to. Two frames of
      // scratch memory are enough, because only the previous frame is referred to.
      const bool in_place = is_whole_ && CanHoldBlocks<T>(place);
      T* const current =
          in_place ? reinterpret_cast<T*>(place.data()) : memory_.frames[t % 2].data();
      for (std::uint32_t row = 0; row < memory_.block_rows; ++row) {
        const std::size_t at = std::size_t{row} * kBlockRows * memory_.stride;
        const T* const zeros = memory_.zeros.data();
        const bool inside = row > 0;
        const BlockRansRow<T> blocks = {.codes = codes,
                                        .classes = memory_.classes.data(),
                                        .blocks = memory_.block_columns,
                                        .samples = current + at,
                                        .above = inside ? current + at - memory_.stride : zeros,
                                        .previous = previous != nullptr ? previous + at : nullptr,
                                        .above_previous = previous != nullptr && inside
                                                              ? previous + at - memory_.stride
                                                              : zeros,
                                        .stride = memory_.stride,
                                        .mask = static_cast<T>((1U << shape_.bits) - 1)};
        if (!DecodeRow(blocks, isa, stream)) return Damaged(kBlockRansPart, "a section ends early");
        codes += memory_.block_columns;
      }
      // A frame that is not wanted was decoded all the same, because the next one is predicted from
      // it.
      if (!in_place && !place.empty()) CopyOut(current, place);
      previous = current;
    }
    return {};
  }

 private:
  void CopyOut(const T* frame, std::span<std::byte> out) const {
    for (std::uint32_t y = 0; y < shape_.rows; ++y) {
      CopyBlockRow(frame + y * memory_.stride, shape_.columns, out);
      out = out.subspan(shape_.columns * sizeof(T));
    }
  }

  const PlaneShape& shape_;
  const BlockRansMemory<T>& memory_;
  const FrameOutput& out_;
  const bool is_whole_;  // blocks cover frames exactly
};

template <typename T>
Status Decode(const PlaneShape& shape, std::span<const std::byte> body,
              std::uint32_t frames_wanted, Isa isa, const FrameOutput& out,
              ScratchArena& arena) {
  const BlockRansMemory<T> memory(shape, arena);
  ByteReader reader(body);
  const auto flags = reader.ReadLe<std::uint8_t>();
  const auto side_bytes = reader.ReadLe<std::uint32_t>();
  const auto plane_bytes = reader.ReadLe<std::uint32_t>();
  const auto escape_bytes = reader.ReadLe<std::uint32_t>();
  const std::span<const std::byte> section = reader.Take(side_bytes);
  const std::span<const std::byte> planes = reader.Take(plane_bytes);
  if (!reader.ok() || reader.remaining() < kBlockRansStateBytes ||
      escape_bytes > reader.remaining() - kBlockRansStateBytes) {
    return Damaged(kBlockRansPart, "a section extends beyond the body");
  }
  if (flags > kBlockRansCompressedSide) return Damaged(kBlockRansPart, "the flags are unknown");
  // The words have no size of their own: they take what the other sections leave.
  const std::span<const std::byte> words =
      reader.Take(reader.remaining() - kBlockRansStateBytes - escape_bytes);
  const std::span<const std::byte> escapes = reader.Take(escape_bytes);
  // The states end the body, so a load of 128 bytes from any place in the words or the escapes
  // stays within the body.
  const std::span<const std::byte> states = reader.Take(kBlockRansStateBytes);
  FOREBAY_ASSIGN(const std::span<const std::byte> open, OpenSide(memory, flags != 0, section));
  FOREBAY_ASSIGN(const BlockRansSide side, ReadSide(shape, open, memory.classes));
  BlockRansStream stream;
  std::memcpy(stream.low.data(), states.data(), kBlockRansLanes);
  std::memcpy(stream.high.data(), states.data() + kBlockRansLanes, kBlockRansLanes);
  stream.planes = planes.data();
  stream.planes_end = planes.data() + planes.size();
  stream.bytes = words.data();
  stream.bytes_end = words.data() + words.size();
  stream.escapes = escapes.data();
  stream.escapes_end = escapes.data() + escapes.size();
  BlockRansFrames<T> frames(shape, memory, out);
  FOREBAY_TRY(frames.Decode(frames_wanted, side, isa, stream));
  // Only after all frames must the sections be used up. A reader of fewer frames relies on the
  // checksum of each sample.
  if (frames_wanted == shape.frames && !AtEnd(stream)) {
    return Damaged(kBlockRansPart, "the sections do not end with the last frame");
  }
  return {};
}

template <typename T>
std::size_t BlockRansMemoryBytes(const PlaneShape& shape) {
  ScratchArena arena;
  const BlockRansMemory<T> memory(shape, arena);
  return arena.bytes();
}

}  // namespace

std::size_t BlockRansScratchBytes(const PlaneShape& shape) {
  return shape.bits <= 8 ? BlockRansMemoryBytes<std::uint8_t>(shape)
                         : BlockRansMemoryBytes<std::uint16_t>(shape);
}

Status DecodeBlockRans(const PlaneShape& shape, std::span<const std::byte> body,
                       std::uint32_t frames_wanted, Isa isa, const FrameOutput& out,
                       std::span<std::byte> scratch) {
  ScratchArena arena(scratch);
  return shape.bits <= 8
             ? Decode<std::uint8_t>(shape, body, frames_wanted, isa, out, arena)
             : Decode<std::uint16_t>(shape, body, frames_wanted, isa, out, arena);
}

}  // namespace forebay::compress

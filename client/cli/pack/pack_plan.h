// How `forebay pack` lays fields out in a pack: chunks and tiles.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compress/encode/plane_encoder.h"
#include "compress/format/pack/pack_format.h"
#include "proto/contract/result.h"
#include "proto/contract/tensor.h"

namespace forebay::cli {

// "fast", "balanced", "dense", "learned", "auto".
Result<compress::Profile> ParseProfile(std::string_view name);

// "256x256": rows and columns of a tile.
struct TileSize {
  std::uint32_t rows = 0, columns = 0;
};
Result<TileSize> ParseTile(std::string_view text);

// "a:b", "a:", ":b": samples a to b - 1 of `samples`. kOutOfRange beyond them.
struct SampleRange {
  std::uint64_t begin = 0, end = 0;
  std::uint64_t count() const { return end - begin; }
};
Result<SampleRange> ParseRange(std::string_view text, std::uint64_t samples);

// A field of a data set as a pack's. More than four axes: the leading ones become one, and a note
// says so. kInvalidArgument for extents of zero or beyond 32 bits.
Result<compress::PackField> PackFieldOf(const FieldSpec& spec, std::vector<std::string>& notes);

struct LayoutOptions {
  std::optional<std::uint32_t> samples_per_chunk;  // of every fixed field
  std::optional<TileSize> tile;                    // of fields of two axes or more
};

// Sets samples_per_chunk and tile so that each chunk has at most limits::kChunkBytesMax bytes:
// 8 samples of images, 4096 of others, fewer where a sample is large. Images are cut along their
// first axes before they have fewer samples in a chunk. kInvalidArgument where the options ask
// for more than a chunk holds; the message names what would fit.
Status LayOut(const LayoutOptions& options, compress::PackField& field);

// A note for the user where a writer of `schema` holds more than 1 GiB of samples
// (compress::BufferedBytesMax), with how to hold fewer.
std::optional<std::string> MemoryNote(const compress::PackSchema& schema, unsigned threads);

}  // namespace forebay::cli

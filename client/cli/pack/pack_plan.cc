// Decides how fields lie in chunks. A chunk is decoded as a whole, so it has few samples of images
// and many of small records, and at most limits::kChunkBytesMax bytes; an image that is too large
// is cut into tiles along its first axes.
#include "client/cli/pack/pack_plan.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "client/cli/human_text.h"
#include "compress/encode/pack/pack_writer.h"
#include "proto/contract/limits.h"

namespace forebay::cli {
namespace {

using compress::kChunkRankMax;
using compress::PackField;

// Several images, because each may be predicted from the one before; few, because a reader of one
// image decodes the whole chunk. Small records are many to a chunk, so that its head is little
// beside them.
constexpr std::uint32_t kImageSamples = 8;
constexpr std::uint32_t kOtherSamples = 4096;
constexpr std::uint64_t kNotedBytes = limits::kGiB;

Error BadPlan(std::string what) { return Error(ErrorCode::kInvalidArgument, std::move(what)); }

// The whole text as a number, or nothing.
template <typename T>
std::optional<T> NumberOf(std::string_view text) {
  T value{};
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc() || end != text.data() + text.size() || text.empty()) return {};
  return value;
}

std::uint64_t TileBytes(const PackField& field) {
  std::uint64_t bytes = DtypeBytes(field.dtype);
  // Extents have 32 bits: two products cannot wrap, and what is too large stays too large.
  for (const std::uint32_t extent : field.tile) {
    bytes *= extent;
    if (bytes > limits::kSampleBytesMax) return limits::kSampleBytesMax + 1;
  }
  return bytes;
}

// Cuts tiles along the first axes until `samples` of them fit in a chunk, evenly.
void CutTiles(std::uint32_t samples, PackField& field) {
  for (std::size_t axis = 0; axis < field.rank; ++axis) {
    // The colours of a pixel stay in one tile, because they predict each other.
    if (static_cast<std::int8_t>(axis) == field.channel_axis) continue;
    const std::uint64_t bytes = TileBytes(field);
    const std::uint64_t fits = limits::kChunkBytesMax / samples;
    if (bytes <= fits) return;
    // `slice` is the size of one step along this axis. TileBytes may have stopped at its limit; the
    // next axis then gets what is left to cut.
    const std::uint64_t slice = bytes / field.tile[axis];
    const std::uint64_t most = std::max<std::uint64_t>(1, fits / std::max<std::uint64_t>(slice, 1));
    // As few parts as fit, of equal size: a last tile of a few rows would compress badly.
    const std::uint64_t parts = (field.tile[axis] + most - 1) / most;
    field.tile[axis] = static_cast<std::uint32_t>((field.tile[axis] + parts - 1) / parts);
  }
}

// The axes of rows and columns: the last two that are not the channels'.
void SetTile(const TileSize& size, PackField& field) {
  std::vector<std::size_t> axes;
  for (std::size_t axis = 0; axis < field.rank; ++axis) {
    if (static_cast<std::int8_t>(axis) != field.channel_axis) axes.push_back(axis);
  }
  // A list of numbers has no rows and columns; --tile is about images.
  if (axes.size() < 2) return;
  const std::size_t rows = axes[axes.size() - 2];
  const std::size_t columns = axes.back();
  field.tile[rows] = std::min(size.rows, field.extent[rows]);
  field.tile[columns] = std::min(size.columns, field.extent[columns]);
}

// Colours of a pixel lie last, or first as frameworks have them.
std::int8_t ChannelAxisOf(const PackField& field) {
  if (field.rank != 3 || (field.dtype != Dtype::kU8 && field.dtype != Dtype::kU16)) return -1;
  const auto colours = [&](std::size_t axis) {
    return field.extent[axis] == 3 || field.extent[axis] == 4;
  };
  if (colours(2)) return 2;
  return colours(0) ? 0 : -1;
}

}  // namespace

Result<compress::Profile> ParseProfile(std::string_view name) {
  if (name == "fast") return compress::Profile::kFast;
  if (name == "balanced") return compress::Profile::kBalanced;
  if (name == "dense") return compress::Profile::kDense;
  if (name == "learned") return compress::Profile::kLearned;
  if (name == "auto") return compress::Profile::kAuto;
  return BadPlan(fmt::format("--profile {}: there are fast, balanced, dense, learned, auto", name));
}

Result<TileSize> ParseTile(std::string_view text) {
  const std::size_t cross = text.find('x');
  if (cross != text.npos) {
    const auto rows = NumberOf<std::uint32_t>(text.substr(0, cross));
    const auto columns = NumberOf<std::uint32_t>(text.substr(cross + 1));
    if (rows && columns && *rows > 0 && *columns > 0) return TileSize{*rows, *columns};
  }
  return BadPlan(fmt::format("--tile {}: wanted are rows and columns, as in 256x256", text));
}

Result<SampleRange> ParseRange(std::string_view text, std::uint64_t samples) {
  const std::size_t colon = text.find(':');
  if (colon == text.npos) {
    return BadPlan(fmt::format("--range {}: wanted is BEGIN:END, as in 0:100", text));
  }
  const std::string_view first = text.substr(0, colon);
  const std::string_view last = text.substr(colon + 1);
  const auto begin = first.empty() ? std::optional<std::uint64_t>(0)
                                   : NumberOf<std::uint64_t>(first);
  const auto end = last.empty() ? std::optional<std::uint64_t>(samples)
                                : NumberOf<std::uint64_t>(last);
  if (!begin || !end || *begin > *end) {
    return BadPlan(fmt::format("--range {}: wanted is BEGIN:END, as in 0:100", text));
  }
  if (*end > samples) {
    return Error(ErrorCode::kOutOfRange,
                 fmt::format("--range {}: the pack has {} samples", text, samples));
  }
  return SampleRange{*begin, *end};
}

Result<PackField> PackFieldOf(const FieldSpec& spec, std::vector<std::string>& notes) {
  PackField field{.name = spec.name, .dtype = spec.dtype, .bound = {}};
  if (!spec.is_fixed()) return field;
  std::vector<std::uint64_t> shape = spec.shape;
  if (shape.size() > kChunkRankMax) {
    // The leading axes are joined, so that the last ones, along which neighbours resemble each
    // other, stay.
    const std::size_t joined = shape.size() - kChunkRankMax + 1;
    std::uint64_t product = 1;
    for (std::size_t axis = 0; axis < joined; ++axis) {
      // By division, before the product is made.
      if (shape[axis] == 0 || product > 0xFFFF'FFFF / shape[axis]) {
        return BadPlan(fmt::format("field {}: its leading axes have 0 or more than 2^32 - 1 "
                                   "elements together", spec.name));
      }
      product *= shape[axis];
    }
    notes.push_back(fmt::format("field {} has {} axes; a pack has at most {}: the first {} are "
                                "stored as one of {}", spec.name, shape.size(), kChunkRankMax,
                                joined, product));
    shape.erase(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(joined));
    shape.insert(shape.begin(), product);
  }
  field.rank = static_cast<std::uint8_t>(shape.size());
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] == 0 || shape[axis] > 0xFFFF'FFFF) {
      return BadPlan(fmt::format("field {}: axis {} has {} elements; a pack's have 1 to 2^32 - 1",
                                 spec.name, axis, shape[axis]));
    }
    field.extent[axis] = static_cast<std::uint32_t>(shape[axis]);
  }
  field.channel_axis = ChannelAxisOf(field);
  field.kind = field.rank >= 2 ? compress::FieldKind::kImage : compress::FieldKind::kMetadata;
  // A constant of the catalog is the number of a class folder.
  if (spec.source == FieldSource::kConstant) field.kind = compress::FieldKind::kLabel;
  return field;
}

Status LayOut(const LayoutOptions& options, PackField& field) {
  if (field.variable()) {
    field.samples_per_chunk = kOtherSamples;
    return {};
  }
  const bool image = field.rank >= 2;
  field.tile = field.extent;
  if (options.tile) SetTile(*options.tile, field);
  const std::uint32_t wanted =
      options.samples_per_chunk.value_or(image ? kImageSamples : kOtherSamples);
  const bool tiled = image && options.tile;
  // Images keep their samples in a chunk and lose size, because a codec gains from several similar
  // images. Other fields are cut only where one sample alone is too large.
  if (!tiled) CutTiles(image ? wanted : 1, field);
  // 0 where one tile is more than a chunk, which only --tile can bring about.
  const std::uint64_t fits = limits::kChunkBytesMax / TileBytes(field);
  if (fits == 0 || (options.samples_per_chunk && fits < wanted)) {
    return BadPlan(fmt::format(
        "field {}: {} samples of a tile of {} bytes are more than a chunk's {} bytes; {} would "
        "fit: give smaller --tile or --samples-per-chunk", field.name, wanted, TileBytes(field),
        limits::kChunkBytesMax, fits));
  }
  field.samples_per_chunk = static_cast<std::uint32_t>(std::min<std::uint64_t>(fits, wanted));
  return {};
}

std::optional<std::string> MemoryNote(const compress::PackSchema& schema, unsigned threads) {
  const std::uint64_t bytes = compress::BufferedBytesMax(schema, threads);
  // Less needs no word: any machine that packs has it.
  if (bytes <= kNotedBytes) return std::nullopt;
  return fmt::format("up to {} of samples are held in memory, because all tiles of a run of "
                     "samples fill together; a smaller --samples-per-chunk holds less",
                     HumanBytes(bytes));
}

}  // namespace forebay::cli

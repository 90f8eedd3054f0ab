// Look-ups in the image of a catalog of packs. All rows were checked at open
// (pack_image_checker.h), so nothing is checked here. A sample is found by a binary search in the
// chunks of its field, which lie in the order of samples.
#include "server/catalog/pack/pack_catalog.h"

#include "proto/contract/check.h"
#include "proto/contract/limits.h"
#include "proto/contract/printable.h"
#include "server/catalog/pack/pack_image_checker.h"

namespace forebay::catalog {
namespace {

// The places that a look-up of a sample or a key touches at most. A binary search touches more, but
// its first steps hit the same few rows each time, which are resident. A look-up of an extent's
// pieces adds what their rows take.
constexpr std::uint64_t kPackWindowsPerLookup = 8;

}  // namespace

bool IsPackImage(std::span<const std::byte> image) {
  return image.size() >= sizeof(std::uint64_t) &&
         LoadAt<std::uint64_t>(image, 0) == kPackCatalogMagic;
}

Result<std::shared_ptr<const Catalog>> OpenPackImage(ImageBytes bytes) {
  FOREBAY_ASSIGN(PackTables tables, CheckPackImage(bytes.bytes()));
  // The check has read the whole image. Without this, every catalog of packs would be resident
  // until the kernel needs its memory.
  bytes.DropResidentPages();
  return std::make_shared<const PackCatalog>(std::move(bytes), std::move(tables));
}

FieldSpec SpecOf(const compress::PackField& field) {
  FieldSpec spec;
  spec.name = field.name;
  spec.dtype = field.dtype;
  spec.shape.assign(field.extent.begin(), field.extent.begin() + field.rank);
  return spec;
}

PackCatalog::PackCatalog(ImageBytes bytes, PackTables tables)
    : bytes_(std::move(bytes)), tables_(std::move(tables)) {
  // Computed once, because every look-up of a sample needs it.
  for (const compress::PackField& field : tables_.schema.fields) tiles_.push_back(field.tiles());
}

std::uint32_t PackCatalog::PartOf(FieldId field) const {
  FOREBAY_CHECK(field.value() < tables_.specs.size());
  return 0;  // a data set of packs has one part
}

ObjectInfo PackCatalog::object(ObjectId object) const {
  FOREBAY_CHECK(object.value() < object_count());
  const PackObjectRow row = tables_.Object(object.value());
  const std::span<const std::byte> path = tables_.names.subspan(row.name_offset, row.name_bytes);
  ObjectInfo info;
  info.path = {reinterpret_cast<const char*>(path.data()), path.size()};
  info.bytes = row.bytes;
  info.mtime_ns = row.mtime_ns;
  return info;
}

ExtentInfo PackCatalog::extent(ExtentId extent) const {
  FOREBAY_CHECK(extent.value() < extent_count());
  const PackExtentRow row = tables_.Extent(extent.value());
  ExtentInfo info;
  info.first_object = ObjectId(row.object);
  info.object_offset = row.object_offset;
  info.bytes = row.bytes;
  info.first_sample = SampleId(row.first_sample);
  info.sample_count = row.sample_count;
  return info;
}

std::vector<std::string_view> PackCatalog::ConstantNames(FieldId field) const {
  FOREBAY_CHECK(field.value() < tables_.specs.size());
  return compress::ClassNames(tables_.schema, tables_.specs[field.value()].name);
}

// A piece is a whole chunk record, its head and its payload: what the decoder takes as one input.
Status PackCatalog::Pieces(ExtentId extent, std::vector<Range>& pieces) const {
  FOREBAY_CHECK(extent.value() < extent_count());
  const PackExtentRow row = tables_.Extent(extent.value());
  // The rows of the chunks are one run per field, and each run may begin in another window.
  bytes_.NoteTouched(kPackWindowsPerLookup + tiles_.size() +
                     ImageBytes::FurtherWindows(row.piece_count * sizeof(std::uint32_t)) +
                     ImageBytes::FurtherWindows(row.piece_count * sizeof(PackChunkRow)));
  for (std::uint32_t i = 0; i < row.piece_count; ++i) {
    const PackChunkRow chunk = tables_.Chunk(tables_.Piece(row.first_piece + i));
    pieces.push_back({.extent = extent,
                      // The cast cannot cut: the checker has found the chunk within its extent.
                      .offset = static_cast<std::uint32_t>(chunk.offset - row.object_offset),
                      .length = std::uint64_t{chunk.head_bytes} + chunk.payload_bytes});
  }
  return {};
}

std::uint32_t PackCatalog::PieceCount(ExtentId extent) const {
  FOREBAY_CHECK(extent.value() < extent_count());
  bytes_.NoteTouched(kPackWindowsPerLookup);
  return tables_.Extent(extent.value()).piece_count;
}

Result<std::string> PackCatalog::SampleKey(SampleId sample) const {
  if (sample.value() >= sample_count()) {
    return Error(ErrorCode::kOutOfRange, "data set " + Quoted(name()) + " has " +
                                             std::to_string(sample_count()) + " samples");
  }
  bytes_.NoteTouched(kPackWindowsPerLookup);
  if (!tables_.schema.keyed) return std::to_string(sample.value());
  return std::string(tables_.keys.At(sample.value()));
}

// Rows count samples within the data set, but the decoder checks a chunk against the index of its
// file, so the entry counts them within the file again.
PackChunk PackCatalog::chunk(std::uint64_t number) const {
  FOREBAY_CHECK(number < chunk_count());
  const PackChunkRow row = tables_.Chunk(number);
  const PackObjectRow object = tables_.Object(row.object);
  PackChunk chunk;
  chunk.entry = {.field = row.field,
                 .tile = row.tile,
                 .first_sample = row.first_sample - object.sample_base,
                 .sample_count = row.sample_count,
                 .head_bytes = row.head_bytes,
                 .offset = row.offset,
                 .payload_bytes = row.payload_bytes,
                 .part_offset = row.part_offset,
                 .sample_bytes = row.sample_bytes,
                 .head_checksum = row.head_checksum};
  chunk.identity = object.identity;
  chunk.sample_base = object.sample_base;
  chunk.extent = ExtentId(row.extent);
  chunk.piece = row.piece;
  chunk.image_offset =
      static_cast<std::uint32_t>(row.offset - tables_.Extent(row.extent).object_offset);
  return chunk;
}

ChunkGroup PackCatalog::GroupOf(std::uint32_t field, SampleId sample) const {
  FOREBAY_CHECK(field < tiles_.size() && sample.value() < sample_count());
  bytes_.NoteTouched(kPackWindowsPerLookup);
  // Finds the first chunk that ends after the sample. It exists and holds the sample, because the
  // chunks of a field cover every sample (ChunkCoverage, checked at open).
  // The rows of one field are contiguous, so the search needs no other field's rows.
  std::uint64_t low = tables_.field_begins[field];
  std::uint64_t high = tables_.field_begins[field + 1];
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    const PackChunkRow row = tables_.Chunk(middle);
    if (row.first_sample + row.sample_count > sample.value()) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  // A run of samples of fixed shape has one chunk per tile. A sample_bytes other than 0 marks a
  // long byte string, which is cut into parts of kChunkBytesMax.
  ChunkGroup group{.first = low, .count = tiles_[field]};
  const PackChunkRow row = tables_.Chunk(low);
  if (row.sample_bytes != 0) {
    group.count =
        static_cast<std::uint32_t>((row.sample_bytes - 1) / limits::kChunkBytesMax + 1);
  }
  return group;
}

}  // namespace forebay::catalog

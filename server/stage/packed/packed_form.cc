// Everything here follows from the catalog's field shapes and the profile, so two daemons with the
// same configuration compute the same form and the same keys. A change of these rules must change
// kPackedFormVersion, or extents of an older daemon would be decoded by the new rules.
#include "server/stage/packed/packed_form.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/byte_cursor.h"
#include "proto/contract/check.h"
#include "proto/contract/limits.h"
#include "server/stage/packed/packed_extent.h"

namespace forebay::stage {

using compress::kChunkRankMax;
using compress::PackField;

namespace {

// Small chunks cost less to decode for one sample; large ones compress better.
constexpr std::uint32_t kSamplesPerChunk = 8;
constexpr std::uint64_t kChunkBytesMin = 64 * limits::kKiB;  // unless a limit allows less

Error CannotPack(std::string reason) {
  return Error(ErrorCode::kFailedPrecondition, std::move(reason));
}

// Describes the field to the encoder. It takes at most four axes, so leading ones are merged. It
// does not understand big-endian numbers, so such elements are coded as bytes.
Status SetShape(const FieldSpec& spec, PackField& field) {
  std::vector<std::uint64_t> shape = spec.shape;
  const std::uint32_t element = DtypeBytes(spec.dtype);
  const bool as_bytes = spec.dtype == Dtype::kBytes || (spec.big_endian && element > 1);
  field.dtype = as_bytes ? Dtype::kU8 : spec.dtype;
  if (as_bytes) {
    if (shape.empty()) shape.push_back(1);
    shape.back() *= element;
  }
  while (shape.size() > kChunkRankMax) {
    shape[1] *= shape[0];
    shape.erase(shape.begin());
  }
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] == 0 || shape[axis] > limits::kExtentBytesMax) {
      return CannotPack(fmt::format("an axis of field '{}' has {} elements", spec.name,
                                    shape[axis]));
    }
    field.extent[axis] = static_cast<std::uint32_t>(shape[axis]);
  }
  field.rank = static_cast<std::uint8_t>(shape.size());
  // Guesses which axis holds the colours of an image, so that the encoder can predict one channel
  // from another. A wrong guess costs compression only.
  const auto is_colours = [&](std::size_t axis) {
    return field.extent[axis] == 3 || field.extent[axis] == 4;
  };
  const bool is_picture =
      field.rank == 3 && (spec.dtype == Dtype::kU8 || spec.dtype == Dtype::kU16) && !as_bytes;
  if (is_picture && is_colours(2)) {
    field.channel_axis = 2;
  } else if (is_picture && is_colours(0)) {
    field.channel_axis = 0;
  }
  field.kind = field.rank >= 2 ? compress::FieldKind::kImage : compress::FieldKind::kMetadata;
  return {};
}

// A chunk is a run of samples. If a sample is larger than a chunk, it is cut into tiles along its
// leading axes only, so that the elements of a tile are contiguous in the sample.
void SetChunks(PackField& field) {
  field.tile = field.extent;
  const std::uint64_t sample_bytes = field.sample_bytes();
  const std::uint64_t wanted = std::max<std::uint64_t>(
      kSamplesPerChunk, (kChunkBytesMin + sample_bytes - 1) / sample_bytes);
  // At least one sample, even if it is larger than a chunk: it is then cut into tiles below.
  const std::uint64_t most =
      std::clamp<std::uint64_t>(limits::kChunkBytesMax / sample_bytes, 1,
                                limits::kChunkSamplesMax);
  field.samples_per_chunk = static_cast<std::uint32_t>(std::min(wanted, most));
  // Cut axis after axis until a tile fits: `slice` is the size of one index of the axes so far.
  std::uint64_t slice = sample_bytes;
  for (std::size_t axis = 0; axis < field.rank && slice > limits::kChunkBytesMax; ++axis) {
    slice /= field.extent[axis];
    field.tile[axis] = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(
        limits::kChunkBytesMax / slice, 1, field.extent[axis]));
  }
}

std::uint64_t TileElements(const std::array<std::uint32_t, kChunkRankMax>& extent) {
  return std::uint64_t{extent[0]} * extent[1] * extent[2] * extent[3];
}

}  // namespace

PackedForm::PackedForm(std::shared_ptr<const catalog::Catalog> catalog, Compression compression)
    : catalog_(std::move(catalog)), compression_(compression) {}

Result<std::shared_ptr<const PackedForm>> PackedForm::Create(
    std::shared_ptr<const catalog::Catalog> catalog, Compression compression) {
  FOREBAY_CHECK(compression != Compression::kOff);
  if (catalog->packs() != nullptr) return CannotPack("packs are compressed already");
  std::shared_ptr<PackedForm> form(new PackedForm(std::move(catalog), compression));
  const auto fields = static_cast<std::uint32_t>(form->catalog_->fields().size());
  form->part_fields_.assign(form->catalog_->part_count(), fields);
  for (std::uint32_t field = 0; field < fields; ++field) {
    FOREBAY_TRY(form->AddField(FieldId(field)));
  }
  // The value `fields` marks a part that no field has claimed.
  if (std::ranges::count(form->part_fields_, fields) > 0) {
    return CannotPack("a part supplies no field");
  }
  const Status fits = compress::CheckSchema(form->schema_);
  if (!fits.has_value()) return CannotPack(fits.error().message());
  FOREBAY_TRY(form->CheckExtents());
  return std::shared_ptr<const PackedForm>(std::move(form));
}

Status PackedForm::AddField(FieldId field) {
  const FieldSpec& spec = catalog_->fields()[field.value()];
  if (spec.source != FieldSource::kExtent || !spec.is_fixed()) {
    return CannotPack(fmt::format("samples of format {} have no fixed size",
                                  catalog::FormatName(catalog_->format())));
  }
  const std::uint32_t part = catalog_->PartOf(field);
  // With one field in each part, all samples of an extent have the same shape.
  if (part_fields_[part] != catalog_->fields().size()) {
    return CannotPack("a part supplies several fields");
  }
  part_fields_[part] = field.value();
  FOREBAY_ASSIGN(const std::uint64_t bytes, spec.BytesPerSample());
  if (bytes == 0 || bytes > limits::kExtentBytesMax) {
    return CannotPack(fmt::format("a record of field '{}' has {} bytes, more than an extent",
                                  spec.name, bytes));
  }
  PackField packed;
  packed.name = spec.name;
  FOREBAY_TRY(SetShape(spec, packed));
  SetChunks(packed);
  schema_.fields.push_back(std::move(packed));
  return {};
}

// No record may lie in two extents, and an extent that does not compress must still fit.
Status PackedForm::CheckExtents() const {
  for (std::uint32_t i = 0; i < catalog_->extent_count(); ++i) {
    const catalog::ExtentInfo info = catalog_->extent(ExtentId(i));
    const PackField& field = FieldOf(ExtentId(i));
    if (info.bytes != info.sample_count * field.sample_bytes()) {
      return CannotPack(fmt::format("records of field '{}' are larger than an extent",
                                    field.name));
    }
    if (ImageBytesMax(ExtentId(i)) > limits::kExtentBytesMax) {
      return CannotPack(fmt::format("extents of {} bytes leave no room for checksums; lower the "
                                    "data set's extent", info.bytes));
    }
  }
  return {};
}

compress::Profile PackedForm::profile() const {
  switch (compression_) {
    case Compression::kFast: return compress::Profile::kFast;
    case Compression::kDense: return compress::Profile::kDense;
    // Create refuses kOff, so this is kBalanced.
    default: return compress::Profile::kBalanced;
  }
}

tier::ExtentKey PackedForm::Key(const tier::ExtentKey& raw) const {
  ByteWriter words;
  words.Le(raw.identity);
  words.Le(kPackedFormVersion);
  words.Le(static_cast<std::uint64_t>(compression_));
  words.Le(Checksum(compress::WriteSchema(schema_)));  // the shapes are part of the configuration
  // Only the identity differs, so the raw and the packed image of an extent never have the same
  // key.
  return {raw.dataset, raw.extent, Checksum(words.bytes())};
}

std::uint64_t PackedForm::IdentityOf(const tier::ExtentKey& key) {
  // Checksums of records include this number, so a record of another extent does not pass.
  ByteWriter words;
  words.Le(key.dataset);
  words.Le(key.extent.value());
  words.Le(key.identity);
  return Checksum(words.bytes());
}

const PackField& PackedForm::FieldOf(ExtentId extent) const {
  return schema_.fields[part_fields_[catalog_->extent(extent).part]];
}

std::uint32_t PackedForm::ChunkCount(ExtentId extent) const {
  const PackField& field = FieldOf(extent);
  const std::uint32_t samples = catalog_->extent(extent).sample_count;
  // Rounded up: the last run of samples may be shorter.
  return (samples + field.samples_per_chunk - 1) / field.samples_per_chunk * field.tiles();
}

PackedChunk PackedForm::ChunkOf(ExtentId extent, std::uint32_t number) const {
  const catalog::ExtentInfo info = catalog_->extent(extent);
  const PackField& field = FieldOf(extent);
  const std::uint32_t tiles = field.tiles();
  PackedChunk chunk;
  chunk.field = part_fields_[info.part];
  // Chunks are numbered tile by tile within each run of samples, so that all tiles of a run, which
  // are decoded together, are neighbours.
  chunk.tile = number % tiles;
  chunk.first_sample = number / tiles * field.samples_per_chunk;
  FOREBAY_CHECK(chunk.first_sample < info.sample_count);
  chunk.sample_count =
      std::min(field.samples_per_chunk, info.sample_count - chunk.first_sample);
  const std::uint64_t element = DtypeBytes(field.dtype);
  const auto origin = field.TileOrigin(chunk.tile);
  // Offset of the tile's first element in a sample, in row-major order. Because tiles are cut along
  // leading axes, the elements of a tile are contiguous from there on.
  std::uint64_t before = 0;
  for (std::size_t axis = 0; axis < kChunkRankMax; ++axis) {
    before = before * field.extent[axis] + origin[axis];
  }
  chunk.raw_offset = chunk.first_sample * field.sample_bytes() + before * element;
  chunk.raw_bytes = chunk.sample_count * TileElements(field.TileExtent(chunk.tile)) * element;
  return chunk;
}

PackedUnit PackedForm::UnitOf(std::uint32_t field_number, SampleId sample) const {
  const PackField& field = schema_.fields[field_number];
  const std::uint32_t part = catalog_->PartOf(FieldId(field_number));
  const Result<catalog::Range> range = catalog_->samples()->SampleRange(sample, part);
  FOREBAY_CHECK(range.has_value());  // fixed records lie where arithmetic says
  const catalog::ExtentInfo info = catalog_->extent(range->extent);
  const auto index = static_cast<std::uint32_t>(sample.value() - info.first_sample.value());
  // A sample needs all tiles of its run, which ChunkOf numbers one after another.
  const std::uint32_t group = index / field.samples_per_chunk;
  const std::uint32_t begin = group * field.samples_per_chunk;
  const std::uint32_t tiles = field.tiles();
  return {.extent = range->extent,
          .first_chunk = group * tiles,
          .chunk_count = tiles,
          .first_sample = info.first_sample.value() + begin,
          .sample_count = std::min(field.samples_per_chunk, info.sample_count - begin)};
}

// A chunk that does not compress is stored uncompressed, so it is at most its elements and a head,
// which has a checksum per sample.
std::uint64_t PackedForm::ImageBytesMax(ExtentId extent) const {
  const catalog::ExtentInfo info = catalog_->extent(extent);
  const std::uint64_t chunks = ChunkCount(extent);
  const std::uint64_t tiles = FieldOf(extent).tiles();
  return DirectoryBytes(chunks) + info.bytes + chunks * kRecordHeadBytesMax +
         std::uint64_t{info.sample_count} * tiles * sizeof(std::uint64_t);
}

}  // namespace forebay::stage

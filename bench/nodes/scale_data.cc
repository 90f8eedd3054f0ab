// Packs get their rows from CutPack and PackImageWriter, fixed records from CatalogWriter; both
// images are opened, and so checked, before they are saved.
#include "bench/nodes/scale_data.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "compress/format/pack/pack_format.h"
#include "server/catalog/catalog.h"
#include "server/catalog/dataset_source.h"
#include "server/catalog/pack/pack_catalog.h"
#include "server/catalog/pack/pack_cut.h"
#include "server/catalog/pack/pack_image_writer.h"
#include "server/catalog/storage/catalog_writer.h"
#include "server/catalog/storage/image_sink.h"

namespace forebay::bench {
namespace {

using CatalogResult = Result<std::shared_ptr<const catalog::Catalog>>;

constexpr char kName[] = "scale";
constexpr std::uint64_t kFileBytes = limits::kGiB;  // of a pack and of a shard
constexpr std::uint32_t kChunkHeadBytes = 64;
constexpr std::uint64_t kFirstChunkOffset = 4096;  // behind header and schema

std::uint64_t SamplesOfFile(const DataSize& data) {
  return std::max<std::uint64_t>(1, kFileBytes / data.sample_bytes);
}

// One field of samples that are not compressed: their chunks are as large as they may be, so that
// the catalog is as small as it can be.
compress::PackField FieldOf(const DataSize& data) {
  compress::PackField field;
  field.name = "x";
  field.dtype = Dtype::kU8;
  field.rank = 1;
  field.extent = field.tile = {data.sample_bytes, 1, 1, 1};
  field.samples_per_chunk = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(limits::kChunkBytesMax / data.sample_bytes, 1,
                                limits::kChunkSamplesMax));
  return field;
}

// The index of one pack, as if its chunks had been written one after another.
std::vector<compress::ChunkEntry> ChunksOf(const compress::PackField& field,
                                           std::uint64_t sample_count) {
  std::vector<compress::ChunkEntry> chunks;
  std::uint64_t offset = kFirstChunkOffset;
  for (std::uint64_t first = 0; first < sample_count; first += field.samples_per_chunk) {
    compress::ChunkEntry chunk;
    chunk.first_sample = first;
    chunk.sample_count = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(field.samples_per_chunk, sample_count - first));
    chunk.head_bytes = kChunkHeadBytes;
    chunk.payload_bytes = chunk.sample_count * field.sample_bytes();
    chunk.offset = offset;
    offset += chunk.head_bytes + chunk.payload_bytes;
    chunks.push_back(chunk);
  }
  return chunks;
}

CatalogResult PackCatalogOf(const DataSize& data, const std::string& folder) {
  compress::PackSchema schema;
  schema.fields = {FieldOf(data)};
  // Tables that outgrow their share of memory go to the folder, as they do in a daemon.
  catalog::PackImageWriter writer(kName, schema, {.directory = folder});
  for (std::uint64_t base = 0; base < data.sample_count; base += SamplesOfFile(data)) {
    const std::uint64_t samples = std::min(SamplesOfFile(data), data.sample_count - base);
    const std::vector<compress::ChunkEntry> chunks = ChunksOf(schema.fields[0], samples);
    FOREBAY_ASSIGN(const catalog::PackCut cut,
                   catalog::CutPack(schema, chunks, data.extent_bytes));
    const compress::ChunkEntry& last = chunks.back();
    const std::string path = "part-" + std::to_string(base) + ".fbp";
    FOREBAY_TRY(writer.AddPack({.path = path,
                                .bytes = last.offset + last.head_bytes + last.payload_bytes,
                                .mtime_ns = 1,
                                .identity = base + 1,  // any, but another one for each pack
                                .samples = samples,
                                .chunks = chunks},
                               cut));
  }
  // Opening checks every row, so a pack that could not exist would be an error here.
  FOREBAY_ASSIGN(catalog::ImageBytes image, writer.Finish());
  return catalog::OpenPackImage(std::move(image));
}

CatalogResult RecordsCatalogOf(const DataSize& data) {
  // Nothing is stored for a sample, so the image is small enough for memory.
  catalog::MemorySink sink;
  catalog::CatalogWriter writer(sink, kName, catalog::Format::kRaw);
  FOREBAY_TRY(writer.AddObject("x.bin", data.sample_count * data.sample_bytes, 1));
  FOREBAY_TRY(writer.AddFixedPart(data.sample_count, 0, data.sample_bytes, data.extent_bytes));
  std::vector<catalog::FieldPlan> fields(1);
  fields[0].spec.name = "x";
  fields[0].spec.dtype = Dtype::kU8;
  fields[0].spec.shape = {data.sample_bytes};
  FOREBAY_TRY(writer.Finish(data.sample_count, fields));
  return catalog::Catalog::FromBytes(sink.Release());
}

}  // namespace

std::uint64_t ShardCount(const DataSize& data) {
  return (data.sample_count - 1) / SamplesOfFile(data) + 1;
}

Result<std::string> SaveCatalogOf(const DataSize& data, io::IoBackend& backend,
                                  const std::string& folder) {
  if (data.form == DataForm::kShards) {
    return Error(ErrorCode::kInvalidArgument, "a data set in shards has no catalog here");
  }
  FOREBAY_ASSIGN(const std::shared_ptr<const catalog::Catalog> catalog,
                 data.form == DataForm::kPack ? PackCatalogOf(data, folder)
                                              : RecordsCatalogOf(data));
  FOREBAY_ASSIGN(const std::unique_ptr<io::Directory> directory, backend.OpenDirectory(folder));
  const std::string name = "scale.catalog";
  FOREBAY_TRY(catalog::SaveCatalog(*catalog, backend, *directory, name));
  return folder + "/" + name;
}

}  // namespace forebay::bench

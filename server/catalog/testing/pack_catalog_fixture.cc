// Compares a catalog of packs, chunk by chunk, with the indexes of the packs themselves.
#include "server/catalog/testing/pack_catalog_fixture.h"

#include <algorithm>
#include <tuple>

#include "server/catalog/testing/pack_image_probe.h"

namespace forebay::catalog {
namespace {

using compress::ChunkEntry;

auto Facts(const ChunkEntry& entry) {
  return std::tuple(entry.field, entry.tile, entry.first_sample, entry.sample_count,
                    entry.head_bytes, entry.offset, entry.payload_bytes, entry.part_offset,
                    entry.sample_bytes, entry.head_checksum);
}

}  // namespace

// The record lies at the catalog's place, and equals the one in the file.
void PackCatalogTest::ExpectChunk(const Catalog& catalog, const PackChunk& chunk,
                                  const WrittenPack& pack) {
  EXPECT_EQ(chunk.identity, pack.file->identity());
  const std::string image = ExtentText(catalog, chunk.extent);
  ASSERT_LE(chunk.image_offset + chunk.bytes(), image.size());
  const std::vector<std::byte> record =
      TextBytes(std::string_view(image).substr(chunk.image_offset, chunk.bytes()));
  const auto prefix = compress::ReadRecordPrefix(record);
  ASSERT_TRUE(prefix.has_value());
  EXPECT_EQ(prefix->type, compress::RecordType::kChunk);
  EXPECT_EQ(prefix->head_checksum, chunk.entry.head_checksum);
  const std::span<const std::byte> head = std::span(record).first(chunk.entry.head_bytes);
  EXPECT_TRUE(compress::CheckRecordHead(chunk.identity, chunk.entry.offset, head).has_value());
  EXPECT_EQ(compress::PayloadChecksum(chunk.identity, compress::RecordType::kChunk,
                                      chunk.entry.offset,
                                      std::span(record).subspan(chunk.entry.head_bytes)),
            prefix->payload_checksum);
  std::vector<Range> pieces;
  ASSERT_TRUE(catalog.Pieces(chunk.extent, pieces).has_value());
  ASSERT_LT(chunk.piece, pieces.size());
  EXPECT_EQ(pieces[chunk.piece].offset, chunk.image_offset);
  EXPECT_EQ(pieces[chunk.piece].length, chunk.bytes());
}

// Every field has the chunks that the reader of the pack finds.
void PackCatalogTest::ExpectSample(const Catalog& catalog, std::uint64_t base,
                                   std::uint64_t local, const WrittenPack& pack) {
  const PackTable& table = *catalog.packs();
  for (std::uint32_t field = 0; field < table.schema().fields.size(); ++field) {
    const std::span<const ChunkEntry> expected = pack.file->Chunks(field, local, 1);
    const ChunkGroup group = table.GroupOf(field, SampleId(base + local));
    ASSERT_EQ(group.count, expected.size()) << "field " << field << " sample " << local;
    for (std::uint32_t i = 0; i < group.count; ++i) {
      const PackChunk chunk = table.chunk(group.first + i);
      EXPECT_EQ(Facts(chunk.entry), Facts(expected[i]));
      EXPECT_EQ(chunk.sample_base, base);
      EXPECT_EQ(chunk.first_sample(), base + expected[i].first_sample);
      ExpectChunk(catalog, chunk, pack);
    }
  }
  const auto key = catalog.SampleKey(SampleId(base + local));
  ASSERT_TRUE(key.has_value());
  const auto& keys = pack.model.keys;
  EXPECT_EQ(*key, keys.empty() ? std::to_string(base + local) : keys[local]);
}

// Extents hold each chunk once, and name the samples of their chunks.
void PackCatalogTest::ExpectExtents(const Catalog& catalog) {
  const PackTable& table = *catalog.packs();
  std::vector<std::uint64_t> begins(catalog.extent_count(), ~std::uint64_t{0});
  std::vector<std::uint64_t> ends(catalog.extent_count(), 0);
  std::vector<std::uint32_t> counts(catalog.extent_count(), 0);
  for (std::uint64_t i = 0; i < table.chunk_count(); ++i) {
    const PackChunk chunk = table.chunk(i);
    const std::uint32_t extent = chunk.extent.value();
    begins[extent] = std::min(begins[extent], chunk.first_sample());
    ends[extent] = std::max(ends[extent], chunk.first_sample() + chunk.entry.sample_count);
    ++counts[extent];
  }
  std::uint64_t total = 0;
  for (std::uint32_t i = 0; i < catalog.extent_count(); ++i) {
    const ExtentInfo info = catalog.extent(ExtentId(i));
    std::vector<Range> pieces;
    ASSERT_TRUE(catalog.Pieces(ExtentId(i), pieces).has_value());
    EXPECT_EQ(pieces.size(), counts[i]);
    EXPECT_TRUE(pieces.size() == 1 || info.bytes <= source_.extent_bytes);
    EXPECT_EQ(info.object_count, 1U);
    EXPECT_EQ(info.part, 0U);
    EXPECT_EQ(info.first_sample.value(), begins[i]);
    EXPECT_EQ(info.first_sample.value() + info.sample_count, ends[i]);
    total += info.bytes;
  }
  EXPECT_EQ(total, catalog.total_bytes());
  EXPECT_TRUE(AnswersWithinBounds(catalog));
}

}  // namespace forebay::catalog

// Images of catalogs of packs that are damaged, truncated or forged are refused.
#include <cstring>

#include <gmock/gmock.h>

#include "server/catalog/pack/pack_image_format.h"
#include "server/catalog/testing/pack_catalog_fixture.h"
#include "server/catalog/testing/pack_image_probe.h"

namespace forebay::catalog {
namespace {

using ::testing::HasSubstr;

class PackImageTest : public PackCatalogTest {
 protected:
  // The image of a small catalog of two packs, in several extents.
  std::vector<std::byte> SmallImage() {
    AddPack("a.pack", compress::MakeModel(5, 1));
    AddPack("b.pack", compress::MakeModel(2, 2));
    source_.extent_bytes = 3000;
    const auto catalog = MustBuild();
    EXPECT_GT(catalog->extent_count(), 2U);
    return {catalog->image().begin(), catalog->image().end()};
  }

  static std::string Refusal(std::vector<std::byte> image) {
    const auto opened = Catalog::FromBytes(std::move(image));
    return opened.has_value() ? "(opened)" : opened.error().ToString();
  }
};

TEST_F(PackImageTest, EveryDamagedByteIsNoticed) {
  const std::vector<std::byte> image = SmallImage();
  for (std::size_t at = 0; at < image.size(); ++at) {
    std::vector<std::byte> damaged = image;
    damaged[at] ^= std::byte{0x10};
    const auto opened = Catalog::FromBytes(std::move(damaged));
    // Only the zeros between sections may change.
    if (opened.has_value()) {
      EXPECT_EQ(image[at], std::byte{0}) << at;
    } else {
      EXPECT_EQ(opened.error().code(), ErrorCode::kDataLoss) << at;
    }
  }
}

TEST_F(PackImageTest, EveryTruncationIsNoticed) {
  const std::vector<std::byte> image = SmallImage();
  for (std::size_t size = 0; size < image.size(); ++size) {
    std::vector<std::byte> cut(image.begin(), image.begin() + static_cast<std::ptrdiff_t>(size));
    ASSERT_NE(Refusal(cut), "(opened)") << size;
    SealPackImage(cut);
    ASSERT_NE(Refusal(std::move(cut)), "(opened)") << size << ", sealed";
  }
}

TEST_F(PackImageTest, NoForgedByteLeadsOutOfBounds) {
  const std::vector<std::byte> image = SmallImage();
  std::size_t refused = 0;
  for (std::size_t at = 0; at < image.size(); ++at) {
    for (const int flip : {0x01, 0x80, 0xFF}) {
      std::vector<std::byte> forged = image;
      forged[at] ^= static_cast<std::byte>(flip);
      SealPackImage(forged);
      const auto opened = Catalog::FromBytes(std::move(forged));
      refused += opened.has_value() ? 0 : 1;
      if (opened.has_value()) {
        ASSERT_TRUE(AnswersWithinBounds(**opened)) << "byte " << at << " flip " << flip;
      } else {
        ASSERT_EQ(opened.error().code(), ErrorCode::kDataLoss) << opened.error().ToString();
      }
    }
  }
  EXPECT_GT(refused, image.size()) << "hardly any forgery was noticed";
}

// A schema whose chunks would take 166 MB of every reader's memory to decode.
TEST_F(PackImageTest, ASchemaThatTakesTooMuchMemoryToDecodeIsRefused) {
  compress::PackModel model;
  model.schema.fields = {{.name = "thread", .dtype = Dtype::kU8, .rank = 2,
                          .extent = {87'381, 24, 1, 1}, .fill_bits = {}, .bound = {},
                          .samples_per_chunk = 1, .tile = {87'381, 24, 1, 1}}};
  model.samples = {{std::vector<std::byte>(87'381 * 24)}};
  AddPack("thread.pack", model);
  source_.extent_bytes = 4 * limits::kMiB;
  const auto catalog = MustBuild();
  std::vector<std::byte> image = {catalog->image().begin(), catalog->image().end()};
  ASSERT_EQ(Refusal(image), "(opened)");
  compress::PackSchema hostile = packs_[0].file->schema();
  hostile.provenance.clear();  // an image has none
  const auto start = compress::WriteSchema(hostile);
  hostile.fields[0].samples_per_chunk = 2;
  const auto hostile_start = compress::WriteSchema(hostile);
  ASSERT_EQ(start.size(), hostile_start.size());
  const auto section = LoadAt<PackHeaderRow>(image, 0).section(PackSection::kMeta);
  const std::size_t at = section.offset + section.bytes - start.size();
  ASSERT_EQ(std::memcmp(&image[at], start.data(), start.size()), 0);
  std::memcpy(&image[at], hostile_start.data(), hostile_start.size());
  SealPackImage(image);
  const std::string refusal = Refusal(std::move(image));
  EXPECT_THAT(refusal, HasSubstr("DATA_LOSS"));
  EXPECT_THAT(refusal, HasSubstr("2x87381x24 u8"));
}

TEST_F(PackImageTest, AnotherVersionIsNamed) {
  std::vector<std::byte> image = SmallImage();
  auto header = LoadAt<PackHeaderRow>(image, 0);
  header.version = 2;
  header.hash = HashOf(header);
  std::memcpy(image.data(), &header, sizeof header);
  const auto opened = Catalog::FromBytes(std::move(image));
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(opened.error().message(), HasSubstr("version 2, this build reads 1"));
}

// Changes one row of a table, seals the image and returns why it is refused.
template <typename Row, typename Change>
std::string RefusalOf(std::vector<std::byte> image, PackSection section, std::size_t number,
                      Change change) {
  const auto header = LoadAt<PackHeaderRow>(image, 0);
  const std::size_t at = header.section(section).offset + number * sizeof(Row);
  Row row = LoadAt<Row>(image, at);
  change(row);
  std::memcpy(&image[at], &row, sizeof row);
  SealPackImage(image);
  const auto opened = Catalog::FromBytes(std::move(image));
  return opened.has_value() ? "(opened)" : opened.error().message();
}

std::uint32_t PieceOf(const std::vector<std::byte>& image, std::uint64_t chunk) {
  const auto header = LoadAt<PackHeaderRow>(image, 0);
  const std::size_t at = header.section(PackSection::kChunks).offset;
  return LoadAt<PackChunkRow>(image, at + chunk * sizeof(PackChunkRow)).piece;
}

TEST_F(PackImageTest, ForgedExtentsAreRefused) {
  const std::vector<std::byte> image = SmallImage();
  const auto refusal = [&](auto change) {
    return RefusalOf<PackExtentRow>(image, PackSection::kExtents, 1, change);
  };
  EXPECT_THAT(refusal([](auto& row) { row.object = 9; }), HasSubstr("has no object"));
  EXPECT_THAT(refusal([](auto& row) { row.bytes = 1U << 31; }), HasSubstr("past the end"));
  EXPECT_THAT(refusal([](auto& row) { row.bytes = 0; }), HasSubstr("past the end"));
  EXPECT_THAT(refusal([](auto& row) { row.object_offset = ~0ULL; }), HasSubstr("past the end"));
  EXPECT_THAT(refusal([](auto& row) { row.object_offset = 0; }), HasSubstr("or precedes the"));
  EXPECT_THAT(refusal([](auto& row) { row.piece_count = 0; }), HasSubstr("impossible number"));
  EXPECT_THAT(refusal([](auto& row) { row.sample_count = 0; }), HasSubstr("impossible number"));
  EXPECT_THAT(refusal([](auto& row) { row.first_piece += 1; }), HasSubstr("out of place"));
  EXPECT_THAT(refusal([](auto& row) { row.piece_count += 1; }), HasSubstr("out of place"));
  EXPECT_THAT(refusal([](auto& row) { row.first_sample += 1; }), HasSubstr("samples"));
  EXPECT_THAT(refusal([](auto& row) { row.sample_count += 1; }),
              HasSubstr("other samples than its chunks"));
}

TEST_F(PackImageTest, ForgedChunksAreRefused) {
  const std::vector<std::byte> image = SmallImage();
  const auto refusal = [&](auto change) {
    return RefusalOf<PackChunkRow>(image, PackSection::kChunks, 1, change);
  };
  EXPECT_THAT(refusal([](auto& row) { row.tile = 0; }), HasSubstr("does not follow"));
  EXPECT_THAT(refusal([](auto& row) { row.first_sample += 1; }), HasSubstr("does not follow"));
  EXPECT_THAT(refusal([](auto& row) { row.field = 1; }), HasSubstr("too early"));
  EXPECT_THAT(refusal([](auto& row) { row.extent = 1U << 20; }), HasSubstr("has no extent"));
  EXPECT_THAT(refusal([](auto& row) { row.offset = 0; }), HasSubstr("outside its extent"));
  EXPECT_THAT(refusal([](auto& row) { row.offset = ~0ULL; }), HasSubstr("outside its extent"));
  EXPECT_THAT(refusal([](auto& row) { row.payload_bytes = 4U << 20; }),
              HasSubstr("outside its extent"));
  EXPECT_THAT(refusal([](auto& row) { row.piece += 1; }), HasSubstr("not the piece"));
  EXPECT_THAT(refusal([](auto& row) { row.piece = 1U << 30; }), HasSubstr("not the piece"));
  // A chunk that is not the first of its extent may move within it, but not over another.
  const auto header = LoadAt<PackHeaderRow>(image, 0);
  std::uint64_t later = 0;
  while (later < header.chunk_count && PieceOf(image, later) == 0) ++later;
  ASSERT_LT(later, header.chunk_count);
  EXPECT_THAT(RefusalOf<PackChunkRow>(image, PackSection::kChunks, later,
                                      [](auto& row) { row.offset -= 8; }),
              HasSubstr("overlap"));
}

TEST_F(PackImageTest, ForgedObjectsPiecesAndKeysAreRefused) {
  const std::vector<std::byte> image = SmallImage();
  const auto object = [&](auto change) {
    return RefusalOf<PackObjectRow>(image, PackSection::kObjects, 0, change);
  };
  EXPECT_THAT(object([](auto& row) { row.samples = 0; }), HasSubstr("object 0"));
  EXPECT_THAT(object([](auto& row) { row.samples += 1; }), HasSubstr("object 1"));
  EXPECT_THAT(object([](auto& row) { row.name_bytes = 5000; }), HasSubstr("object 0"));
  EXPECT_THAT(object([](auto& row) { row.bytes = 10; }), HasSubstr("past the end"));
  EXPECT_THAT(RefusalOf<std::uint32_t>(image, PackSection::kPieces, 0,
                                       [](auto& piece) { piece = 1U << 30; }),
              HasSubstr("not the piece"));
  EXPECT_THAT(RefusalOf<std::uint64_t>(image, PackSection::kKeyIndex, 0,
                                       [](auto& offset) { offset = 1; }),
              HasSubstr("the key index is wrong"));
  EXPECT_THAT(RefusalOf<std::uint16_t>(image, PackSection::kKeys, 0,
                                       [](auto& length) { length = 2000; }),
              HasSubstr("impossible length"));
  EXPECT_THAT(RefusalOf<std::uint16_t>(image, PackSection::kKeys, 0,
                                       [](auto& length) { length += 1; }),
              ::testing::Not(HasSubstr("(opened)")));
}

}  // namespace
}  // namespace forebay::catalog

// Keys and checksums change with everything that they cover, and stay the same otherwise.
#include "server/tier/extent_key.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace forebay::tier {
namespace {

// Three objects and two extents: object 0 alone, then objects 1 and 2 as a run.
class SmallCatalog final : public catalog::Catalog {
 public:
  std::vector<catalog::ObjectInfo> objects = {{"a/0.bin", 100, 1}, {"a/1.bin", 30, 2},
                                              {"a/2.bin", 40, 3}};
  std::string_view name() const override { return "small"; }
  catalog::Format format() const override { return catalog::Format::kImageFolder; }
  std::uint64_t fingerprint() const override { return 0; }
  std::uint64_t sample_count() const override { return 3; }
  std::uint32_t part_count() const override { return 1; }
  std::span<const FieldSpec> fields() const override { return {}; }
  std::uint32_t PartOf(FieldId) const override { return 0; }
  std::uint32_t object_count() const override { return 3; }
  catalog::ObjectInfo object(ObjectId id) const override { return objects.at(id.value()); }
  std::uint32_t extent_count() const override { return 2; }
  catalog::ExtentInfo extent(ExtentId id) const override {
    catalog::ExtentInfo info;
    info.first_object = ObjectId(id.value());
    info.object_count = id.value() == 0 ? 1 : 2;
    info.bytes = id.value() == 0 ? 100 : 70;
    info.first_sample = SampleId(id.value());
    info.sample_count = info.object_count;
    return info;
  }
  std::uint64_t total_bytes() const override { return 170; }
  std::vector<std::string_view> ConstantNames(FieldId) const override { return {}; }
  Status Pieces(ExtentId, std::vector<catalog::Range>&) const override { return {}; }
  Result<std::string> SampleKey(SampleId) const override { return std::string(); }
  std::span<const std::byte> image() const override { return {}; }
};

std::vector<std::byte> Image(std::size_t bytes) {
  std::vector<std::byte> image(bytes);
  for (std::size_t i = 0; i < bytes; ++i) image[i] = static_cast<std::byte>(i * 7 + 3);
  return image;
}

TEST(ExtentKey, KeyOfCoversTheExtentsObjectsOnly) {
  SmallCatalog catalog;
  const ExtentKey first = KeyOf(catalog, ExtentId(0));
  const ExtentKey second = KeyOf(catalog, ExtentId(1));
  EXPECT_EQ(first.dataset, DatasetHash("small"));
  EXPECT_EQ(first.extent, ExtentId(0));
  EXPECT_NE(first.identity, second.identity);
  catalog.objects[2].mtime_ns = 99;
  EXPECT_EQ(KeyOf(catalog, ExtentId(0)), first);
  EXPECT_NE(KeyOf(catalog, ExtentId(1)), second);
}

TEST(ExtentKey, IdentityDependsOnEachPartOfTheDescription) {
  const catalog::ExtentInfo extent = {0, ObjectId(0), 1, 4096, 100, SampleId(0), 5};
  const std::vector<catalog::ObjectInfo> objects = {{"x", 8192, 7}};
  std::set<std::uint64_t> seen = {ExtentIdentity(extent, objects)};
  auto changed = extent;
  changed.object_offset = 0;
  EXPECT_TRUE(seen.insert(ExtentIdentity(changed, objects)).second);
  changed = extent;
  changed.bytes = 101;
  EXPECT_TRUE(seen.insert(ExtentIdentity(changed, objects)).second);
  changed = extent;
  changed.sample_count = 6;
  EXPECT_TRUE(seen.insert(ExtentIdentity(changed, objects)).second);
  changed = extent;
  changed.part = 1;
  EXPECT_TRUE(seen.insert(ExtentIdentity(changed, objects)).second);
  for (const catalog::ObjectInfo& other :
       {catalog::ObjectInfo{"y", 8192, 7}, catalog::ObjectInfo{"x", 8193, 7},
        catalog::ObjectInfo{"x", 8192, 8}}) {
    EXPECT_TRUE(seen.insert(ExtentIdentity(extent, {&other, 1})).second) << other.path;
  }
}

TEST(ExtentKey, TextIsFixedWidthHexadecimal) {
  EXPECT_EQ(KeyText({0x1, ExtentId(0xAB), 0xFFFFFFFFFFFFFFFF}),
            "0000000000000001-000000ab-ffffffffffffffff");
}

TEST(ExtentKey, PieceIdentitiesOfAllOffsetsAndExtentsDiffer) {
  const ExtentKey key = {1, ExtentId(2), 3};
  const ExtentKey next = {1, ExtentId(3), 3};
  EXPECT_EQ(PieceIdentity(key, 0, 10).offset, std::uint64_t{2} << 32);
  EXPECT_NE(PieceIdentity(key, 0xFFFFFFFF, 10).offset, PieceIdentity(next, 0, 10).offset);
  EXPECT_EQ(PieceIdentity(key, 5, 10).object, 3U);
  EXPECT_EQ(PieceIdentity(key, 5, 10).length, 10U);
}

TEST(ExtentChecksums, PiecesOfAnImageVerify) {
  const ExtentKey key = {1, ExtentId(2), 3};
  const auto image = Image(1000);
  const std::vector<catalog::Range> pieces = {{key.extent, 0, 400}, {key.extent, 400, 0},
                                              {key.extent, 512, 488}};
  const ExtentChecksums sums = ComputeChecksums(key, image, pieces);
  ASSERT_EQ(sums.pieces.size(), 3U);
  EXPECT_EQ(sums.image, Checksum(PieceIdentity(key, 0, 1000), image));
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const auto bytes = std::span(image).subspan(pieces[i].offset, pieces[i].length);
    EXPECT_TRUE(VerifyPiece(key, pieces[i], sums.pieces[i], bytes).has_value()) << i;
  }
}

TEST(ExtentChecksums, EveryFlippedBitOfAPieceIsFound) {
  const ExtentKey key = {1, ExtentId(2), 3};
  auto image = Image(64);
  const catalog::Range piece = {key.extent, 0, 64};
  const ExtentChecksums sums = ComputeChecksums(key, image, {&piece, 1});
  for (std::size_t bit = 0; bit < 512; ++bit) {
    image[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    const Status status = VerifyPiece(key, piece, sums.pieces[0], image);
    ASSERT_FALSE(status.has_value()) << bit;
    EXPECT_EQ(status.error().code(), ErrorCode::kDataLoss);
    image[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
  }
}

TEST(ExtentChecksums, RightBytesInTheWrongPlaceAreFound) {
  const ExtentKey key = {1, ExtentId(2), 3};
  const std::vector<std::byte> same(128, std::byte{5});
  const std::vector<catalog::Range> pieces = {{key.extent, 0, 64}, {key.extent, 64, 64}};
  const ExtentChecksums sums = ComputeChecksums(key, same, pieces);
  const auto bytes = std::span(same).first(64);
  EXPECT_FALSE(VerifyPiece(key, pieces[0], sums.pieces[1], bytes).has_value());
  const ExtentKey other = {1, ExtentId(2), 4};
  EXPECT_FALSE(VerifyPiece(other, pieces[0], sums.pieces[0], bytes).has_value());
}

TEST(ExtentChecksums, ErrorNamesExtentAndPiece) {
  const ExtentKey key = {1, ExtentId(2), 3};
  const auto image = Image(64);
  const Status status = VerifyPiece(key, {key.extent, 7, 64}, 0, image);
  ASSERT_FALSE(status.has_value());
  EXPECT_NE(status.error().message().find(KeyText(key)), std::string::npos);
  EXPECT_NE(status.error().message().find("64 bytes at 7"), std::string::npos);
}

TEST(ExtentChecksums, PieceOfAnotherLengthIsDataLoss) {
  const ExtentKey key = {1, ExtentId(2), 3};
  const auto image = Image(64);
  const catalog::Range piece = {key.extent, 0, 64};
  const ExtentChecksums sums = ComputeChecksums(key, image, {&piece, 1});
  const Status status = VerifyPiece(key, piece, sums.pieces[0], std::span(image).first(63));
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code(), ErrorCode::kDataLoss);
}

}  // namespace
}  // namespace forebay::tier

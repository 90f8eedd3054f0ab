// Builds catalogs of files in memory, and compares what they say with the bytes of these files.
#include "server/catalog/testing/catalog_test_fixture.h"

#include <algorithm>

namespace forebay::catalog {

std::string PatternText(std::size_t count, std::uint64_t seed) {
  std::string text(count, '\0');
  std::uint64_t state = seed * 0x9E3779B97F4A7C15ULL + 1;
  for (char& c : text) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    c = static_cast<char>(state >> 56);
  }
  return text;
}

std::vector<std::byte> TextBytes(std::string_view text) {
  const auto raw = std::as_bytes(std::span(text.data(), text.size()));
  return {raw.begin(), raw.end()};
}

std::string BytesText(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

CatalogFixture::CatalogFixture() {
  EXPECT_TRUE(backend_.AddDirectory("/data").has_value());
  auto root = backend_.OpenDirectory("/data");
  EXPECT_TRUE(root.has_value());
  root_ = *std::move(root);
  source_.name = "test";
}

void CatalogFixture::AddFile(const std::string& path, std::string_view text) {
  ASSERT_TRUE(backend_.AddFile("/data/" + path, TextBytes(text)).has_value());
}

std::string CatalogFixture::FileText(std::string_view path) const {
  auto bytes = backend_.FileBytes("/data/" + std::string(path));
  EXPECT_TRUE(bytes.has_value()) << path;
  return bytes.has_value() ? BytesText(*bytes) : "";
}

Result<std::shared_ptr<const Catalog>> CatalogFixture::Build() {
  return BuildFromMetadata(backend_, *root_, source_, nullptr);
}

std::string CatalogFixture::BuildError() {
  const auto built = Build();
  EXPECT_FALSE(built.has_value());
  return built.has_value() ? "" : built.error().ToString();
}

std::string CatalogFixture::ExtentText(const Catalog& catalog, ExtentId extent) const {
  const ExtentInfo info = catalog.extent(extent);
  if (info.object_count == 1) {
    return FileText(catalog.object(info.first_object).path)
        .substr(info.object_offset, info.bytes);
  }
  std::string text;
  for (std::uint32_t i = 0; i < info.object_count; ++i) {
    text += FileText(catalog.object(ObjectId(info.first_object.value() + i)).path);
  }
  return text;
}

std::string CatalogFixture::RangeText(const Catalog& catalog, const Range& range) const {
  std::string text;
  std::uint64_t offset = range.offset;
  for (std::uint32_t i = range.extent.value(); text.size() < range.length; ++i) {
    if (i >= catalog.extent_count() ||
        catalog.extent(ExtentId(i)).part != catalog.extent(range.extent).part) {
      ADD_FAILURE() << "range runs past its part";
      break;
    }
    text += ExtentText(catalog, ExtentId(i)).substr(offset, range.length - text.size());
    offset = 0;
  }
  return text;
}

std::string CatalogFixture::FieldText(const Catalog& catalog, SampleId sample,
                                      FieldId field) const {
  std::vector<FieldLocation> locations(catalog.fields().size());
  const Status located = catalog.samples()->Locate(sample, locations);
  EXPECT_TRUE(located.has_value()) << located.error().ToString();
  const FieldLocation& location = locations[field.value()];
  if (!location.present) return "(absent)";
  if (catalog.fields()[field.value()].source == FieldSource::kConstant) {
    return "#" + std::to_string(location.constant);
  }
  return RangeText(catalog, location.range);
}

void CatalogFixture::ExpectConsistent(const Catalog& catalog) const {
  std::uint64_t total_bytes = 0;
  std::uint32_t part = 0;
  for (std::uint32_t i = 0; i < catalog.extent_count(); ++i) {
    const ExtentInfo info = catalog.extent(ExtentId(i));
    ASSERT_GE(info.bytes, 1U);
    ASSERT_LE(info.bytes, source_.extent_bytes);
    ASSERT_GE(info.part, part) << "parts are contiguous";
    part = info.part;
    ASSERT_EQ(ExtentText(catalog, ExtentId(i)).size(), info.bytes);
    total_bytes += info.bytes;
  }
  EXPECT_EQ(total_bytes, catalog.total_bytes());
  for (std::uint32_t i = 0; i < catalog.part_count(); ++i) ExpectPartConsistent(catalog, i);
}

// Gathers every sample from the pieces of the extents and compares it with its range.
void CatalogFixture::ExpectPartConsistent(const Catalog& catalog, std::uint32_t part) const {
  std::vector<std::string> gathered(catalog.sample_count());
  for (std::uint32_t i = 0; i < catalog.extent_count(); ++i) {
    const ExtentInfo info = catalog.extent(ExtentId(i));
    if (info.part != part) continue;
    std::vector<Range> pieces;
    ASSERT_TRUE(catalog.Pieces(ExtentId(i), pieces).has_value());
    ASSERT_EQ(pieces.size(), info.sample_count);
    const std::string text = ExtentText(catalog, ExtentId(i));
    for (std::uint32_t k = 0; k < pieces.size(); ++k) {
      ASSERT_EQ(pieces[k].extent, ExtentId(i));
      ASSERT_LE(pieces[k].offset + pieces[k].length, info.bytes);
      gathered[info.first_sample.value() + k] +=
          text.substr(pieces[k].offset, pieces[k].length);
    }
  }
  for (std::uint64_t sample = 0; sample < catalog.sample_count(); ++sample) {
    const auto range = catalog.samples()->SampleRange(SampleId(sample), part);
    ASSERT_TRUE(range.has_value());
    ASSERT_LE(range->offset, catalog.extent(range->extent).bytes);
    EXPECT_EQ(RangeText(catalog, *range), gathered[sample]) << "sample " << sample;
  }
}

}  // namespace forebay::catalog

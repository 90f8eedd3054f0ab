// The catalog image: round trips, truncations, flipped bits, and tables that contradict each
// other although every checksum is right.
#include "server/catalog/storage/catalog_image.h"

#include <thread>

#include <gmock/gmock.h>

#include "proto/contract/checksum.h"
#include "server/catalog/testing/record_text.h"
#include "server/catalog/testing/scan_fixture.h"
#include "server/catalog/testing/tar_text.h"

namespace forebay::catalog {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CatalogImageTest : public ScanFixture {
 protected:
  std::vector<std::byte> FolderImage() {
    AddFile("folder/a/1", PatternText(70, 1));
    AddFile("folder/a/2", PatternText(30, 2));
    AddFile("folder/b/3", PatternText(250, 3));
    return ImageOf("/data/folder", 100);
  }
  std::vector<std::byte> RecordImage() {
    AddFile("records/x-images-idx2-ubyte", IdxText(0x08, {9, 5}, PatternText(45, 1)));
    AddFile("records/x-labels-idx1-ubyte", IdxText(0x08, {9}, PatternText(9, 2)));
    return ImageOf("/data/records", 4);
  }
  std::vector<std::byte> TarImage() {
    AddFile("a.tar", TarFileText("1.jpg", "one") + TarFileText("1.cls", "1") +
                         TarFileText("2.jpg", PatternText(5000, 2)) + TarFileText("3.cls", "3") +
                         TarFileText("4.cls", "") + TarEndText());
    source_.extent_bytes = 3000;
    const auto catalog = Scan();
    EXPECT_TRUE(catalog.has_value());
    const auto image = (*catalog)->image();
    return {image.begin(), image.end()};
  }
  std::vector<std::vector<std::byte>> AllImages() {
    return {FolderImage(), RecordImage(), TarImage()};
  }

  std::vector<std::byte> ImageOf(const std::string& path, std::uint64_t extent_bytes) {
    auto root = backend_.OpenDirectory(path);
    source_.extent_bytes = extent_bytes;
    const auto catalog = BuildFromMetadata(backend_, **root, source_, nullptr);
    EXPECT_TRUE(catalog.has_value()) << catalog.error().ToString();
    const auto image = (*catalog)->image();
    return {image.begin(), image.end()};
  }

  static std::string ErrorOf(std::vector<std::byte> image) {
    const auto opened = Catalog::FromBytes(std::move(image));
    EXPECT_FALSE(opened.has_value());
    return opened.has_value() ? "" : opened.error().ToString();
  }
};

// All that a catalog returns, as text; or its first error.
std::string Describe(const Catalog& catalog) {
  std::string text = std::string(catalog.name()) + std::to_string(catalog.sample_count());
  const auto add = [&](std::uint64_t value) { text += ' ' + std::to_string(value); };
  const auto add_range = [&](const Range& range) {
    add(range.extent.value());
    add(range.offset);
    add(range.length);
  };
  for (std::uint32_t i = 0; i < catalog.object_count(); ++i) {
    text += catalog.object(ObjectId(i)).path;
    add(catalog.object(ObjectId(i)).bytes);
  }
  std::vector<FieldLocation> locations(catalog.fields().size());
  for (std::uint64_t s = 0; s < catalog.sample_count(); ++s) {
    const Status located = catalog.samples()->Locate(SampleId(s), locations);
    if (!located.has_value()) return located.error().ToString();
    for (const FieldLocation& location : locations) {
      add(location.present ? 1 : 0);
      add_range(location.range);
      add(location.constant);
    }
    const auto key = catalog.SampleKey(SampleId(s));
    if (!key.has_value()) return key.error().ToString();
    text += *key;
    for (std::uint32_t part = 0; part < catalog.part_count(); ++part) {
      add_range(catalog.samples()->SampleRange(SampleId(s), part).value());
    }
  }
  std::vector<Range> pieces;
  for (std::uint32_t i = 0; i < catalog.extent_count(); ++i) {
    if (!catalog.Pieces(ExtentId(i), pieces).has_value()) return "pieces";
  }
  for (const Range& piece : pieces) add_range(piece);
  return text;
}

HeaderRow HeaderOf(const std::vector<std::byte>& image) { return LoadAt<HeaderRow>(image, 0); }

// Corrects every checksum after a test has changed tables.
void Reseal(std::vector<std::byte>& image) {
  HeaderRow header = HeaderOf(image);
  for (std::size_t i = 0; i < kSectionCount; ++i) {
    SectionRow& section = header.sections[i];
    if (i == static_cast<std::size_t>(SectionKind::kPages)) continue;
    section.hash = Checksum(std::span(image).subspan(section.offset, section.bytes));
  }
  header.fingerprint = FingerprintOf(header);
  header.hash = Checksum(RowBytes(header).first(kHeaderBytes - sizeof(header.hash)));
  std::memcpy(image.data(), &header, sizeof header);
}

template <typename T>
void StoreAt(std::vector<std::byte>& image, std::size_t offset, T value) {
  std::memcpy(&image[offset], &value, sizeof value);
}

TEST_F(CatalogImageTest, OpensWhatWasWritten) {
  for (const std::vector<std::byte>& image : AllImages()) {
    const auto catalog = Catalog::FromBytes(image);
    ASSERT_TRUE(catalog.has_value()) << catalog.error().ToString();
    EXPECT_EQ(BytesText((*catalog)->image()), BytesText(image));
    EXPECT_THAT(Describe(**catalog), HasSubstr("test"));
  }
}

TEST_F(CatalogImageTest, FingerprintCoversWhatDecidesASample) {
  AddFile("a/1", "x");
  const auto fingerprint = [&] { return Build().value()->fingerprint(); };
  const std::uint64_t first = fingerprint();
  EXPECT_EQ(fingerprint(), first) << "a pure function of the data set";
  source_.name = "other";
  EXPECT_NE(fingerprint(), first);
  source_.name = "test";
  AddFile("a/1", "x");  // written again: another mtime
  EXPECT_NE(fingerprint(), first);
}

TEST_F(CatalogImageTest, RefusesEveryTruncation) {
  for (const std::vector<std::byte>& image : AllImages()) {
    for (std::size_t length = 0; length < image.size(); ++length) {
      EXPECT_THAT(ErrorOf({image.begin(), image.begin() + static_cast<std::ptrdiff_t>(length)}),
                  HasSubstr("DATA_LOSS: catalog at offset"));
    }
    std::vector<std::byte> longer = image;
    longer.push_back(std::byte{0});
    EXPECT_THAT(ErrorOf(longer), HasSubstr("its header says"));
  }
}

TEST_F(CatalogImageTest, DetectsEveryFlippedBitThatMatters) {
  for (const std::vector<std::byte>& image : AllImages()) {
    const std::string expected = Describe(**Catalog::FromBytes(image));
    std::size_t harmless = 0;
    for (std::size_t bit = 0; bit < image.size() * 8; ++bit) {
      std::vector<std::byte> damaged = image;
      damaged[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
      const auto catalog = Catalog::FromBytes(std::move(damaged));
      if (!catalog.has_value()) {
        EXPECT_EQ(catalog.error().code(), ErrorCode::kDataLoss);
        continue;
      }
      const std::string text = Describe(**catalog);
      if (text == expected) {
        ++harmless;
      } else {
        EXPECT_THAT(text, HasSubstr("DATA_LOSS")) << "bit " << bit;
      }
    }
    // Only the padding between sections may change.
    EXPECT_LE(harmless, (kSectionCount + 3) * 7 * 8);
  }
}

TEST_F(CatalogImageTest, NamesTheDamagedPage) {
  std::vector<std::byte> image = TarImage();
  image[kHeaderBytes] ^= std::byte{1};
  const auto catalog = Catalog::FromBytes(std::move(image));
  ASSERT_TRUE(catalog.has_value()) << "pages are checked at their first use";
  std::vector<FieldLocation> locations(2);
  EXPECT_THAT((*catalog)->samples()->Locate(SampleId(0), locations).error().ToString(),
              HasSubstr("DATA_LOSS: catalog 'test' at offset 512: page of extent 0 does not "
                        "match its checksum"));
  std::vector<Range> pieces;
  EXPECT_FALSE((*catalog)->Pieces(ExtentId(0), pieces).has_value());
  EXPECT_FALSE((*catalog)->samples()->SampleRange(SampleId(0), 0).has_value());
  EXPECT_TRUE((*catalog)->samples()->Locate(SampleId(1), locations).has_value()) << "another page";
}

TEST_F(CatalogImageTest, RefusesAnotherVersionByNumber) {
  std::vector<std::byte> image = FolderImage();
  HeaderRow header = HeaderOf(image);
  header.version = 7;
  std::memcpy(image.data(), &header, sizeof header);
  Reseal(image);
  EXPECT_THAT(ErrorOf(image), HasSubstr("FAILED_PRECONDITION: catalog has format version 7, "
                                        "this build reads 1"));
}

TEST_F(CatalogImageTest, RefusesCountsThatLie) {
  const std::vector<std::byte> image = FolderImage();
  const auto with = [&](auto change) {
    std::vector<std::byte> changed = image;
    HeaderRow header = HeaderOf(changed);
    change(header);
    std::memcpy(changed.data(), &header, sizeof header);
    Reseal(changed);
    return ErrorOf(changed);
  };
  EXPECT_THAT(with([](HeaderRow& h) { h.format = 99; }), HasSubstr("unknown data-set format"));
  EXPECT_THAT(with([](HeaderRow& h) { h.sample_count = 0; }), HasSubstr("a count is zero"));
  EXPECT_THAT(with([](HeaderRow& h) { h.extent_count = ~0U; }), HasSubstr("published limit"));
  EXPECT_THAT(with([](HeaderRow& h) { h.object_count += 1; }), HasSubstr("table's size"));
  EXPECT_THAT(with([](HeaderRow& h) { h.total_bytes += 1; }), HasSubstr("total bytes"));
  EXPECT_THAT(with([](HeaderRow& h) { h.sample_count += 1; }), HasSubstr("wrong size or number"));
  EXPECT_THAT(with([](HeaderRow& h) { h.field_count = 1; }), HasSubstr("list of fields"));
}

TEST_F(CatalogImageTest, RefusesSectionsOutsideTheImage) {
  const std::vector<std::byte> image = FolderImage();
  for (std::size_t i = 0; i < kSectionCount; ++i) {
    for (const std::uint64_t offset :
         {std::uint64_t{0}, std::uint64_t{513}, image.size() + 8, ~std::uint64_t{7}}) {
      std::vector<std::byte> changed = image;
      HeaderRow header = HeaderOf(changed);
      header.sections[i].offset = offset;
      header.hash = Checksum(RowBytes(header).first(kHeaderBytes - sizeof(header.hash)));
      std::memcpy(changed.data(), &header, sizeof header);
      EXPECT_THAT(ErrorOf(changed), HasSubstr("lies outside the image"));
    }
  }
}

// Every byte of every table takes several values, with all checksums corrected. An image that opens
// must answer within bounds (the sanitizers check it) and name only extents that exist.
TEST_F(CatalogImageTest, StaysInBoundsWhateverTheTablesSay) {
  std::size_t opened = 0;
  for (const std::vector<std::byte>& image : AllImages()) {
    for (std::size_t at = kHeaderBytes; at < image.size(); ++at) {
      for (const int value : {0x00, 0x01, 0x7F, 0x80, 0xFF}) {
        std::vector<std::byte> changed = image;
        changed[at] = static_cast<std::byte>(value);
        Reseal(changed);
        const auto catalog = Catalog::FromBytes(std::move(changed));
        if (!catalog.has_value()) continue;
        ++opened;
        EXPECT_FALSE(Describe(**catalog).empty());
      }
    }
  }
  EXPECT_GT(opened, 100U) << "some changes are consistent, such as another mtime";
}

TEST_F(CatalogImageTest, RefusesEntriesThatLeaveTheirExtent) {
  const std::vector<std::byte> image = TarImage();
  const HeaderRow header = HeaderOf(image);
  const std::size_t extents =
      header.sections[static_cast<std::size_t>(SectionKind::kExtents)].offset;
  const auto with = [&](std::uint32_t offset, std::uint32_t length) {
    std::vector<std::byte> changed = image;
    StoreAt(changed, kHeaderBytes, offset);
    StoreAt(changed, kHeaderBytes + 4, length);
    ExtentRow row = LoadAt<ExtentRow>(changed, extents);
    row.entries_hash = Checksum(std::span(changed).subspan(kHeaderBytes, 16));
    std::memcpy(&changed[extents], &row, sizeof row);
    Reseal(changed);
    const auto catalog = Catalog::FromBytes(std::move(changed));
    EXPECT_TRUE(catalog.has_value());
    return Describe(**catalog);
  };
  const std::uint32_t bytes = LoadAt<ExtentRow>(image, extents).bytes;
  EXPECT_THAT(with(0, bytes), Not(HasSubstr("DATA_LOSS")));
  EXPECT_THAT(with(0, bytes + 1), HasSubstr("has an impossible entry"));
  EXPECT_THAT(with(bytes + 1, 0), HasSubstr("has an impossible entry"));
  EXPECT_THAT(with(8, 0xFFFFFFFE), HasSubstr("has an impossible entry"));
  EXPECT_THAT(with(kAbsentField, 8), HasSubstr("has an impossible entry"));
}

TEST_F(CatalogImageTest, VerifiesPagesOnceFromManyThreads) {
  for (int i = 0; i < 2000; ++i) {
    AddFile("c" + std::to_string(i % 7) + "/" + std::to_string(i), PatternText(20, 1));
  }
  source_.extent_bytes = 200;
  source_.format = Format::kImageFolder;
  const auto catalog = Build();
  ASSERT_TRUE(catalog.has_value()) << catalog.error().ToString();
  std::vector<std::jthread> threads;
  std::atomic<std::uint64_t> located = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      std::vector<FieldLocation> locations(2);
      for (std::uint64_t s = 0; s < 2000; ++s) {
        if ((*catalog)->samples()->Locate(SampleId(s), locations).has_value()) ++located;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(located, 8000U);
}

}  // namespace
}  // namespace forebay::catalog

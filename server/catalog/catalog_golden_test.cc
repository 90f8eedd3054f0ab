// Images of small data sets, fixed to the byte: a catalog is a pure function of its data set, and
// its fingerprint is what daemons, tokens and saved catalogs agree on.
#include "proto/contract/checksum.h"
#include "server/catalog/selection.h"
#include "server/catalog/testing/scan_fixture.h"
#include "server/catalog/testing/tar_text.h"

namespace forebay::catalog {
namespace {

struct Golden {
  std::uint64_t samples = 0;
  std::uint32_t extents = 0;
  std::uint64_t fingerprint = 0;
  std::uint64_t image_hash = 0;
};

class CatalogGoldenTest : public ScanFixture {
 protected:
  static void ExpectIs(const Result<std::shared_ptr<const Catalog>>& catalog,
                       const Golden& golden) {
    ASSERT_TRUE(catalog.has_value()) << catalog.error().ToString();
    EXPECT_EQ((*catalog)->sample_count(), golden.samples);
    EXPECT_EQ((*catalog)->extent_count(), golden.extents);
    EXPECT_EQ((*catalog)->fingerprint(), golden.fingerprint);
    EXPECT_EQ(Checksum((*catalog)->image()), golden.image_hash);
  }
};

// Fields that are found out of order or missing, samples that span extents, members that are
// skipped, with and without a gap.
TEST_F(CatalogGoldenTest, TarShards) {
  source_.extent_bytes = 4096;
  for (std::size_t shard = 0; shard < 3; ++shard) {
    std::string text;
    for (std::size_t i = 0; i < 60; ++i) {
      const std::string key = "dir/" + std::to_string(1000 * shard + i);
      if (i % 4 == 1) text += TarFileText("README", PatternText(i * 13, i));
      if (i % 20 == 7) text += TarFileText("NOTES", PatternText(9000, i));
      text += TarFileText(key + ".jpg", PatternText(i % 9 == 5 ? 11'000 : i * 17, i));
      if (i % 3 != 0) text += TarFileText(key + ".cls", std::to_string(i % 10));
      if (i % 5 == 0) text += TarFileText(key + ".a" + std::to_string(shard), "x");
    }
    AddFile("shard-" + std::to_string(shard) + ".tar", text + TarEndText());
  }
  ExpectIs(Scan(), {.samples = 180, .extents = 210, .fingerprint = 10026903457976629708ULL,
                    .image_hash = 16836462214543356004ULL});
}

TEST_F(CatalogGoldenTest, ImageFolder) {
  source_.extent_bytes = 4096;
  for (std::size_t label = 0; label < 3; ++label) {
    for (std::size_t i = 0; i < 50; ++i) {
      AddFile("class-" + std::to_string(label) + "/" + std::to_string(i) + ".png",
              PatternText(i == 33 ? 10'000 : 1 + i * 37, i));
    }
  }
  ExpectIs(Build(), {.samples = 150, .extents = 48, .fingerprint = 14300219102782113636ULL,
                     .image_hash = 4109325605539674888ULL});
}

TEST_F(CatalogGoldenTest, RawRecords) {
  source_.format = Format::kRaw;
  source_.settings.SetText("dtype", "u8");
  source_.settings.SetNumbers("shape", {3, 5});
  source_.settings.SetNumber("header", 7);
  source_.extent_bytes = 100;
  source_.settings.SetTexts("files", {"x=x.bin", "y=y.bin"});
  AddFile("x.bin", PatternText(7 + 15 * 40, 1));
  AddFile("y.bin", PatternText(7 + 15 * 40, 2));
  ExpectIs(Build(), {.samples = 40, .extents = 14, .fingerprint = 186084324972254011ULL,
                     .image_hash = 12436057127467543867ULL});
}

// A selection's fingerprint is in every position token.
TEST_F(CatalogGoldenTest, Selections) {
  const auto fingerprint = [](std::string_view spec, std::string_view list) {
    const auto selection = MakeSelection(spec, 1'000'000, list);
    EXPECT_TRUE(selection.has_value()) << spec;
    return selection.has_value() ? (*selection)->fingerprint() : 0;
  };
  EXPECT_EQ(fingerprint("all", ""), 7950080833304235865ULL);
  EXPECT_EQ(fingerprint("range:10:999", ""), 15238059648949681470ULL);
  EXPECT_EQ(fingerprint("hash:0:0.1", ""), 2006526519156655644ULL);
  EXPECT_EQ(fingerprint("hash:0.25:0.5:42", ""), 10327305103328516793ULL);
  EXPECT_EQ(fingerprint("list:x", "5\n7\n999999\n"), 15803308223083971373ULL);
}

}  // namespace
}  // namespace forebay::catalog

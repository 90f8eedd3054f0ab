// The parts of a data set's objects, made in any order and sent in their form for messages, give
// the catalog that one pass over all objects gives, to the byte, and the same errors. A part that
// was damaged, forged, or made of another object is refused.
#include "server/catalog/catalog_part.h"

#include <algorithm>
#include <filesystem>
#include <numeric>

#include <gmock/gmock.h>

#include "proto/contract/byte_cursor.h"
#include "proto/contract/checksum.h"
#include "server/catalog/part_merger.h"
#include "server/catalog/testing/scan_fixture.h"
#include "server/catalog/testing/tar_text.h"

namespace forebay::catalog {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CatalogPartTest : public ScanFixture {
 protected:
  // Archives with fields that are found in different orders, samples that span extents, members
  // that are skipped, and one archive without a sample.
  void AddArchives() {
    source_.format = Format::kTar;
    source_.extent_bytes = 4096;
    for (std::size_t shard = 0; shard < 5; ++shard) {
      std::string text;
      for (std::size_t i = 0; i < 40 && shard != 3; ++i) {
        const std::string key = "dir/" + std::to_string(1000 * shard + i);
        if (i % 20 == 7) text += TarFileText("NOTES", PatternText(9000, i));
        if (i % 5 == shard) text += TarFileText(key + ".a" + std::to_string(9 - shard), "x");
        text += TarFileText(key + ".jpg", PatternText(i % 9 == 5 ? 11'000 : i * 17, i));
        if (i % 3 != 0) text += TarFileText(key + ".cls", std::to_string(i % 10));
      }
      AddFile("shard-" + std::to_string(shard) + ".tar", text + TarEndText());
    }
  }
  void AddLines() {
    source_.format = Format::kJsonLines;
    source_.extent_bytes = 100;
    for (std::size_t file = 0; file < 4; ++file) {
      std::string text;
      for (std::size_t i = 0; i < 30 * file; ++i) {
        text += i % 7 == 3 ? "\n" : "{\"n\": " + std::to_string(i * file) + "}\n";
      }
      AddFile("lines-" + std::to_string(file) + ".jsonl", text);
    }
  }

  ScanPlan Plan() { return PlanScan(*root_, source_, scratch_).value(); }
  Result<std::unique_ptr<CatalogPart>> ScanObject(const ScanPlan& plan, ObjectId object) {
    ObjectScan scan(plan, object);
    std::vector<CutExtent> cut;
    FOREBAY_TRY(scan.Feed(TextBytes(FileText(plan.objects[object.value()].path)), cut));
    FOREBAY_TRY(scan.End(cut));
    return scan.TakePart();
  }
  static std::vector<std::byte> Encoded(Format format, const CatalogPart& part) {
    MemorySink sink;
    EXPECT_TRUE(EncodePart(TablesOf(format, part), sink).has_value());
    return sink.Release();
  }
  // As another node gets it.
  Result<std::unique_ptr<CatalogPart>> Decoded(const ScanPlan& plan, ObjectId object,
                                               std::span<const std::byte> bytes) {
    TableSpool spool(scratch_);
    FOREBAY_TRY(spool.Append(bytes));
    return DecodePart(plan.format, plan.objects[object.value()], scratch_, spool);
  }
  // Merges parts that `make` makes, in the order of `objects`.
  template <typename Make>
  Result<std::shared_ptr<const Catalog>> Merge(const ScanPlan& plan,
                                               const std::vector<std::uint32_t>& objects,
                                               const Make& make) {
    PartMerger merger(plan);
    for (const std::uint32_t object : objects) {
      EXPECT_FALSE(merger.Has(ObjectId(object)));
      FOREBAY_ASSIGN(const std::unique_ptr<CatalogPart> made, make(ObjectId(object)));
      FOREBAY_ASSIGN(const std::unique_ptr<CatalogPart> part,
                     Decoded(plan, ObjectId(object), Encoded(plan.format, *made)));
      FOREBAY_TRY(merger.Add(ObjectId(object), *part));
      // A node passes on what it got.
      MemorySink again;
      FOREBAY_TRY(merger.Encode(ObjectId(object), again));
      EXPECT_EQ(again.Release(), Encoded(plan.format, *made));
    }
    EXPECT_EQ(merger.missing(), 0U);
    return merger.Write();
  }
  void ExpectSameFromParts() {
    const auto one_pass = Scan();
    ASSERT_TRUE(one_pass.has_value()) << one_pass.error().ToString();
    const ScanPlan plan = Plan();
    std::vector<std::uint32_t> objects(plan.objects.size());
    std::iota(objects.begin(), objects.end(), 0U);
    do {
      const auto scanned = Merge(
          plan, objects, [&](ObjectId object) { return ScanObject(plan, object); });
      ASSERT_TRUE(scanned.has_value()) << scanned.error().ToString();
      ASSERT_TRUE(std::ranges::equal((*scanned)->image(), (*one_pass)->image()));
      // Some nodes may have the whole catalog already, and answer from it.
      const auto taken = Merge(plan, objects, [&](ObjectId object) {
        return object.value() % 2 == 0 ? CatalogPartOf(**one_pass, object, scratch_)
                                       : ScanObject(plan, object);
      });
      ASSERT_TRUE(taken.has_value()) << taken.error().ToString();
      ASSERT_TRUE(std::ranges::equal((*taken)->image(), (*one_pass)->image()));
    } while (std::ranges::next_permutation(objects).found);
  }
  // Computes the checksum at the end of an encoded part anew.
  static void Seal(std::vector<std::byte>& bytes) {
    ByteWriter sum;
    sum.Le(Checksum(std::span(bytes).first(bytes.size() - 8)));
    std::ranges::copy(sum.bytes(), bytes.end() - 8);
  }
};

TEST_F(CatalogPartTest, PartsOfArchivesInAnyOrderGiveTheCatalogOfOnePass) {
  AddArchives();
  ExpectSameFromParts();
}

TEST_F(CatalogPartTest, PartsOfLinesInAnyOrderGiveTheCatalogOfOnePass) {
  AddLines();
  ExpectSameFromParts();
}

TEST_F(CatalogPartTest, PartsThatGoToScratchFilesGiveTheSameCatalog) {
  AddArchives();
  const auto in_memory = Scan();
  ASSERT_TRUE(in_memory.has_value());
  scratch_ = {.directory = std::filesystem::temp_directory_path().string(), .table_bytes = 100};
  const ScanPlan plan = Plan();
  const auto spilled = Merge(plan, {4, 2, 0, 1, 3},
                             [&](ObjectId object) { return ScanObject(plan, object); });
  ASSERT_TRUE(spilled.has_value()) << spilled.error().ToString();
  EXPECT_TRUE(std::ranges::equal((*spilled)->image(), (*in_memory)->image()));
}

TEST_F(CatalogPartTest, AMalformedObjectIsRefusedWithTheErrorOfOnePass) {
  AddArchives();
  const std::string good = FileText("shard-2.tar");
  const std::vector<std::string> bad = {
      good.substr(0, good.size() / 2), good + std::string(512, 'x'),
      TarFileText("a.jpg", "x") + TarFileText("b.jpg", "x") + TarFileText("a.cls", "x") +
          TarEndText()};
  for (const std::string& text : bad) {
    AddFile("shard-2.tar", text);
    const std::string expected = ScanError();
    const ScanPlan plan = Plan();
    const auto refused = ScanObject(plan, ObjectId(2));
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().ToString(), expected);
  }
}

TEST_F(CatalogPartTest, TooManyFieldsAreRefusedWithOneErrorInAnyOrder) {
  source_.format = Format::kTar;
  for (int shard = 0; shard < 3; ++shard) {
    std::string text;
    for (int i = 0; i < 25; ++i) {
      text += TarFileText("1.s" + std::to_string(shard) + "f" + std::to_string(i), "x");
    }
    AddFile("shard-" + std::to_string(shard) + ".tar", text + TarEndText());
  }
  const std::string expected = ScanError();
  EXPECT_THAT(expected, AllOf(HasSubstr("'shard-2.tar' at offset 14336"), HasSubstr("'s2f14'"),
                              HasSubstr("kFieldCountMax")));
  const ScanPlan plan = Plan();
  for (const std::vector<std::uint32_t>& order : {std::vector<std::uint32_t>{2, 1, 0}, {1, 0, 2}}) {
    const auto merged =
        Merge(plan, order, [&](ObjectId object) { return ScanObject(plan, object); });
    ASSERT_FALSE(merged.has_value());
    EXPECT_EQ(merged.error().ToString(), expected);
  }
}

TEST_F(CatalogPartTest, RefusesEveryFlippedBitAndEveryTruncation) {
  AddLines();
  const ScanPlan plan = Plan();
  const auto part = ScanObject(plan, ObjectId(1)).value();
  const std::vector<std::byte> good = Encoded(plan.format, *part);
  ASSERT_TRUE(Decoded(plan, ObjectId(1), good).has_value());
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::vector<std::byte> bad = good;
    bad[bit / 8] ^= std::byte{1} << (bit % 8);
    const auto refused = Decoded(plan, ObjectId(1), bad);
    ASSERT_FALSE(refused.has_value()) << "bit " << bit;
    EXPECT_EQ(refused.error().code(), ErrorCode::kDataLoss);
  }
  for (std::size_t length = 0; length < good.size(); ++length) {
    std::vector<std::byte> bad(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(length));
    ASSERT_FALSE(Decoded(plan, ObjectId(1), bad).has_value()) << length;
    // With a checksum that fits, too.
    if (length >= 8) Seal(bad);
    ASSERT_FALSE(Decoded(plan, ObjectId(1), bad).has_value()) << length;
  }
}

// Whatever a forged part says, either it is refused, or the catalog that it gives can be read.
TEST_F(CatalogPartTest, ForgedBytesAreRefusedOrGiveACatalogWithinItsObjects) {
  AddArchives();
  const ScanPlan plan = Plan();
  std::vector<std::unique_ptr<CatalogPart>> parts;
  for (std::uint32_t i = 0; i < plan.objects.size(); ++i) {
    parts.push_back(ScanObject(plan, ObjectId(i)).value());
  }
  const std::vector<std::byte> good = Encoded(plan.format, *parts[0]);
  std::size_t refused = 0;
  // Steps of 3 meet every byte of the head and the extents, and of each kind of record, somewhere.
  for (std::size_t at = 0; at + 8 < good.size(); at += at < 1200 ? 1 : 3) {
    for (const std::byte value : {std::byte{0}, std::byte{0x7F}, std::byte{0xFF}}) {
      std::vector<std::byte> bad = good;
      bad[at] = value;
      Seal(bad);
      const auto part = Decoded(plan, ObjectId(0), bad);
      if (!part.has_value()) {
        ++refused;
        continue;
      }
      PartMerger merger(plan);
      ASSERT_TRUE(merger.Add(ObjectId(0), **part).has_value());
      for (std::uint32_t i = 1; i < parts.size(); ++i) {
        ASSERT_TRUE(merger.Add(ObjectId(i), *parts[i]).has_value());
      }
      const auto catalog = merger.Write();
      if (!catalog.has_value()) continue;
      for (std::uint64_t i = 0; i < 40; ++i) {
        std::vector<FieldLocation> fields((*catalog)->fields().size());
        static_cast<void>((*catalog)->samples()->Locate(SampleId(i), fields));
      }
    }
  }
  EXPECT_GT(refused, 1200U) << "heads, extents and bounds of fields are checked";
}

TEST_F(CatalogPartTest, RefusesThePartOfAnotherObjectFormatOrVersion) {
  AddArchives();
  const ScanPlan plan = Plan();
  std::vector<std::byte> good = Encoded(plan.format, *ScanObject(plan, ObjectId(0)).value());
  EXPECT_THAT(Decoded(plan, ObjectId(1), good).error().message(),
              HasSubstr("for 'shard-1.tar' is that of 'shard-0.tar'"));
  TableSpool spool(scratch_);
  ASSERT_TRUE(spool.Append(good).has_value());
  EXPECT_THAT(
      DecodePart(Format::kJsonLines, plan.objects[0], scratch_, spool).error().message(),
      HasSubstr("is of another format"));
  good[8] = std::byte{2};
  Seal(good);
  const Error other_version = Decoded(plan, ObjectId(0), good).error();
  EXPECT_EQ(other_version.code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(other_version.message(), HasSubstr("has version 2, expected 1"));
}

TEST_F(CatalogPartTest, NamesAnObjectThatChangedBetweenTwoNodes) {
  AddArchives();
  const ScanPlan before = Plan();
  const std::vector<std::byte> bytes =
      Encoded(before.format, *ScanObject(before, ObjectId(0)).value());
  ScanPlan after = before;
  after.objects[0].mtime_ns += 1;
  const Error changed = Decoded(after, ObjectId(0), bytes).error();
  EXPECT_EQ(changed.code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(changed.message(),
              AllOf(HasSubstr("'shard-0.tar' has"), HasSubstr("must not change")));
  EXPECT_NE(HashOf(before.objects[0]), HashOf(after.objects[0]));
}

}  // namespace
}  // namespace forebay::catalog

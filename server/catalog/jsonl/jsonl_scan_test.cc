// Catalogs of JSON lines: which lines are samples, how they fill extents, and what is refused.
#include <optional>

#include <gmock/gmock.h>

#include "server/catalog/format_driver.h"
#include "server/catalog/testing/scan_fixture.h"

namespace forebay::catalog {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class JsonLinesScanTest : public ScanFixture {
 protected:
  JsonLinesScanTest() { source_.format = Format::kJsonLines; }

  std::shared_ptr<const Catalog> ScanOrFail(std::size_t feed_bytes = 1 << 20) {
    const auto catalog = Scan(feed_bytes);
    EXPECT_TRUE(catalog.has_value()) << catalog.error().ToString();
    return catalog.has_value() ? *catalog : nullptr;
  }
  std::vector<std::string> Texts(const Catalog& catalog) const {
    std::vector<std::string> texts;
    for (std::uint64_t sample = 0; sample < catalog.sample_count(); ++sample) {
      texts.push_back(FieldText(catalog, SampleId(sample), FieldId(0)));
    }
    return texts;
  }
  static std::vector<std::string> Keys(const Catalog& catalog) {
    std::vector<std::string> keys;
    for (std::uint64_t sample = 0; sample < catalog.sample_count(); ++sample) {
      keys.push_back(catalog.SampleKey(SampleId(sample)).value());
    }
    return keys;
  }
  // The lines of a file with this text. They must not depend on how it is fed.
  std::vector<std::string> LinesOf(std::string_view text) {
    AddFile("a.jsonl", text);
    std::vector<std::string> lines;
    std::optional<std::uint64_t> fingerprint;
    for (const std::size_t feed_bytes : {std::size_t{1} << 20, std::size_t{1}, std::size_t{3}}) {
      const auto catalog = ScanOrFail(feed_bytes);
      if (catalog == nullptr) return {};
      ExpectCutsMatch(*catalog);
      ExpectConsistent(*catalog);
      EXPECT_EQ(catalog->fingerprint(), fingerprint.value_or(catalog->fingerprint()));
      fingerprint = catalog->fingerprint();
      lines = Texts(*catalog);
    }
    return lines;
  }
};

TEST_F(JsonLinesScanTest, EveryLineIsASampleWithTheFieldText) {
  AddFile("b.jsonl", "{\"id\": 3}\n");
  AddFile("a.jsonl", "{\"id\": 1}\n{\"id\": 2, \"x\": \"\\n\"}\n");
  AddFile("notes.txt", "no\n");
  AddFile("deeper/c.jsonl", "no\n");
  const auto catalog = ScanOrFail();
  ASSERT_NE(catalog, nullptr);
  EXPECT_EQ(catalog->format(), Format::kJsonLines);
  ASSERT_EQ(catalog->fields().size(), 1U);
  EXPECT_EQ(catalog->fields()[0].name, "text");
  EXPECT_FALSE(catalog->fields()[0].is_fixed());
  EXPECT_THAT(Texts(*catalog),
              ElementsAre("{\"id\": 1}", "{\"id\": 2, \"x\": \"\\n\"}", "{\"id\": 3}"));
  EXPECT_THAT(Keys(*catalog), ElementsAre("a.jsonl:1", "a.jsonl:2", "b.jsonl:1"));
  ExpectCutsMatch(*catalog);
  ExpectConsistent(*catalog);
}

TEST_F(JsonLinesScanTest, ItIsDetectedWhereNothingElseIsAtTheTop) {
  AddFile("a.jsonl", "1\n");
  AddFile(".hidden", "no");
  source_.format.reset();
  EXPECT_EQ(DetectFormat(*root_, source_).value(), Format::kJsonLines);
  EXPECT_THAT(BuildError(), HasSubstr("format jsonl: its catalog is built while it is staged"));
  AddFile("cats/1.jpg", "1");
  EXPECT_EQ(DetectFormat(*root_, source_).value(), Format::kImageFolder) << "a.jsonl is notes";
}

TEST_F(JsonLinesScanTest, ConfigurationNamesFilesInItsOwnOrder) {
  AddFile("z/late.txt", "2\n");
  AddFile("early", "1\n");
  AddFile("a.jsonl", "no\n");
  source_.settings.SetTexts("files", {"z/late.txt", "early"});
  const auto catalog = ScanOrFail();
  ASSERT_NE(catalog, nullptr);
  EXPECT_THAT(Keys(*catalog), ElementsAre("z/late.txt:1", "early:1"));
  EXPECT_THAT(Texts(*catalog), ElementsAre("2", "1"));
}

TEST_F(JsonLinesScanTest, ContentIsNotJudged) {
  EXPECT_THAT(LinesOf("{\n\xFF\xC0 not UTF-8\nnull\n"),
              ElementsAre("{", "\xFF\xC0 not UTF-8", "null"));
  const std::string with_nul("a\0b\n", 4);
  EXPECT_THAT(LinesOf(with_nul), ElementsAre(std::string("a\0b", 3)));
}

TEST_F(JsonLinesScanTest, OneCrBeforeLfBelongsToTheLineEnd) {
  EXPECT_THAT(LinesOf("a\r\nb\r\r\nc\rd\n"), ElementsAre("a", "b\r", "c\rd"));
  EXPECT_THAT(LinesOf("a\r\nb\r"), ElementsAre("a", "b\r")) << "no LF follows the last CR";
}

TEST_F(JsonLinesScanTest, LinesOfWhiteSpaceAreCountedButAreNoSamples) {
  EXPECT_THAT(LinesOf("\n \t\r\n  a \n\v\f\n\r\nb\n \n"), ElementsAre("  a ", "b"));
  const auto catalog = ScanOrFail();
  ASSERT_NE(catalog, nullptr);
  EXPECT_THAT(Keys(*catalog), ElementsAre("a.jsonl:3", "a.jsonl:6"));
}

TEST_F(JsonLinesScanTest, TheLastLineCountsWithoutLf) {
  EXPECT_THAT(LinesOf("a\nb"), ElementsAre("a", "b"));
  EXPECT_THAT(LinesOf("a\n"), ElementsAre("a"));
  EXPECT_THAT(LinesOf("a"), ElementsAre("a"));
}

TEST_F(JsonLinesScanTest, AUtf8MarkAtTheStartIsSkipped) {
  EXPECT_THAT(LinesOf("\xEF\xBB\xBF" "a\nb\n"), ElementsAre("a", "b"));
  EXPECT_THAT(LinesOf("\xEF\xBB\xBF\n\xEF\xBB\xBF" "b\n"), ElementsAre("\xEF\xBB\xBF" "b"))
      << "elsewhere it is content";
  EXPECT_THAT(LinesOf("\xEF\xBB" "a"), ElementsAre("\xEF\xBB" "a")) << "half a mark is content";
}

TEST_F(JsonLinesScanTest, FilesMayBeEmpty) {
  AddFile("b.jsonl", "");
  AddFile("c.jsonl", "\xEF\xBB\xBF");
  AddFile("d.jsonl", "\n\n");
  EXPECT_THAT(LinesOf("a\n"), ElementsAre("a"));
  AddFile("0.jsonl", "");
  const auto catalog = ScanOrFail();
  ASSERT_NE(catalog, nullptr);
  EXPECT_EQ(catalog->object_count(), 5U);
  EXPECT_THAT(Keys(*catalog), ElementsAre("a.jsonl:1"));
}

// --- extents ---------------------------------------------------------------------------------

TEST_F(JsonLinesScanTest, LinesFillAnExtentToItsLastByte) {
  source_.extent_bytes = 10;
  // "aaa\nbbb\ncc" has 10 bytes; the LF after it lies between the extents.
  EXPECT_THAT(LinesOf("aaa\nbbb\ncc\nd\n"), ElementsAre("aaa", "bbb", "cc", "d"));
  ASSERT_EQ(cuts_.size(), 2U);
  EXPECT_EQ(cuts_[0].info.bytes, 10U);
  EXPECT_EQ(cuts_[1].info.object_offset, 11U);
  EXPECT_EQ(cuts_[1].info.bytes, 1U);
  EXPECT_THAT(LinesOf("aaa\nbbb\nccc\nd\n"), ElementsAre("aaa", "bbb", "ccc", "d"));
  ASSERT_EQ(cuts_.size(), 2U);
  EXPECT_EQ(cuts_[0].info.bytes, 7U);
  EXPECT_EQ(cuts_[0].info.sample_count, 2U);
  EXPECT_EQ(cuts_[1].info.object_offset, 8U);
  EXPECT_EQ(cuts_[1].info.first_sample, SampleId(2));
}

TEST_F(JsonLinesScanTest, NoExtentHasLinesOfTwoFiles) {
  AddFile("b.jsonl", "b\n");
  EXPECT_THAT(LinesOf("a\n"), ElementsAre("a", "b"));
  ASSERT_EQ(cuts_.size(), 2U);
  EXPECT_EQ(cuts_[1].info.first_object, ObjectId(1));
}

TEST_F(JsonLinesScanTest, ManyLinesComeAsTheyAreFromManyExtents) {
  source_.extent_bytes = 1000;
  std::string text;
  std::vector<std::string> expected;
  for (std::size_t i = 0; i < 700; ++i) {
    std::string line = PatternText(1 + i * 31 % 400, i);
    for (char& c : line) c = static_cast<char>('0' + (static_cast<unsigned char>(c) % 60));
    text += line + (i % 3 == 0 ? "\r\n" : "\n");
    if (i % 50 == 7) text += std::string(1500, ' ') + "\n";
    expected.push_back(line);
  }
  AddFile("a.jsonl", text);
  std::optional<std::uint64_t> fingerprint;
  for (const std::size_t feed_bytes : {1U << 20, 4096U, 1000U, 37U}) {
    const auto catalog = ScanOrFail(feed_bytes);
    ASSERT_NE(catalog, nullptr);
    EXPECT_GT(catalog->extent_count(), 100U);
    EXPECT_EQ(Texts(*catalog), expected);
    ExpectCutsMatch(*catalog);
    ExpectConsistent(*catalog);
    EXPECT_EQ(catalog->fingerprint(), fingerprint.value_or(catalog->fingerprint()));
    fingerprint = catalog->fingerprint();
    // At most an extent whose next line is incomplete, and one piece of the feed.
    EXPECT_LE(held_bytes_max_, 2 * source_.extent_bytes + feed_bytes);
  }
}

TEST_F(JsonLinesScanTest, WhiteSpaceWithoutEndIsNotKept) {
  source_.extent_bytes = 100;
  AddFile("a.jsonl", "a\n" + std::string(100'000, ' ') + "\nb\n" + std::string(100'000, '\n'));
  const auto catalog = ScanOrFail(50);
  ASSERT_NE(catalog, nullptr);
  EXPECT_THAT(Texts(*catalog), ElementsAre("a", "b"));
  EXPECT_THAT(Keys(*catalog), ElementsAre("a.jsonl:1", "a.jsonl:3"));
  EXPECT_LE(held_bytes_max_, 250U);
}

TEST_F(JsonLinesScanTest, AnExtentHasNoMoreSamplesThanTheLimit) {
  std::string text;
  for (std::uint32_t i = 0; i <= limits::kSamplesPerExtentMax; ++i) text += "7\n";
  AddFile("a.jsonl", text);
  const auto catalog = ScanOrFail();
  ASSERT_NE(catalog, nullptr);
  ASSERT_EQ(catalog->extent_count(), 2U);
  EXPECT_EQ(catalog->extent(ExtentId(0)).sample_count, limits::kSamplesPerExtentMax);
  EXPECT_EQ(catalog->extent(ExtentId(1)).sample_count, 1U);
  EXPECT_EQ(catalog->SampleKey(SampleId(limits::kSamplesPerExtentMax)).value(),
            "a.jsonl:" + std::to_string(limits::kSamplesPerExtentMax + 1));
}

// --- every error branch ----------------------------------------------------------------------

TEST_F(JsonLinesScanTest, RefusesALineLongerThanAnExtentWithAdvice) {
  source_.extent_bytes = 8;
  EXPECT_THAT(LinesOf("12345678\r\n12345678\n12345678"),
              ElementsAre("12345678", "12345678", "12345678"))
      << "the line end does not count";
  for (const char* text :
       {"ok\n\n123456789\n", "ok\n\n123456789", "ok\n\n12345678\r", "ok\n\n12345678\r\r\n",
        "ok\n\n         1\n", "ok\n\n123456789012345\n"}) {
    EXPECT_THAT(ScanErrorOf(text, "a.jsonl"),
                AllOf(HasSubstr("RESOURCE_EXHAUSTED"), HasSubstr("'a.jsonl' at offset 4: line 3 "),
                      HasSubstr("more than 8 bytes, the size of an extent"),
                      HasSubstr("raise the data set's key 'extent' (at most 67108864)"),
                      HasSubstr("split the line")))
        << text;
  }
}

TEST_F(JsonLinesScanTest, RefusesEncodingsWhoseLinesDoNotEndWithAByte) {
  using namespace std::string_literals;
  const std::pair<std::string, std::string> marks[] = {{"\xFF\xFE"s + "a\0\n\0"s, "UTF-16"},
                                                       {"\xFE\xFF"s + "\0a\0\n"s, "UTF-16"},
                                                       {"\xFF\xFE"s, "UTF-16"},
                                                       {"\xFF\xFE\0\0"s + "a\0\0\0"s, "UTF-32"},
                                                       {"\0\0\xFE\xFF"s, "UTF-32"}};
  for (const auto& [text, encoding] : marks) {
    EXPECT_THAT(ScanErrorOf(text, "a.jsonl"),
                AllOf(HasSubstr("'a.jsonl' at offset 0"), HasSubstr("convert it to UTF-8"),
                      HasSubstr("byte order mark of " + encoding)));
  }
}

TEST_F(JsonLinesScanTest, RefusesADataSetWithoutSamplesOrFiles) {
  EXPECT_THAT(ScanError(), HasSubstr("has no *.jsonl files at the top of its root; name them"));
  EXPECT_THAT(ScanErrorOf("\n \n", "a.jsonl"), HasSubstr("has no samples"));
  source_.settings.SetTexts("files", {"gone.jsonl"});
  EXPECT_THAT(ScanError(), HasSubstr("gone.jsonl"));
  source_.settings.SetTexts("files", {"a.jsonl", "a.jsonl"});
  EXPECT_THAT(ScanError(), AllOf(HasSubstr("dataset key 'files'"), HasSubstr("'a.jsonl' twice")));
  ASSERT_TRUE(backend_.AddDirectory("/data/folder").has_value());
  source_.settings.SetTexts("files", {"folder"});
  EXPECT_THAT(ScanError(), HasSubstr("'folder' is not a file"));
}

TEST_F(JsonLinesScanTest, RefusesBytesBeyondTheSizeAndFilesShortOfIt) {
  AddFile("a.jsonl", "12345\n");
  const auto builder = CreateScanBuilder(*root_, source_).value();
  EXPECT_THAT(builder->Feed(TextBytes("12345\n6"), cuts_).error().ToString(),
              AllOf(HasSubstr("FAILED_PRECONDITION"), HasSubstr("grew beyond its size of 6")));
  EXPECT_FALSE(builder->Feed(TextBytes("1"), cuts_).has_value()) << "it stays failed";
  EXPECT_FALSE(builder->EndObject(cuts_).has_value());
  EXPECT_FALSE(builder->Finish().has_value());
  for (const char* text : {"", "12", "12345"}) {
    const auto short_of = CreateScanBuilder(*root_, source_).value();
    ASSERT_TRUE(short_of->Feed(TextBytes(text), cuts_).has_value());
    EXPECT_THAT(short_of->EndObject(cuts_).error().ToString(),
                AllOf(HasSubstr("DATA_LOSS"), HasSubstr("ended before its size of 6")));
  }
}

TEST_F(JsonLinesScanTest, RefusesCallsOutOfOrder) {
  AddFile("a.jsonl", "1\n");
  const auto builder = CreateScanBuilder(*root_, source_).value();
  EXPECT_THAT(builder->Finish().error().message(), HasSubstr("'a.jsonl' has not been fed"));
  ASSERT_TRUE(builder->Feed(TextBytes("1\n"), cuts_).has_value());
  ASSERT_TRUE(builder->EndObject(cuts_).has_value());
  EXPECT_THAT(builder->Feed({}, cuts_).error().message(), HasSubstr("every planned object"));
  EXPECT_THAT(builder->EndObject(cuts_).error().message(), HasSubstr("every planned object"));
  EXPECT_TRUE(builder->Finish().has_value());
}

}  // namespace
}  // namespace forebay::catalog

// The two forms of a finding: what a terminal shows, and JSON that reads back as it was written.
#include "server/daemon/doctor/finding.h"

#include <algorithm>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace forebay::daemon {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

Finding Sample() {
  return {.check = "ssd",
          .subject = "/local/ssd",
          .verdict = Verdict::kWarning,
          .text = "3 GiB are free",
          .remedy = "free space",
          .figures = {{"free_bytes", 3ULL << 30}, {"is_direct", 1}}};
}

TEST(FindingTest, TheTextHasVerdictCheckSubjectAndRemedy) {
  EXPECT_EQ(FindingText(Sample()),
            "warning  ssd         /local/ssd: 3 GiB are free\n"
            "                     remedy: free space\n");
  Finding fine = Sample();
  fine.verdict = Verdict::kOk;
  fine.subject = "";
  fine.remedy = "";
  EXPECT_EQ(FindingText(fine), "ok       ssd         3 GiB are free\n");
}

TEST(FindingTest, NoNameMakesUpALineOrChangesTheTerminal) {
  Finding finding = Sample();
  finding.subject = "a\nok       ssd\x1b[2J";
  finding.remedy = "b\nc";
  const std::string text = FindingText(finding);
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  EXPECT_THAT(FindingJson(finding), Not(HasSubstr("\n")));
}

TEST(FindingTest, JsonReadsBackAsItWasWritten) {
  for (const Verdict verdict : {Verdict::kOk, Verdict::kWarning, Verdict::kFailure}) {
    Finding finding = Sample();
    finding.verdict = verdict;
    const std::string written = FindingJson(finding);
    EXPECT_THAT(written, StartsWith(R"({"schema":"forebay.doctor.v1","event":"finding",)"
                                 R"("check":"ssd","subject":"/local/ssd","verdict":")"));
    const auto back = ParseFinding(written);
    ASSERT_TRUE(back.has_value());
    EXPECT_EQ(back->verdict, verdict);
    EXPECT_EQ(FindingJson(*back), written);
  }
}

TEST(FindingTest, BytesThatAreNoUtf8AreReplaced) {
  Finding finding = Sample();
  finding.text = "\xff file";
  const auto back = ParseFinding(FindingJson(finding));
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->text, "\xef\xbf\xbd file");
}

TEST(FindingTest, OtherTextIsNoFinding) {
  for (const char* text : {"", "{", "[]", "7", "{}", R"({"event":"done"})", R"({"event":7})"}) {
    EXPECT_FALSE(ParseFinding(text).has_value()) << text;
  }
}

TEST(FindingTest, CountsAreTheLastLine) {
  FindingCounts counts;
  for (const Verdict verdict : {Verdict::kOk, Verdict::kOk, Verdict::kWarning, Verdict::kFailure}) {
    counts.Count(verdict);
  }
  EXPECT_EQ(CountsText(counts), "doctor: 2 ok, 1 with a warning, 1 failed\n");
  EXPECT_EQ(CountsJson(counts), R"({"schema":"forebay.doctor.v1","event":"done","ok":2,)"
                                R"("warnings":1,"failures":1})");
}

TEST(FindingTest, SizesHaveOneDigitWhereTheyAreSmall) {
  EXPECT_EQ(SizeText(0), "0 B");
  EXPECT_EQ(SizeText(1023), "1023 B");
  EXPECT_EQ(SizeText(512ULL << 20), "512 MiB");
  EXPECT_EQ(SizeText(3ULL << 29), "1.5 GiB");
  EXPECT_EQ(SizeText(5000ULL << 40), "5000 TiB");
}

}  // namespace
}  // namespace forebay::daemon

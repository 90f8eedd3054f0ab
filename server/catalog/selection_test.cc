// Selections: text, order, inverse, refusals.
#include "server/catalog/selection.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/contract/limits.h"

namespace forebay::catalog {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<const Selection> Make(std::string_view spec, std::uint64_t sample_count,
                                      std::string_view list = "") {
  auto made = MakeSelection(spec, sample_count, list);
  EXPECT_TRUE(made.has_value()) << made.error().ToString();
  return made.has_value() ? *made : nullptr;
}

std::string ErrorOf(std::string_view spec, std::uint64_t sample_count,
                    std::string_view list = "") {
  const auto made = MakeSelection(spec, sample_count, list);
  EXPECT_FALSE(made.has_value()) << spec;
  return made.has_value() ? "" : made.error().ToString();
}

void ExpectInverse(const Selection& selection, std::uint64_t sample_count) {
  std::uint64_t selected = 0;
  for (std::uint64_t sample = 0; sample < sample_count; ++sample) {
    const std::uint64_t index = selection.IndexOf(SampleId(sample));
    if (index == selection.size()) continue;
    EXPECT_EQ(selection.At(index), SampleId(sample));
    EXPECT_EQ(index, selected++) << "ascending";
  }
  EXPECT_EQ(selected, selection.size());
  EXPECT_EQ(selection.IndexOf(SampleId(sample_count)), selection.size());
}

TEST(SelectionTest, AllIsTheIdentity) {
  const auto all = Make("all", 100);
  EXPECT_EQ(all->size(), 100U);
  EXPECT_EQ(all->spec(), "all");
  ExpectInverse(*all, 100);
}

TEST(SelectionTest, RangeTakesConsecutiveSamples) {
  const auto range = Make("range:10:20", 100);
  EXPECT_EQ(range->size(), 20U);
  EXPECT_EQ(range->At(0), SampleId(10));
  EXPECT_EQ(range->At(19), SampleId(29));
  EXPECT_EQ(range->IndexOf(SampleId(9)), 20U);
  EXPECT_EQ(range->IndexOf(SampleId(30)), 20U);
  ExpectInverse(*range, 100);
  EXPECT_EQ(Make("range:0099:01", 100)->spec(), "range:99:1");
}

TEST(SelectionTest, HashFractionsPartitionTheSamples) {
  constexpr std::uint64_t kCount = 100000;
  const auto train = Make("hash:0:0.9:7", kCount);
  const auto test = Make("hash:0.9:1:7", kCount);
  EXPECT_EQ(train->size() + test->size(), kCount);
  ExpectInverse(*train, kCount);
  for (std::uint64_t i = 0; i < test->size(); ++i) {
    EXPECT_EQ(train->IndexOf(test->At(i)), train->size());
  }
  // Binomial(10^5, 0.1): standard deviation 95; 6 of them.
  EXPECT_NEAR(static_cast<double>(test->size()), 10000.0, 570.0);
  EXPECT_NE(Make("hash:0:0.9:8", kCount)->fingerprint(), train->fingerprint());
}

TEST(SelectionTest, HashMatchesItsGoldenValues) {
  EXPECT_EQ(HashBillionths(SampleId(0), 0), 652448486U);
  EXPECT_EQ(HashBillionths(SampleId(1), 0), 34011701U);
  EXPECT_EQ(HashBillionths(SampleId(1234567890123), 42), 971747962U);
  EXPECT_EQ(HashBillionths(SampleId(0), 0xFFFF'FFFF'FFFF'FFFF), 366242090U);
}

TEST(SelectionTest, HashBucketsAreEven) {
  // Chi-squared over 64 buckets of 10^6 samples: 63 degrees of freedom; 128 is p < 10^-5.
  constexpr std::size_t kBuckets = 64;
  std::vector<double> counts(kBuckets, 0.0);
  constexpr std::uint64_t kCount = 1'000'000;
  for (std::uint64_t sample = 0; sample < kCount; ++sample) {
    counts[HashBillionths(SampleId(sample), 1) * kBuckets / 1'000'000'000] += 1;
  }
  double chi_squared = 0;
  const double expected = static_cast<double>(kCount) / kBuckets;
  for (const double count : counts) chi_squared += std::pow(count - expected, 2) / expected;
  EXPECT_LT(chi_squared, 128.0);
  EXPECT_GT(chi_squared, 20.0) << "too even for a hash";
}

TEST(SelectionTest, HashSpecsHaveOneCanonicalText) {
  EXPECT_EQ(Make("hash:0.500:1.0:0", 1000)->spec(), "hash:0.5:1");
  EXPECT_EQ(Make("hash:.5:1", 1000)->fingerprint(), Make("hash:0.5:1.", 1000)->fingerprint());
  EXPECT_EQ(Make("hash:0:1:018446744073709551615", 10)->spec(),
            "hash:0:1:18446744073709551615");
  EXPECT_EQ(Make("hash:0.000000001:1", 1000)->spec(), "hash:0.000000001:1");
}

TEST(SelectionTest, ListSortsItsSamples) {
  const auto list = Make("list:val", 100, "# validation\n7\r\n\n3\n99\n0");
  ASSERT_EQ(list->size(), 4U);
  EXPECT_EQ(list->At(0), SampleId(0));
  EXPECT_EQ(list->At(3), SampleId(99));
  ExpectInverse(*list, 100);
}

TEST(SelectionTest, ListsBeyond32BitsKeepTheirIds) {
  const std::uint64_t count = 1ULL << 33;
  const auto list = Make("list:x", count, "8589934591\n1\n");
  EXPECT_EQ(list->At(1), SampleId(count - 1));
  EXPECT_EQ(list->IndexOf(SampleId(count - 1)), 1U);
}

TEST(SelectionTest, FingerprintsCoverSpecSizeAndContent) {
  EXPECT_NE(Make("all", 10)->fingerprint(), Make("all", 11)->fingerprint());
  EXPECT_NE(Make("all", 10)->fingerprint(), Make("range:0:10", 10)->fingerprint());
  EXPECT_NE(Make("list:a", 10, "1\n2")->fingerprint(), Make("list:a", 10, "1\n3")->fingerprint());
  EXPECT_EQ(Make("list:a", 10, "2\n1")->fingerprint(), Make("list:a", 10, "1\n2")->fingerprint());
}

TEST(SelectionTest, RefusesUnknownForms) {
  for (const char* spec : {"", "All", "some", "all:", "range", "range:1", "range:1:2:3", "hash",
                           "hash:0", "hash:0:1:2:3", "list"}) {
    EXPECT_THAT(ErrorOf(spec, 10), HasSubstr("INVALID_ARGUMENT: selection")) << spec;
  }
}

TEST(SelectionTest, RefusesNumbersThatAreNone) {
  for (const char* spec : {"range::1", "range:-1:2", "range:+1:2", "range: 1:2", "range:1:2x",
                           "range:0:18446744073709551616"}) {
    EXPECT_THAT(ErrorOf(spec, 10), HasSubstr("decimal numbers")) << spec;
  }
  for (const char* spec : {"hash::1", "hash:0:2", "hash:0:1.000000001", "hash:0:0.1234567890",
                           "hash:.:1", "hash:-0.1:1", "hash:0:1e-1", "hash:0:0.1.1"}) {
    EXPECT_THAT(ErrorOf(spec, 10), HasSubstr("fractions of 1")) << spec;
  }
  EXPECT_THAT(ErrorOf("hash:0:1:salt", 10), HasSubstr("SALT"));
}

TEST(SelectionTest, RefusesRangesPastTheEndWithoutWrapping) {
  EXPECT_THAT(ErrorOf("range:5:6", 10), HasSubstr("past the last of 10"));
  EXPECT_THAT(ErrorOf("range:11:0", 10), HasSubstr("past the last of 10"));
  EXPECT_THAT(ErrorOf("range:1:18446744073709551615", 10), HasSubstr("past the last of 10"));
}

TEST(SelectionTest, RefusesEmptySelections) {
  EXPECT_THAT(ErrorOf("range:10:0", 10), HasSubstr("selects no sample"));
  EXPECT_THAT(ErrorOf("hash:0:0.000000001", 10), HasSubstr("selects no sample"));
  EXPECT_THAT(ErrorOf("hash:0.5:0.5", 10), HasSubstr("BEGIN must lie below END"));
  EXPECT_THAT(ErrorOf("list:x", 10, "#\n\n"), HasSubstr("selects no sample"));
}

TEST(SelectionTest, RefusesBadListsByOffset) {
  EXPECT_THAT(ErrorOf("list:x", 10, "1\n10\n"),
              HasSubstr("'x' at offset 2: line 2 '10' is beyond 0 to 9"));
  EXPECT_THAT(ErrorOf("list:x", 10, "1\n 2\n"), HasSubstr("line 2 ' 2' is not a sample id"));
  EXPECT_THAT(ErrorOf("list:x", 10, "1\n2\n1\n"), HasSubstr("sample 1 is listed twice"));
  EXPECT_THAT(ErrorOf("list:", 10, "1\n"), HasSubstr("expected list:NAME"));
  EXPECT_THAT(ErrorOf("list:" + std::string(256, 'n'), 10, "1\n"), HasSubstr("list:NAME"));
}

TEST(SelectionTest, RefusesCountsBeyondThePublishedLimits) {
  EXPECT_THAT(ErrorOf("all", 0), HasSubstr("kSampleCountMax"));
  EXPECT_THAT(ErrorOf("all", limits::kSampleCountMax + 1), HasSubstr("kSampleCountMax"));
  EXPECT_THAT(ErrorOf("hash:0:1", limits::kHashedSamplesMax + 1), HasSubstr("kHashedSamplesMax"));
  EXPECT_THAT(ErrorOf("list:x", 10, std::string(limits::kIdListBytesMax + 1, '\n')),
              HasSubstr("kIdListBytesMax"));
}

}  // namespace
}  // namespace forebay::catalog

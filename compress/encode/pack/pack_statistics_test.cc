// Statistics in packs: what they count, and that threads, resumption and bounds do not change
// what they mean.
#include <bit>
#include <cmath>
#include <filesystem>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "compress/encode/testing/pack_test_model.h"
#include "proto/contract/byte_cursor.h"

namespace forebay::compress::pack_statistics_test {

constexpr std::uint32_t kSeed = 11;

PackField Scalar(Dtype dtype, std::uint32_t samples_per_chunk = 3) {
  return {.name = "x", .kind = FieldKind::kMetadata, .dtype = dtype, .fill_bits = {},
          .bound = {}, .samples_per_chunk = samples_per_chunk};
}

// A pack's statistics, from its bytes.
std::vector<FieldStatistics> StatisticsOf(const std::vector<std::byte>& bytes) {
  const auto source = MemorySource(bytes);
  const auto pack = PackFile::Open(*source);
  EXPECT_TRUE(pack.has_value());
  const auto statistics = pack->Statistics();
  EXPECT_TRUE(statistics.has_value());
  return *statistics;
}

// Of one scalar per sample, given as its little-endian bits.
template <typename Bits>
FieldStatistics Measure(PackField field, const std::vector<Bits>& values) {
  PackModel model;
  model.schema.fields = {field};
  for (const Bits value : values) {
    ByteWriter writer;
    writer.Le(value);
    model.samples.push_back({writer.Release()});
  }
  const TestFolder folder;
  return StatisticsOf(WritePack(model, folder, {.statistics = true})).at(0);
}

std::vector<std::uint32_t> Floats(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

TEST(PackStatistics, CountIntegers) {
  const auto found = Measure<std::uint32_t>(
      Scalar(Dtype::kI32), {5, 0, static_cast<std::uint32_t>(-7), 0, 100'000, 3, 0x80000000U});
  EXPECT_EQ(found.values, 7U);
  EXPECT_EQ(found.valid, 7U);
  EXPECT_EQ(found.zeros, 2U);
  EXPECT_EQ(found.nans, 0U);
  const PackField field = Scalar(Dtype::kI32);
  EXPECT_EQ(MinimumOf(field, found), -2147483648.0);
  EXPECT_EQ(MaximumOf(field, found), 100'000.0);
  EXPECT_DOUBLE_EQ(found.mean, (5.0 - 7 + 100'000 + 3 - 2147483648.0) / 7);
}

TEST(PackStatistics, LeaveOutNanAndFill) {
  PackField field = Scalar(Dtype::kF32);
  field.fill_bits = std::bit_cast<std::uint32_t>(-999.0F);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto found = Measure(field, Floats({-999.0F, nan, 2.0F, -4.0F, nan, 0.0F, -999.0F}));
  EXPECT_EQ(found.values, 7U);
  EXPECT_EQ(found.valid, 3U);
  EXPECT_EQ(found.nans, 2U);
  EXPECT_EQ(found.zeros, 1U);
  EXPECT_EQ(MinimumOf(field, found), -4.0);
  EXPECT_EQ(MaximumOf(field, found), 2.0);
  EXPECT_DOUBLE_EQ(found.mean, -2.0 / 3);
  EXPECT_NEAR(DeviationOf(found), std::sqrt(20.0 / 3 - 4.0 / 9), 1e-12);
  // A fill value that is NaN is counted as NaN.
  field.fill_bits = std::bit_cast<std::uint32_t>(nan);
  EXPECT_EQ(Measure(field, Floats({nan, 1.0F})).nans, 1U);
}

TEST(PackStatistics, OfNothingValidAreZero) {
  PackField field = Scalar(Dtype::kF32);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto nothing = Measure(field, Floats({nan, nan, nan, nan}));
  EXPECT_EQ(nothing.valid, 0U);
  EXPECT_EQ(nothing.minimum_bits, 0U);
  EXPECT_EQ(nothing.maximum_bits, 0U);
  EXPECT_EQ(nothing.mean, 0.0);
  EXPECT_EQ(DeviationOf(nothing), 0.0);
  // The first chunk has none, the second has.
  const auto later = Measure(field, Floats({nan, nan, nan, -1.0F}));
  EXPECT_EQ(MaximumOf(field, later), -1.0);
  EXPECT_EQ(Measure(field, Floats({})).values, 0U);
}

TEST(PackStatistics, KnowHalvesAndInfinities) {
  const PackField field = Scalar(Dtype::kF16);
  // 1, -2, the smallest denormal, the largest, infinity.
  const auto found = Measure<std::uint16_t>(field, {0x3C00, 0xC000, 0x0001, 0x7BFF});
  EXPECT_EQ(MinimumOf(field, found), -2.0);
  EXPECT_EQ(MaximumOf(field, found), 65504.0);
  EXPECT_DOUBLE_EQ(found.mean, (1.0 - 2.0 + std::ldexp(1.0, -24) + 65504.0) / 4);
  const auto endless = Measure<std::uint16_t>(field, {0x3C00, 0x7C00, 0xFE00, 0xFC00, 0x4200});
  EXPECT_EQ(endless.values, 5U);
  EXPECT_EQ(endless.valid, 2U);
  EXPECT_EQ(endless.positive_infinities, 1U);
  EXPECT_EQ(endless.negative_infinities, 1U);
  EXPECT_EQ(endless.nans, 1U);
  EXPECT_EQ(MinimumOf(field, endless), 1.0);
  EXPECT_EQ(MaximumOf(field, endless), 3.0);
  EXPECT_EQ(endless.mean, 2.0);
  EXPECT_EQ(DeviationOf(endless), 1.0);
  // A fill value that is infinite is a fill value.
  PackField filled = field;
  filled.fill_bits = 0x7C00;
  EXPECT_EQ(Measure<std::uint16_t>(filled, {0x3C00, 0x7C00}).positive_infinities, 0U);
  const PackField brain = Scalar(Dtype::kBf16);
  EXPECT_EQ(Measure<std::uint16_t>(brain, {0x3F80, 0xC040}).mean, -1.0);
  const PackField real = Scalar(Dtype::kF64);
  EXPECT_EQ(Measure<std::uint64_t>(real, {std::bit_cast<std::uint64_t>(1e300),
                                          std::bit_cast<std::uint64_t>(-0.0)}).zeros, 1U);
  const PackField wide = Scalar(Dtype::kI64);
  const auto ends = Measure<std::uint64_t>(wide, {0x8000000000000000U, 0x7FFFFFFFFFFFFFFFU});
  EXPECT_EQ(ends.minimum_bits, 0x8000000000000000U);
  EXPECT_EQ(ends.maximum_bits, 0x7FFFFFFFFFFFFFFFU) << "exact, unlike an f64";
}

// Pressures in pascal, whose squares leave no bits for a deviation of a hundredth: from sums of
// squares it is 0.0014 of 10,000 values, and 0.47 of a million.
TEST(PackStatistics, DeviationsAreRightThatAreSmallBesideTheMean) {
  PackField field = Scalar(Dtype::kF64, 1000);
  std::vector<std::uint64_t> bits;
  for (int i = 0; i < 50'500; ++i) {
    bits.push_back(std::bit_cast<std::uint64_t>(101'325 + (i % 2 == 0 ? 0.01 : -0.01)));
  }
  const auto found = Measure(field, bits);
  EXPECT_NEAR(found.mean, 101'325, 1e-9);
  EXPECT_NEAR(DeviationOf(found), 0.01, 1e-9);
  // One infinity is counted, and changes nothing else.
  bits[12'345] = std::bit_cast<std::uint64_t>(std::numeric_limits<double>::infinity());
  const auto endless = Measure(field, bits);
  EXPECT_EQ(endless.positive_infinities, 1U);
  EXPECT_EQ(endless.valid, bits.size() - 1);
  EXPECT_NEAR(MaximumOf(field, endless), 101'325.01, 1e-9);
  EXPECT_NEAR(DeviationOf(endless), 0.01, 1e-9);
  // In one chunk as in many.
  field.samples_per_chunk = 65'536;
  EXPECT_NEAR(DeviationOf(Measure(field, bits)), 0.01, 1e-9);
}

// Chunks of other means and sizes, against what all values together are.
TEST(PackStatistics, MergedChunksAreAsOneOfAllTheirValues) {
  std::mt19937 random(kSeed);
  std::vector<std::uint32_t> bits;
  long double sum = 0, moment = 0;
  for (int i = 0; i < 10'007; ++i) {
    const auto value = static_cast<float>(1e6 + 1e3 * (i / 700) +
                                          static_cast<double>(random() % 100));
    bits.push_back(std::bit_cast<std::uint32_t>(value));
    sum += value;
  }
  const long double mean = sum / bits.size();
  for (const std::uint32_t word : bits) {
    const long double difference = std::bit_cast<float>(word) - mean;
    moment += difference * difference;
  }
  for (const std::uint32_t samples_per_chunk : {1U, 7U, 700U, 65'536U}) {
    const auto found = Measure(Scalar(Dtype::kF32, samples_per_chunk), bits);
    EXPECT_NEAR(found.mean, static_cast<double>(mean), 1e-8) << samples_per_chunk;
    EXPECT_NEAR(found.moment / static_cast<double>(moment), 1, 1e-12) << samples_per_chunk;
  }
}

// The value from which differences are taken may lie as far from the others as it wants.
TEST(PackStatistics, AFirstValueFarFromTheOthersDoesNoHarm) {
  for (const double first : {0.0, -101'325.0, 1e12}) {
    std::vector<std::uint64_t> bits = {std::bit_cast<std::uint64_t>(first)};
    long double sum = first, moment = 0;
    for (int i = 0; i < 50'000; ++i) {
      const double value = 101'325 + (i % 2 == 0 ? 0.01 : -0.01);
      bits.push_back(std::bit_cast<std::uint64_t>(value));
      sum += value;
    }
    const long double mean = sum / bits.size();
    for (const std::uint64_t word : bits) {
      const long double difference = std::bit_cast<double>(word) - mean;
      moment += difference * difference;
    }
    const auto found = Measure(Scalar(Dtype::kF64, 65'536), bits);
    EXPECT_NEAR(found.mean, static_cast<double>(mean), 1e-9 * DeviationOf(found)) << first;
    EXPECT_NEAR(found.moment / static_cast<double>(moment), 1, 1e-7) << first;
  }
}

// Times in nanoseconds, 1 to 7 of them apart, where an f64 tells only every 256th from the next.
TEST(PackStatistics, DifferencesOfIntegersAreTakenBeforeTheyAreRounded) {
  constexpr std::int64_t kNow = 1'764'000'000'000'000'003;
  const PackField field = Scalar(Dtype::kI64, 65'536);
  std::vector<std::uint64_t> bits;
  for (std::int64_t i = 0; i < 7'000; ++i) {
    bits.push_back(static_cast<std::uint64_t>(kNow + i % 7));
  }
  const auto found = Measure(field, bits);
  EXPECT_EQ(found.minimum_bits, bits[0]);
  EXPECT_EQ(found.maximum_bits, bits[6]);
  EXPECT_NEAR(found.mean, static_cast<double>(kNow), 256);
  EXPECT_DOUBLE_EQ(DeviationOf(found), 2);
  // Differences that no 64-bit integer holds.
  const auto ends = Measure<std::uint64_t>(
      field, {0x7FFFFFFFFFFFFFFFU, 0x8000000000000000U, 0x7FFFFFFFFFFFFFFFU});
  EXPECT_DOUBLE_EQ(ends.mean, 0x1p63 / 3);
  EXPECT_DOUBLE_EQ(DeviationOf(ends), std::sqrt(2.0) / 3 * 0x1p64);
  const auto turned = Measure<std::uint64_t>(field, {0x8000000000000000U, 0x7FFFFFFFFFFFFFFFU});
  EXPECT_DOUBLE_EQ(DeviationOf(turned), 0x1p63);
}

TEST(PackStatistics, BeyondWhatF64HoldsAreNoNumbers) {
  const PackField field = Scalar(Dtype::kF64);
  const auto found = Measure<std::uint64_t>(field, {std::bit_cast<std::uint64_t>(1.5e308),
                                                    std::bit_cast<std::uint64_t>(-1.5e308)});
  EXPECT_EQ(found.valid, 2U);
  EXPECT_EQ(MaximumOf(field, found), 1.5e308);
  EXPECT_FALSE(std::isfinite(found.mean));
  EXPECT_FALSE(std::isfinite(DeviationOf(found)));
  // The mean of all three could be said, but not the difference of the first two: in one chunk as
  // in a chunk for each.
  for (const std::uint32_t samples_per_chunk : {3U, 1U}) {
    const auto third = Measure<std::uint64_t>(
        Scalar(Dtype::kF64, samples_per_chunk),
        {std::bit_cast<std::uint64_t>(1.5e308), std::bit_cast<std::uint64_t>(-1.5e308),
         std::bit_cast<std::uint64_t>(1.0)});
    EXPECT_EQ(third.valid, 3U);
    EXPECT_FALSE(std::isfinite(third.mean)) << samples_per_chunk;
    EXPECT_FALSE(std::isfinite(DeviationOf(third))) << samples_per_chunk;
  }
}

TEST(PackStatistics, NarrowIntegersAreSummedAlike) {
  // With and without a fill value that does not occur: two ways to the same bits.
  std::vector<std::uint16_t> values;
  for (std::uint32_t i = 0; i < 5000; ++i) {
    values.push_back(static_cast<std::uint16_t>(i * 40503U >> 3 | 1));
  }
  for (const Dtype dtype : {Dtype::kU16, Dtype::kI16}) {
    PackField field = Scalar(dtype, 1000);
    const auto plain = Measure(field, values);
    field.fill_bits = 0;
    EXPECT_EQ(plain, Measure(field, values));
    EXPECT_GT(plain.moment, 0);
  }
}

TEST(PackStatistics, OfStringsAreOfTheirLengths) {
  PackModel model;
  model.schema.fields = {{.name = "text", .fill_bits = {}, .bound = {}, .samples_per_chunk = 2}};
  // The third is longer than a chunk.
  for (const std::size_t length : {3U, 0U, 9'000'001U, 5U}) {
    model.samples.push_back({std::vector<std::byte>(length)});
  }
  const TestFolder folder;
  const auto found = StatisticsOf(WritePack(model, folder, {.statistics = true})).at(0);
  EXPECT_EQ(found.values, 4U);
  EXPECT_EQ(found.zeros, 1U);
  EXPECT_EQ(found.maximum_bits, 9'000'001U);
  EXPECT_EQ(found.mean, 9'000'009.0 / 4);
}

TEST(PackStatistics, AreTheSameAtAnyNumberOfThreads) {
  const TestFolder folder;
  const PackModel model = MakeModel(40, kSeed);
  const auto one = WritePack(model, folder, {.statistics = true});
  EXPECT_EQ(StatisticsOf(one).size(), model.schema.fields.size());
  for (const unsigned threads : {2U, 5U}) {
    EXPECT_EQ(WritePack(model, folder, {.threads = threads, .statistics = true}), one);
  }
  const auto without = WritePack(model, folder);
  EXPECT_TRUE(StatisticsOf(without).empty());
  EXPECT_LT(without.size(), one.size());
}

TEST(PackStatistics, AreTheSameAfterAnInterruption) {
  const TestFolder folder;
  const PackModel model = MakeModel(23, kSeed);
  const PackWriterOptions options{.statistics = true};
  const auto whole = WritePack(model, folder, options);
  const std::string path = folder.Path("p.fbp");
  for (std::size_t cut = 400; cut < whole.size(); cut += 1111) {
    WriteFile(path + ".part", std::span(whole).first(cut));
    auto writer = PackWriter::Resume(path, model.schema, options);
    ASSERT_TRUE(writer.has_value()) << writer.error().message();
    ASSERT_TRUE(AddAll(model, **writer, 23).has_value());
    ASSERT_TRUE((*writer)->Finish().has_value());
    EXPECT_EQ(ReadFile(path), whole) << "cut at " << cut;
    std::filesystem::remove(path);
  }
  // Killed between the statistics and the index, and before the footer.
  for (const std::size_t tail : {10U, 64U, 600U}) {
    WriteFile(path + ".part", std::span(whole).first(whole.size() - tail));
    auto writer = PackWriter::Resume(path, model.schema, options);
    ASSERT_TRUE(AddAll(model, **writer, 23).has_value());
    ASSERT_TRUE((*writer)->Finish().has_value());
    EXPECT_EQ(ReadFile(path), whole);
    std::filesystem::remove(path);
  }
}

TEST(PackStatistics, AreOfWhatAReaderGets) {
  PackField field = Scalar(Dtype::kF32, 4);
  field.bound = {.mode = 1, .absolute = 0.5};
  const std::vector<float> values = {0.1F, 7.3F, 2.2F, 9.9F, 4.6F};
  PackModel model;
  model.schema.fields = {field};
  for (const std::uint32_t bits : Floats(values)) {
    ByteWriter writer;
    writer.Le(bits);
    model.samples.push_back({writer.Release()});
  }
  const TestFolder folder;
  const auto bytes = WritePack(model, folder, {.statistics = true});
  const auto source = MemorySource(bytes);
  const auto pack = PackFile::Open(*source);
  std::vector<std::byte> scratch(pack->ScratchBytes()), decoded(20);
  ASSERT_TRUE(pack->ReadSamples(0, 0, 5, decoded, scratch).has_value());
  double maximum = -1;
  for (std::size_t i = 0; i < 5; ++i) {
    ByteReader reader{std::span<const std::byte>(decoded).subspan(4 * i, 4)};
    const double value = std::bit_cast<float>(reader.ReadLe<std::uint32_t>());
    maximum = std::max(maximum, value);
  }
  EXPECT_EQ(MaximumOf(field, StatisticsOf(bytes).at(0)), maximum);
}

TEST(PackStatistics, PayloadsThatMakeNoSenseAreRefused) {
  PackSchema schema;
  schema.fields = {Scalar(Dtype::kU8)};
  FieldStatistics sound{.values = 10, .valid = 4, .zeros = 4, .nans = 3,
                        .positive_infinities = 1, .negative_infinities = 2};
  const auto read = [&](const FieldStatistics& statistics) {
    return ReadStatistics(schema, WriteStatistics({statistics}));
  };
  EXPECT_EQ(read(sound)->at(0), sound);
  for (const FieldStatistics& wrong : {FieldStatistics{.values = 5, .valid = 6},
                                       FieldStatistics{.values = 9, .valid = 6, .zeros = 7},
                                       FieldStatistics{.values = 9, .valid = 6, .nans = 4},
                                       FieldStatistics{.values = 9, .positive_infinities = 10},
                                       FieldStatistics{.values = 9, .valid = 6,
                                                       .positive_infinities = 2,
                                                       .negative_infinities = 2},
                                       FieldStatistics{.values = 9, .nans = ~std::uint64_t{0}},
                                       FieldStatistics{.values = 9, .valid = 1, .moment = -1}}) {
    EXPECT_EQ(read(wrong).error().code(), ErrorCode::kDataLoss);
  }
  EXPECT_EQ(ReadStatistics(schema, WriteStatistics({sound, sound})).error().code(),
            ErrorCode::kDataLoss);
}

}  // namespace forebay::compress::pack_statistics_test

// Catalogs of IDX, .npy and raw record files.
#include <gmock/gmock.h>

#include "server/catalog/testing/catalog_test_fixture.h"
#include "server/catalog/testing/record_text.h"

namespace forebay::catalog {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RecordFilesTest : public CatalogFixture {};

TEST_F(RecordFilesTest, ReadsTheFashionMnistLayout) {
  const std::string images = PatternText(50 * 28 * 28, 1);
  const std::string labels = PatternText(50, 2);
  AddFile("train-images-idx3-ubyte", IdxText(0x08, {50, 28, 28}, images));
  AddFile("train-labels-idx1-ubyte", IdxText(0x08, {50}, labels));
  source_.extent_bytes = 4096;
  const auto catalog = Build();
  ASSERT_TRUE(catalog.has_value()) << catalog.error().ToString();
  EXPECT_EQ((*catalog)->format(), Format::kIdx);
  EXPECT_EQ((*catalog)->sample_count(), 50U);
  EXPECT_EQ((*catalog)->part_count(), 2U);
  const auto fields = (*catalog)->fields();
  ASSERT_EQ(fields.size(), 2U);
  EXPECT_EQ(fields[0].name, "images");
  EXPECT_THAT(fields[0].shape, ElementsAre(28, 28));
  EXPECT_FALSE(fields[0].big_endian);
  EXPECT_EQ(fields[1].name, "labels");
  EXPECT_TRUE(fields[1].shape.empty());
  EXPECT_TRUE(fields[1].is_fixed());
  EXPECT_EQ((*catalog)->PartOf(FieldId(1)), 1U);
  for (std::uint64_t s = 0; s < 50; ++s) {
    EXPECT_EQ(FieldText(**catalog, SampleId(s), FieldId(0)), images.substr(s * 784, 784));
    EXPECT_EQ(FieldText(**catalog, SampleId(s), FieldId(1)), labels.substr(s, 1));
  }
  EXPECT_EQ((*catalog)->SampleKey(SampleId(7)).value(), "7");
  ExpectConsistent(**catalog);
}

TEST_F(RecordFilesTest, SpansExtentsWithRecordsLargerThanOne) {
  const std::string data = PatternText(7 * 250, 3);
  AddFile("x.bin", "HEADER" + data);
  source_.format = Format::kRaw;
  source_.settings.SetTexts("files", {"x=x.bin"});
  source_.settings.SetNumbers("shape", {250});
  source_.settings.SetNumber("header", 6);
  source_.extent_bytes = 100;
  const auto catalog = Build();
  ASSERT_TRUE(catalog.has_value()) << catalog.error().ToString();
  EXPECT_EQ((*catalog)->extent_count(), 21U);
  for (std::uint64_t s = 0; s < 7; ++s) {
    EXPECT_EQ(FieldText(**catalog, SampleId(s), FieldId(0)), data.substr(s * 250, 250));
  }
  ExpectConsistent(**catalog);
}

TEST_F(RecordFilesTest, CutsExtentsAtEverySizeAroundARecord) {
  const std::string data = PatternText(24 * 10, 4);
  AddFile("x.bin", data);
  source_.format = Format::kRaw;
  source_.settings.SetTexts("files", {"x=x.bin"});
  source_.settings.SetText("dtype", "f32");
  source_.settings.SetNumbers("shape", {2, 3});
  for (std::uint64_t extent_bytes = 1; extent_bytes < 300; ++extent_bytes) {
    source_.extent_bytes = extent_bytes;
    const auto catalog = Build();
    ASSERT_TRUE(catalog.has_value()) << catalog.error().ToString();
    EXPECT_EQ((*catalog)->total_bytes(), data.size());
    EXPECT_EQ(FieldText(**catalog, SampleId(9), FieldId(0)), data.substr(216, 24));
    ExpectConsistent(**catalog);
  }
}

TEST_F(RecordFilesTest, TakesZeroBytesPerSample) {
  AddFile("x.bin", PatternText(1 << 20, 5));
  source_.format = Format::kRaw;
  source_.settings.SetTexts("files", {"x=x.bin"});
  const auto catalog = Build();
  ASSERT_TRUE(catalog.has_value());
  EXPECT_EQ((*catalog)->sample_count(), 1U << 20);
  EXPECT_LT((*catalog)->image().size(), 1024U);
}

TEST_F(RecordFilesTest, ReadsPairsOfNumpyArrays) {
  const std::string x = PatternText(10 * 12, 6);
  const std::string y = PatternText(10 * 8, 7);
  AddFile("x.npy", NpyText("{'descr': '>f4', 'fortran_order': False, 'shape': (10, 3), }", x));
  AddFile("y.npy", NpyText("{'descr': '<i8', 'fortran_order': False, 'shape': (10,), }", y));
  const auto catalog = Build();
  ASSERT_TRUE(catalog.has_value()) << catalog.error().ToString();
  EXPECT_EQ((*catalog)->format(), Format::kNpy);
  EXPECT_EQ((*catalog)->fields()[0].name, "x");
  EXPECT_TRUE((*catalog)->fields()[0].big_endian);
  EXPECT_EQ((*catalog)->fields()[1].dtype, Dtype::kI64);
  EXPECT_EQ(FieldText(**catalog, SampleId(3), FieldId(0)), x.substr(36, 12));
  EXPECT_EQ(FieldText(**catalog, SampleId(3), FieldId(1)), y.substr(24, 8));
  ExpectConsistent(**catalog);
}

TEST_F(RecordFilesTest, RefusesPartsOfDifferentLength) {
  AddFile("a-images-idx1-ubyte", IdxText(0x08, {3}, "abc"));
  AddFile("a-labels-idx1-ubyte", IdxText(0x08, {2}, "ab"));
  EXPECT_THAT(BuildError(), HasSubstr("'a-labels-idx1-ubyte' has 2 records, "
                                      "'a-images-idx1-ubyte' has 3"));
}

TEST_F(RecordFilesTest, RefusesTwoFilesForOneField) {
  AddFile("t10k-images-idx1-ubyte", IdxText(0x08, {3}, "abc"));
  AddFile("train-images-idx1-ubyte", IdxText(0x08, {3}, "abc"));
  EXPECT_THAT(BuildError(), HasSubstr("field 'images' is supplied by 't10k-images-idx1-ubyte' "
                                      "and by 'train-images-idx1-ubyte'"));
}

TEST_F(RecordFilesTest, RefusesRawFilesThatEndWithinARecord) {
  AddFile("x.bin", "0123456789");
  source_.format = Format::kRaw;
  source_.settings.SetTexts("files", {"x=x.bin"});
  source_.settings.SetNumbers("shape", {4});
  EXPECT_THAT(BuildError(), HasSubstr("'x.bin' at offset 8: the file ends within a record"));
  source_.settings.SetNumber("header", 10);
  EXPECT_THAT(BuildError(), HasSubstr("no records"));
  source_.settings.SetNumbers("shape", {0});
  EXPECT_THAT(BuildError(), HasSubstr("dataset key 'shape': a list of positive whole numbers"));
  source_.settings.SetNumber("header", 0);
  source_.settings.SetText("dtype", "bytes");
  source_.settings.Clear("shape");
  EXPECT_THAT(BuildError(), HasSubstr("need a shape"));
}

TEST_F(RecordFilesTest, RefusesMissingFiles) {
  source_.format = Format::kRaw;
  EXPECT_THAT(BuildError(), HasSubstr("has no raw files"));
  source_.settings.SetTexts("files", {"x=absent"});
  EXPECT_THAT(BuildError(), HasSubstr("NOT_FOUND"));
  AddFile("dir/file", "x");
  source_.settings.SetTexts("files", {"x=dir"});
  EXPECT_THAT(BuildError(), HasSubstr("is not a file"));
}

TEST_F(RecordFilesTest, RefusesMoreFilesThanFields) {
  source_.format = Format::kRaw;
  std::vector<std::string> files;
  for (std::size_t i = 0; i <= limits::kFieldCountMax; ++i) {
    files.push_back(std::to_string(i) + "=x.bin");
  }
  source_.settings.SetTexts("files", files);
  EXPECT_THAT(BuildError(), HasSubstr("kFieldCountMax"));
}

TEST_F(RecordFilesTest, RefusesExtentsTooSmallForTheData) {
  AddFile("x.bin", PatternText(1 << 20, 5));
  source_.format = Format::kRaw;
  source_.settings.SetTexts("files", {"x=x.bin"});
  source_.settings.SetNumbers("shape", {1 << 20});
  source_.extent_bytes = 1;
  ASSERT_TRUE(Build().has_value());  // 2^20 extents of one byte are within the limit
}

TEST_F(RecordFilesTest, PassesOnHeaderErrorsWithTheirFile) {
  AddFile("x.npy", "nonsense");
  EXPECT_THAT(BuildError(), HasSubstr("'x.npy' at offset 0: not an .npy file"));
}

}  // namespace
}  // namespace forebay::catalog

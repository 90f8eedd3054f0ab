// Headers and elements of safetensors files, well-formed and hostile. safetensors_fuzz.cc looks
// for further ones.
#include "trainer/core/weights/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

#include "proto/contract/byte_cursor.h"
#include "trainer/testing/temp_folder.h"

namespace forebay::train::safetensors_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::byte> FileOf(const std::string& header, std::size_t data_bytes) {
  ByteWriter writer;
  writer.Le(static_cast<std::uint64_t>(header.size()));
  writer.Bytes(std::as_bytes(std::span(header.data(), header.size())));
  writer.Bytes(std::vector<std::byte>(data_bytes));
  return writer.Release();
}

Result<SafetensorsHeader> Parse(const std::string& header, std::size_t data_bytes) {
  const std::vector<std::byte> bytes = FileOf(header, data_bytes);
  return ParseSafetensors(bytes, bytes.size());
}

std::vector<std::byte> BytesOf(const std::vector<std::uint16_t>& words) {
  std::vector<std::byte> bytes(2 * words.size());
  std::memcpy(bytes.data(), words.data(), bytes.size());
  return bytes;
}

void WriteFile(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

const char* const kTwo =
    R"({"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]},)"
    R"("a":{"dtype":"F16","shape":[1,2],"data_offsets":[0,4]},"__metadata__":{"format":"pt"}})";

TEST(Safetensors, HeaderListsTensorsByPlace) {
  const auto header = Parse(kTwo, 12);
  ASSERT_TRUE(header.has_value()) << header.error().ToString();
  ASSERT_EQ(header->tensors.size(), 2U);
  EXPECT_EQ(header->tensors[0].name, "a");
  EXPECT_THAT(header->tensors[0].shape, ElementsAre(1, 2));
  EXPECT_EQ(header->tensors[1].dtype, "F32");
  EXPECT_EQ(header->data_begin, 8 + std::strlen(kTwo));
  EXPECT_EQ(header->metadata.at("format"), "pt");
  EXPECT_EQ(header->Find("b"), &header->tensors[1]);
  EXPECT_EQ(header->Find("c"), nullptr);
}

TEST(Safetensors, WrittenHeaderReadsTheSame) {
  const std::vector<TensorEntry> tensors = {
      {.name = "z", .dtype = "F32", .shape = {3}, .begin = 0, .end = 12},
      {.name = "empty", .dtype = "F32", .shape = {0}, .begin = 12, .end = 12},
      {.name = "one", .dtype = "U8", .shape = {}, .begin = 12, .end = 13}};
  const auto bytes = EncodeSafetensorsHeader({{"key", "value"}}, tensors);
  EXPECT_EQ(bytes.size() % 8, 0U);
  const auto header = ParseSafetensors(bytes, bytes.size() + 13);
  ASSERT_TRUE(header.has_value()) << header.error().ToString();
  EXPECT_EQ(header->metadata.at("key"), "value");
  ASSERT_EQ(header->tensors.size(), 3U);
  for (std::size_t at = 0; at < 3; ++at) {
    EXPECT_EQ(header->tensors[at].name, tensors[at].name);
    EXPECT_EQ(header->tensors[at].end, tensors[at].end);
  }
}

TEST(Safetensors, FileWithoutTensorsIsEmpty) {
  const auto header = Parse("{}", 0);
  ASSERT_TRUE(header.has_value());
  EXPECT_TRUE(header->tensors.empty());
}

TEST(Safetensors, HalvesBecomeFloats) {
  const auto floats = FloatsOf("F16", BytesOf({0x0000, 0x8000, 0x3C00, 0xC000, 0x3555, 0x0001,
                                               0x83FF, 0x7BFF, 0x7C00, 0xFC00, 0x7E00}));
  ASSERT_TRUE(floats.has_value());
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> expected = {0.0F,
                                       -0.0F,
                                       1.0F,
                                       -2.0F,
                                       0.333251953125F,
                                       std::ldexp(1.0F, -24),
                                       -1023 * std::ldexp(1.0F, -24),
                                       65504.0F,
                                       infinity,
                                       -infinity};
  for (std::size_t at = 0; at < expected.size(); ++at) {
    EXPECT_EQ((*floats)[at], expected[at]) << at;
    EXPECT_EQ(std::signbit((*floats)[at]), std::signbit(expected[at])) << at;
  }
  EXPECT_TRUE(std::isnan(floats->back()));
}

TEST(Safetensors, BrainFloatsBecomeFloats) {
  const auto floats = FloatsOf("BF16", BytesOf({0x3F80, 0xC040, 0x0001}));
  ASSERT_TRUE(floats.has_value());
  EXPECT_THAT(*floats, ElementsAre(1.0F, -3.0F, std::ldexp(1.0F, -133)));
}

TEST(Safetensors, OtherElementsAreRefused) {
  const std::vector<std::byte> bytes(8);
  const auto integers = FloatsOf("I64", bytes);
  ASSERT_FALSE(integers.has_value());
  EXPECT_EQ(integers.error().code(), ErrorCode::kUnimplemented);
  EXPECT_THAT(integers.error().message(), HasSubstr("I64"));
  const auto part = FloatsOf("F32", std::span(bytes).first(6));
  ASSERT_FALSE(part.has_value());
  EXPECT_EQ(part.error().code(), ErrorCode::kInvalidArgument);
}

TEST(Safetensors, MalformedHeadersAreRefused) {
  struct Case {
    const char* header;
    std::size_t data_bytes;
    const char* message;
  };
  const std::vector<Case> cases = {
      {"", 0, "not a JSON object"},
      {"[]", 0, "not a JSON object"},
      {"{", 0, "not a JSON object"},
      {"{} {}", 0, "not a JSON object"},
      {R"({"a":1})", 0, "not described"},
      {R"({"a":{"dtype":"F32","shape":[1]}})", 4, "not described"},
      {R"({"a":{"dtype":4,"shape":[1],"data_offsets":[0,4]}})", 4, "not described"},
      {R"({"a":{"dtype":"F32","shape":1,"data_offsets":[0,4]}})", 4, "a shape"},
      {R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "a shape"},
      {R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4, "a shape"},
      {R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})",
       1, "a shape"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, "outside"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "outside"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,5]}})", 4, "outside"},
      {R"({"a":{"dtype":"F4","shape":[1],"data_offsets":[0,4]}})", 4, "dtype"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", 0,
       "larger"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", 8, "disagree"},
      {R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
       R"("b":{"dtype":"U8","shape":[3],"data_offsets":[2,5]}})", 5, "overlaps"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
       R"("b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})", 5, "hole"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 3, "no tensor"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
       R"("a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 2, "twice"},
      {R"({"a":[[[]]]})", 0, "too deep"},
      {R"({"__metadata__":1})", 0, "metadata"},
      {R"({"__metadata__":{"a":1}})", 0, "metadata"},
  };
  for (const Case& broken : cases) {
    const auto header = Parse(broken.header, broken.data_bytes);
    ASSERT_FALSE(header.has_value()) << broken.header;
    EXPECT_EQ(header.error().code(), ErrorCode::kInvalidArgument) << broken.header;
    EXPECT_THAT(header.error().message(), HasSubstr(broken.message)) << broken.header;
  }
}

TEST(Safetensors, HeaderLengthIsBounded) {
  std::vector<std::byte> bytes = FileOf("{}", 0);
  EXPECT_FALSE(ParseSafetensors(std::span(bytes).first(7), 7).has_value());
  EXPECT_FALSE(ParseSafetensors(bytes, 9).has_value());
  EXPECT_FALSE(ParseSafetensors(std::span(bytes).first(9), 10).has_value());
  ByteWriter writer;
  writer.Le(kSafetensorsHeaderBytesMax + 1);
  const auto header = ParseSafetensors(writer.bytes(), ~std::uint64_t{0});
  ASSERT_FALSE(header.has_value());
  EXPECT_THAT(header.error().message(), HasSubstr("16777217"));
}

TEST(SafetensorsFile, ReadsFloatsOfATensor) {
  const testing::TempFolder temp;
  std::vector<std::byte> bytes = FileOf(kTwo, 0);
  const std::vector<std::byte> halves = BytesOf({0x3C00, 0xC000});
  const std::vector<float> floats = {1.5F, -2.25F};
  bytes.insert(bytes.end(), halves.begin(), halves.end());
  const auto raw = std::as_bytes(std::span(floats));
  bytes.insert(bytes.end(), raw.begin(), raw.end());
  WriteFile(temp.path() / "weights", bytes);
  const auto file = SafetensorsFile::Open(temp.path() / "weights");
  ASSERT_TRUE(file.has_value()) << file.error().ToString();
  EXPECT_THAT(file->ReadFloats(*file->header().Find("a")).value(), ElementsAre(1.0F, -2.0F));
  EXPECT_THAT(file->ReadFloats(*file->header().Find("b")).value(), ElementsAre(1.5F, -2.25F));
  std::filesystem::resize_file(temp.path() / "weights", bytes.size() - 1);
  const auto torn = file->ReadFloats(*file->header().Find("b"));
  ASSERT_FALSE(torn.has_value());
  EXPECT_EQ(torn.error().code(), ErrorCode::kDataLoss);
}

TEST(SafetensorsFile, ErrorsNameTheFile) {
  const testing::TempFolder temp;
  EXPECT_EQ(SafetensorsFile::Open(temp.path() / "none").error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(SafetensorsFile::Open(temp.path()).error().code(), ErrorCode::kInvalidArgument);
  // Nobody writes to the pipe: an open that waits for a writer would not return.
  ASSERT_EQ(mkfifo((temp.path() / "pipe").c_str(), 0600), 0);
  const auto pipe = SafetensorsFile::Open(temp.path() / "pipe");
  ASSERT_FALSE(pipe.has_value());
  EXPECT_THAT(pipe.error().message(), HasSubstr("pipe: not a regular file"));
  for (const std::size_t size : {0U, 5U, 8U, 30U}) {
    const std::vector<std::byte> bytes = FileOf(kTwo, 12);
    WriteFile(temp.path() / "torn", std::span(bytes).first(size));
    const auto torn = SafetensorsFile::Open(temp.path() / "torn");
    ASSERT_FALSE(torn.has_value()) << size;
    EXPECT_EQ(torn.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(torn.error().message(), HasSubstr("torn"));
  }
}

}  // namespace forebay::train::safetensors_test

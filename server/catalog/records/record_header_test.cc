// IDX and .npy headers: every element type, and every refusal with its offset.
#include "server/catalog/records/record_header.h"

#include <gmock/gmock.h>

#include "server/catalog/testing/catalog_test_fixture.h"
#include "server/catalog/testing/record_text.h"

namespace forebay::catalog {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<RecordHeader> Parse(const std::string& text, bool is_npy) {
  const std::vector<std::byte> bytes = TextBytes(text);
  const HeaderInput input{.path = "f", .file_bytes = bytes.size(), .start = bytes};
  return is_npy ? ParseNpyHeader(input) : ParseIdxHeader(input);
}

std::string IdxError(const std::string& text) {
  const auto parsed = Parse(text, false);
  EXPECT_FALSE(parsed.has_value());
  return parsed.has_value() ? "" : parsed.error().ToString();
}

std::string NpyError(const std::string& text) {
  const auto parsed = Parse(text, true);
  EXPECT_FALSE(parsed.has_value());
  return parsed.has_value() ? "" : parsed.error().ToString();
}

// The error of a version 1 file with this dict and `data_bytes` of data.
std::string DictError(const std::string& dict, std::size_t data_bytes = 24) {
  return NpyError(NpyText(dict, std::string(data_bytes, 'd')));
}

std::string Dict(const std::string& descr, const std::string& shape) {
  return "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }";
}

TEST(IdxHeaderTest, ReadsEveryElementType) {
  const std::vector<std::pair<char, Dtype>> types = {
      {0x08, Dtype::kU8},  {0x09, Dtype::kI8},  {0x0B, Dtype::kI16},
      {0x0C, Dtype::kI32}, {0x0D, Dtype::kF32}, {0x0E, Dtype::kF64}};
  for (const auto& [code, dtype] : types) {
    const std::size_t bytes = DtypeBytes(dtype);
    const auto header = Parse(IdxText(code, {2, 3}, std::string(6 * bytes, 'x')), false);
    ASSERT_TRUE(header.has_value()) << header.error().ToString();
    EXPECT_EQ(header->dtype, dtype);
    EXPECT_EQ(header->big_endian, bytes > 1);
    EXPECT_EQ(header->sample_count, 2U);
    EXPECT_THAT(header->shape, ElementsAre(3));
    EXPECT_EQ(header->record_bytes, 3 * bytes);
    EXPECT_EQ(header->data_offset, 12U);
  }
}

TEST(IdxHeaderTest, RefusesEveryTruncation) {
  const std::string text = IdxText(0x08, {2, 3, 4}, std::string(24, 'x'));
  for (std::size_t length = 0; length < text.size(); ++length) {
    EXPECT_THAT(IdxError(text.substr(0, length)),
                AllOf(HasSubstr("DATA_LOSS: 'f' at offset"), HasSubstr("truncated")));
  }
  EXPECT_THAT(IdxError(text + "x"), HasSubstr("'f' at offset 16: bytes after the last record"));
}

TEST(IdxHeaderTest, RefusesMalformedHeaders) {
  EXPECT_THAT(IdxError("\x1F\x8B\x08 gzip"), HasSubstr("gzip-compressed; decompress it first"));
  EXPECT_THAT(IdxError("text file"), HasSubstr("'f' at offset 0: not an IDX file"));
  EXPECT_THAT(IdxError(IdxText(0x0A, {1}, "x")),
              HasSubstr("'f' at offset 2: unknown IDX element type 10"));
  EXPECT_THAT(IdxError(IdxText(0x08, {}, "x")), HasSubstr("'f' at offset 3"));
  EXPECT_THAT(IdxError(IdxText(0x08, {0}, "")), HasSubstr("no records"));
  EXPECT_THAT(IdxError(IdxText(0x08, {1, 0}, "")), HasSubstr("a record has zero bytes"));
  EXPECT_THAT(IdxError(IdxText(0x08, std::vector<std::uint32_t>(10, 1), "x")),
              HasSubstr("kDimensionCountMax"));
  EXPECT_THAT(IdxError(IdxText(0x0E, {0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}, "x")),
              HasSubstr("a record exceeds 2^40 bytes"));
  EXPECT_THAT(IdxError(IdxText(0x0E, {0xFFFFFFFF, 0x10000, 0x10000}, "x")),
              HasSubstr("truncated: 4294967295 records"));
}

TEST(NpyHeaderTest, ReadsEveryElementType) {
  const std::vector<std::tuple<std::string, Dtype, bool>> types = {
      {"|u1", Dtype::kU8, false},  {"<u1", Dtype::kU8, false},  {"|b1", Dtype::kU8, false},
      {"|i1", Dtype::kI8, false},  {"<u2", Dtype::kU16, false}, {">u2", Dtype::kU16, true},
      {"<i2", Dtype::kI16, false}, {"<i4", Dtype::kI32, false}, {">i8", Dtype::kI64, true},
      {"=f2", Dtype::kF16, false}, {"<f4", Dtype::kF32, false}, {">f8", Dtype::kF64, true}};
  for (const auto& [descr, dtype, big_endian] : types) {
    const std::size_t bytes = 6 * DtypeBytes(dtype);
    const auto header = Parse(NpyText(Dict(descr, "(2, 3)"), std::string(bytes, 'x')), true);
    ASSERT_TRUE(header.has_value()) << header.error().ToString();
    EXPECT_EQ(header->dtype, dtype);
    EXPECT_EQ(header->big_endian, big_endian) << descr;
    EXPECT_EQ(header->data_offset % 64, 0U);
  }
}

TEST(NpyHeaderTest, ReadsVersionsOneToThree) {
  const std::string one = NpyText(Dict("|u1", "(4,)"), "abcd");
  for (const char version : {'\x02', '\x03'}) {
    const std::string text = std::string("\x93NUMPY") + version + '\0' + one.substr(8, 2) +
                             std::string(2, '\0') + one.substr(10);
    const auto header = Parse(text, true);
    ASSERT_TRUE(header.has_value()) << header.error().ToString();
    EXPECT_EQ(header->sample_count, 4U);
    EXPECT_TRUE(header->shape.empty());
  }
}

TEST(NpyHeaderTest, ReadsOtherSpellingsOfTheDict) {
  for (const std::string dict :
       {"{\"descr\":\"<f4\",\"fortran_order\":False,\"shape\":(2,3)}",
        "{ 'shape' : ( 2L , 3L , ) , 'fortran_order' : False , 'descr' : '<f4' }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, ), }"}) {
    const auto header = Parse(NpyText(dict, std::string(24, 'x')), true);
    ASSERT_TRUE(header.has_value()) << header.error().ToString();
    EXPECT_EQ(header->record_bytes, 12U);
  }
  const auto vector = Parse(
      NpyText("{'descr': '<f4', 'fortran_order': True, 'shape': (6,), }", std::string(24, 'x')),
      true);
  EXPECT_TRUE(vector.has_value()) << "one dimension has one order";
}

TEST(NpyHeaderTest, RefusesEveryTruncation) {
  const std::string text = NpyText(Dict("<f4", "(2, 3)"), std::string(24, 'x'));
  for (std::size_t length = 0; length < text.size(); ++length) {
    EXPECT_THAT(NpyError(text.substr(0, length)),
                AllOf(HasSubstr("DATA_LOSS: 'f' at offset"), HasSubstr("truncated")));
  }
  EXPECT_THAT(NpyError(text + "x"), HasSubstr("bytes after the last record"));
}

TEST(NpyHeaderTest, NeverUnpickles) {
  EXPECT_THAT(DictError(Dict("|O", "(2,)")),
              AllOf(HasSubstr("UNIMPLEMENTED: 'f' at offset"),
                    HasSubstr("object arrays hold pickled code and are never loaded")));
  EXPECT_THAT(DictError(Dict("O", "(2,)")), HasSubstr("never loaded"));
  EXPECT_THAT(DictError("{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (2,), }"),
              HasSubstr("structured element types"));
  EXPECT_THAT(DictError("{'descr': __import__('os'), 'fortran_order': False, 'shape': (2,), }"),
              HasSubstr("expected a quoted string"));
}

TEST(NpyHeaderTest, RefusesWhatItDoesNotDeliver) {
  for (const char* descr : {"<u4", "<u8", "<c8", "|S5", "<U5", "<M8[ns]", "<f16", "|V4"}) {
    EXPECT_THAT(DictError(Dict(descr, "(2,)")), HasSubstr("is not supported")) << descr;
  }
  EXPECT_THAT(DictError("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }"),
              HasSubstr("save the array in C order"));
  EXPECT_THAT(DictError(Dict("<f4", "()")), HasSubstr("zero-dimensional"));
  EXPECT_THAT(DictError(Dict("<f4", "(6, 1, 1, 1, 1, 1, 1, 1, 1, 1)")),
              HasSubstr("kDimensionCountMax"));
}

TEST(NpyHeaderTest, RefusesMalformedDicts) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "expected a dict literal"},
      {"[1]", "expected a dict literal"},
      {"{", "expected a quoted string"},
      {"{'descr", "unterminated string"},
      {"{'de\\x73cr': '<f4'}", "escape in a string"},
      {"{'descr' '<f4'}", "expected ':'"},
      {"{'descr': '<f4' 'shape': (2,)}", "expected ',' or '}'"},
      {"{'descr': '<f4', 'descr': '<f4'}", "'descr' is given twice"},
      {"{'shape': (2,), 'shape': (2,)}", "'shape' is given twice"},
      {"{'fortran_order': False, 'fortran_order': False}", "is given twice"},
      {"{'fortran_order': 0}", "expected True or False"},
      {"{'other': 1}", "unknown key 'other'"},
      {"{'descr': '<f4', 'shape': (2,)}", "is missing"},
      {"{'descr': ''}", "malformed element type"},
      {"{'descr': 'f4'}", "malformed element type"},
      {"{'descr': '|f4'}", "lacks a byte order"},
      {"{'shape': [2]}", "expected a tuple"},
      {"{'shape': (2)}", "expected ',' or ')'"},
      {"{'shape': (,)}", "expected a dimension"},
      {"{'shape': (-2,)}", "expected a dimension"},
      {"{'shape': (2 3)}", "expected ',' or ')'"},
      {"{'shape': (18446744073709551616,)}", "dimension overflows"},
      {Dict("<f4", "(2, 3)") + " x", "bytes after the dict literal"},
  };
  for (const auto& [dict, reason] : cases) {
    EXPECT_THAT(DictError(dict), AllOf(HasSubstr("INVALID_ARGUMENT: 'f' at offset"),
                                       HasSubstr(reason)))
        << dict;
  }
  std::string many = "(";
  for (int i = 0; i < 33; ++i) many += "1, ";
  EXPECT_THAT(DictError(Dict("<f4", many + ")")), HasSubstr("too many dimensions"));
}

TEST(NpyHeaderTest, RefusesSizesThatOverflow) {
  EXPECT_THAT(DictError(Dict("<f8", "(18446744073709551615,)")), HasSubstr("truncated"));
  EXPECT_THAT(DictError(Dict("<f8", "(1, 4294967296, 4294967296)")), HasSubstr("2^40 bytes"));
  EXPECT_THAT(DictError(Dict("<f8", "(2305843009213693952,)"), 0), HasSubstr("truncated"));
}

TEST(NpyHeaderTest, RefusesOtherVersionsAndHugeHeaders) {
  EXPECT_THAT(NpyError(std::string("\x93NUMPY\x04\x00\x10\x00", 10) + std::string(16, ' ')),
              HasSubstr("UNIMPLEMENTED: 'f' at offset 6: .npy version 4.0"));
  EXPECT_THAT(NpyError(std::string("\x93NUMPY\x02\x00\xFF\xFF\xFF\xFF", 12)),
              HasSubstr("kRecordHeaderBytesMax"));
  EXPECT_THAT(NpyError("\x93NUMPX\x01"), HasSubstr("not an .npy file"));
}

}  // namespace
}  // namespace forebay::catalog

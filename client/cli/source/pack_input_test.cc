// What `forebay pack` and `unpack` read and write: images, arrays, names, options.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/cli/inspect/npy_file.h"
#include "client/cli/inspect/safe_path.h"
#include "client/cli/pack/pack_plan.h"
#include "client/cli/source/pack_source.h"
#include "client/cli/source/image_file.h"
#include "client/cli/source/pnm_image.h"
#include "compress/encode/chunk/error_bound.h"
#include "proto/contract/limits.h"

namespace forebay::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class PackInputTest : public ::testing::Test {
 protected:
  PackInputTest() {
    std::string name = (fs::temp_directory_path() / "forebay-input-XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  ~PackInputTest() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

  std::string Write(const std::string& name, const std::string& bytes) const {
    fs::create_directories(fs::path(Path(name)).parent_path());
    std::ofstream(Path(name), std::ios::binary) << bytes;
    return Path(name);
  }

  std::string Read(const std::string& name) const {
    std::ifstream file(Path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  Error ReadError(const std::string& bytes) const {
    const auto image = ReadImage(Write("bad.pgm", bytes));
    EXPECT_FALSE(image.has_value()) << bytes;
    return image ? Error(ErrorCode::kUnknown, "read") : image.error();
  }

  UniqueFd Open() const { return UniqueFd(open(folder_.c_str(), O_RDONLY | O_DIRECTORY)); }

  std::string folder_;
};

Result<RasterImage> Decoded(const std::string& text) {
  return DecodePnm(std::as_bytes(std::span(text)));
}

std::string Text(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) text += std::to_integer<char>(byte);
  return text;
}

TEST_F(PackInputTest, ImagesOfOneAndOfTwoBytes) {
  const auto grey = ReadImage(Write("a.pgm", "P5 3 2 255\nabcdef"));
  ASSERT_TRUE(grey.has_value()) << grey.error().ToString();
  EXPECT_EQ(grey->shape, (ImageShape{.rows = 2, .columns = 3}));
  EXPECT_EQ(Text(grey->pixels), "abcdef");
  const auto colour = ReadImage(Write("b.ppm", "P6\n# a comment\n1 # another\n2\t255\rrgbRGB"));
  ASSERT_TRUE(colour.has_value()) << colour.error().ToString();
  EXPECT_EQ(colour->shape.channels, 3U);
  EXPECT_EQ(Text(colour->pixels), "rgbRGB");
  const auto wide = ReadImage(Write("c.pgm", std::string("P5 1 2 4095 \x01\x02\x0f\xff", 16)));
  ASSERT_TRUE(wide.has_value()) << wide.error().ToString();
  EXPECT_EQ(wide->shape.element_bytes(), 2U);
  EXPECT_EQ(Text(wide->pixels), "\x02\x01\xff\x0f") << "little-endian";
}

TEST_F(PackInputTest, HeadersThatAreNotSound) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "does not begin with P5"},
      {"P2 1 1 255\n0", "does not begin with P5"},
      {"P5", "ends before the width"},
      {"P53 2 255\nabcdef", "no white space stands before the width"},
      {"P5 x 2 255\n", "lacks the width"},
      {"P5 3 -2 255\n", "lacks the height"},
      {"P5 3 2", "ends before the largest value"},
      {"P5 # never ends", "ends before the width"},
      {"P5 99999999999 2 255\n", "width is too large"},
      {"P5 3 2 255", "no white space follows"},
      {"P5 3 2 255abcdef", "no white space follows"},
      {"P5 0 2 255\n", "has no pixels"},
      {"P5 3 0 255\n", "has no pixels"},
      {"P5 3 2 0\n", "largest value is 0"},
      {"P5 3 2 65536\n", "largest value is 65536"},
      {"P5 4294967295 4294967295 65535\n", "has more than"},
      {"P5 " + std::string(5000, ' ') + "3 2 255\nabcdef", "ends before the width"}};
  for (const auto& [text, words] : cases) {
    const auto image = Decoded(text);
    ASSERT_FALSE(image.has_value()) << text;
    EXPECT_EQ(image.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(image.error().message(), HasSubstr(words)) << text;
  }
}

TEST_F(PackInputTest, PixelsThatDoNotFitTheHeader) {
  EXPECT_EQ(ReadError("P5 3 2 255\nabcde").code(), ErrorCode::kDataLoss);
  EXPECT_THAT(ReadError("P5 3 2 255\nabcde").message(), HasSubstr("bad.pgm: is cut off: 5 bytes"));
  EXPECT_THAT(ReadError("P5 3 2 255\nabcdefg").message(), HasSubstr("1 bytes follow"));
  EXPECT_THAT(ReadError("P5 1 1 64\nA").message(), HasSubstr("values above 64"));
  EXPECT_THAT(ReadError("P5 1 1 300\n\x02\x01").message(), HasSubstr("values above 300"));
  EXPECT_THAT(ReadError("P7").message(), HasSubstr("bad.pgm: is no image that is read here"));
  EXPECT_EQ(ReadImage(Path("none.pgm")).error().code(), ErrorCode::kNotFound);
}

TEST_F(PackInputTest, FoldersAreClassesAndSequences) {
  Write("in/b/2.pgm", "P5 1 1 255\nB");
  Write("in/b/deep/0.pgm", "P5 1 1 255\nD");
  Write("in/a/1.PGM", "P5 1 1 255\nA");
  Write("in/a/10.pgm", "P5 1 1 255\nT");
  Write("in/readme.txt", "passed over");
  const auto source = OpenImageFolder(Path("in"));
  ASSERT_TRUE(source.has_value()) << source.error().ToString();
  ASSERT_EQ((*source)->samples(), 4U);
  EXPECT_THAT((*source)->notes(), ElementsAre(HasSubstr("passed over 1 files")));
  EXPECT_TRUE((*source)->schema().keyed);
  std::string seen;
  PackSample sample;
  for (int i = 0; i < 4; ++i) {
    const Status next = (*source)->Next(sample);
    ASSERT_TRUE(next.has_value()) << next.error().ToString();
    seen += sample.key + (sample.begins_sequence ? "*" : "") + Text(sample.fields[0]) +
            std::to_string(std::to_integer<int>(sample.fields[1][0])) + " ";
  }
  EXPECT_EQ(seen, "a/1.PGM*A0 a/10.pgmT0 b/2.pgm*B1 b/deep/0.pgm*D1 ");
}

TEST_F(PackInputTest, FoldersThatCannotBePacked) {
  EXPECT_EQ(OpenImageFolder(Path("none")).error().code(), ErrorCode::kNotFound);
  Write("empty/x.gif", "");
  EXPECT_THAT(OpenImageFolder(Path("empty")).error().message(), HasSubstr("convert others"));
  Write("mixed/a/1.pgm", "P5 1 1 255\nA");
  Write("mixed/2.pgm", "P5 1 1 255\nA");
  EXPECT_THAT(OpenImageFolder(Path("mixed")).error().message(),
              HasSubstr("images (2.pgm) beside class folders (a)"));
  std::string deep = "deep";
  for (int i = 0; i < 40; ++i) deep += "/d";
  Write(deep + "/1.pgm", "P5 1 1 255\nA");
  EXPECT_EQ(OpenImageFolder(Path("deep")).error().code(), ErrorCode::kResourceExhausted);
  Write("sizes/1.pgm", "P5 1 1 255\nA");
  Write("sizes/2.pgm", "P5 2 1 255\nAB");
  const auto source = OpenImageFolder(Path("sizes"));
  ASSERT_TRUE(source.has_value());
  PackSample sample;
  EXPECT_TRUE((*source)->Next(sample).has_value());
  const Status other = (*source)->Next(sample);
  ASSERT_FALSE(other.has_value());
  EXPECT_THAT(other.error().message(), HasSubstr("sizes/2.pgm: is 1 x 2"));
  Write("first/1.pgm", "P9");
  EXPECT_THAT(OpenImageFolder(Path("first")).error().message(), HasSubstr("first/1.pgm"));
}

TEST_F(PackInputTest, ArrayHeaders) {
  const std::vector<std::uint64_t> shape = {7, 2, 3};
  const std::string header = NpyHeader(Dtype::kU16, shape);
  EXPECT_EQ(header.size() % 64, 0U);
  EXPECT_EQ(header.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  EXPECT_EQ(static_cast<std::size_t>(header[8]) + 10, header.size());
  EXPECT_EQ(header.back(), '\n');
  EXPECT_THAT(header, HasSubstr("'descr': '<u2', 'fortran_order': False, 'shape': (7, 2, 3), }"));
  EXPECT_THAT(NpyHeader(Dtype::kI32, std::vector<std::uint64_t>{7}), HasSubstr("'shape': (7,), "));
  EXPECT_THAT(NpyHeader(Dtype::kF64, shape), HasSubstr("'<f8'"));
}

TEST_F(PackInputTest, FilesThatAreNotFinishedGo) {
  const UniqueFd folder = Open();
  {
    auto file = NewFile::Create(folder.get(), "a", Path("a"));
    ASSERT_TRUE(file.has_value());
    EXPECT_TRUE(fs::exists(Path("a")));
  }
  EXPECT_FALSE(fs::exists(Path("a")));
  Write("a", "old");
  const auto again = NewFile::Create(folder.get(), "a", Path("a"));
  ASSERT_FALSE(again.has_value());
  EXPECT_EQ(again.error().code(), ErrorCode::kAlreadyExists);
  EXPECT_EQ(Read("a"), "old");
  EXPECT_EQ(NewFile::Create(folder.get(), "none/a", "x").error().code(), ErrorCode::kNotFound);
}

TEST_F(PackInputTest, NamesStayBeneathTheirFolder) {
  EXPECT_THAT(*SafePathParts("a/b..c/...d"), ElementsAre("a", "b..c", "...d"));
  EXPECT_THAT(*SafePathParts("a\x1b[2J\n/\x7f"), ElementsAre("a\\x1b[2J\\x0a", "\\x7f"));
  for (const std::string& path :
       {std::string(), std::string("/a"), std::string("a/"), std::string("a//b"),
        std::string("../a"), std::string("a/.."), std::string("./a"), std::string("a\0b", 3),
        std::string(256, 'a')}) {
    const auto parts = SafePathParts(path);
    ASSERT_FALSE(parts.has_value()) << path;
    EXPECT_EQ(parts.error().code(), ErrorCode::kInvalidArgument);
  }
  EXPECT_THAT(SafePathParts("/\x1b[2J").error().message(), HasSubstr("'/\\x1b[2J'"));
}

TEST_F(PackInputTest, LinksAreNotFollowed) {
  const UniqueFd folder = Open();
  const std::vector<std::string> parts = {"a", "b", "c"};
  {
    auto file = CreateBeneath(folder.get(), folder_, parts);
    ASSERT_TRUE(file.has_value()) << file.error().ToString();
    EXPECT_TRUE(file->file.Append(std::as_bytes(std::span("xyz", 3))).has_value());
    EXPECT_TRUE(file->file.Finish().has_value());
  }
  EXPECT_EQ(Read("a/b/c"), "xyz");
  EXPECT_EQ(CreateBeneath(folder.get(), folder_, parts).error().code(),
            ErrorCode::kAlreadyExists);
  fs::create_directory(Path("elsewhere"));
  fs::create_directory_symlink(Path("elsewhere"), Path("link"));
  const std::vector<std::string> through = {"link", "c"};
  EXPECT_FALSE(CreateBeneath(folder.get(), folder_, through).has_value());
  EXPECT_TRUE(fs::is_empty(Path("elsewhere")));
  const std::vector<std::string> below_file = {"a", "b", "c", "d"};
  EXPECT_FALSE(CreateBeneath(folder.get(), folder_, below_file).has_value());
}

TEST(PackPlan, Options) {
  EXPECT_EQ(*ParseProfile("auto"), compress::Profile::kAuto);
  EXPECT_FALSE(ParseProfile("best").has_value());
  EXPECT_EQ(ParseTile("16x32")->columns, 32U);
  for (const char* text : {"", "16", "x", "16x", "0x16", "16x0", "16x16x3", "-1x4"}) {
    EXPECT_FALSE(ParseTile(text).has_value()) << text;
  }
  EXPECT_EQ(ParseRange("2:5", 9)->count(), 3U);
  EXPECT_EQ(ParseRange(":", 9)->count(), 9U);
  EXPECT_EQ(ParseRange("9:", 9)->count(), 0U);
  for (const char* text : {"", "3", "5:2", "a:b", "1:2:3", "-1:2"}) {
    EXPECT_EQ(ParseRange(text, 9).error().code(), ErrorCode::kInvalidArgument) << text;
  }
  EXPECT_EQ(ParseRange("0:10", 9).error().code(), ErrorCode::kOutOfRange);
}

TEST(PackPlan, NotesSamplesThatTakeMuchMemory) {
  compress::PackSchema schema;
  schema.fields = {{.name = "field",
                    .dtype = Dtype::kF32,
                    .rank = 3,
                    .extent = {256, 512, 512, 1},
                    .bound = {},
                    .samples_per_chunk = 3,
                    .tile = {4, 64, 64, 1}}};
  EXPECT_FALSE(MemoryNote(schema, 1).has_value());
  schema.fields[0].samples_per_chunk = 4;  // 4 x 256 MiB, and the chunk under encode
  const auto note = MemoryNote(schema, 1);
  ASSERT_TRUE(note.has_value());
  EXPECT_THAT(*note, HasSubstr("1.00 GiB"));
  EXPECT_THAT(*note, HasSubstr("--samples-per-chunk"));
}

TEST(PackPlan, FieldsOfMoreThanFourAxesAreFlattened) {
  std::vector<std::string> notes;
  const auto field = PackFieldOf({.name = "v", .dtype = Dtype::kF32, .shape = {2, 3, 4, 5, 6}},
                                 notes);
  ASSERT_TRUE(field.has_value());
  EXPECT_THAT(field->extent, ElementsAre(6, 4, 5, 6));
  EXPECT_THAT(notes, ElementsAre(HasSubstr("field v has 5 axes")));
  EXPECT_TRUE(PackFieldOf({.name = "t", .dtype = Dtype::kBytes, .shape = {}}, notes)->variable());
  EXPECT_EQ(PackFieldOf({.name = "c", .dtype = Dtype::kU8, .shape = {3, 9, 9}}, notes)
                ->channel_axis, 0);
  EXPECT_EQ(notes.size(), 1U);
  const std::uint64_t large = 1ULL << 32;
  EXPECT_FALSE(PackFieldOf({.name = "z", .dtype = Dtype::kU8, .shape = {0}}, notes).has_value());
  EXPECT_FALSE(
      PackFieldOf({.name = "z", .dtype = Dtype::kU8, .shape = {large}}, notes).has_value());
  EXPECT_FALSE(PackFieldOf({.name = "z", .dtype = Dtype::kU8, .shape = {large, 1, 1, 1, 1}}, notes)
                   .has_value());
}

compress::PackField Image(std::uint32_t rows, std::uint32_t columns) {
  return {.name = "image", .dtype = Dtype::kU8, .rank = 3, .extent = {rows, columns, 3, 1},
          .channel_axis = 2, .bound = {}};
}

TEST(PackPlan, ChunksAreAsLargeAsTheyMayBe) {
  compress::PackField small = Image(28, 28);
  ASSERT_TRUE(LayOut({}, small).has_value());
  EXPECT_EQ(small.samples_per_chunk, 8U);
  EXPECT_EQ(small.tiles(), 1U);
  // 8 x 900 x 1200 x 3 bytes are 24.7 MiB: seven bands of rows.
  compress::PackField large = Image(900, 1200);
  ASSERT_TRUE(LayOut({}, large).has_value());
  EXPECT_EQ(large.samples_per_chunk, 8U);
  EXPECT_EQ(large.tile[0], 129U);
  EXPECT_EQ(large.tile[1], 1200U);
  // Not even a row of 8 samples fits: columns are cut, too.
  compress::PackField wide = Image(2, 3'000'000);
  ASSERT_TRUE(LayOut({}, wide).has_value());
  EXPECT_EQ(wide.tile[0], 1U);
  EXPECT_LE(std::uint64_t{wide.tile[1]} * 3 * wide.samples_per_chunk, limits::kChunkBytesMax);
  compress::PackField scalar{.name = "label", .dtype = Dtype::kI32, .bound = {}};
  ASSERT_TRUE(LayOut({.samples_per_chunk = {}, .tile = TileSize{4, 4}}, scalar).has_value());
  EXPECT_EQ(scalar.samples_per_chunk, 4096U);
  compress::PackField row{.name = "row", .dtype = Dtype::kF64, .rank = 1,
                          .extent = {100'000, 1, 1, 1}, .bound = {}};
  ASSERT_TRUE(LayOut({}, row).has_value());
  EXPECT_EQ(row.samples_per_chunk, 5U);
}

TEST(PackPlan, OptionsThatDoNotFitAreRefused) {
  compress::PackField image = Image(1024, 1024);
  ASSERT_TRUE(LayOut({.samples_per_chunk = {}, .tile = TileSize{256, 4096}}, image).has_value());
  EXPECT_THAT(image.tile, ElementsAre(256, 1024, 3, 1));
  EXPECT_EQ(image.samples_per_chunk, 5U);
  const Status many = LayOut({.samples_per_chunk = 6, .tile = TileSize{256, 1024}}, image);
  ASSERT_FALSE(many.has_value());
  EXPECT_THAT(many.error().message(), HasSubstr("5 would fit"));
  compress::PackField huge = Image(4096, 4096);
  EXPECT_FALSE(LayOut({.samples_per_chunk = {}, .tile = TileSize{4096, 4096}}, huge).has_value());
}

}  // namespace
}  // namespace forebay::cli

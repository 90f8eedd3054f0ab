// JPEG and PNG files as `forebay pack --images` reads them: what is decoded, and what is refused.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <png.h>

#include "client/cli/source/image_file.h"
#include "client/cli/source/pack_source.h"
#include "client/cli/testing/image_writer.h"
#include "client/cli/testing/pack_command_test_folder.h"

namespace forebay::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Result<RasterImage> Decode(const std::string& file) {
  return DecodeImage(std::as_bytes(std::span(file)));
}

Error Refused(const std::string& file) {
  const auto image = Decode(file);
  EXPECT_FALSE(image.has_value());
  return image ? Error(ErrorCode::kUnknown, "decoded") : image.error();
}

std::string Pixels(const RasterImage& image) {
  return {reinterpret_cast<const char*>(image.pixels.data()), image.pixels.size()};
}

// Differs from what was drawn by little: JPEG is lossy.
void ExpectPicture(const RasterImage& image) {
  std::size_t at = 0;
  int worst = 0;
  for (int row = 0; row < static_cast<int>(image.shape.rows); ++row) {
    for (int column = 0; column < static_cast<int>(image.shape.columns); ++column) {
      for (int c = 0; c < static_cast<int>(image.shape.channels); ++c) {
        worst = std::max(worst, std::abs(std::to_integer<int>(image.pixels[at++]) -
                                         PictureValue(row, column, c)));
      }
    }
  }
  EXPECT_LE(worst, 3);
}

// The place of the frame header's length: SOF0 or SOF2, whose payload is precision, rows, columns.
std::size_t FrameHeader(const std::string& file) {
  const std::size_t baseline = file.find("\xFF\xC0");
  return (baseline != file.npos ? baseline : file.find("\xFF\xC2")) + 2;
}

TEST(JpegImageTest, DecodesGreyAndColourAndProgressive) {
  for (const JpegKind kind : {JpegKind::kGrey, JpegKind::kColour, JpegKind::kProgressive}) {
    const auto image = Decode(WriteJpeg(kind, 19, 21));
    ASSERT_TRUE(image.has_value()) << image.error().ToString();
    EXPECT_EQ(image->shape, (ImageShape{.rows = 19,
                                        .columns = 21,
                                        .channels = kind == JpegKind::kGrey ? 1U : 3U}));
    ExpectPicture(*image);
  }
}

TEST(JpegImageTest, ExifOrientationIsNotApplied) {
  std::string file = WriteJpeg(JpegKind::kGrey, 8, 16);
  // APP1: "Exif", a TIFF head, one entry: orientation (0x112), a short, 6 (turned by 90 degrees).
  const std::string exif("\xFF\xE1\x00\x22" "Exif\0\0" "MM\0\x2A\0\0\0\x08" "\0\x01"
                         "\x01\x12\0\x03\0\0\0\x01\0\x06\0\0" "\0\0\0\0", 36);
  file.insert(2, exif);
  const auto image = Decode(file);
  ASSERT_TRUE(image.has_value()) << image.error().ToString();
  EXPECT_EQ(image->shape.rows, 8U);
  EXPECT_EQ(image->shape.columns, 16U);
  ExpectPicture(*image);
}

TEST(JpegImageTest, RefusesCmyk) {
  const Error error = Refused(WriteJpeg(JpegKind::kCmyk, 8, 8));
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message(), AllOf(HasSubstr("CMYK"), HasSubstr("convert it to RGB")));
}

TEST(JpegImageTest, RefusesFilesThatAreCutOffAnywhere) {
  for (const JpegKind kind : {JpegKind::kColour, JpegKind::kProgressive}) {
    const std::string file = WriteJpeg(kind, 16, 16);
    for (std::size_t size = 3; size < file.size(); ++size) {
      const Error error = Refused(file.substr(0, size));
      EXPECT_EQ(error.code(), ErrorCode::kDataLoss) << size << ": " << error.message();
    }
  }
  const std::string grey = WriteJpeg(JpegKind::kGrey, 16, 16);
  EXPECT_THAT(Refused(grey.substr(0, grey.size() - 8)).message(),
              AllOf(HasSubstr("damaged JPEG"), HasSubstr("fetch it again")));
  EXPECT_THAT(Refused(grey.substr(0, 30)).message(), HasSubstr("cut off before its size"));
}

TEST(JpegImageTest, RefusesBytesThatDoNotDecode) {
  std::string file = WriteJpeg(JpegKind::kColour, 64, 64);
  const std::size_t middle = file.size() / 2;
  std::fill_n(file.begin() + static_cast<std::ptrdiff_t>(middle), 64, '\xFF');
  const Error error = Refused(file);
  EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
  EXPECT_THAT(error.message(), HasSubstr("is a damaged JPEG image"));
}

TEST(JpegImageTest, RefusesASizeThatTheFileCannotHold) {
  std::string file = WriteJpeg(JpegKind::kGrey, 8, 8);
  const std::size_t frame = FrameHeader(file);
  file.replace(frame + 3, 4, "\xFF\xDC\xFF\xDC");  // 65500 x 65500, below 4 GiB
  const Error error = Refused(file);
  EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
  EXPECT_THAT(error.message(), AllOf(HasSubstr("65500 x 65500"), HasSubstr("cannot hold")));
}

TEST(JpegImageTest, RefusesColourImagesAboveTheLimitOfASample) {
  std::string file = WriteJpeg(JpegKind::kColour, 8, 8);
  file.replace(FrameHeader(file) + 3, 4, "\xFF\xDC\xFF\xDC");
  const Error error = Refused(file);
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message(), HasSubstr("has more than 4294967294 bytes: 65500 x 65500"));
}

TEST(JpegImageTest, RefusesTwelveBits) {
  std::string file = WriteJpeg(JpegKind::kGrey, 8, 8);
  file[FrameHeader(file) + 2] = 12;
  EXPECT_THAT(Refused(file).message(),
              AllOf(HasSubstr("cannot be read"), HasSubstr("12"), HasSubstr("convert it")));
}

TEST(PngImageTest, KeepsGreyAndColourAsTheyAreStored) {
  const auto grey = Decode(WritePng({.rows = 2, .columns = 3}, "abcdef"));
  ASSERT_TRUE(grey.has_value()) << grey.error().ToString();
  EXPECT_EQ(grey->shape, (ImageShape{.rows = 2, .columns = 3}));
  EXPECT_EQ(Pixels(*grey), "abcdef");
  const auto colour =
      Decode(WritePng({.colour_type = PNG_COLOR_TYPE_RGB, .rows = 2, .columns = 1}, "rgbRGB"));
  ASSERT_TRUE(colour.has_value()) << colour.error().ToString();
  EXPECT_EQ(colour->shape, (ImageShape{.rows = 2, .columns = 1, .channels = 3}));
  EXPECT_EQ(Pixels(*colour), "rgbRGB");
}

TEST(PngImageTest, KeepsSixteenBits) {
  const auto image =
      Decode(WritePng({.bits = 16, .rows = 2, .columns = 1}, std::string("\x01\x02\xFE\xFF", 4)));
  ASSERT_TRUE(image.has_value()) << image.error().ToString();
  EXPECT_EQ(image->shape, (ImageShape{.rows = 2, .columns = 1, .value_max = 65535}));
  EXPECT_EQ(Pixels(*image), "\x02\x01\xFF\xFE") << "little-endian";
  const auto colour = Decode(WritePng(
      {.colour_type = PNG_COLOR_TYPE_RGB, .bits = 16, .rows = 1, .columns = 1}, "aAbBcC"));
  ASSERT_TRUE(colour.has_value()) << colour.error().ToString();
  EXPECT_EQ(Pixels(*colour), "AaBbCc");
}

TEST(PngImageTest, ExpandsPalettesAndFewBits) {
  const auto palette = Decode(WritePng({.colour_type = PNG_COLOR_TYPE_PALETTE,
                                        .rows = 1,
                                        .columns = 3,
                                        .palette = {0x414243, 0x616263}},
                                       std::string("\1\0\1", 3)));
  ASSERT_TRUE(palette.has_value()) << palette.error().ToString();
  EXPECT_EQ(palette->shape.channels, 3U);
  EXPECT_EQ(Pixels(*palette), "abcABCabc");
  const auto bits = Decode(WritePng({.bits = 1, .rows = 1, .columns = 8}, "\xA1"));
  ASSERT_TRUE(bits.has_value()) << bits.error().ToString();
  EXPECT_EQ(Pixels(*bits), std::string("\xFF\0\xFF\0\0\0\0\xFF", 8));
}

TEST(PngImageTest, DecodesInterlacedImages) {
  std::string pixels;
  for (int i = 0; i < 9 * 11; ++i) pixels += static_cast<char>(i * 7);
  const auto image = Decode(WritePng({.rows = 9, .columns = 11, .interlaced = true}, pixels));
  ASSERT_TRUE(image.has_value()) << image.error().ToString();
  EXPECT_EQ(Pixels(*image), pixels);
}

TEST(PngImageTest, RefusesTransparency) {
  const std::vector<std::string> files = {
      WritePng({.colour_type = PNG_COLOR_TYPE_RGBA, .rows = 1, .columns = 1}, "rgba"),
      WritePng({.colour_type = PNG_COLOR_TYPE_GRAY_ALPHA, .rows = 1, .columns = 1}, "ga"),
      WritePng({.rows = 1, .columns = 1, .transparent = true}, "g"),
      WritePng({.colour_type = PNG_COLOR_TYPE_PALETTE,
                .rows = 1,
                .columns = 1,
                .transparent = true,
                .palette = {0x010203}},
               std::string(1, '\0'))};
  for (const std::string& file : files) {
    const Error error = Refused(file);
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.message(), AllOf(HasSubstr("transparency"), HasSubstr("-alpha off")));
  }
}

TEST(PngImageTest, RefusesFilesThatAreCutOffAnywhere) {
  const std::string file = WritePng({.rows = 4, .columns = 4}, "0123456789abcdef");
  for (std::size_t size = 8; size < file.size(); ++size) {
    const Error error = Refused(file.substr(0, size));
    EXPECT_EQ(error.code(), ErrorCode::kDataLoss) << size;
    EXPECT_THAT(error.message(), HasSubstr("PNG image that is cut off")) << size;
  }
}

TEST(PngImageTest, RefusesBytesThatDoNotMatchTheirChecksum) {
  std::string file = WritePng({.rows = 4, .columns = 4}, "0123456789abcdef");
  file[file.find("IDAT") + 8] ^= 0x20;
  const Error error = Refused(file);
  EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
  EXPECT_THAT(error.message(), AllOf(HasSubstr("damaged"), HasSubstr("fetch it again")));
}

TEST(PngImageTest, RefusesSizesBeforeMemoryIsTaken) {
  const Error large = Refused(WritePng(
      {.colour_type = PNG_COLOR_TYPE_RGB, .bits = 16, .rows = 900'000, .columns = 900'000}, ""));
  EXPECT_EQ(large.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(large.message(), HasSubstr("has more than 4294967294 bytes: 900000 x 900000"));
  const Error hollow = Refused(WritePng({.rows = 20'000, .columns = 20'000}, ""));
  EXPECT_EQ(hollow.code(), ErrorCode::kDataLoss);
  EXPECT_THAT(hollow.message(), HasSubstr("cannot hold"));
  const Error junk = Refused(WritePng({.rows = 4, .columns = 4}, ""));
  EXPECT_EQ(junk.code(), ErrorCode::kDataLoss) << "pixels that are none";
}

TEST(ImageFileTest, NamesOfImages) {
  for (const char* name : {"a.pgm", "a.PPM", "x/a.pnm", "a.jpg", "a.JPEG", "a.b.png"}) {
    EXPECT_TRUE(IsImageName(name)) << name;
  }
  for (const char* name : {"a", "png", ".png", "a.gif", "a.png.txt", "a.jpg/b"}) {
    EXPECT_FALSE(IsImageName(name)) << name;
  }
}

TEST(ImageFileTest, RefusesOtherKinds) {
  for (const std::string& file : {std::string(), std::string("P"), std::string("GIF89a"),
                                  std::string("\xFF\xD8"), std::string("P2 1 1 255\n0")}) {
    const Error error = Refused(file);
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.message(), AllOf(HasSubstr("is no image"), HasSubstr("JPEG, nor PNG")));
  }
}

class ImageFolderTest : public PackCommandTest {};

TEST_F(ImageFolderTest, ReadsFilesByTheirBytesAndNamesThemInErrors) {
  Write("in/wrong_name.jpg", WritePng({.rows = 1, .columns = 2}, "ab"));
  const auto image = ReadImage(Path("in/wrong_name.jpg"));
  ASSERT_TRUE(image.has_value()) << image.error().ToString();
  EXPECT_EQ(Pixels(*image), "ab");
  EXPECT_EQ(ReadImage(Path("none.png")).error().code(), ErrorCode::kNotFound);
  Write("in/huge.png", "");
  std::filesystem::resize_file(Path("in/huge.png"), std::uint64_t{1} << 32);
  const Error huge = ReadImage(Path("in/huge.png")).error();
  EXPECT_EQ(huge.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(huge.message(), AllOf(HasSubstr("huge.png: has 4294967296 bytes"),
                                    HasSubstr("at most 4294967294")));
}

TEST_F(ImageFolderTest, PacksKindsSideBySideAndUnpacksTheirPixels) {
  Write("in/a/1.png", WritePng({.colour_type = PNG_COLOR_TYPE_RGB, .rows = 8, .columns = 8},
                               std::string(192, 'p')));
  Write("in/a/2.ppm", "P6 8 8 255\n" + std::string(192, 'q'));
  Write("in/b/3.jpeg", WriteJpeg(JpegKind::kColour, 8, 8));
  const ForebayRun packed = Forebay({"pack", "--images", Path("in"), Path("out.fbp"), "--json"});
  ASSERT_EQ(packed.code, 0) << packed.out << packed.err;
  EXPECT_EQ(packed.last()["samples"], 3);
  const ForebayRun unpacked =
      Forebay({"unpack", Path("out.fbp"), "--to", Path("to"), "--field", "image", "--images"});
  ASSERT_EQ(unpacked.code, 0) << unpacked.err;
  EXPECT_EQ(Read("to/image/a/1.png.ppm"), "P6\n8 8\n255\n" + std::string(192, 'p'));
  EXPECT_EQ(Read("to/image/a/2.ppm"), "P6\n8 8\n255\n" + std::string(192, 'q'));
  const auto jpeg = ReadImage(Path("to/image/b/3.jpeg.ppm"));
  ASSERT_TRUE(jpeg.has_value());
  ExpectPicture(*jpeg);
}

TEST_F(ImageFolderTest, NamesTheImageThatIsUnlikeTheFirst) {
  Write("in/1.jpg", WriteJpeg(JpegKind::kColour, 8, 8));
  Write("in/2.png", WritePng({.rows = 8, .columns = 8}, std::string(64, 'g')));
  const ForebayRun run = Forebay({"pack", "--images", Path("in"), Path("out.fbp")});
  EXPECT_NE(run.code, 0);
  EXPECT_THAT(run.err, AllOf(HasSubstr("2.png: is 8 x 8, 1 channel"), HasSubstr("1.jpg is")));
}

}  // namespace
}  // namespace forebay::cli

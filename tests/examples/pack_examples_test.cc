// The examples at the top of the headers that programs read and write packs with, run.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "compress/encode/testing/pack_test_model.h"
#include "tests/examples/pack_examples.inc"

extern "C" int read_first_image(const char* path, void* pixels, size_t pixel_bytes);

namespace forebay::compress {
namespace {

using Image = std::array<std::byte, 784>;

Image ImageOf(std::uint8_t value) {
  Image image;
  image.fill(std::byte{value});
  return image;
}

TEST(PackExamplesTest, APackIsWrittenAndRead) {
  const TestFolder folder;
  const std::string path = folder.Path("images.fbp");
  const std::vector<Image> images = {ImageOf(3), ImageOf(0), ImageOf(200)};
  const Result<PackSummary> written = PackImages(path, images);
  ASSERT_TRUE(written.has_value()) << written.error().ToString();
  EXPECT_EQ(written->samples, 3U);

  const auto sums = SumsOfImages(path);
  ASSERT_TRUE(sums.has_value()) << sums.error().ToString();
  EXPECT_EQ(*sums, (std::vector<std::uint64_t>{784 * 3, 0, 784 * 200}));

  const auto magic = FirstBytesOf(path);
  ASSERT_TRUE(magic.has_value()) << magic.error().ToString();
  EXPECT_EQ(*magic, "FEBYPAK1");

  Image first;
  EXPECT_EQ(read_first_image(path.c_str(), first.data(), first.size()), 0);
  EXPECT_EQ(first, images[0]);
  EXPECT_NE(read_first_image(folder.Path("none.fbp").c_str(), first.data(), first.size()), 0);
}

TEST(PackExamplesTest, ASetIsAddedToAndRead) {
  const TestFolder folder;
  const std::string path = folder.Path("texts.fbset");
  ASSERT_TRUE(AddTexts(path, std::vector<std::string>{"one", ""}).has_value());
  ASSERT_TRUE(AddTexts(path, std::vector<std::string>{"three"}).has_value());
  for (const auto& [sample, expected] :
       std::vector<std::pair<std::uint64_t, std::string>>{{0, "one"}, {1, ""}, {2, "three"}}) {
    const auto text = ReadText(path, sample);
    ASSERT_TRUE(text.has_value()) << text.error().ToString();
    EXPECT_EQ(*text, expected);
  }
  EXPECT_EQ(ReadText(path, 3).error().code(), ErrorCode::kOutOfRange);
}

}  // namespace
}  // namespace forebay::compress

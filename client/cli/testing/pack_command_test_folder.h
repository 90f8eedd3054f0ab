// Runs commands of `forebay` on packs in a temporary folder: what tests of packs share.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "client/cli/testing/forebay_run.h"

namespace forebay::cli {

class PackCommandTest : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kSeed = 7;
  static constexpr int kRows = 20, kColumns = 24;

  PackCommandTest() {
    std::string name = (std::filesystem::temp_directory_path() / "forebay-packcmd-XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    RecordProperty("seed", static_cast<int>(kSeed));
  }
  ~PackCommandTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

  std::string Read(const std::string& name) const {
    std::ifstream file(Path(name), std::ios::binary);
    EXPECT_TRUE(file.good()) << name;
    return {std::istreambuf_iterator<char>(file), {}};
  }

  void Write(const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories(std::filesystem::path(Path(name)).parent_path());
    std::ofstream(Path(name), std::ios::binary) << bytes;
  }

  // Colour images in two classes; returns their pixels, in order.
  std::string MakeImages(int count, int channels = 3) {
    std::mt19937 random(kSeed);
    std::string all;
    for (int i = 0; i < count; ++i) {
      std::string pixels;
      for (int p = 0; p < kRows * kColumns * channels; ++p) {
        pixels += static_cast<char>((p / 5 + i * 3 + static_cast<int>(random() % 3)) & 0xFF);
      }
      const std::string header = (channels == 3 ? "P6 " : "P5 ") + std::to_string(kColumns) + " " +
                                 std::to_string(kRows) + " 255\n";
      Write(std::string("in/") + (i < count / 2 ? "cat/" : "dog/") +
                std::to_string(100 + i) + ".ppm", header + pixels);
      all += pixels;
    }
    return all;
  }

  // Of an array, behind the header.
  std::string Elements(const std::string& name) const {
    const std::string file = Read(name);
    return file.substr(10 + static_cast<unsigned char>(file[8]) +
                       256 * static_cast<std::size_t>(static_cast<unsigned char>(file[9])));
  }

  void Flip(const std::string& name, std::uint64_t at) const {
    std::string bytes = Read(name);
    ASSERT_LT(at, bytes.size());
    bytes[static_cast<std::size_t>(at)] ^= 0x20;
    Write(name, bytes);
  }

  std::string folder_;
};

}  // namespace forebay::cli

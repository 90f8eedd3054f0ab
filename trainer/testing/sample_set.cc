// Images with a bright bar at a place that tells the class, which a network learns in seconds; and
// Fashion-MNIST from IDX files, if Debian's package is installed.
#include "trainer/testing/sample_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <span>
#include <string>

#include "proto/contract/mix64.h"

namespace forebay::train::testing {
namespace {

constexpr std::uint64_t kClasses = 10;

// The payload of an IDX file behind its header of `header_bytes`.
std::optional<std::vector<std::byte>> Unzipped(const std::string& name,
                                               const std::filesystem::path& folder,
                                               std::size_t header_bytes) {
  const std::filesystem::path packed = "/usr/share/datasets/fashion-mnist/" + name + ".gz";
  const std::filesystem::path plain = folder / name;
  if (!std::filesystem::exists(packed)) return std::nullopt;
  const std::string command =
      fmt::format("gzip -dc '{}' > '{}'", packed.string(), plain.string());
  if (std::system(command.c_str()) != 0) return std::nullopt;
  std::ifstream file(plain, std::ios::binary);
  std::vector<std::byte> bytes(static_cast<std::size_t>(std::filesystem::file_size(plain)));
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!file || bytes.size() < header_bytes) return std::nullopt;
  bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(header_bytes));
  return bytes;
}

}  // namespace

SampleSet MakeBars(std::uint64_t count, std::uint64_t seed) {
  SampleSet set;
  set.images.resize(count * kImageBytes);
  set.labels.resize(count);
  std::uint64_t state = seed;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t label = NextWord64(state) % kClasses;
    set.labels[i] = static_cast<std::byte>(label);
    const std::span image = std::span(set.images).subspan(i * kImageBytes, kImageBytes);
    for (std::byte& pixel : image) pixel = static_cast<std::byte>(NextWord64(state) % 128);
    // Two rows of 28 pixels, two rows further down per class.
    std::ranges::fill(image.subspan((4 + 2 * label) * 28, 2 * 28), std::byte{255});
  }
  return set;
}

std::optional<SampleSet> LoadFashionMnist(bool test_part, const std::filesystem::path& folder) {
  const std::string part = test_part ? "t10k" : "train";
  auto images = Unzipped(part + "-images-idx3-ubyte", folder, 16);
  auto labels = Unzipped(part + "-labels-idx1-ubyte", folder, 8);
  if (!images || !labels || images->size() != labels->size() * kImageBytes) return std::nullopt;
  return SampleSet{*std::move(images), *std::move(labels)};
}

}  // namespace forebay::train::testing

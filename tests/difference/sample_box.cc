#include "tests/difference/sample_box.h"

namespace forebay::compress {

std::vector<std::byte> CutBox(const ChunkShape& shape, const ChunkRange& range,
                              std::span<const std::byte> samples) {
  std::vector<std::byte> cut;
  const std::size_t element = shape.element_bytes();
  for (std::uint32_t s = 0; s < range.sample_count; ++s) {
    for (std::uint32_t a = 0; a < range.extent[0]; ++a) {
      for (std::uint32_t b = 0; b < range.extent[1]; ++b) {
        for (std::uint32_t c = 0; c < range.extent[2]; ++c) {
          std::size_t at = s;
          at = at * shape.extent[0] + range.origin[0] + a;
          at = at * shape.extent[1] + range.origin[1] + b;
          at = at * shape.extent[2] + range.origin[2] + c;
          at = at * shape.extent[3] + range.origin[3];
          const auto row = samples.subspan(at * element, range.extent[3] * element);
          cut.insert(cut.end(), row.begin(), row.end());
        }
      }
    }
  }
  return cut;
}

}  // namespace forebay::compress

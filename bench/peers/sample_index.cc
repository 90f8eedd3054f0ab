// Reads the two files that make_dataset and write_order leave beside a data set, so that a peer
// without a catalog knows where sample i lies and which samples come when. Both are read before any
// timing.
#include "bench/peers/sample_index.h"

#include <fstream>
#include <iterator>
#include <sstream>

namespace forebay::bench {

Result<SampleIndex> SampleIndex::Load(const std::string& path) {
  std::ifstream file(path);
  if (!file) return Error(ErrorCode::kNotFound, "no sample index at " + path);
  SampleIndex index;
  std::size_t line_number = 0;
  for (std::string line; std::getline(file, line);) {
    ++line_number;
    const std::size_t tab = line.find('\t');
    std::istringstream numbers(tab == std::string::npos ? "" : line.substr(tab + 1));
    Place place;
    if (!(numbers >> place.offset >> place.bytes)) {
      return Error(ErrorCode::kInvalidArgument,
                   path + ": line " + std::to_string(line_number) + " is not a sample");
    }
    const std::string object = line.substr(0, tab);
    // Samples of one object stand next to each other, so a comparison with the last path is enough
    // to list each object once.
    if (index.objects.empty() || index.objects.back() != object) index.objects.push_back(object);
    place.object = static_cast<std::uint32_t>(index.objects.size() - 1);
    index.samples.push_back(place);
  }
  return index;
}

Result<std::vector<std::uint64_t>> LoadOrder(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return Error(ErrorCode::kNotFound, "no order file at " + path);
  const auto bytes = static_cast<std::size_t>(file.tellg());
  // A rest of fewer than 8 bytes is left out; the callers compare the length with what they need.
  std::vector<std::uint64_t> order(bytes / sizeof(std::uint64_t));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(order.data()),
            static_cast<std::streamsize>(order.size() * sizeof(std::uint64_t)));
  if (!file) return Error(ErrorCode::kDataLoss, path + ": cannot be read");
  return order;
}

}  // namespace forebay::bench

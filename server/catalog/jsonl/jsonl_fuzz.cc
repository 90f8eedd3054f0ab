// Fuzz target: JSON lines. The samples of a catalog, however the file was fed, are the lines that
// a simple reader of the whole file finds; both refuse the same files.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/catalog/testing/scan_builder.h"
#include "server/io/testing/memory_backend.h"

namespace forebay::catalog {
namespace {

constexpr std::string_view kSpace = " \t\n\v\f\r";

// Key and text of every sample, as the README of this folder defines them; none if the file is
// refused. Written to be easy to check, not to be fast.
std::optional<std::string> ReadSimply(std::string_view text, std::size_t line_bytes_max) {
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF") ||
      text.starts_with(std::string_view("\0\0\xFE\xFF", 4))) {
    return std::nullopt;
  }
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  std::string samples;
  for (std::uint64_t number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? "" : text.substr(end + 1);
    if (line.find_first_not_of(kSpace) == std::string_view::npos) continue;
    if (end != std::string_view::npos && line.ends_with('\r')) line.remove_suffix(1);
    if (line.size() > line_bytes_max) return std::nullopt;
    samples += "a.jsonl:" + std::to_string(number) + "=" + std::string(line) + "\n";
  }
  if (samples.empty()) return std::nullopt;  // a data set has samples
  return samples;
}

// Reads the samples through a catalog that a scan made of the file, which it is fed in
// pieces of `feed_bytes`.
std::optional<std::string> ReadByCatalog(std::span<const std::byte> bytes,
                                         std::size_t extent_bytes, std::size_t feed_bytes) {
  io::MemoryBackend backend;
  if (!backend.AddFile("/data/a.jsonl", {bytes.begin(), bytes.end()}).has_value()) {
    __builtin_trap();
  }
  const auto root = backend.OpenDirectory("/data");
  DatasetSource source;
  source.name = "fuzz";
  source.format = Format::kJsonLines;
  source.extent_bytes = extent_bytes;
  const auto builder = CreateScanBuilder(**root, source);
  if (!builder.has_value()) __builtin_trap();
  std::vector<CutExtent> cut;
  // Errors are not compared, only whether there is one: the simple reader has no messages.
  for (std::size_t at = 0; at < bytes.size(); at += feed_bytes) {
    const std::size_t count = std::min(feed_bytes, bytes.size() - at);
    if (!(*builder)->Feed(bytes.subspan(at, count), cut).has_value()) return std::nullopt;
    if (at + count - std::min<std::uint64_t>(at + count, (*builder)->NeededFrom()) >
        2 * extent_bytes + feed_bytes) {
      __builtin_trap();  // keeps more than the interface says
    }
  }
  if (!(*builder)->EndObject(cut).has_value()) return std::nullopt;
  const auto catalog = (*builder)->Finish();
  if (!catalog.has_value()) return std::nullopt;
  std::string samples;
  std::uint64_t sample = 0;
  for (const CutExtent& extent : cut) {
    // No extent may exceed its size: the stager reserves memory by it.
    if (extent.info.bytes > extent_bytes) __builtin_trap();
    for (const Range& piece : extent.pieces) {
      const auto line = bytes.subspan(extent.info.object_offset + piece.offset, piece.length);
      samples += (*catalog)->SampleKey(SampleId(sample++)).value() + "=" +
                 std::string(reinterpret_cast<const char*>(line.data()), line.size()) + "\n";
    }
  }
  if (sample != (*catalog)->sample_count()) __builtin_trap();
  return samples;
}

}  // namespace
}  // namespace forebay::catalog

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace forebay::catalog;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto bytes = std::as_bytes(std::span(data, size));
  // 5 bytes make nearly every line an extent of its own, or too long; 4096 hold most inputs as a
  // whole. Pieces of 3 bytes cut byte order marks and line ends in two.
  for (const std::size_t extent_bytes : {5U, 4096U}) {
    const std::optional<std::string> expected = ReadSimply(text, extent_bytes);
    if (ReadByCatalog(bytes, extent_bytes, size + 1) != expected) __builtin_trap();
    if (ReadByCatalog(bytes, extent_bytes, 3) != expected) __builtin_trap();
  }
  return 0;
}

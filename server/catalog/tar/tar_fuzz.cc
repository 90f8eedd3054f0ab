// Fuzz target: the tar scanner, fed whole and in pieces; both must see the same members or give
// the same error, and no member may lie outside the archive.
#include <algorithm>
#include <cstdint>
#include <string>

#include "server/catalog/tar/tar_scanner.h"

namespace forebay::catalog {
namespace {

// Corrects the header checksums, so that the fuzzer reaches the code behind them.
void SealBlocks(std::string& archive) {
  // Blocks that look like headers are corrected wherever they lie; one within data does no harm.
  for (std::size_t at = 0; at + 512 <= archive.size(); at += 512) {
    if (archive.compare(at + 257, 5, "ustar") != 0) continue;
    archive.replace(at + 148, 8, "        ");
    unsigned sum = 0;
    for (std::size_t i = 0; i < 512; ++i) sum += static_cast<unsigned char>(archive[at + i]);
    for (std::size_t i = 6; i-- > 0; sum >>= 3) {
      archive[at + 148 + i] = static_cast<char>('0' + (sum & 7));
    }
    archive[at + 154] = '\0';
  }
}

std::string Scan(const std::string& archive, std::size_t feed_bytes) {
  std::string seen;
  // Offsets and paths of all members, and the error, are collected as one text, so that two scans
  // can be compared as a whole.
  TarScanner scanner({.path = "a.tar", .bytes = archive.size()},
                     [&](const TarMember& member) -> Status {
    if (member.data_offset > archive.size() ||
        member.bytes > archive.size() - member.data_offset ||
        member.start_offset > member.header_offset ||
        member.header_offset >= member.data_offset) {
      __builtin_trap();
    }
    seen += member.path + "@" + std::to_string(member.data_offset) + ";";
    const auto split = SplitMemberPath(member.path);
    if (split.has_value() && (split->key.empty() || split->field.empty())) __builtin_trap();
    return {};
  });
  const auto bytes = std::as_bytes(std::span(archive.data(), archive.size()));
  for (std::size_t at = 0; at < bytes.size(); at += feed_bytes) {
    const Status fed = scanner.Feed(bytes.subspan(at, std::min(feed_bytes, bytes.size() - at)));
    if (!fed.has_value()) return seen + fed.error().ToString();
  }
  const Status ended = scanner.End();
  return ended.has_value() ? seen : seen + ended.error().ToString();
}

}  // namespace
}  // namespace forebay::catalog

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace forebay::catalog;
  std::string archive(reinterpret_cast<const char*>(data), size);
  SealBlocks(archive);
  // 37 divides neither 512 nor a header's fields, so pieces end everywhere in a block.
  if (Scan(archive, archive.size() + 1) != Scan(archive, 37)) __builtin_trap();
  return 0;
}

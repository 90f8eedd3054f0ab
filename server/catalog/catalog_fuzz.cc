// Fuzz target: a catalog image. Its checksums are corrected first, so that the fuzzer reaches the
// tables behind them. An image that opens must answer every look-up within bounds. An image with
// the magic number of packs stays an image of packs.
#include <algorithm>
#include <cstring>

#include "proto/contract/checksum.h"
#include "server/catalog/catalog.h"
#include "server/catalog/storage/catalog_format.h"
#include "server/catalog/testing/pack_image_probe.h"

namespace forebay::catalog {
namespace {

// The key page at the start of `bytes`, whose end its own lengths tell; empty if it runs past them.
std::span<const std::byte> KeyPageOf(std::span<const std::byte> bytes, std::uint32_t keys) {
  std::size_t at = ((keys - 1) / kKeysPerIndexEntry + 1) * sizeof(std::uint32_t);
  for (std::uint32_t i = 0; i < keys; ++i) {
    if (at > bytes.size() || bytes.size() - at < sizeof(std::uint16_t)) return {};
    at += sizeof(std::uint16_t) + LoadAt<std::uint16_t>(bytes, at);
  }
  return bytes.first(at <= bytes.size() ? at : 0);
}

// Corrects the checksums of header and tables, and the page hashes in the extent rows.
void Seal(std::vector<std::byte>& image) {
  // Nothing to correct: FromBytes refuses it by its size.
  if (image.size() < kHeaderBytes) return;
  auto header = LoadAt<HeaderRow>(image, 0);
  header.magic = kCatalogMagic;
  header.version = kCatalogVersion;
  header.image_bytes = image.size();
  const std::span<std::byte> bytes(image);
  // The image is arbitrary here, so every offset is compared before it is used, as in the checker
  // under test.
  const auto in_bounds = [&](const SectionRow& row) {
    return row.offset <= image.size() && row.bytes <= image.size() - row.offset;
  };
  const SectionRow& extents = header.sections[static_cast<std::size_t>(SectionKind::kExtents)];
  const SectionRow& pages = header.sections[static_cast<std::size_t>(SectionKind::kPages)];
  // The first part decides for all extents that have pages (ImageChecker).
  const SectionRow& parts = header.sections[static_cast<std::size_t>(SectionKind::kParts)];
  if (!in_bounds(parts) || parts.bytes < sizeof(PartRow)) return;
  const std::uint64_t entry_bytes = LoadAt<PartRow>(bytes, parts.offset).entry_bytes;
  for (std::uint64_t at = 0; in_bounds(extents) && in_bounds(pages) &&
                             extents.bytes - at >= sizeof(ExtentRow) && at < extents.bytes;
       at += sizeof(ExtentRow)) {
    auto row = LoadAt<ExtentRow>(bytes, extents.offset + at);
    // Both factors have 32 bits, so the product does not overflow.
    const std::uint64_t want = row.starting_count * entry_bytes;
    if (row.starting_count > 0 && row.page_offset <= pages.bytes &&
        want <= pages.bytes - row.page_offset) {
      const auto page = bytes.subspan(pages.offset, pages.bytes).subspan(row.page_offset);
      row.entries_hash = Checksum(page.first(want));
      // A page without keys has no hash of them, and keeps its 0.
      const auto keys = KeyPageOf(page.subspan(want), row.starting_count);
      if (row.keys_hash != 0) row.keys_hash = Checksum(keys);
      std::memcpy(&image[extents.offset + at], &row, sizeof row);
    }
  }
  // After the rows, because the hash of the extent table covers the page hashes in it.
  for (std::size_t i = 0; i < kSectionCount; ++i) {
    SectionRow& section = header.sections[i];
    const bool is_hashed = i != static_cast<std::size_t>(SectionKind::kPages);
    section.hash = is_hashed && in_bounds(section)
                       ? Checksum(bytes.subspan(section.offset, section.bytes))
                       : 0;
  }
  header.fingerprint = FingerprintOf(header);
  header.hash = Checksum(RowBytes(header).first(kHeaderBytes - sizeof(header.hash)));
  std::memcpy(image.data(), &header, sizeof header);
}

void Visit(const Catalog& catalog) {
  const SampleTable* const table = catalog.samples();
  if ((table == nullptr) == (catalog.packs() == nullptr)) __builtin_trap();
  // The first and the last samples: errors of bounds are at the ends, and a forged count must not
  // cost time.
  constexpr std::uint64_t kVisitsMax = 64;
  std::vector<FieldLocation> locations(catalog.fields().size());
  for (std::uint64_t s = 0; s < std::min(kVisitsMax, catalog.sample_count()); ++s) {
    for (const std::uint64_t sample : {s, catalog.sample_count() - 1 - s}) {
      (void)catalog.SampleKey(SampleId(sample)).has_value();
      if (table == nullptr) continue;
      (void)table->SampleRange(SampleId(sample), 0).has_value();
      if (!table->Locate(SampleId(sample), locations).has_value()) continue;
      // A location may run past its extent, into the next ones of a chain, but it must begin in one
      // that exists.
      for (const FieldLocation& location : locations) {
        if (location.range.extent.value() >= catalog.extent_count()) __builtin_trap();
      }
    }
  }
  std::vector<Range> pieces;
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(kVisitsMax, catalog.extent_count());
       ++i) {
    const ExtentId extent(static_cast<std::uint32_t>(i));
    pieces.clear();
    if (!catalog.Pieces(extent, pieces).has_value()) continue;
    for (const Range& piece : pieces) {
      if (piece.offset > catalog.extent(extent).bytes ||
          piece.length > catalog.extent(extent).bytes - piece.offset) {
        __builtin_trap();
      }
    }
  }
}

}  // namespace
}  // namespace forebay::catalog

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace forebay::catalog;
  const auto raw = std::as_bytes(std::span(data, size));
  std::vector<std::byte> image(raw.begin(), raw.end());
  // The two kinds of image have seeds of their own, and each is corrected in its own way.
  const bool is_packs = image.size() >= sizeof(std::uint64_t) &&
                        LoadAt<std::uint64_t>(image, 0) == kPackCatalogMagic;
  if (is_packs) {
    SealPackImage(image);
    const auto packs = Catalog::FromBytes(std::move(image));
    if (packs.has_value() && !AnswersWithinBounds(**packs)) __builtin_trap();
    return 0;
  }
  Seal(image);
  const auto catalog = Catalog::FromBytes(std::move(image));
  if (catalog.has_value()) Visit(**catalog);
  return 0;
}

#include "server/stage/cataloguing/saved_catalog.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "proto/contract/byte_cursor.h"
#include "proto/contract/checksum.h"
#include "server/catalog/format_driver.h"

namespace forebay::stage {

namespace {

// The keys of the first version, which every name covers, before and after the size of extents.
constexpr std::array<std::string_view, 3> kFirstKeys = {"dtype", "shape", "header"};
constexpr std::array<std::string_view, 2> kSecondKeys = {"files", "suffixes"};

}  // namespace

std::string SavedCatalogName(const catalog::DatasetSource& source) {
  ByteWriter writer;
  writer.Le<std::uint8_t>(source.format ? static_cast<std::uint8_t>(*source.format) : 0);
  for (const std::string_view key : kFirstKeys) catalog::IdentifySetting(key, source, writer);
  writer.Varint(source.extent_bytes);
  for (const std::string_view key : kSecondKeys) catalog::IdentifySetting(key, source, writer);
  // A key that came later counts only if it is set, so that the other names stay what they were.
  for (const std::string_view key : catalog::FormatKeyNames()) {
    const bool came_later = std::ranges::find(kFirstKeys, key) == kFirstKeys.end() &&
                            std::ranges::find(kSecondKeys, key) == kSecondKeys.end();
    if (came_later) catalog::IdentifySetting(key, source, writer);
  }
  return fmt::format("{}-{:016x}.catalog", source.name, Checksum(writer.bytes()));
}

Result<std::shared_ptr<const catalog::Catalog>> LoadSavedCatalog(
    const std::string& directory_path, const catalog::DatasetSource& source) {
  if (directory_path.empty()) {
    return Error(ErrorCode::kNotFound, "catalogs are not saved");
  }
  return catalog::Catalog::Map(directory_path + "/" + SavedCatalogName(source));
}

}  // namespace forebay::stage

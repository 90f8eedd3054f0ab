// The name must stay the same from version to version, or every catalog would be built again after
// an update. So the order in which keys enter the hash is fixed, and keys of formats that came
// later enter only if they are set.
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

// The keys of the first version. They enter every name, these before and those after the extent
// size.
constexpr std::array<std::string_view, 3> kFirstKeys = {"dtype", "shape", "header"};
constexpr std::array<std::string_view, 2> kSecondKeys = {"files", "suffixes"};

}  // namespace

std::string SavedCatalogName(const catalog::DatasetSource& source) {
  ByteWriter writer;
  writer.Le<std::uint8_t>(source.format ? static_cast<std::uint8_t>(*source.format) : 0);
  for (const std::string_view key : kFirstKeys) catalog::IdentifySetting(key, source, writer);
  writer.Varint(source.extent_bytes);
  for (const std::string_view key : kSecondKeys) catalog::IdentifySetting(key, source, writer);
  // Later keys: IdentifySetting writes nothing for one that is not set, so older names stay valid.
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
  return catalog::Catalog::Load(directory_path + "/" + SavedCatalogName(source));
}

}  // namespace forebay::stage

// The name must stay the same from version to version, or every catalog would be built again after
// an update. So the order in which keys enter the hash is fixed, and keys of formats that came
// later enter only if they are set. VerifyShare walks through objects and extents side by side:
// where extents consist of whole objects, both are in the order of the objects' numbers.
#include "server/stage/cataloguing/saved_catalog.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
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

// Objects that are looked at together. Enough for StatMany to keep all its threads busy, and few
// enough for staging to begin soon.
constexpr std::size_t kObjectsAtOnce = 2'048;

ObjectId LastObject(const catalog::ExtentInfo& extent) {
  return ObjectId(extent.first_object.value() + extent.object_count - 1);
}

// The objects to look at, in ascending order: those with an extent of `ours`, and those without any
// extent, which no node owns.
std::vector<ObjectId> ObjectsOf(const catalog::Catalog& catalog, const std::vector<bool>& ours) {
  std::vector<bool> is_left_out(catalog.object_count(), false);
  for (const bool is_ours : {false, true}) {
    for (std::uint32_t i = 0; i < catalog.extent_count(); ++i) {
      if (ours[i] != is_ours) continue;
      const catalog::ExtentInfo extent = catalog.extent(ExtentId(i));
      const std::uint32_t end = LastObject(extent).value() + 1;
      for (std::uint32_t object = extent.first_object.value(); object < end; ++object) {
        is_left_out[object] = !is_ours;
      }
    }
  }
  std::vector<ObjectId> objects;
  for (std::uint32_t i = 0; i < is_left_out.size(); ++i) {
    if (!is_left_out[i]) objects.emplace_back(i);
  }
  return objects;
}

// The objects of an extent that consists of whole objects, each of which is the piece of one
// sample. Empty for any other extent.
std::vector<catalog::ObjectInfo> WholeObjects(const catalog::Catalog& catalog,
                                              const catalog::ExtentInfo& extent) {
  if (extent.object_offset != 0 || extent.sample_count != extent.object_count) return {};
  std::vector<catalog::ObjectInfo> objects;
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < extent.object_count; ++i) {
    objects.push_back(catalog.object(ObjectId(extent.first_object.value() + i)));
    bytes += objects.back().bytes;
  }
  if (bytes != extent.bytes) objects.clear();
  return objects;
}

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

Status VerifyShare(Dataset& dataset, const catalog::Catalog& catalog, const std::vector<bool>& ours,
                   const catalog::RunSink& verified) {
  const std::vector<ObjectId> objects = ObjectsOf(catalog, ours);
  // Extents of scanned formats and of packs begin within objects, so they wait for the catalog.
  const bool may_hold_whole_objects =
      catalog::BuildsFromMetadata(catalog.format()) && catalog.samples() != nullptr;
  std::uint32_t extent = may_hold_whole_objects ? 0 : catalog.extent_count();
  for (std::size_t begin = 0; begin < objects.size(); begin += kObjectsAtOnce) {
    const auto batch = std::span(objects).subspan(
        begin, std::min(kObjectsAtOnce, objects.size() - begin));
    dataset.CountGfs(0, 0, 0, batch.size());
    FOREBAY_TRY(catalog::VerifyObjects(catalog, batch, dataset.root()));
    for (; extent < catalog.extent_count(); ++extent) {
      const catalog::ExtentInfo info = catalog.extent(ExtentId(extent));
      if (LastObject(info) > batch.back()) break;
      if (!ours[extent]) continue;
      const std::vector<catalog::ObjectInfo> whole = WholeObjects(catalog, info);
      if (!whole.empty()) verified(ExtentId(extent), info, whole);
    }
  }
  return {};
}

}  // namespace forebay::stage

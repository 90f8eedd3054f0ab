#include "server/stage/saved_catalog.h"

#include <fmt/format.h>

#include "proto/contract/byte_cursor.h"
#include "proto/contract/checksum.h"

namespace forebay::stage {

std::string SavedCatalogName(const catalog::DatasetSource& source) {
  ByteWriter writer;
  writer.Le<std::uint8_t>(source.format ? static_cast<std::uint8_t>(*source.format) : 0);
  writer.Le<std::uint8_t>(static_cast<std::uint8_t>(source.raw_dtype));
  writer.Varint(source.raw_shape.size());
  for (const std::uint64_t dimension : source.raw_shape) writer.Varint(dimension);
  writer.Varint(source.raw_header_bytes);
  writer.Varint(source.extent_bytes);
  writer.Varint(source.files.size());
  for (const catalog::FieldFile& file : source.files) {
    writer.String(file.field);
    writer.String(file.path);
  }
  writer.Varint(source.suffixes.size());
  for (const std::string& suffix : source.suffixes) writer.String(suffix);
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

// FormatDriver: all that Forebay knows of one data-set format. Every format is a folder of this
// room that defines one driver per format name; format.h lists them. Nothing else in the product
// names a format.
//
// To add a format: write its folder with a driver, add its line to format.h and its folder to
// CMakeLists.txt, describe it in docs/catalog.md. Configuration, detection, cataloguing, staging
// and documentation of keys follow from the driver. Example, of a format that needs no key:
//
//   constinit const FormatDriver kLogDriver = {
//       .format = Format::kLog,
//       .name = "log",
//       .signs = "*.log",
//       .detect = [](std::span<const io::DirectoryEntry> top) -> Result<bool> {
//         FOREBAY_ASSIGN(const auto names, FilesNamedLike(top, IsLogName));
//         return !names.empty();
//       },
//       .build = BuildLogs};
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/contract/result.h"
#include "server/catalog/catalog.h"
#include "server/catalog/dataset_source.h"
#include "server/catalog/format.h"
#include "server/catalog/scan_builder.h"
#include "server/catalog/setting_value.h"
#include "server/catalog/storage/image_bytes.h"

namespace forebay::catalog {

// The arguments of FormatDriver::build. All are borrowed for the call.
struct BuildContext {
  io::IoBackend& backend;
  io::Directory& root;
  const DatasetSource& source;
  const std::function<void(std::uint64_t)>& progress;  // may be empty: objects seen so far
  const RunSink& runs;                                 // may be empty
  const BuildScratch& scratch;
};

// The arguments of FormatDriver::scan. All are borrowed: `root` for the life of the builder, the
// others for the call.
struct ScanContext {
  io::Directory& root;
  const DatasetSource& source;
  const BuildScratch& scratch;
};

// A key of a [[dataset]] table that a format has. Two formats may have a key of one name.
struct FormatKey {
  std::string_view name;
  // The value of a key that is not set, as documentation and messages show it. Where this is a
  // value ("u8"), setting it is the same as not setting the key.
  std::string_view default_text;
  std::string_view help;  // without the names of the formats that have the key
  // Refuses a value that the key cannot have. Errors say what is wrong; the caller adds the key.
  Status (*check)(const SettingValue& value) = nullptr;
  // Appends what tells two settings apart; `value` is null if the key is not set. Saved catalogs
  // are found by it, so what it appends never changes. New keys leave it null: then the name and
  // the value are appended, if the key is set.
  void (*identify)(const SettingValue* value, ByteWriter& writer) = nullptr;
};

// Exactly one of `build` and `scan` is set.
struct FormatDriver {
  Format format;
  std::string_view name;  // in configuration and messages
  // By which files the format is detected, for the error that no format fits: "*.tar". Empty if it
  // is never detected.
  std::string_view signs = {};
  std::span<const FormatKey> keys = {};
  // Called after each key was checked. Refuses a source in which a key is missing, or two keys
  // contradict each other (KeyError).
  Status (*check)(const DatasetSource& source) = nullptr;
  // True where the entries at the top of a root look like this format. Null: never guessed.
  Result<bool> (*detect)(std::span<const io::DirectoryEntry> top) = nullptr;

  // The catalog follows from names, sizes and headers; no sample byte is read. Opens only objects
  // whose header must be read. Errors name object, offset and reason. Memory: the listing of one
  // directory, and what the scratch says.
  Result<std::shared_ptr<const Catalog>> (*build)(const BuildContext& context) = nullptr;

  // The catalog is made by a pass over the bytes.
  Result<std::unique_ptr<ScanBuilder>> (*scan)(const ScanContext& context) = nullptr;
  // The bytes of an object that a sample takes at least, on average. Greater than 0 if `scan` is
  // set. Bounds the number of checksums for which memory is planned before the pass.
  std::uint64_t scanned_sample_bytes = 0;

  // For a format whose catalogs have an image of their own: whether an image is one, and a catalog
  // made of it. Null: the image that `storage` reads.
  bool (*is_own_image)(std::span<const std::byte> image) = nullptr;
  Result<std::shared_ptr<const Catalog>> (*open_image)(ImageBytes bytes) = nullptr;
};

// The folders of the formats define these.
#define FOREBAY_DRIVER(number, enumerator, driver) extern const FormatDriver driver;
FOREBAY_CATALOG_FORMATS(FOREBAY_DRIVER)
#undef FOREBAY_DRIVER

// In the order of format.h.
std::span<const FormatDriver* const> FormatDrivers();
// Null where no format has this number, or this name.
const FormatDriver* FindDriver(Format format);
const FormatDriver* FindDriver(std::string_view name);

// The name of every key of any format, once each.
std::vector<std::string_view> FormatKeyNames();
// The key of `format`; where that has none of this name, or is not set, the key of the first format
// that has one. Null where no format has it.
const FormatKey* FindFormatKey(std::string_view name, std::optional<Format> format);
// The help of a key, each of its meanings after the names of the formats that have it.
std::string FormatKeyHelp(std::string_view name);
// The setting of a key that some format has, as messages show it, for comparing configurations.
std::string ShownSetting(std::string_view name, const DatasetSource& source);
// Appends what tells two settings of the key apart (FormatKey::identify).
void IdentifySetting(std::string_view name, const DatasetSource& source, ByteWriter& writer);

// --- what drivers share ----------------------------------------------------------------------

// The files among the entries at the top of a root whose names `is_named_like` accepts, sorted by
// bytes. Hidden names and directories are passed over; another kind of entry is NotAFile.
Result<std::vector<std::string>> FilesNamedLike(std::span<const io::DirectoryEntry> top,
                                                bool (*is_named_like)(std::string_view name));
// The error for an object that is no regular file.
Error NotAFile(std::string_view path);

// Size and time of the objects of a pass.
Result<std::vector<ScanBuilder::PlannedObject>> PlanObjects(io::Directory& root,
                                                            std::span<const std::string> paths);

// FormatKey::check for a key that the driver parses by `kParse`, which returns a Result.
template <auto kParse>
Status CheckBy(const SettingValue& value) {
  const auto parsed = kParse(value);
  return parsed.has_value() ? Status() : Status(parsed.error());
}

// The setting of `key`, parsed by `kParse`, or `unset`. Errors name the key.
template <auto kParse, typename T>
Result<T> SettingOf(const DatasetSource& source, std::string_view key, T unset) {
  const SettingValue* value = source.settings.Find(key);
  if (value == nullptr) return unset;
  Result<T> parsed = kParse(*value);
  if (!parsed.has_value()) return KeyError(key, parsed.error().message());
  return parsed;
}

// The key `files` as a list of paths, for formats whose files supply the same fields.
Result<std::vector<std::string>> ParsePaths(const SettingValue& value);
void IdentifyPaths(const SettingValue* value, ByteWriter& writer);

}  // namespace forebay::catalog

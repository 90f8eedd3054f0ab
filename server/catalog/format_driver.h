// FormatDriver: all that Forebay knows about one data-set format. Every format is a folder of this
// room that defines one driver per format name; format.h lists them. Nothing else in the product
// names a format.
//
// To add a format: write its folder with a driver, add its line to format.h and its folder to
// CMakeLists.txt, and describe it in docs/catalog.md. Configuration, detection, cataloguing,
// staging and the help of keys follow from the driver. Example of a format without keys:
//
//   constinit const FormatDriver kLogDriver = {
//       .format = Format::kLog,
//       .name = "log",
//       .detected_by = "*.log",
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
#include "server/catalog/object_stats.h"
#include "server/catalog/scan_plan.h"
#include "server/catalog/setting_value.h"
#include "server/catalog/storage/image_bytes.h"

namespace forebay::catalog {

// The arguments of FormatDriver::build. All are borrowed for the call.
struct BuildContext {
  io::IoBackend& backend;
  io::Directory& root;
  const DatasetSource& source;
  ObjectStats& stats;  // sizes and times of objects of which there may be millions
  const std::function<void(std::uint64_t)>& progress;  // called with objects seen; may be empty
  const RunSink& runs;                                 // may be empty
  const BuildScratch& scratch;
};

// The arguments of FormatDriver::scan. All are borrowed for the call.
struct ScanContext {
  io::Directory& root;
  const DatasetSource& source;
  const BuildScratch& scratch;
};

// A key of a [[dataset]] table that a format reads. Two formats may have keys of the same name.
struct FormatKey {
  std::string_view name;
  // The value of a key that is not set, as documentation and messages show it. If this is a value
  // ("u8"), setting the key to it has no effect.
  std::string_view default_text;
  std::string_view help;  // without the names of the formats that have the key
  // Refuses an invalid value. Errors say what is wrong with it; the caller adds the key's name.
  Status (*check)(const SettingValue& value) = nullptr;
  // Appends bytes that differ between two different settings; `value` is null if the key is not
  // set. Saved catalogs are found by these bytes, so they never change. New keys leave this null:
  // then the key's name and value are appended, if the key is set.
  void (*identify)(const SettingValue* value, ByteWriter& writer) = nullptr;
};

// Constants, whose functions several threads may call. Exactly one of `build` and `scan` is set.
struct FormatDriver {
  Format format;
  std::string_view name;  // in configuration and messages
  // The files by which the format is detected ("*.tar"), for the error that no format fits. Empty
  // if the format is never detected.
  std::string_view detected_by = {};
  std::span<const FormatKey> keys = {};
  // Called after each key was checked. Refuses a source in which a required key is missing, or two
  // keys contradict each other. Errors come from KeyError.
  Status (*check)(const DatasetSource& source) = nullptr;
  // True if the entries at the top of a root look like this format. Null: never detected.
  Result<bool> (*detect)(std::span<const io::DirectoryEntry> top) = nullptr;

  // Makes the catalog from names, sizes and headers, and reads no sample byte. Opens only objects
  // whose header must be read. Errors name object, offset and reason. Memory: one directory's
  // listing, and BuildScratch.
  Result<std::shared_ptr<const Catalog>> (*build)(const BuildContext& context) = nullptr;

  // Lists the objects of a data set whose catalog takes a pass over the bytes of each.
  Result<ScanPlan> (*scan)(const ScanContext& context) = nullptr;
  // A lower estimate of the bytes of an object per sample; greater than 0 if `scan` is set. It
  // bounds the number of checksums for which memory is planned before the pass.
  std::uint64_t scanned_sample_bytes = 0;

  // For a format whose catalogs have another image than the one that `storage` reads: tell whether
  // an image belongs to the format, and open it. Null for all other formats.
  bool (*is_own_image)(std::span<const std::byte> image) = nullptr;
  Result<std::shared_ptr<const Catalog>> (*open_image)(ImageBytes bytes) = nullptr;
};

// The folders of the formats define these.
#define FOREBAY_DRIVER(number, enumerator, driver) extern const FormatDriver driver;
FOREBAY_CATALOG_FORMATS(FOREBAY_DRIVER)
#undef FOREBAY_DRIVER

// In the order of format.h.
std::span<const FormatDriver* const> FormatDrivers();
// Null if no format has this number, or this name.
const FormatDriver* FindDriver(Format format);
const FormatDriver* FindDriver(std::string_view name);

// The name of every key of any format, once each.
std::vector<std::string_view> FormatKeyNames();
// Returns the key `name` of `format`. If `format` is unset or has no such key, returns the key of
// the first format that has one. Null if no format has it.
const FormatKey* FindFormatKey(std::string_view name, std::optional<Format> format);
// The help of a key: each of its meanings, after the names of the formats that give it this
// meaning.
std::string FormatKeyHelp(std::string_view name);
// The value of a key, set or default, as messages show it. Used to compare two configurations.
std::string ShownSetting(std::string_view name, const DatasetSource& source);
// Appends bytes that differ between two different settings of the key (FormatKey::identify).
void IdentifySetting(std::string_view name, const DatasetSource& source, ByteWriter& writer);

// --- functions for drivers -------------------------------------------------------------------

// Returns the files at the top of a root whose names `is_named_like` accepts, sorted by bytes.
// Skips hidden names and directories. Error: NotAFile for an accepted name that is no regular file.
Result<std::vector<std::string>> FilesNamedLike(std::span<const io::DirectoryEntry> top,
                                                bool (*is_named_like)(std::string_view name));
// The error for an object that is no regular file.
Error NotAFile(std::string_view path);

// Reads size and modification time of the objects of a pass, in the order of `paths`.
Result<std::vector<PlannedObject>> PlanObjects(io::Directory& root,
                                                            std::span<const std::string> paths);

// A FormatKey::check for a key that the driver parses with `kParse`, which returns a Result.
template <auto kParse>
Status CheckBy(const SettingValue& value) {
  const auto parsed = kParse(value);
  return parsed.has_value() ? Status() : Status(parsed.error());
}

// The value of `key`, parsed by `kParse`, or `unset` if the key is not set. Errors name the key.
template <auto kParse, typename T>
Result<T> SettingOf(const DatasetSource& source, std::string_view key, T unset) {
  const SettingValue* value = source.settings.Find(key);
  if (value == nullptr) return unset;
  Result<T> parsed = kParse(*value);
  if (!parsed.has_value()) return KeyError(key, parsed.error().message());
  return parsed;
}

// Parses the key `files` as a list of paths, for formats in which all files supply the same fields.
Result<std::vector<std::string>> ParsePaths(const SettingValue& value);
void IdentifyPaths(const SettingValue* value, ByteWriter& writer);

}  // namespace forebay::catalog

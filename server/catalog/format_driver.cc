// The registry of formats, made from the list in format.h, and functions that several drivers use.
// The registry is a constant array: there is no registration at run time, so no order of static
// constructors matters, and a driver that is missing fails to link.
#include "server/catalog/format_driver.h"

#include <algorithm>
#include <array>

#include "proto/contract/printable.h"
#include "server/catalog/stat_many.h"

namespace forebay::catalog {

namespace {

constexpr auto kDrivers = std::to_array<const FormatDriver*>({
#define FOREBAY_DRIVER(number, enumerator, driver) &driver,
    FOREBAY_CATALOG_FORMATS(FOREBAY_DRIVER)
#undef FOREBAY_DRIVER
});

// Returns the driver's key `name`; null if it has none.
const FormatKey* KeyOf(const FormatDriver& driver, std::string_view name) {
  const auto key = std::ranges::find(driver.keys, name, &FormatKey::name);
  return key == driver.keys.end() ? nullptr : &*key;
}

}  // namespace

std::span<const FormatDriver* const> FormatDrivers() { return kDrivers; }

const FormatDriver* FindDriver(Format format) {
  // A search and not an index: the list is in the order in which messages name formats, and not in
  // that of their numbers.
  for (const FormatDriver* driver : kDrivers) {
    if (driver->format == format) return driver;
  }
  return nullptr;
}

const FormatDriver* FindDriver(std::string_view name) {
  for (const FormatDriver* driver : kDrivers) {
    if (driver->name == name) return driver;
  }
  return nullptr;
}

std::string_view FormatName(Format format) {
  const FormatDriver* driver = FindDriver(format);
  return driver == nullptr ? "unknown" : driver->name;
}

std::vector<std::string_view> FormatKeyNames() {
  // Linear searches are enough: there are fewer than ten keys.
  std::vector<std::string_view> names;
  for (const FormatDriver* driver : kDrivers) {
    for (const FormatKey& key : driver->keys) {
      // Several formats have the key `files`; configuration knows it once.
      if (std::ranges::find(names, key.name) == names.end()) names.push_back(key.name);
    }
  }
  return names;
}

const FormatKey* FindFormatKey(std::string_view name, std::optional<Format> format) {
  if (format.has_value()) {
    const FormatDriver* driver = FindDriver(*format);
    const FormatKey* key = driver == nullptr ? nullptr : KeyOf(*driver, name);
    if (key != nullptr) return key;
  }
  // Keys are checked before the format is detected. Until then the first format's meaning holds.
  for (const FormatDriver* driver : kDrivers) {
    if (const FormatKey* key = KeyOf(*driver, name)) return key;
  }
  return nullptr;
}

std::string FormatKeyHelp(std::string_view name) {
  // Formats that give the key the same meaning are named together.
  std::vector<std::pair<std::string, std::string_view>> meanings;  // names of formats, help
  for (const FormatDriver* driver : kDrivers) {
    const FormatKey* key = KeyOf(*driver, name);
    if (key == nullptr) continue;
    const auto same = std::ranges::find(meanings, key->help,
                                        [](const auto& meaning) { return meaning.second; });
    if (same == meanings.end()) {
      meanings.emplace_back(driver->name, key->help);
    } else {
      same->first += ", " + std::string(driver->name);
    }
  }
  std::string text;
  // The order is that of format.h.
  for (const auto& [formats, help] : meanings) {
    text += (text.empty() ? "" : "; ") + formats + ": " + std::string(help);
  }
  return text + ".";
}

std::string ShownSetting(std::string_view name, const DatasetSource& source) {
  const SettingValue* value = source.settings.Find(name);
  if (value != nullptr) return value->Shown();
  const FormatKey* key = FindFormatKey(name, source.format);
  return key == nullptr ? "" : std::string(key->default_text);
}

void IdentifySetting(std::string_view name, const DatasetSource& source, ByteWriter& writer) {
  const SettingValue* value = source.settings.Find(name);
  const FormatKey* key = FindFormatKey(name, source.format);
  // A driver whose key has several spellings of one value writes the parsed value instead of the
  // text.
  if (key != nullptr && key->identify != nullptr) return key->identify(value, writer);
  // A key that is not set appends nothing. So a key that a later version adds leaves the identity
  // of existing data sets as it is, and their saved catalogs are still found.
  if (value == nullptr) return;
  writer.String(name);
  value->AppendTo(writer);
}

Result<std::vector<std::string>> FilesNamedLike(std::span<const io::DirectoryEntry> top,
                                                bool (*is_named_like)(std::string_view name)) {
  std::vector<std::string> names;
  for (const io::DirectoryEntry& entry : top) {
    // A directory is skipped even if its name fits: it holds samples of another format at most. A
    // link that dangles is an error, because a data set that lacks a file would deliver fewer
    // samples without an error.
    if (entry.name.starts_with('.') || entry.is_directory || !is_named_like(entry.name)) continue;
    if (!entry.is_regular) return NotAFile(entry.name);
    names.push_back(entry.name);
  }
  // The order of the files decides the numbers of samples, so it must not depend on the file
  // system.
  std::sort(names.begin(), names.end());
  return names;
}

Error NotAFile(std::string_view path) {
  return Error(ErrorCode::kFailedPrecondition,
               Quoted(path) + " is not a file beneath the data set's root "
                              "(a dangling link?)");
}

Result<std::vector<PlannedObject>> PlanObjects(io::Directory& root,
                                                            std::span<const std::string> paths) {
  // The sizes are needed before the pass: they bound what a parser may believe a header says.
  const std::vector<Result<io::FileInfo>> infos = StatMany(root, paths);
  std::vector<PlannedObject> objects;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    FOREBAY_TRY(infos[i]);
    if (!infos[i]->is_regular) return NotAFile(paths[i]);
    objects.push_back(
        {.path = paths[i], .bytes = infos[i]->bytes, .mtime_ns = infos[i]->mtime_ns});
  }
  return objects;
}

Result<std::vector<std::string>> ParsePaths(const SettingValue& value) {
  FOREBAY_ASSIGN(std::vector<std::string> paths, value.Texts());
  if (std::ranges::none_of(paths, &std::string::empty)) return paths;
  return Error(ErrorCode::kInvalidArgument, "a path is expected");
}

// Appends the paths in the form of formats whose files have field names, with empty field names.
// Saved catalogs are found by these bytes, so the form must not change.
void IdentifyPaths(const SettingValue* value, ByteWriter& writer) {
  std::vector<std::string> paths;
  if (value != nullptr) paths = value->Texts().value_or(paths);
  writer.Varint(paths.size());
  for (const std::string& path : paths) {
    writer.String("");
    writer.String(path);
  }
}

}  // namespace forebay::catalog

// The registry of formats, made from the list in format.h, and functions that several drivers use.
#include "server/catalog/format_driver.h"

#include <algorithm>
#include <array>

#include "server/catalog/input_error.h"
#include "server/catalog/stat_many.h"

namespace forebay::catalog {

namespace {

constexpr auto kDrivers = std::to_array<const FormatDriver*>({
#define FOREBAY_DRIVER(number, enumerator, driver) &driver,
    FOREBAY_CATALOG_FORMATS(FOREBAY_DRIVER)
#undef FOREBAY_DRIVER
});

const FormatKey* KeyOf(const FormatDriver& driver, std::string_view name) {
  const auto key = std::ranges::find(driver.keys, name, &FormatKey::name);
  return key == driver.keys.end() ? nullptr : &*key;
}

}  // namespace

std::span<const FormatDriver* const> FormatDrivers() { return kDrivers; }

const FormatDriver* FindDriver(Format format) {
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
  std::vector<std::string_view> names;
  for (const FormatDriver* driver : kDrivers) {
    for (const FormatKey& key : driver->keys) {
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
  for (const FormatDriver* driver : kDrivers) {
    if (const FormatKey* key = KeyOf(*driver, name)) return key;
  }
  return nullptr;
}

std::string FormatKeyHelp(std::string_view name) {
  // Formats that say the same of the key are named together.
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
  if (key != nullptr && key->identify != nullptr) return key->identify(value, writer);
  if (value == nullptr) return;
  writer.String(name);
  value->AppendTo(writer);
}

Result<std::vector<std::string>> FilesNamedLike(std::span<const io::DirectoryEntry> top,
                                                bool (*is_named_like)(std::string_view name)) {
  std::vector<std::string> names;
  for (const io::DirectoryEntry& entry : top) {
    if (entry.name.starts_with('.') || entry.is_directory || !is_named_like(entry.name)) continue;
    if (!entry.is_regular) return NotAFile(entry.name);
    names.push_back(entry.name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

Error NotAFile(std::string_view path) {
  return Error(ErrorCode::kFailedPrecondition,
               Quoted(path) + " is not a file beneath the data set's root "
                              "(a dangling link?)");
}

Result<std::vector<ScanBuilder::PlannedObject>> PlanObjects(io::Directory& root,
                                                            std::span<const std::string> paths) {
  const std::vector<Result<io::FileInfo>> infos = StatMany(root, paths);
  std::vector<ScanBuilder::PlannedObject> objects;
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

// Written as formats do whose files have names of fields before their paths.
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

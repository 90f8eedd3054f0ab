// Keys that every data set has are parsed here; keys of formats are passed to the formats' drivers
// as SettingValues, so no format is named here. The format is read first, because it decides which
// meaning and bounds the other keys have.
#include "server/daemon/config/dataset_config.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "proto/contract/limits.h"
#include "server/catalog/format_driver.h"
#include "server/daemon/config/config.h"
#include "server/tier/capacity.h"

namespace forebay::daemon {
namespace {

using catalog::SettingValue;

Error Wrong(std::string_view key, std::string_view reason) {
  return catalog::KeyError(key, reason);
}

// These functions leave `target` as it is if the key is absent: it holds the default.
Status TakeString(const toml::table& table, const char* key, std::string& target) {
  const toml::node* node = table.get(key);
  if (node == nullptr) return {};
  if (node->as_string() == nullptr) return Wrong(key, "a string is expected");
  target = node->as_string()->get();
  return {};
}

Status TakeBool(const toml::table& table, const char* key, bool& target) {
  const toml::node* node = table.get(key);
  if (node == nullptr) return {};
  if (node->as_boolean() == nullptr) return Wrong(key, "true or false is expected");
  target = node->as_boolean()->get();
  return {};
}

Status TakeFormat(const toml::table& table, catalog::DatasetSource& source) {
  std::string name;
  FOREBAY_TRY(TakeString(table, "format", name));
  // An empty string means the same as no key: the format is detected.
  if (name.empty()) return {};
  const catalog::FormatDriver* driver = catalog::FindDriver(name);
  // Found; otherwise the message lists what could have been meant.
  if (driver != nullptr) {
    source.format = driver->format;
    return {};
  }
  std::vector<std::string_view> names;
  for (const catalog::FormatDriver* known : catalog::FormatDrivers()) names.push_back(known->name);
  return Wrong("format", fmt::format("'{}' is none of {}", name, fmt::join(names, ", ")));
}

SettingValue::Scalar ScalarOf(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return number->get();
  // Any other type. The key's check refuses it with a message that says what is expected.
  return std::monostate();
}

SettingValue ValueOf(const toml::node& node) {
  const toml::array* array = node.as_array();
  if (array == nullptr) return SettingValue(ScalarOf(node));
  std::vector<SettingValue::Scalar> list;
  for (const toml::node& entry : *array) list.push_back(ScalarOf(entry));
  return SettingValue(std::move(list));
}

// Reads the keys of formats. Call after TakeFormat: without a format, a key is checked as any
// format may have it.
Status TakeFormatKeys(const toml::table& table, catalog::DatasetSource& source) {
  // All keys of all formats are read, also those that the set format does not have; a driver
  // ignores them. So a data set can change its format without changing its other lines.
  for (const std::string_view name : catalog::FormatKeyNames()) {
    const toml::node* node = table.get(name);
    if (node == nullptr) continue;
    // Two formats may give one key different bounds.
    const catalog::FormatKey* key = catalog::FindFormatKey(name, source.format);
    SettingValue value = ValueOf(*node);
    const Status checked = key->check(value);
    if (!checked.has_value()) return Wrong(name, checked.error().message());
    source.settings.Set(name, std::move(value));
  }
  // Without a format, only single keys can be checked.
  if (!source.format) return {};
  const catalog::FormatDriver* driver = catalog::FindDriver(*source.format);
  // For keys that only make sense together.
  return driver->check == nullptr ? Status() : driver->check(source);
}

Status TakeSplits(const toml::table& table, std::map<std::string, std::string>& splits) {
  const toml::node* node = table.get("splits");
  if (node == nullptr) return {};
  if (node->as_table() == nullptr) return Wrong("splits", "a table of name = file is expected");
  for (const auto& [key, value] : *node->as_table()) {
    // The files are opened when a stream asks for the split, beneath the data set's root.
    if (value.as_string() == nullptr) return Wrong("splits", "file names are strings");
    splits[std::string(key.str())] = value.as_string()->get();
  }
  return {};
}

Status TakeCompression(const toml::table& table, stage::Compression& compression) {
  // Starts with the default's name, so that a missing key parses like any other value.
  std::string name(stage::CompressionName(compression));
  FOREBAY_TRY(TakeString(table, "compress", name));
  const std::optional<stage::Compression> parsed = stage::ParseCompression(name);
  if (!parsed) {
    return Wrong("compress", fmt::format("'{}' is none of {}", name,
                                         fmt::join(stage::kCompressionNames, ", ")));
  }
  compression = *parsed;
  return {};
}

// An unknown key is most likely a typing error, so it is refused.
Status CheckKeys(const toml::table& table) {
  // Called before anything is read, so that a misspelt key is named even if a required one is
  // missing because of it.
  for (const auto& entry : table) {
    const std::string_view name = entry.first.str();
    const bool known = std::any_of(DatasetKeys().begin(), DatasetKeys().end(),
                                   [&](const DatasetKey& key) { return key.name == name; });
    if (!known) return Wrong(name, "this key does not exist (see docs/configuration.md)");
  }
  return {};
}

// The name becomes part of file names in daemon.state_dir, and a label of metrics.
Status CheckName(const std::string& name) {
  const bool plain = !name.empty() && name.size() <= limits::kNameBytesMax &&
                     // Such a file would be hidden, and ".." would leave the directory.
                     name.front() != '.' &&
                     std::all_of(name.begin(), name.end(), [](unsigned char c) {
                       return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
                     });
  if (plain) return {};
  return Wrong("name", fmt::format("'{}' must be 1 to {} letters, digits, '-', '_' or '.', and "
                                   "must not begin with '.'",
                                   name, limits::kNameBytesMax));
}

}  // namespace

Result<std::uint64_t> ParseByteCount(const std::string& text, const ByteBounds& bounds) {
  const Result<std::uint64_t> bytes = tier::ParseBytes(text);
  if (!bytes.has_value() || *bytes > bounds.max || *bytes < bounds.min) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("'{}' is not a size between {} and {} bytes (write 4MiB, 2GB, 512)",
                             text.substr(0, 64), bounds.min, bounds.max));
  }
  return *bytes;
}

Result<stage::DatasetOptions> ReadDatasetTable(const toml::table& table) {
  // The name comes first, because later messages refer to the data set by it.
  FOREBAY_TRY(CheckKeys(table));
  stage::DatasetOptions options;
  catalog::DatasetSource& source = options.source;
  FOREBAY_TRY(TakeString(table, "name", source.name));
  FOREBAY_TRY(CheckName(source.name));
  FOREBAY_TRY(TakeString(table, "path", options.root_path));
  // A relative path would depend on where the daemon was started.
  if (options.root_path.empty() || options.root_path.front() != '/') {
    return Wrong("path", fmt::format("data set '{}' needs an absolute path", source.name));
  }
  FOREBAY_TRY(TakeFormat(table, source));
  FOREBAY_TRY(TakeFormatKeys(table, source));
  // The default is also in the table of keys (MakeDatasetKeys), for the reference.
  std::string extent = "32MiB";
  FOREBAY_TRY(TakeString(table, "extent", extent));
  const auto extent_bytes = ParseByteCount(
      extent, {.min = limits::kIoAlignmentBytes, .max = limits::kExtentBytesMax});
  if (!extent_bytes.has_value()) return Wrong("extent", extent_bytes.error().message());
  source.extent_bytes = *extent_bytes;
  std::string copies = "0";
  FOREBAY_TRY(TakeString(table, "copies", copies));
  const auto copy_bytes = ParseByteCount(copies, {.min = 0, .max = 1'048'576 * limits::kGiB});
  if (!copy_bytes.has_value()) return Wrong("copies", copy_bytes.error().message());
  options.copy_bytes = *copy_bytes;
  FOREBAY_TRY(TakeSplits(table, options.splits));
  FOREBAY_TRY(TakeBool(table, "stage_at_start", options.stage_at_start));
  FOREBAY_TRY(TakeBool(table, "persist", options.persist));
  FOREBAY_TRY(TakeCompression(table, options.compression));
  return options;
}

}  // namespace forebay::daemon

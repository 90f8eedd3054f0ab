#include "server/daemon/dataset_config.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <optional>

#include <fmt/format.h>

#include "proto/contract/limits.h"
#include "server/daemon/config.h"

namespace forebay::daemon {
namespace {

constexpr std::array<catalog::Format, 6> kFormats = {
    catalog::Format::kImageFolder, catalog::Format::kTar, catalog::Format::kIdx,
    catalog::Format::kNpy, catalog::Format::kRaw, catalog::Format::kPack};

Error Wrong(std::string_view key, std::string_view reason) {
  return Error(ErrorCode::kInvalidArgument, fmt::format("dataset key '{}': {}", key, reason));
}

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

Status TakeStrings(const toml::table& table, const char* key, std::vector<std::string>& target) {
  const toml::node* node = table.get(key);
  if (node == nullptr) return {};
  if (node->as_array() == nullptr) return Wrong(key, "a list of strings is expected");
  for (const toml::node& entry : *node->as_array()) {
    if (entry.as_string() == nullptr) return Wrong(key, "a list of strings is expected");
    target.push_back(entry.as_string()->get());
  }
  return {};
}

Status TakeShape(const toml::table& table, std::vector<std::uint64_t>& shape) {
  const toml::node* node = table.get("shape");
  if (node == nullptr) return {};
  if (node->as_array() == nullptr) return Wrong("shape", "a list of whole numbers is expected");
  for (const toml::node& entry : *node->as_array()) {
    if (entry.as_integer() == nullptr || entry.as_integer()->get() <= 0) {
      return Wrong("shape", "a list of positive whole numbers is expected");
    }
    shape.push_back(static_cast<std::uint64_t>(entry.as_integer()->get()));
  }
  if (shape.size() > limits::kDimensionCountMax) return Wrong("shape", "too many dimensions");
  return {};
}

Status TakeFormat(const toml::table& table, catalog::DatasetSource& source) {
  std::string name;
  FOREBAY_TRY(TakeString(table, "format", name));
  if (name.empty()) return {};
  for (const catalog::Format format : kFormats) {
    if (catalog::FormatName(format) == name) {
      source.format = format;
      return {};
    }
  }
  return Wrong("format",
               fmt::format("'{}' is none of image-folder, tar, idx, npy, raw, pack", name));
}

// After TakeFormat: packs bring the names of their fields with them.
Status TakeFiles(const toml::table& table, catalog::DatasetSource& source) {
  std::vector<std::string> files;
  FOREBAY_TRY(TakeStrings(table, "files", files));
  for (const std::string& file : files) {
    if (source.format == catalog::Format::kPack) {
      if (file.empty()) return Wrong("files", "a path is expected");
      source.files.push_back({.field = "", .path = file});
      continue;
    }
    const std::size_t equals = file.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == file.size()) {
      return Wrong("files", fmt::format("'{}' is not field=path", file));
    }
    source.files.push_back({.field = file.substr(0, equals), .path = file.substr(equals + 1)});
  }
  return {};
}

Status TakeSplits(const toml::table& table, std::map<std::string, std::string>& splits) {
  const toml::node* node = table.get("splits");
  if (node == nullptr) return {};
  if (node->as_table() == nullptr) return Wrong("splits", "a table of name = file is expected");
  for (const auto& [key, value] : *node->as_table()) {
    if (value.as_string() == nullptr) return Wrong("splits", "file names are strings");
    splits[std::string(key.str())] = value.as_string()->get();
  }
  return {};
}

Status TakeCompression(const toml::table& table, stage::Compression& compression) {
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

Status CheckKeys(const toml::table& table) {
  for (const auto& entry : table) {
    const std::string_view name = entry.first.str();
    const bool known = std::any_of(DatasetKeys().begin(), DatasetKeys().end(),
                                   [&](const DatasetKey& key) { return key.name == name; });
    if (!known) return Wrong(name, "there is no such key (see docs/configuration.md)");
  }
  return {};
}

Status CheckName(const std::string& name) {
  const bool plain = !name.empty() && name.size() <= limits::kNameBytesMax &&
                     name.front() != '.' &&
                     std::all_of(name.begin(), name.end(), [](unsigned char c) {
                       return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
                     });
  if (plain) return {};
  return Wrong("name", fmt::format("'{}' must be letters, digits, '-', '_' and '.'", name));
}

}  // namespace

Result<std::uint64_t> ParseByteCount(const std::string& text, const ByteBounds& bounds) {
  struct Unit {
    std::string_view suffix;
    std::uint64_t factor;
  };
  constexpr std::array<Unit, 9> kUnits = {{{"TiB", 1ULL << 40}, {"GiB", 1ULL << 30},
                                           {"MiB", 1ULL << 20}, {"KiB", 1ULL << 10},
                                           {"TB", 1'000'000'000'000}, {"GB", 1'000'000'000},
                                           {"MB", 1'000'000}, {"KB", 1'000}, {"B", 1}}};
  std::string_view digits = text;
  std::uint64_t factor = 1;
  for (const Unit& unit : kUnits) {
    if (digits.size() > unit.suffix.size() && digits.ends_with(unit.suffix)) {
      digits.remove_suffix(unit.suffix.size());
      factor = unit.factor;
      break;
    }
  }
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const bool parsed = error == std::errc() && end == digits.data() + digits.size();
  if (!parsed || value > bounds.max / factor || value * factor < bounds.min) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("'{}' is not a size between {} and {} bytes (write 4MiB, 2GB, 512)",
                             text, bounds.min, bounds.max));
  }
  return value * factor;
}

Result<stage::DatasetOptions> ReadDatasetTable(const toml::table& table) {
  FOREBAY_TRY(CheckKeys(table));
  stage::DatasetOptions options;
  catalog::DatasetSource& source = options.source;
  FOREBAY_TRY(TakeString(table, "name", source.name));
  FOREBAY_TRY(CheckName(source.name));
  FOREBAY_TRY(TakeString(table, "path", options.root_path));
  if (options.root_path.empty() || options.root_path.front() != '/') {
    return Wrong("path", fmt::format("data set '{}' needs an absolute path", source.name));
  }
  FOREBAY_TRY(TakeFormat(table, source));
  FOREBAY_TRY(TakeFiles(table, source));
  std::string dtype = "u8";
  FOREBAY_TRY(TakeString(table, "dtype", dtype));
  const Result<Dtype> parsed = ParseDtype(dtype);
  if (!parsed.has_value()) return Wrong("dtype", parsed.error().message());
  source.raw_dtype = *parsed;
  FOREBAY_TRY(TakeShape(table, source.raw_shape));
  if (source.format == catalog::Format::kRaw && source.raw_shape.empty()) {
    return Wrong("shape", fmt::format("data set '{}' of format raw needs one", source.name));
  }
  std::string extent = "32MiB";
  FOREBAY_TRY(TakeString(table, "extent", extent));
  const auto extent_bytes = ParseByteCount(
      extent, {.min = limits::kIoAlignmentBytes, .max = limits::kExtentBytesMax});
  if (!extent_bytes.has_value()) return Wrong("extent", extent_bytes.error().message());
  source.extent_bytes = *extent_bytes;
  if (const toml::node* header = table.get("header")) {
    if (header->as_integer() == nullptr || header->as_integer()->get() < 0) {
      return Wrong("header", "a whole number of bytes is expected");
    }
    source.raw_header_bytes = static_cast<std::uint64_t>(header->as_integer()->get());
  }
  FOREBAY_TRY(TakeStrings(table, "suffixes", source.suffixes));
  FOREBAY_TRY(TakeSplits(table, options.splits));
  FOREBAY_TRY(TakeBool(table, "stage_at_start", options.stage_at_start));
  FOREBAY_TRY(TakeBool(table, "persist", options.persist));
  FOREBAY_TRY(TakeCompression(table, options.compression));
  return options;
}

}  // namespace forebay::daemon

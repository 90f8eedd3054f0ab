// Reads TOML with toml++ and sets each scalar through the table of keys, as if it came from the
// command line. The text may come from a client (served_check.h), so its size and the depth of its
// keys are bounded before it is parsed.
#include "server/daemon/config/config.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <toml++/toml.h>

#include "proto/contract/limits.h"
#include "server/daemon/config/dataset_config.h"
#include "server/daemon/config/small_file.h"

namespace forebay::daemon {
namespace {

std::string Where(const std::string& path, const toml::source_region& region) {
  return fmt::format("{}:{}", path, region.begin.line);
}

// The text of a scalar, as the command line would give it.
Result<std::string> ScalarText(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  // No key takes a fraction, so a floating-point number is an error.
  if (const auto* number = node.as_integer()) return fmt::format("{}", number->get());
  if (const auto* flag = node.as_boolean()) return std::string(flag->get() ? "true" : "false");
  return Error(ErrorCode::kInvalidArgument, "a string, a whole number or a boolean is expected");
}

// Sets all scalars of a table and of the tables in it. The name of a key is its dotted path.
Status SetFromTable(const std::string& path, const toml::table& table, const std::string& prefix,
                    Config& config) {
  // toml++ keeps tables sorted by key, so the first error is the same at every run.
  for (const auto& [key, node] : table) {
    const std::string name = prefix + std::string(key.str());
    // Read by SetFromRoot after all other keys.
    if (prefix.empty() && name == "dataset") continue;
    // The depth is bounded: by CheckKeyDepth for dotted keys, by the parser for inline tables.
    if (const toml::table* inner = node.as_table()) {
      FOREBAY_TRY(SetFromTable(path, *inner, name + ".", config));
      continue;
    }
    const Result<std::string> text = ScalarText(node);
    if (!text.has_value()) {
      return text.error().WithContext(Where(path, node.source()) + ": key '" + name + "'");
    }
    const Status set = SetConfigKey(config, name, *text);
    if (!set.has_value()) return set.error().WithContext(Where(path, node.source()));
  }
  return {};
}

// Levenshtein distance, by dynamic programming over one row; to suggest a key after a typing error.
std::size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  // Two texts of n and m characters take n times m steps. SetConfigKey keeps both short.
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

Status SetFromRoot(const std::string& path, const toml::table& root, Config& config) {
  // All other keys first, so that an error in them is reported even if a data set is wrong too.
  FOREBAY_TRY(SetFromTable(path, root, "", config));
  const toml::node* datasets = root.get("dataset");
  if (datasets == nullptr) return {};
  const toml::array* list = datasets->as_array();
  if (list == nullptr) {
    return Error(ErrorCode::kInvalidArgument,
                 Where(path, datasets->source()) + ": write [[dataset]], not [dataset]");
  }
  for (const toml::node& node : *list) {
    const toml::table* table = node.as_table();
    if (table == nullptr) {
      return Error(ErrorCode::kInvalidArgument,
                   Where(path, node.source()) + ": a data set is a table");
    }
    // Its errors name the key; the position of the table is added here.
    Result<stage::DatasetOptions> dataset = ReadDatasetTable(*table);
    if (!dataset.has_value()) return dataset.error().WithContext(Where(path, node.source()));
    config.datasets.push_back(std::move(*dataset));
  }
  return {};
}

// Rejects keys of many parts ("a.b.c..."). The parser makes a nested table for each part without a
// bound, and its recursive destructor would overflow the stack.
Status CheckKeyDepth(std::string_view text, const std::string& name) {
  std::size_t dots = 0;
  std::size_t line = 1;
  for (const char c : text) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    // Only characters of a dotted key may stand between its dots; any other begins a new count.
    // Dots in values and comments are counted too, but no sensible line has as many as the limit.
    if (c == '.') {
      ++dots;
    } else if (!letter && std::string_view("_-\"' \t").find(c) == std::string_view::npos) {
      dots = 0;
    }
    // For the message only.
    if (c == '\n') ++line;
    if (dots < limits::kConfigKeyPartsMax) continue;
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{}:{}: a key has more than {} parts", name, line,
                             limits::kConfigKeyPartsMax));
  }
  return {};
}

// A syntax error, with the position that the parser reports.
Error NotToml(const std::string& path, const toml::parse_error& error) {
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("{}: {}", Where(path, error.source()), error.description()));
}

}  // namespace

Config DefaultConfig() {
  Config config;
  for (const ConfigKey& key : ConfigKeys()) {
    const Status set = key.set(config, std::string(key.default_text));
    (void)set.has_value();  // config_test checks that every default is valid
  }
  return config;
}

Status SetConfigKey(Config& config, std::string_view name, const std::string& value) {
  // A name comes from a file or a request and may have any length. A name that exceeds every key by
  // more than a misspelling adds resembles none of them, and the message does not repeat it in
  // full.
  constexpr std::size_t kMisspellingBytesMax = 16;
  const std::size_t longest =
      std::ranges::max(ConfigKeys(), {}, [](const ConfigKey& key) { return key.name.size(); })
          .name.size();
  if (name.size() > longest + kMisspellingBytesMax) {
    return Error(ErrorCode::kNotFound, fmt::format("unknown key '{}...' of {} bytes",
                                                   name.substr(0, longest), name.size()));
  }
  const ConfigKey* nearest = nullptr;
  std::size_t nearest_distance = 0;
  for (const ConfigKey& key : ConfigKeys()) {
    if (key.name == name) {
      const Status set = key.set(config, value);
      if (!set.has_value()) return set.error().WithContext(fmt::format("key '{}'", name));
      return {};
    }
    const std::size_t distance = EditDistance(key.name, name);
    // The loop goes on for a better suggestion, which costs nothing in the usual case: the key
    // exists.
    if (nearest == nullptr || distance < nearest_distance) {
      nearest = &key;
      nearest_distance = distance;
    }
  }
  return Error(ErrorCode::kNotFound,
               fmt::format("unknown key '{}' (nearest: '{}')", name, nearest->name));
}

Status LoadConfigFile(const std::string& path, Config& config) {
  FOREBAY_ASSIGN(const std::string text,
                 ReadTextFile(path, limits::kConfigFileBytesMax, "kConfigFileBytesMax"));
  return LoadConfigText(text, path, config);
}

Status LoadConfigText(std::string_view text, const std::string& name, Config& config) {
  FOREBAY_TRY(CheckKeyDepth(text, name));
  // toml++ throws on syntax errors; exceptions end here.
  try {
    return SetFromRoot(name, toml::parse(text, name), config);
  } catch (const toml::parse_error& error) {
    return NotToml(name, error);
  }
}

Status CheckConfig(const Config& config) {
  // Checked after all tables are read; the size of the file bounds them until then.
  if (config.datasets.size() > limits::kDatasetCountMax) {
    return Error(ErrorCode::kResourceExhausted,
                 fmt::format("{} data sets are configured, at most {} are served",
                             config.datasets.size(), limits::kDatasetCountMax));
  }
  std::set<std::string> names;
  for (const stage::DatasetOptions& dataset : config.datasets) {
    // Clients, saved catalogs and metrics tell data sets apart by name.
    if (!names.insert(dataset.source.name).second) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("data set '{}' is configured twice", dataset.source.name));
    }
  }
  return {};
}

}  // namespace forebay::daemon

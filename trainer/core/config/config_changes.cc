// Compares two configurations as the TOML texts that ToToml writes, where every key has a line of
// its own. So a checkpoint of another version, whose table of keys was different, is compared as
// well.
#include "trainer/core/config/config_changes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>

namespace forebay::train {
namespace {

constexpr std::size_t kValueCharactersMax = 200;

// Values by key, as they are written. Every key has a line of its own, below its section's.
std::map<std::string, std::string> ValuesOf(std::string_view document) {
  std::map<std::string, std::string> values;
  std::string section;
  while (!document.empty()) {
    const std::size_t end = std::min(document.find('\n'), document.size());
    const std::string_view line = document.substr(0, end);
    document.remove_prefix(std::min(end + 1, document.size()));
    constexpr std::string_view kIs = " = ";
    const std::size_t is = line.find(kIs);
    if (line.starts_with('[') && line.ends_with(']')) {
      section = line.substr(1, line.size() - 2);
    } else if (!line.starts_with('#') && is != std::string_view::npos) {
      values[fmt::format("{}.{}", section, line.substr(0, is))] = line.substr(is + kIs.size());
    }
  }
  return values;
}

// The text comes from a checkpoint, and may hold anything: it must not control the terminal or
// fill it.
std::string Shown(std::string text) {
  std::ranges::replace_if(
      text, [](unsigned char c) { return std::iscntrl(c) != 0; }, '?');
  return text.substr(0, kValueCharactersMax);
}

// Keys that differ between a run and its continuation by their nature.
bool SaysHowToBegin(std::string_view key) {
  return key == "checkpoint.resume" || key == "checkpoint.new_run";
}

}  // namespace

std::vector<std::string> ConfigChanges(std::string_view then, std::string_view now) {
  std::vector<std::string> changes;
  const std::map<std::string, std::string> here = ValuesOf(now);
  // Keys that only this version has are not listed: the checkpoint had no value of theirs.
  for (const auto& [key, value] : ValuesOf(then)) {
    if (SaysHowToBegin(key)) continue;
    const auto found = here.find(key);
    if (found == here.end()) {
      changes.push_back(fmt::format("{}: {} -> no such key", Shown(key), Shown(value)));
    } else if (found->second != value) {
      changes.push_back(fmt::format("{}: {} -> {}", key, Shown(value), Shown(found->second)));
    }
  }
  return changes;
}

}  // namespace forebay::train

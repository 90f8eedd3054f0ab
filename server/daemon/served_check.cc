// Called for a Hello that carries a configuration (DataService). Both configurations are reduced to
// a list of keys and texts per data set, and the first difference is the error.
#include "server/daemon/served_check.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "proto/contract/byte_cursor.h"
#include "proto/contract/checksum.h"
#include "server/catalog/format_driver.h"
#include "server/daemon/config/config.h"
#include "server/stage/packed/packed_extent.h"
#include "server/stage/packed/packed_form.h"

namespace forebay::daemon {
namespace {

using KeyText = std::pair<std::string_view, std::string>;

// The keys that decide which samples a data set has, with their values as the configuration writes
// them. Formats declare their own keys, so none is named here.
std::vector<KeyText> ContentOf(const stage::DatasetOptions& options) {
  // Keys that only change where and when extents are stored (extent, persist, compress) are left
  // out: the samples are the same.
  const catalog::DatasetSource& source = options.source;
  std::vector<KeyText> keys = {
      {"path", options.root_path},
      {"format", source.format ? std::string(catalog::FormatName(*source.format)) : "detected"}};
  for (const std::string_view name : catalog::FormatKeyNames()) {
    // In one canonical spelling, so that a default and its explicit value compare equal.
    keys.emplace_back(name, catalog::ShownSetting(name, source));
  }
  std::vector<std::string> splits;
  for (const auto& [name, path] : options.splits) {
    splits.push_back(fmt::format("{}={}", name, path));
  }
  keys.emplace_back("splits", fmt::format("[{}]", fmt::join(splits, ", ")));
  return keys;
}

Error Differs(const std::string& what) {
  return Error(ErrorCode::kFailedPrecondition,
               "this daemon does not serve what the program is configured for: " + what +
                   "; give the program a daemon of its own (another FOREBAY_JOB_ID, and no "
                   "FOREBAY_ADDRESS), or the daemon's configuration");
}

}  // namespace

Status CheckServes(const std::vector<stage::DatasetOptions>& served, std::string_view wanted) {
  // Parsed by the functions that parse the daemon's own file, so defaults and spellings are the
  // same.
  Config config = DefaultConfig();
  FOREBAY_TRY(LoadConfigText(wanted, "the program's configuration", config));
  // The daemon may serve more data sets than the client has configured, but not fewer.
  for (const stage::DatasetOptions& asked : config.datasets) {
    const auto here = std::ranges::find(
        served, asked.source.name,
        [](const stage::DatasetOptions& options) { return options.source.name; });
    if (here == served.end()) {
      return Differs(fmt::format("data set '{}' is not served", asked.source.name));
    }
    const std::vector<KeyText> ours = ContentOf(*here), theirs = ContentOf(asked);
    const auto [our, their] = std::ranges::mismatch(ours, theirs);
    if (our == ours.end()) continue;
    return Differs(fmt::format("data set '{}' has {} '{}' there, '{}' in the program's "
                               "configuration",
                               asked.source.name, our->first, our->second, their->second));
  }
  return {};
}

std::uint64_t ContentDigest(const std::vector<stage::DatasetOptions>& datasets) {
  // By name, so that the order of the tables does not matter.
  std::map<std::string, const stage::DatasetOptions*> by_name;
  for (const stage::DatasetOptions& options : datasets) by_name[options.source.name] = &options;
  ByteWriter bytes;
  for (const auto& [name, options] : by_name) {
    bytes.String(name);
    // The extents and the form in which they are stored belong to it here: nodes exchange them.
    bytes.Le(options->source.extent_bytes);
    bytes.Le(static_cast<std::uint32_t>(options->compression));
    // Compressed extents travel as they are stored, so all nodes must read the same version.
    if (options->compression != stage::Compression::kOff) {
      bytes.Le(stage::kPackedExtentVersion);
      bytes.Le(stage::kPackedFormVersion);
    }
    for (const auto& [key, text] : ContentOf(*options)) {
      bytes.String(key);
      bytes.String(text);
    }
  }
  return Checksum(bytes.bytes());
}

}  // namespace forebay::daemon

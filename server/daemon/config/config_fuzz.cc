// Fuzz target: the daemon's TOML configuration. If a text loads and passes the checks, a catalog
// can be built for each of its data sets.
#include <cstdint>
#include <string_view>

#include "proto/contract/limits.h"
#include "server/catalog/format_driver.h"
#include "server/daemon/config/config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace forebay;
  using namespace forebay::daemon;
  // forebayd begins with this configuration, and a text from a client is loaded into it as well
  // (served_check.h).
  Config config = DefaultConfig();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (!LoadConfigText(text, "forebayd.toml", config).has_value()) return 0;
  if (!CheckConfig(config).has_value()) return 0;
  for (const stage::DatasetOptions& dataset : config.datasets) {
    const catalog::DatasetSource& source = dataset.source;
    if (source.name.empty() || source.name.size() > limits::kNameBytesMax ||
        dataset.root_path.empty() || source.extent_bytes < limits::kIoAlignmentBytes ||
        source.extent_bytes > limits::kExtentBytesMax) {
      __builtin_trap();
    }
    // Every value that was accepted passes the check of its format again, so later stages need no
    // check.
    for (const std::string_view name : catalog::FormatKeyNames()) {
      const catalog::SettingValue* value = source.settings.Find(name);
      if (value == nullptr) continue;
      if (!catalog::FindFormatKey(name, source.format)->check(*value).has_value()) {
        __builtin_trap();
      }
    }
  }
  return 0;
}

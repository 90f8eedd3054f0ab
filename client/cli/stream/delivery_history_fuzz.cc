// Fuzz target: delivery logs, one behind the other with a zero byte between them. No epoch is
// judged whole where a position of it is unaccounted for.
#include <cstdint>
#include <sstream>
#include <string>

#include "client/cli/stream/delivery_history.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace forebay::cli;
  std::istringstream logs(std::string(reinterpret_cast<const char*>(data), size));
  DeliveryHistory history;
  for (std::string text; std::getline(logs, text, '\0');) {
    std::istringstream log(text);
    // A log that is refused proves nothing, so it cannot prove something wrong.
    if (!history.Read("log", log).has_value()) return 0;
  }
  for (const bool require_complete : {false, true}) {
    for (const StreamVerdict& verdict : history.Judge(require_complete)) {
      const bool is_ok =
          verdict.outcome == Outcome::kWhole || verdict.outcome == Outcome::kUnfinished;
      if (is_ok && (verdict.wrong_ids != 0 || verdict.epochs.empty())) __builtin_trap();
      // What follows only from clocks, or only if no log is missing, is undecided.
      const bool rests = verdict.rests_on_clocks || verdict.rests_on_all_logs;
      if (rests && verdict.outcome == Outcome::kViolation) __builtin_trap();
      for (const EpochVerdict& epoch : verdict.epochs) {
        // Duplicates are counted beside these and never make up for a position that is missing.
        if (epoch.consumed + epoch.missing + epoch.unfinished < epoch.expected ||
            (is_ok && (epoch.missing != 0 || epoch.duplicates != 0))) {
          __builtin_trap();
        }
      }
    }
  }
  return 0;
}

// Fuzz target: selection texts and lists. The text up to the first NUL is the specification,
// the rest the list. A selection that parses must have ascending ids and a canonical text.
#include <cstdint>
#include <string>

#include "server/catalog/selection.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace forebay;
  using namespace forebay::catalog;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const std::string spec = text.substr(0, text.find('\0'));
  const std::string list = spec.size() < text.size() ? text.substr(spec.size() + 1) : "";
  // Small, so that "all" is walked over in no time, and larger than the numbers of most inputs.
  constexpr std::uint64_t kSampleCount = 1000;
  const auto made = MakeSelection(spec, kSampleCount, list);
  if (!made.has_value()) return 0;
  const Selection& selection = **made;
  if (selection.size() == 0 || selection.size() > kSampleCount) __builtin_trap();
  for (std::uint64_t i = 0; i < selection.size(); ++i) {
    const SampleId sample = selection.At(i);
    if (sample.value() >= kSampleCount || selection.IndexOf(sample) != i ||
        (i > 0 && selection.At(i - 1) >= sample)) {
      __builtin_trap();
    }
  }
  // The canonical text must mean the same selection: it is what tokens and logs repeat.
  const auto again = MakeSelection(selection.spec(), kSampleCount, list);
  if (!again.has_value() || (*again)->fingerprint() != selection.fingerprint()) {
    __builtin_trap();
  }
  return 0;
}

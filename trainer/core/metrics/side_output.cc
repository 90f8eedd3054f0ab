// Each different failure is printed once, because a full disk fails at every step. All are counted,
// and the count is in the closing table.
#include "trainer/core/metrics/side_output.h"

#include <fmt/format.h>

#include <cerrno>

namespace forebay::train {
namespace {

// Different failures that are printed. Texts with numbers in them could differ at every step.
constexpr std::size_t kSaidMax = 32;

}  // namespace

void SideOutput::Note(const Status& written) {
  if (written.has_value()) return;
  ++failures_;
  const std::string text = written.error().ToString();
  if (said_.size() >= kSaidMax || !said_.insert(text).second) return;
  const std::string whose = rank_ == 0 ? std::string() : fmt::format("rank {}: ", rank_);
  print_(fmt::format("warning: {}{}; training goes on, and what could not be written is missing "
                     "there (this is said once, and counted)",
                     whose, text));
}

// Failures that may pass or that the user cannot help during the run. A wrong path is none of
// them, and ends the run at its start.
bool SideOutput::IsOfTheDisk(const Error& error) {
  switch (error.system_errno()) {
    case ENOSPC:
    case EDQUOT:
    case EIO:
    case EROFS: return true;
    default: return false;
  }
}

}  // namespace forebay::train

// A few strings behind a mutex. The main thread writes them at every instruction, the watchdog's
// thread reads them ten times a second. The counter of changes tells the watchdog a rank that
// repeats an instruction from one that stands still.
#include "trainer/comm/watchdog/progress.h"

#include <utility>

namespace forebay::train {

void Progress::Enter(std::string context) {
  const MutexLock lock(mutex_);
  // The last operation of the old context means nothing in the new one.
  context_ = std::move(context);
  what_.clear();
  waits_ = false;
  ++changes_;
}

void Progress::At(std::string what, bool waits) {
  const MutexLock lock(mutex_);
  what_ = std::move(what);
  waits_ = waits;
  ++changes_;
}

void Progress::Waits(bool waits) {
  const MutexLock lock(mutex_);
  waits_ = waits;
  ++changes_;
}

Progress::Note Progress::Read() const {
  const MutexLock lock(mutex_);
  // A copy under the lock: the main thread may replace the strings at any time.
  Note note{.changes = changes_, .text = context_, .waits = waits_};
  if (!context_.empty() && !what_.empty()) note.text += ", ";
  note.text += what_;
  return note;
}

}  // namespace forebay::train

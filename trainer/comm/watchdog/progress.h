// Progress: what a rank is doing at the moment, for a message when a job stands still.
#pragma once

#include <cstdint>
#include <string>

#include "proto/contract/thread_annotations.h"

namespace forebay::train {

// The rank's main thread writes it, its watchdog reads it. Thread-safe. A call takes well below a
// microsecond, without the making of the text.
class Progress {
 public:
  struct Note {
    std::uint64_t changes = 0;  // calls so far: the same number twice is no progress
    std::string text;           // "step 7, F micro-batch 3 of stage 1"
    bool waits = false;         // for other ranks
  };

  // Begins a context for the calls of At that follow, such as "step 7".
  void Enter(std::string context) FOREBAY_EXCLUDES(mutex_);
  // Names an instruction: "F micro-batch 3 of stage 1". `waits`: it waits for other ranks.
  void At(std::string what, bool waits = false) FOREBAY_EXCLUDES(mutex_);
  // Marks the beginning and the end of a wait for other ranks during the instruction named last.
  void Waits(bool waits) FOREBAY_EXCLUDES(mutex_);

  Note Read() const FOREBAY_EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  std::string context_ FOREBAY_GUARDED_BY(mutex_);
  std::string what_ FOREBAY_GUARDED_BY(mutex_);
  bool waits_ FOREBAY_GUARDED_BY(mutex_) = false;
  std::uint64_t changes_ FOREBAY_GUARDED_BY(mutex_) = 0;
};

}  // namespace forebay::train

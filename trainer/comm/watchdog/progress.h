// Progress: what a rank is at, for whoever asks why a job stands still.
#pragma once

#include <cstdint>
#include <string>

#include "proto/contract/thread_annotations.h"

namespace forebay::train {

// Written by the rank's main thread, read by its watchdog. Thread-safe; a call takes well below
// a microsecond beside the making of the text.
class Progress {
 public:
  struct Note {
    std::uint64_t changes = 0;  // calls so far: the same number twice is no progress
    std::string text;           // "step 7, F micro-batch 3 of stage 1"
    bool waits = false;         // for other ranks
  };

  // What follows belongs to: "step 7".
  void Enter(std::string context) FOREBAY_EXCLUDES(mutex_);
  // "F micro-batch 3 of stage 1". `waits`: it waits for other ranks.
  void At(std::string what, bool waits = false) FOREBAY_EXCLUDES(mutex_);
  // While a call waits for other ranks on behalf of what was named last.
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

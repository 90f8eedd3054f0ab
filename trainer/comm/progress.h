// Progress: what a rank is at, for whoever asks why a job stands still.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

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
  void Enter(std::string context);
  // "F micro-batch 3 of stage 1". `waits`: it waits for other ranks.
  void At(std::string what, bool waits = false);
  // While a call waits for other ranks on behalf of what was named last.
  void Waits(bool waits);

  Note Read() const;

 private:
  mutable std::mutex mutex_;
  std::string context_;
  std::string what_;
  bool waits_ = false;
  std::uint64_t changes_ = 0;
};

}  // namespace forebay::train

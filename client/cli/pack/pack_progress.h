// How far `forebay pack` has come: a line for people, an event for programs.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "client/cli/command_context.h"
#include "client/cli/progress_line.h"
#include "compress/format/pack/pack_format.h"

namespace forebay::cli {

// Of one pack that is being written to OUTPUT.part. Not thread-safe.
class PackProgress {
 public:
  // Samples `first` to `samples`, which it does not include, are to come.
  PackProgress(CommandContext& context, const compress::PackSchema& schema, std::string output,
               unsigned threads, std::uint64_t first, std::uint64_t samples);

  // All samples before `done` were read; those since the last call have so many bytes. To be called
  // only where samples were to come.
  void Took(std::uint64_t done, std::uint64_t bytes);

  void Done(const std::string& verdict) { line_.Done(state_, verdict); }

  double Seconds() const {
    return std::chrono::duration<double>(Clock::now() - began_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;

  CommandContext& context_;
  const std::string output_;
  const std::uint64_t first_, samples_;
  const std::uint64_t pending_bytes_max_;  // read, but not in the file
  ProgressLine line_;
  ProgressLine::State state_;
  bool any_length_ = false;
  std::uint64_t raw_bytes_ = 0, tenth_ = 0;
  Clock::time_point began_ = Clock::now(), shown_;
};

}  // namespace forebay::cli

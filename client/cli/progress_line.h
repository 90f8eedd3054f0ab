// ProgressLine: how far a long operation has come, drawn in place on a terminal and printed
// now and then elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <ostream>
#include <string>

namespace forebay::cli {

// Not thread-safe. On a terminal the line is redrawn at most ten times a second; elsewhere a
// line is printed at each further tenth of the way.
class ProgressLine {
 public:
  ProgressLine(std::ostream& out, bool terminal) : out_(out), terminal_(terminal) {}

  struct State {
    std::string name;
    std::uint64_t bytes_done = 0;
    std::uint64_t bytes_total = 0;  // 0: not known yet
    std::string note;               // "cataloguing", "3 damaged"
  };
  void Show(const State& state);
  // Prints the last state once more and ends the line.
  void Done(const State& state, const std::string& verdict);

 private:
  std::string Render(const State& state) const;
  double Rate(const State& state) const;

  std::ostream& out_;
  bool terminal_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point drawn_;
  std::uint64_t first_bytes_ = ~0ULL;  // done before this program looked
  std::uint64_t printed_tenth_ = 0;
};

}  // namespace forebay::cli

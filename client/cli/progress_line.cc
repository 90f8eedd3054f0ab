// Draws progress over the same line of a terminal, or prints a line at each tenth of the way where
// output goes to a file. The rate is measured from the first call: what a resumed run had done
// before is not counted as speed.
#include "client/cli/progress_line.h"

#include <algorithm>

#include <fmt/format.h>

#include "client/cli/human_text.h"
#include "client/cli/printable_stream.h"
#include "proto/contract/printable.h"

namespace forebay::cli {
namespace {

constexpr std::size_t kBarCells = 24;
constexpr auto kRedraw = std::chrono::milliseconds(100);

double Fraction(const ProgressLine::State& state) {
  if (state.bytes_total == 0) return 0;
  // More than the total can be done: a total that is estimated may prove too small.
  return std::min(1.0, static_cast<double>(state.bytes_done) /
                           static_cast<double>(state.bytes_total));
}

}  // namespace

double ProgressLine::Rate(const State& state) const {
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - began_;
  // The daemon's count may also fall, as when tiers drop extents that were damaged; the rate is 0
  // then instead of a huge number.
  const std::uint64_t moved = state.bytes_done - std::min(state.bytes_done, first_bytes_);
  return elapsed.count() > 0 ? static_cast<double>(moved) / elapsed.count() : 0;
}

std::string ProgressLine::Render(const State& state) const {
  const double rate = Rate(state);
  std::string text = fmt::format("{:>3.0f} %  {} of {}  {}", Fraction(state) * 100,
                                 HumanBytes(state.bytes_done), HumanBytes(state.bytes_total),
                                 HumanRate(rate));
  if (rate > 0 && state.bytes_total > state.bytes_done) {
    const auto left = static_cast<double>(state.bytes_total - state.bytes_done);
    text += fmt::format("  {} left", HumanSeconds(left / rate));
  }
  if (!state.note.empty()) text += "  " + state.note;
  return PrintableLine(text);
}

void ProgressLine::Show(const State& state) {
  if (first_bytes_ == ~0ULL) first_bytes_ = state.bytes_done;
  const auto now = std::chrono::steady_clock::now();
  if (terminal_) {
    // Drawing for each sample would cost more than the work that it reports.
    if (now - drawn_ < kRedraw) return;
    drawn_ = now;
    const auto cells = static_cast<std::size_t>(Fraction(state) * kBarCells);
    out_ << EraseLine << PrintableLine(state.name) << " [" << std::string(cells, '#')
         << std::string(kBarCells - cells, '.') << "] " << Render(state) << std::flush;
    return;
  }
  const auto tenth = static_cast<std::uint64_t>(Fraction(state) * 10);
  // A job's log gets ten lines at most for each operation.
  if (tenth <= printed_tenth_) return;
  printed_tenth_ = tenth;
  out_ << PrintableLine(state.name) << ": " << Render(state) << '\n' << std::flush;
}

void ProgressLine::Done(const State& state, const std::string& verdict) {
  if (terminal_) out_ << EraseLine;
  out_ << PrintableLine(state.name + ": " + verdict) << '\n' << std::flush;
}

}  // namespace forebay::cli

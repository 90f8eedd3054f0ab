// Numbers as people read them, and tables whose columns fit their widest cell.
#include "client/cli/human_text.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/printable.h"

namespace forebay::cli {

std::string HumanBytes(std::uint64_t bytes) {
  static constexpr std::array<const char*, 6> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  // Single bytes are exact, so they have no digits behind a point.
  if (unit == 0) return fmt::format("{} B", bytes);
  // About three digits: figures of one table then have similar widths and can be compared by eye.
  return fmt::format("{:.{}f} {}", value, value < 10 ? 2 : 1, kUnits[unit]);
}

std::string HumanCount(std::uint64_t count) {
  std::string digits = std::to_string(count);
  // From the right, so that a comma that is inserted does not move the places still to come.
  for (std::size_t place = digits.size(); place > 3;) {
    place -= 3;
    digits.insert(place, ",");
  }
  return digits;
}

std::string HumanSeconds(double seconds) {
  if (seconds < 60) return fmt::format("{:.2f} s", seconds);
  // From a minute on, nobody reads fractions of a second.
  const auto whole = static_cast<std::uint64_t>(seconds);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

std::string HumanRate(double bytes_per_second) {
  // Powers of ten, as data sheets of disks and networks have rates; sizes above have powers of two.
  if (bytes_per_second >= 1e9) return fmt::format("{:.2f} GB/s", bytes_per_second / 1e9);
  return fmt::format("{:.1f} MB/s", bytes_per_second / 1e6);
}

void TextTable::Add(std::vector<std::string> cells) {
  // Cells hold names from data sets and daemons. A control character would also spoil the widths.
  for (std::string& cell : cells) cell = PrintableLine(cell);
  rows_.push_back(std::move(cells));
}

std::string TextTable::ToString() const {
  std::vector<std::size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      // The first column has names and is aligned left; the others have numbers.
      text += i == 0 ? fmt::format("{:<{}}", row[i], widths[i])
                     : fmt::format("  {:>{}}", row[i], widths[i]);
    }
    // An empty last cell leaves no spaces at the end of a line, which a diff would show.
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  return text;
}

}  // namespace forebay::cli

// Numbers and tables for people.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace forebay::cli {

std::string HumanBytes(std::uint64_t bytes);    // "1.5 GiB"
std::string HumanCount(std::uint64_t count);    // "1,281,167"
std::string HumanSeconds(double seconds);       // "0.42 s", "3 min 05 s", "2 h 10 min"
std::string HumanRate(double bytes_per_second);  // "812 MB/s"

// Left-aligned first column, right-aligned others, two spaces between. Cells are shown as
// PrintableLine: a row is one line, whatever names stand in it.
class TextTable {
 public:
  explicit TextTable(std::vector<std::string> header) { Add(std::move(header)); }
  void Add(std::vector<std::string> cells);
  std::size_t row_count() const { return rows_.size() - 1; }
  std::string ToString() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace forebay::cli

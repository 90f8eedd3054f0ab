// Occurrences: how often what happened in all sequences, so that a run proves that it tried what
// it claims to have tried.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace forebay::model {

// Not thread-safe.
class Occurrences {
 public:
  // With everything that must happen at least once.
  explicit Occurrences(const std::vector<std::string>& required) {
    for (const std::string& what : required) counts_[what] = 0;
  }

  void Count(std::string_view what, std::uint64_t times = 1) {
    counts_[std::string(what)] += times;
  }
  std::vector<std::string> Missing() const {
    std::vector<std::string> missing;
    for (const auto& [what, count] : counts_) {
      if (count == 0) missing.push_back(what);
    }
    return missing;
  }
  const std::map<std::string, std::uint64_t>& counts() const { return counts_; }

 private:
  std::map<std::string, std::uint64_t> counts_;
};

}  // namespace forebay::model

// A rule replaces a prefix of a parameter's name; '#' in it stands for a number that both names
// have. The first rule that fits counts, so longer prefixes come first in a table.
#include "trainer/models/name_table.h"

#include <algorithm>
#include <cstddef>
#include <optional>

namespace forebay::train {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// What follows `rule.own` in `own`, after `number` took the place of '#'; nullopt where it does
// not start so.
std::optional<std::string_view> AfterPrefix(const NameRule& rule, std::string_view own,
                                            std::string_view& number) {
  for (const char expected : rule.own) {
    if (expected == '#') {
      const auto digits = static_cast<std::size_t>(
          std::ranges::find_if_not(own, IsDigit) - own.begin());
      if (digits == 0) return std::nullopt;
      number = own.substr(0, digits);
      own.remove_prefix(digits);
      continue;
    }
    if (own.empty() || own.front() != expected) return std::nullopt;
    own.remove_prefix(1);
  }
  return own;
}

}  // namespace

std::string ForeignName(std::span<const NameRule> names, std::string_view own) {
  // A name without a rule is the same in both.
  for (const NameRule& rule : names) {
    std::string_view number;
    const std::optional<std::string_view> rest = AfterPrefix(rule, own, number);
    if (!rest) continue;
    std::string foreign;
    for (const char c : rule.foreign) {
      if (c == '#') {
        foreign += number;
      } else {
        foreign += c;
      }
    }
    return foreign += *rest;
  }
  return std::string(own);
}

// PyTorch's batch normalisation counts its batches in a tensor, which no model here has.
bool IsNoWeight(std::string_view foreign) { return foreign.ends_with("num_batches_tracked"); }

}  // namespace forebay::train

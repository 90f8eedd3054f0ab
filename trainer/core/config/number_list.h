// Numbers and lists of numbers in the text of configuration keys: "0.485,0.456", "3x224x224",
// "30,60,80". Every key that has such a value is read through these functions.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

namespace forebay::train {

// `text` without spaces at its ends.
inline std::string_view TrimSpaces(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

// The parts of `text` between separators, without spaces at their ends. An empty text has no
// parts; "a,,b" has an empty one, and so has "a,".
inline std::vector<std::string_view> SplitText(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (bool more = !text.empty(); more;) {
    const std::size_t at = std::min(text.find(separator), text.size());
    parts.push_back(TrimSpaces(text.substr(0, at)));
    more = at < text.size();
    text.remove_prefix(std::min(at + 1, text.size()));
  }
  return parts;
}

// The number that all of `text` is; nullopt for anything else, and for what Number cannot hold.
template <typename Number>
std::optional<Number> ParseNumber(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// The numbers between separators; none in an empty text, nullopt if a part is not a number.
template <typename Number>
std::optional<std::vector<Number>> ParseNumbers(std::string_view text, char separator) {
  std::vector<Number> numbers;
  for (const std::string_view part : SplitText(text, separator)) {
    const std::optional<Number> number = ParseNumber<Number>(part);
    if (!number) return std::nullopt;
    numbers.push_back(*number);
  }
  return numbers;
}

}  // namespace forebay::train

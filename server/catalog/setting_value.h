// SettingValue: the value of a key of a [[dataset]] table, independent of the library that parsed
// the file. FormatSettings: the values of all keys that formats read. The daemon fills them; only
// the driver of a format knows what they mean.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "proto/contract/byte_cursor.h"
#include "proto/contract/result.h"

namespace forebay::catalog {

// A string, a whole number, a list of these, or a value of another kind, which no key accepts.
class SettingValue {
 public:
  // std::monostate: a value of another kind (true, 0.5, a table).
  using Scalar = std::variant<std::monostate, std::string, std::int64_t>;

  explicit SettingValue(Scalar scalar) : scalar_(std::move(scalar)) {}
  explicit SettingValue(std::vector<Scalar> list) : is_list_(true), list_(std::move(list)) {}

  bool is_empty_list() const { return is_list_ && list_.empty(); }

  // kInvalidArgument if the value is of another kind; the message says which kind is expected.
  Result<std::string> Text() const;
  Result<std::vector<std::string>> Texts() const;
  Result<std::uint64_t> Bytes() const;                   // a number that is not negative
  Result<std::vector<std::uint64_t>> Dimensions() const;  // positive numbers

  // The value as messages show it: text, 7, [a, b].
  std::string Shown() const;
  // Appends the value. Different values append different bytes.
  void AppendTo(ByteWriter& writer) const;

 private:
  bool is_list_ = false;
  Scalar scalar_;
  std::vector<Scalar> list_;
};

// The values of keys, by name. A key whose value is an empty list counts as not set.
class FormatSettings {
 public:
  void Set(std::string_view key, SettingValue value);
  void SetText(std::string_view key, std::string text);
  void SetTexts(std::string_view key, const std::vector<std::string>& texts);
  void SetNumber(std::string_view key, std::uint64_t number);  // below 2^63
  void SetNumbers(std::string_view key, const std::vector<std::uint64_t>& numbers);
  void Clear(std::string_view key);
  // Null if the key is not set. Valid until the key is set or cleared.
  const SettingValue* Find(std::string_view key) const;

 private:
  std::map<std::string, SettingValue, std::less<>> values_;
};

// The error for a key of a [[dataset]] table: "dataset key 'shape': <reason>".
Error KeyError(std::string_view key, std::string_view reason);

}  // namespace forebay::catalog

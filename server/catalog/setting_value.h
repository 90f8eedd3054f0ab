// SettingValue: the value of a key of a [[dataset]] table, independent of the library that parsed
// the file. The daemon makes it, the driver of a format takes it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "proto/contract/result.h"

namespace forebay::catalog {

// A string, a whole number, a list of these, or a value of another kind, which no key takes.
class SettingValue {
 public:
  // std::monostate: a value of another kind (true, 0.5, a table).
  using Scalar = std::variant<std::monostate, std::string, std::int64_t>;

  explicit SettingValue(Scalar scalar) : scalar_(std::move(scalar)) {}
  explicit SettingValue(std::vector<Scalar> list) : is_list_(true), list_(std::move(list)) {}

  // kInvalidArgument where the value is of another kind; the message says which kind is expected.
  Result<std::string> Text() const;
  Result<std::vector<std::string>> Texts() const;
  Result<std::uint64_t> Bytes() const;                   // a number that is not negative
  Result<std::vector<std::uint64_t>> Dimensions() const;  // positive numbers

 private:
  bool is_list_ = false;
  Scalar scalar_;
  std::vector<Scalar> list_;
};

// A list of texts as messages show it: "[a, b]".
std::string ListText(std::span<const std::string> texts);

// The error for a key of a [[dataset]] table: "dataset key 'shape': <reason>".
Error KeyError(std::string_view key, std::string_view reason);

}  // namespace forebay::catalog

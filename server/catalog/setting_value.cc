// Checks the kind of a value; what a value means is for the key that takes it.
#include "server/catalog/setting_value.h"

namespace forebay::catalog {
namespace {

Error Expected(const char* kind) {
  return Error(ErrorCode::kInvalidArgument, std::string(kind) + " is expected");
}

}  // namespace

Result<std::string> SettingValue::Text() const {
  const auto* text = std::get_if<std::string>(&scalar_);
  if (is_list_ || text == nullptr) return Expected("a string");
  return *text;
}

Result<std::vector<std::string>> SettingValue::Texts() const {
  if (!is_list_) return Expected("a list of strings");
  std::vector<std::string> texts;
  for (const Scalar& entry : list_) {
    const auto* text = std::get_if<std::string>(&entry);
    if (text == nullptr) return Expected("a list of strings");
    texts.push_back(*text);
  }
  return texts;
}

Result<std::uint64_t> SettingValue::Bytes() const {
  const auto* number = std::get_if<std::int64_t>(&scalar_);
  if (is_list_ || number == nullptr || *number < 0) return Expected("a whole number of bytes");
  return static_cast<std::uint64_t>(*number);
}

Result<std::vector<std::uint64_t>> SettingValue::Dimensions() const {
  if (!is_list_) return Expected("a list of whole numbers");
  std::vector<std::uint64_t> dimensions;
  for (const Scalar& entry : list_) {
    const auto* number = std::get_if<std::int64_t>(&entry);
    if (number == nullptr || *number <= 0) return Expected("a list of positive whole numbers");
    dimensions.push_back(static_cast<std::uint64_t>(*number));
  }
  return dimensions;
}

std::string ListText(std::span<const std::string> texts) {
  std::string list;
  for (const std::string& text : texts) list += (list.empty() ? "" : ", ") + text;
  return "[" + list + "]";
}

Error KeyError(std::string_view key, std::string_view reason) {
  return Error(ErrorCode::kInvalidArgument,
               "dataset key '" + std::string(key) + "': " + std::string(reason));
}

}  // namespace forebay::catalog

// Checks the kind of a value and turns it into text, numbers or lists. Whether a value of the right
// kind is valid is checked by the key that reads it (FormatKey::check).
#include "server/catalog/setting_value.h"

namespace forebay::catalog {
namespace {

Error Expected(const char* kind) {
  return Error(ErrorCode::kInvalidArgument, std::string(kind) + " is expected");
}

std::string ShownScalar(const SettingValue::Scalar& scalar) {
  if (const auto* text = std::get_if<std::string>(&scalar)) return *text;
  // Both kinds are written without quotation marks. Messages lose nothing by this, and AppendTo
  // writes the kind beside the text.
  if (const auto* number = std::get_if<std::int64_t>(&scalar)) return std::to_string(*number);
  return "?";  // true, 0.5, a table: every key refuses it
}

}  // namespace

Result<std::string> SettingValue::Text() const {
  const auto* text = std::get_if<std::string>(&scalar_);
  if (is_list_ || text == nullptr) return Expected("a string");
  return *text;
}

Result<std::vector<std::string>> SettingValue::Texts() const {
  // One string is not taken for a list of one: a key is written in one way.
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
  // The sign is refused here, because a negative number would become a size near 2^64 in the cast.
  const auto* number = std::get_if<std::int64_t>(&scalar_);
  if (is_list_ || number == nullptr || *number < 0) return Expected("a whole number of bytes");
  return static_cast<std::uint64_t>(*number);
}

Result<std::vector<std::uint64_t>> SettingValue::Dimensions() const {
  if (!is_list_) return Expected("a list of whole numbers");
  std::vector<std::uint64_t> dimensions;
  for (const Scalar& entry : list_) {
    const auto* number = std::get_if<std::int64_t>(&entry);
    // A dimension of 0 would make samples of no bytes.
    if (number == nullptr || *number <= 0) return Expected("a list of positive whole numbers");
    dimensions.push_back(static_cast<std::uint64_t>(*number));
  }
  return dimensions;
}

std::string SettingValue::Shown() const {
  if (!is_list_) return ShownScalar(scalar_);
  std::string list;
  for (const Scalar& entry : list_) list += (list.empty() ? "" : ", ") + ShownScalar(entry);
  return "[" + list + "]";
}

void SettingValue::AppendTo(ByteWriter& writer) const {
  // The kind of each entry is written too, so that the text "7" and the number 7 differ.
  // The number of entries is written before them, so that a value cannot be read as the start of
  // the value that follows it.
  const std::vector<Scalar> one = {scalar_};
  writer.Le<std::uint8_t>(is_list_ ? 1 : 0);
  writer.Varint(is_list_ ? list_.size() : 1);
  for (const Scalar& entry : is_list_ ? list_ : one) {
    writer.Le<std::uint8_t>(static_cast<std::uint8_t>(entry.index()));
    writer.String(ShownScalar(entry));
  }
}

void FormatSettings::Set(std::string_view key, SettingValue value) {
  Clear(key);
  // `files = []` means the same as no `files` at all.
  if (!value.is_empty_list()) values_.emplace(key, std::move(value));
}

void FormatSettings::SetText(std::string_view key, std::string text) {
  Set(key, SettingValue(SettingValue::Scalar(std::move(text))));
}

void FormatSettings::SetTexts(std::string_view key, const std::vector<std::string>& texts) {
  Set(key, SettingValue(std::vector<SettingValue::Scalar>(texts.begin(), texts.end())));
}

void FormatSettings::SetNumber(std::string_view key, std::uint64_t number) {
  // Configuration files have signed 64-bit numbers, so numbers of 2^63 and more need no form here.
  Set(key, SettingValue(SettingValue::Scalar(static_cast<std::int64_t>(number))));
}

void FormatSettings::SetNumbers(std::string_view key, const std::vector<std::uint64_t>& numbers) {
  std::vector<SettingValue::Scalar> list;
  for (const std::uint64_t number : numbers) list.emplace_back(static_cast<std::int64_t>(number));
  Set(key, SettingValue(std::move(list)));
}

void FormatSettings::Clear(std::string_view key) {
  const auto found = values_.find(key);
  if (found != values_.end()) values_.erase(found);
}

const SettingValue* FormatSettings::Find(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

Error KeyError(std::string_view key, std::string_view reason) {
  return Error(ErrorCode::kInvalidArgument,
               "dataset key '" + std::string(key) + "': " + std::string(reason));
}

}  // namespace forebay::catalog

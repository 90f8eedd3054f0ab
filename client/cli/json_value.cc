// The JSON of `forebay`: values are kept as the text that is printed. Strings and floating-point
// numbers are written by the JSON library, because escaping and the shortest digits of a number are
// easy to get wrong; the rest is commas and braces. Objects are parsed again for each question,
// since the commands ask two or three of a small object.
#include "client/cli/json_value.h"

#include <nlohmann/json.hpp>

namespace forebay::cli {
namespace {

using Json = nlohmann::ordered_json;  // keeps the members' order

std::string Written(const Json& value) {
  // Escapes all but ASCII, and replaces bytes that are not UTF-8, which names of files may have.
  return value.dump(-1, ' ', true, Json::error_handler_t::replace);
}

// The member `name` of the object `text`; null where there is none.
Json Member(const std::string& text, std::string_view name) {
  const Json object = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto found = object.find(name);
  return found == object.end() ? Json() : *found;
}

}  // namespace

JsonValue::JsonValue(std::string_view text) : text_(Written(Json(text))) {}
JsonValue::JsonValue(double number) : text_(Written(Json(number))) {}
JsonValue::JsonValue(const JsonObject& object) : text_(object.Text()) {}
JsonValue::JsonValue(const JsonArray& array) : text_(array.Text()) {}

JsonValue::JsonValue(const std::vector<std::string>& texts) {
  // Each text becomes a value first, so that its quotes and control characters are escaped.
  JsonArray array;
  for (const std::string& text : texts) array.Add(text);
  text_ = array.Text();
}

JsonObject::JsonObject(std::initializer_list<JsonMember> members) {
  for (const JsonMember& member : members) Add(member.name, member.value);
}

void JsonObject::Add(std::string_view name, const JsonValue& value) {
  // Objects have some twenty members: a search is as good as an index.
  for (auto& [there, text] : members_) {
    if (there != name) continue;
    text = value.text();
    return;
  }
  members_.emplace_back(name, value.text());
}

void JsonObject::Add(const JsonObject& more) {
  // Names are not compared with those that are there already, because the callers only add objects
  // of other members.
  for (const auto& [name, text] : more.members_) members_.emplace_back(name, text);
}

std::string JsonObject::Text() const {
  std::string text = "{";
  for (const auto& [name, value] : members_) {
    if (text.size() > 1) text += ',';
    text += Written(Json(name));
    text += ':';
    text += value;
  }
  return text + "}";
}

void JsonArray::Add(const JsonValue& value) {
  if (!elements_.empty()) elements_ += ',';
  elements_ += value.text();
}

std::optional<ParsedJson> ParsedJson::Parse(std::string_view text) {
  const Json object = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return std::nullopt;
  ParsedJson parsed;
  // The text is written again from the parsed value and not kept as it came: it may be printed as
  // part of our JSON, where line ends inside it would break "one object per line".
  parsed.value_.text_ = Written(object);
  return parsed;
}

std::string ParsedJson::Text(std::string_view name) const {
  const Json member = Member(value_.text(), name);
  return member.is_string() ? member.get<std::string>() : std::string();
}

double ParsedJson::Number(std::string_view name) const {
  const Json member = Member(value_.text(), name);
  return member.is_number() ? member.get<double>() : 0;
}

std::uint64_t ParsedJson::Count(std::string_view name) const {
  const Json member = Member(value_.text(), name);
  // Absent, negative and fractional counts read as 0; the events of the trainer have none of them.
  return member.is_number_unsigned() ? member.get<std::uint64_t>() : 0;
}

}  // namespace forebay::cli

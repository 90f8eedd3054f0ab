// JSON that `forebay` prints, built member by member, and the little JSON that it reads.
//
// The commands build objects much as they are printed:
//
//   JsonObject object = {{"path", path}, {"samples", samples}};
//   object.Add("ratio", 1.5);
//   context.PrintJson("pack", object);
//
// These are plain classes around text. The JSON library is used in json_value.cc alone, because its
// templates took longer to compile than the commands that print with them.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace forebay::cli {

class JsonObject;
class JsonArray;

// One value, as the text it is printed as. Bytes of a string that are no UTF-8 become U+FFFD; all
// but ASCII is escaped. A number that JSON does not have (NaN, infinity) becomes null.
class JsonValue {
 public:
  JsonValue() : text_("null") {}
  JsonValue(std::string_view text);
  JsonValue(const std::string& text) : JsonValue(std::string_view(text)) {}
  JsonValue(const char* text) : JsonValue(std::string_view(text)) {}
  template <std::integral Integer>
  JsonValue(Integer number) {
    if constexpr (std::same_as<Integer, bool>) {
      text_ = number ? "true" : "false";
    } else {
      text_ = std::to_string(number);
    }
  }
  JsonValue(double number);
  JsonValue(const JsonObject& object);
  JsonValue(const JsonArray& array);
  JsonValue(const std::vector<std::string>& texts);

  const std::string& text() const { return text_; }

 private:
  friend class ParsedJson;
  std::string text_;
};

struct JsonMember {
  std::string_view name;
  JsonValue value;
};

// Members keep the order in which they were added.
class JsonObject {
 public:
  JsonObject() = default;
  JsonObject(std::initializer_list<JsonMember> members);

  // A member of that name which is there already keeps its place and gets the new value.
  void Add(std::string_view name, const JsonValue& value);
  // Adds all members of `more`.
  void Add(const JsonObject& more);
  bool empty() const { return members_.empty(); }
  std::string Text() const;

 private:
  std::vector<std::pair<std::string, std::string>> members_;  // names, and the values' texts
};

class JsonArray {
 public:
  void Add(const JsonValue& value);
  std::string Text() const { return "[" + elements_ + "]"; }

 private:
  std::string elements_;  // with commas between them
};

// An object that another program wrote.
class ParsedJson {
 public:
  // Nothing where the text is no JSON, or its value is no object.
  static std::optional<ParsedJson> Parse(std::string_view text);

  // The member `name` if there is one of that type; otherwise "" and 0.
  std::string Text(std::string_view name) const;
  double Number(std::string_view name) const;
  std::uint64_t Count(std::string_view name) const;
  // The whole object, to be printed as a part of another.
  const JsonValue& value() const { return value_; }

 private:
  JsonValue value_;
};

}  // namespace forebay::cli

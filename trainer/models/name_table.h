// NameRule: how other libraries name the parameters of the same models
// (ModelFamily::foreign_names).
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace forebay::train {

// Names that start with `own` here start with `foreign` there. '#' stands for a number, the same in
// both.
struct NameRule {
  std::string_view own;
  std::string_view foreign;
};

// Translates `own` by the first rule that fits; returns it unchanged if none does.
std::string ForeignName(std::span<const NameRule> names, std::string_view own);

// Whether a tensor of another library has no counterpart here: counters of batch normalisation.
bool IsNoWeight(std::string_view foreign);

}  // namespace forebay::train

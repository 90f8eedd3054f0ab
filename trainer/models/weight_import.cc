// Matches every tensor of the model with one of the file, by its foreign name or by its own, and
// lists all differences at once. A file that does not fit as a whole is refused, because a model
// with some random weights trains, but worse than its user expects.
#include "trainer/models/weight_import.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

namespace forebay::train {
namespace {

// What the user wants to train from scratch, such as the head of another task.
bool IsFresh(std::string_view own, const ImportOptions& options) {
  return std::ranges::any_of(options.fresh, [&](const std::string& prefix) {
    return own.starts_with(prefix);
  });
}

// What is wrong with a file, by kind.
class Complaints {
 public:
  void Add(std::string_view kind, std::string text) {
    std::vector<std::string>& texts = by_kind_[std::string(kind)];
    texts.push_back(std::move(text));
  }
  bool empty() const { return by_kind_.empty(); }
  std::string Text() const {
    // A file of another network has hundreds of differences.
    constexpr std::size_t kShown = 10;
    std::string text;
    for (const auto& [kind, names] : by_kind_) {
      const std::size_t shown = std::min(names.size(), kShown);
      text += fmt::format("{}{} {}: {}", text.empty() ? "" : "; ", names.size(), kind,
                          fmt::join(names.begin(), names.begin() +
                                        static_cast<std::ptrdiff_t>(shown), ", "));
      if (shown < names.size()) text += " ...";
    }
    return text;
  }

 private:
  std::map<std::string, std::vector<std::string>> by_kind_;
};

}  // namespace

// Goes through the model's tensors, then through those of the file that no tensor of the model
// asked for.
Result<std::vector<WeightMatch>> MatchWeights(const SafetensorsHeader& header,
                                              std::span<const WantedTensor> wanted,
                                              const ImportOptions& options) {
  // By name, because the order in the file is that of its writer.
  std::map<std::string_view, const TensorEntry*> present;
  for (const TensorEntry& entry : header.tensors) present.emplace(entry.name, &entry);
  std::set<std::string_view> known;
  std::vector<WeightMatch> matches;
  Complaints complaints;
  for (const WantedTensor& tensor : wanted) {
    const std::string foreign = ForeignName(options.names, tensor.name);
    auto found = present.find(foreign);
    if (found == present.end()) found = present.find(tensor.name);
    // Also those that stay fresh: the file has them, and they are not unknown.
    if (found != present.end()) known.insert(found->first);
    if (IsFresh(tensor.name, options)) continue;
    if (found == present.end()) {
      complaints.Add("missing", foreign);
      continue;
    }
    const TensorEntry& entry = *found->second;
    if (entry.shape != tensor.shape) {
      complaints.Add("of another shape", fmt::format("{} {}, the model has {}", entry.name,
                                                     entry.shape, tensor.shape));
    } else if (!FloatsOf(entry.dtype, {}).has_value()) {
      complaints.Add("not of F32, F16 or BF16", fmt::format("{} of {}", entry.name, entry.dtype));
    } else {
      matches.push_back({.name = tensor.name, .entry = &entry});
    }
  }
  for (const TensorEntry& entry : header.tensors) {
    if (!known.contains(entry.name) && !IsNoWeight(entry.name)) {
      complaints.Add("unknown to the model", entry.name);
    }
  }
  if (complaints.empty()) return matches;
  return Error(ErrorCode::kFailedPrecondition,
               fmt::format("these are not the model's weights; tensors {}", complaints.Text()));
}

}  // namespace forebay::train

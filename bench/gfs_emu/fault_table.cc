#include "bench/gfs_emu/fault_table.h"

#include <fnmatch.h>

#include <charconv>
#include <sstream>
#include <utility>

namespace forebay::bench {
namespace {

Result<std::uint64_t> ParseCount(std::string_view word, std::string_view digits) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || value > 1'000'000'000'000) {
    return Error(ErrorCode::kInvalidArgument, "fault: not a number: " + std::string(word));
  }
  return value;
}

Result<FaultKind> ParseKind(std::string_view word) {
  for (const FaultKind kind :
       {FaultKind::kEio, FaultKind::kStall, FaultKind::kShort, FaultKind::kFlip}) {
    if (FaultKindName(kind) == word) return kind;
  }
  return Error(ErrorCode::kInvalidArgument,
               "fault: unknown kind \"" + std::string(word) + "\" (eio, stall, short, flip)");
}

}  // namespace

std::string_view FaultKindName(FaultKind kind) {
  switch (kind) {
    case FaultKind::kEio: return "eio";
    case FaultKind::kStall: return "stall";
    case FaultKind::kShort: return "short";
    case FaultKind::kFlip: return "flip";
  }
  return "unknown";
}

Result<FaultRule> FaultTable::Parse(std::string_view text) {
  std::istringstream words{std::string(text)};
  std::string word;
  FaultRule rule;
  if (!(words >> word)) return Error(ErrorCode::kInvalidArgument, "fault: no kind");
  FOREBAY_ASSIGN(rule.kind, ParseKind(word));
  if (!(words >> rule.pattern)) return Error(ErrorCode::kInvalidArgument, "fault: no pattern");
  while (words >> word) {
    const std::string_view view = word;
    const auto equals = view.find('=');
    const std::string_view key = view.substr(0, equals);
    if (equals == std::string_view::npos || (key != "after" && key != "count" && key != "ms")) {
      return Error(ErrorCode::kInvalidArgument, "fault: unknown word \"" + word + "\"");
    }
    FOREBAY_ASSIGN(const std::uint64_t value, ParseCount(view, view.substr(equals + 1)));
    if (key == "after") rule.after_reads = value;
    if (key == "count") rule.count = value;
    if (key == "ms") rule.stall_ms = static_cast<std::int64_t>(value);
  }
  return rule;
}

Status FaultTable::Add(FaultRule rule) {
  const std::lock_guard lock(mutex_);
  if (rules_.size() >= kRulesMax) {
    return Error(ErrorCode::kResourceExhausted, "fault: at most 64 rules");
  }
  rules_.push_back(std::move(rule));
  return {};
}

void FaultTable::Clear() {
  const std::lock_guard lock(mutex_);
  rules_.clear();
}

std::optional<Fault> FaultTable::OnRead(const std::string& path) {
  const std::lock_guard lock(mutex_);
  std::optional<Fault> fault;
  for (FaultRule& rule : rules_) {
    if (fnmatch(rule.pattern.c_str(), path.c_str(), 0) != 0) continue;
    if (rule.seen_reads++ < rule.after_reads) continue;
    if (fault || (rule.count != 0 && rule.injected >= rule.count)) continue;
    ++rule.injected;
    fault = Fault{.kind = rule.kind, .stall_ms = rule.stall_ms};
  }
  return fault;
}

std::vector<FaultRule> FaultTable::Snapshot() const {
  const std::lock_guard lock(mutex_);
  return rules_;
}

}  // namespace forebay::bench

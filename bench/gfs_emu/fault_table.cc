// Rules are kept in the order in which they were added, and an operation meets the first that is
// due. Each rule counts what it saw and what it injected: a test asserts these numbers, because a
// fault test in which nothing was injected has shown nothing.
#include "bench/gfs_emu/fault_table.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <sstream>
#include <utility>

namespace forebay::bench {
namespace {

constexpr std::int64_t kNsPerMs = 1'000'000;
constexpr std::array kOperations = {GfsOperation::kRead, GfsOperation::kOpen,
                                    GfsOperation::kGetattr, GfsOperation::kLookup,
                                    GfsOperation::kReaddir};
// The bits are those of the enumerators, which therefore must count from 0 without gaps.
constexpr std::uint32_t kAllOperations = (1U << kOperations.size()) - 1;

constexpr std::uint32_t BitOf(GfsOperation operation) {
  return 1U << static_cast<unsigned>(operation);
}
constexpr std::uint32_t kReadOnly = BitOf(GfsOperation::kRead);

struct ErrnoName {
  std::string_view name;
  int number;
};
// What file systems of clusters answer when they are unwell, or when something is gone.
constexpr std::array<ErrnoName, 12> kErrnoNames = {{{"EIO", EIO},
                                                    {"ESTALE", ESTALE},
                                                    {"ETIMEDOUT", ETIMEDOUT},
                                                    {"EAGAIN", EAGAIN},
                                                    {"EREMOTEIO", EREMOTEIO},
                                                    {"ENOTCONN", ENOTCONN},
                                                    {"EHOSTDOWN", EHOSTDOWN},
                                                    {"ENODEV", ENODEV},
                                                    {"ENOENT", ENOENT},
                                                    {"EACCES", EACCES},
                                                    {"EPERM", EPERM},
                                                    {"EINTR", EINTR}}};

// A kind that is not an errno: its name, the words that may follow it, and where it applies.
struct KindRow {
  std::string_view name;
  FaultKind kind;
  std::string_view words;
  std::uint32_t operations_allowed;
  std::uint32_t operations;  // where the line names none
};
// A row for each kind, so that the parser, its messages and the defaults cannot disagree.
constexpr std::array<KindRow, 6> kKinds = {{
    {"stall", FaultKind::kStall, "ops after count ms client", kAllOperations, kReadOnly},
    {"short", FaultKind::kShort, "ops after count client", kReadOnly, kReadOnly},
    {"flip", FaultKind::kFlip, "ops after count client", kReadOnly, kReadOnly},
    {"hang", FaultKind::kHang, "ops after count client", kAllOperations, kReadOnly},
    {"outage", FaultKind::kOutage, "ops after ms errno client", kAllOperations, kAllOperations},
    {"remount", FaultKind::kRemount, "", kAllOperations, kAllOperations},
}};
constexpr KindRow kErrorRow = {"", FaultKind::kError, "ops after count client", kAllOperations,
                               kReadOnly};

std::string Lower(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

Error Wrong(const std::string& what) {
  return Error(ErrorCode::kInvalidArgument, "fault: " + what);
}

Result<int> ParseErrno(std::string_view name) {
  // A list of our own, because the C library cannot turn a name into a number.
  for (const ErrnoName& known : kErrnoNames) {
    if (known.name == name) return known.number;
  }
  std::string names;
  for (const ErrnoName& known : kErrnoNames) names.append(" ").append(known.name);
  return Wrong("unknown errno \"" + std::string(name) + "\" (known:" + names + ")");
}

Result<KindRow> ParseKind(std::string_view word, FaultRule& rule) {
  for (const KindRow& row : kKinds) {
    if (row.name == word) return row;
  }
  // A kind may be an errno in lower case; a rule's errno= is in upper case. The two cannot be
  // confused.
  for (const ErrnoName& known : kErrnoNames) {
    if (Lower(known.name) != word) continue;
    rule.error_number = known.number;
    return kErrorRow;
  }
  std::string names;
  for (const KindRow& row : kKinds) names.append(row.name).append(", ");
  return Wrong("unknown kind \"" + std::string(word) + "\" (" + names +
               "or an errno in lower case, such as eio)");
}

Result<std::uint32_t> ParseOperations(std::string_view list) {
  if (list == "all") return kAllOperations;
  std::uint32_t operations = 0;
  // Ends with the last name: a list without a comma is one name, and an empty one is refused as
  // unknown.
  while (true) {
    const std::string_view name = list.substr(0, list.find(','));
    const auto known = std::ranges::find(kOperations, name, GfsOperationName);
    if (known == kOperations.end()) {
      return Wrong("unknown operation \"" + std::string(name) +
                   "\" (read, open, getattr, lookup, readdir, all)");
    }
    operations |= BitOf(*known);
    if (name.size() == list.size()) return operations;
    list.remove_prefix(name.size() + 1);
  }
}

Result<std::uint64_t> ParseCount(std::string_view word, std::string_view digits) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  // The bound keeps ms * 10^6 within 64 bits.
  if (error != std::errc() || end != digits.data() + digits.size() || value > 1'000'000'000'000) {
    return Wrong("not a number: " + std::string(word));
  }
  return value;
}

bool IsWordOf(const KindRow& row, std::string_view key) {
  std::istringstream words{std::string(row.words)};
  for (std::string word; words >> word;) {
    if (word == key) return true;
  }
  return false;
}

Status ParseWord(std::string_view word, const KindRow& row, FaultRule& rule) {
  const auto equals = word.find('=');
  const std::string_view key = word.substr(0, equals);
  // A word that does not belong to the kind is refused: a test with a misspelt word would wait for
  // a fault that never comes.
  if (equals == std::string_view::npos || !IsWordOf(row, key)) {
    return Wrong("\"" + std::string(word) + "\" is not a word of " + rule.KindName() +
                 (row.words.empty() ? ", which has none"
                                    : " (" + std::string(row.words) + ", each with =)"));
  }
  const std::string_view text = word.substr(equals + 1);
  if (key == "ops") {
    FOREBAY_ASSIGN(rule.operations, ParseOperations(text));
    if ((rule.operations & ~row.operations_allowed) != 0) {
      return Wrong(rule.KindName() + " befalls reads alone");
    }
    return {};
  }
  if (key == "errno") {
    FOREBAY_ASSIGN(rule.error_number, ParseErrno(text));
    return {};
  }
  FOREBAY_ASSIGN(const std::uint64_t value, ParseCount(word, text));
  if (key == "after") rule.after = value;
  if (key == "count") rule.count = value;
  if (key == "ms") rule.ms = static_cast<std::int64_t>(value);
  if (key == "client") rule.client = static_cast<pid_t>(value);
  return {};
}

// True where the rule, which has seen the operation, makes a fault of it.
bool Befalls(FaultRule& rule, std::int64_t now_ns) {
  // `seen` counts this operation already. A remount befalls objects and no operations: what is
  // stale is decided by number (GfsFilesystem::TakeFault).
  if (rule.kind == FaultKind::kRemount || rule.seen <= rule.after) return false;
  if (rule.kind == FaultKind::kOutage) {
    // An outage with `after` begins at the operation that exceeds it, and not when the rule was
    // added.
    if (!rule.until_ns) rule.until_ns = now_ns + rule.ms * kNsPerMs;
    return now_ns < *rule.until_ns;
  }
  return rule.count == 0 || rule.injected < rule.count;
}

bool Matches(const FaultRule& rule, const std::string& path) {
  // FNM_PATHNAME is not set, so "*" also matches paths in folders.
  return fnmatch(rule.pattern.c_str(), path.c_str(), 0) == 0;
}

}  // namespace

std::string_view GfsOperationName(GfsOperation operation) {
  switch (operation) {
    case GfsOperation::kRead: return "read";
    case GfsOperation::kOpen: return "open";
    case GfsOperation::kGetattr: return "getattr";
    case GfsOperation::kLookup: return "lookup";
    case GfsOperation::kReaddir: return "readdir";
  }
  return "unknown";
}

std::string FaultRule::KindName() const {
  for (const KindRow& row : kKinds) {
    if (row.kind == kind) return std::string(row.name);
  }
  for (const ErrnoName& known : kErrnoNames) {
    if (known.number == error_number) return Lower(known.name);
  }
  return "unknown";
}

Result<FaultRule> FaultTable::Parse(std::string_view text) {
  std::istringstream words{std::string(text)};
  std::string word;
  // Defaults of the kind first, so that words of the line can override them.
  FaultRule rule;
  if (!(words >> word)) return Wrong("no kind");
  FOREBAY_ASSIGN(const KindRow row, ParseKind(word, rule));
  rule.kind = row.kind;
  rule.operations = row.operations;
  if (rule.kind == FaultKind::kOutage) rule.error_number = EIO;
  if (!(words >> rule.pattern)) return Wrong("no pattern");
  bool has_ms = false;
  while (words >> word) {
    FOREBAY_TRY(ParseWord(word, row, rule));
    has_ms = has_ms || word.starts_with("ms=");
  }
  // The length of an outage is the point of the test that asks for it, so there is no default.
  if (rule.kind == FaultKind::kOutage && !has_ms) return Wrong("outage needs ms=N, its length");
  return rule;
}

Status FaultTable::Add(FaultRule rule, std::int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  if (rules_.size() >= kRulesMax) {
    return Error(ErrorCode::kResourceExhausted, "fault: at most 64 rules; write \"clear\" first");
  }
  // Begins now, so that a test can write the rule and know that the GFS is down when its write
  // returns.
  if (rule.kind == FaultKind::kOutage && rule.after == 0) {
    rule.until_ns = now_ns + rule.ms * kNsPerMs;
  }
  rules_.push_back(std::move(rule));
  return {};
}

void FaultTable::Clear() {
  const std::lock_guard lock(mutex_);
  rules_.clear();
  // Requests that hang remember the count at which their fault befell them, so that a request which
  // is parked only after the clear is not left behind.
  ++clear_count_;
}

std::uint64_t FaultTable::clear_count() const {
  const std::lock_guard lock(mutex_);
  return clear_count_;
}

std::optional<Fault> FaultTable::Take(const std::string& path, GfsOperation operation,
                                      pid_t client, std::int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  std::optional<Fault> fault;
  for (FaultRule& rule : rules_) {
    const bool is_of_client = rule.client == 0 || rule.client == client;
    if (!rule.Concerns(operation) || !is_of_client || !Matches(rule, path)) continue;
    // Counted even if an earlier rule has the operation, so that `after` of each rule counts
    // operations and not what earlier rules left over.
    ++rule.seen;
    if (fault || !Befalls(rule, now_ns)) continue;
    ++rule.injected;
    // An operation is not told whether its neighbours fail too.
    const FaultKind kind = rule.kind == FaultKind::kOutage ? FaultKind::kError : rule.kind;
    fault = Fault{.kind = kind, .ms = rule.ms, .error_number = rule.error_number,
                  .clear_count = clear_count_};
  }
  return fault;
}

void FaultTable::CountStale(const std::string& path) {
  const std::lock_guard lock(mutex_);
  // The last matching remount is the one that made the object stale.
  for (auto rule = rules_.rbegin(); rule != rules_.rend(); ++rule) {
    if (rule->kind != FaultKind::kRemount || !Matches(*rule, path)) continue;
    ++rule->injected;
    return;
  }
}

std::vector<FaultRule> FaultTable::Snapshot() const {
  const std::lock_guard lock(mutex_);
  return rules_;
}

}  // namespace forebay::bench

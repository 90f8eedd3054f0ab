#include "tests/fault/fault_case.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <ostream>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "proto/contract/mix64.h"

namespace forebay::fault {
namespace {

template <typename Value>
struct Named {
  Value value;
  std::string_view name;
};

constexpr std::array<Named<FaultKind>, 18> kFaults = {{
    {FaultKind::kOutage300Ms, "outage-300ms"},
    {FaultKind::kOutage1S, "outage-1s"},
    {FaultKind::kOutage10S, "outage-10s"},
    {FaultKind::kOutage60S, "outage-60s"},
    {FaultKind::kLongOutage, "long-outage"},
    {FaultKind::kIoErrors, "io-errors"},
    {FaultKind::kInterrupts, "interrupts"},
    {FaultKind::kRemount, "remount"},
    {FaultKind::kHang, "hang"},
    {FaultKind::kHangAtEnd, "hang-at-end"},
    {FaultKind::kShortReads, "short-reads"},
    {FaultKind::kFlippedRead, "flipped-read"},
    {FaultKind::kFlippedReads, "flipped-reads"},
    {FaultKind::kSsdFlips, "ssd-flips"},
    {FaultKind::kSsdGone, "ssd-gone"},
    {FaultKind::kSsdFails, "ssd-fails"},
    {FaultKind::kSsdFull, "ssd-full"},
    {FaultKind::kNone, "none"},
}};
constexpr std::array<Named<Phase>, 4> kPhases = {{{Phase::kCataloguing, "cataloguing"},
                                                  {Phase::kStaging, "staging"},
                                                  {Phase::kStreaming, "streaming"},
                                                  {Phase::kEviction, "eviction"}}};
constexpr std::array<Named<OrderMode>, 2> kOrders = {
    {{OrderMode::kGlobal, "global"}, {OrderMode::kBlock, "block"}}};
constexpr std::array<Named<Tiers>, 4> kTiers = {{{Tiers::kRam, "ram"},
                                                 {Tiers::kSmallRam, "small-ram"},
                                                 {Tiers::kRamAndSsd, "ram-ssd"},
                                                 {Tiers::kLostSsd, "lost-ssd"}}};
constexpr std::array<Named<Format>, 3> kFormats = {
    {{Format::kRecords, "records"}, {Format::kTar, "tar"}, {Format::kFolder, "folder"}}};
constexpr std::array<Named<Arrival>, 3> kArrivals = {{{Arrival::kContiguous, "contiguous"},
                                                      {Arrival::kViews, "views"},
                                                      {Arrival::kInline, "inline"}}};

template <typename Value, std::size_t kCount>
std::string_view NameOf(const std::array<Named<Value>, kCount>& table, Value value) {
  for (const Named<Value>& row : table) {
    if (row.value == value) return row.name;
  }
  return "unknown";
}

template <typename Value, std::size_t kCount>
bool Parse(const std::array<Named<Value>, kCount>& table, std::string_view name, Value& value) {
  for (const Named<Value>& row : table) {
    if (row.name != name) continue;
    value = row.value;
    return true;
  }
  return false;
}

template <typename Value, std::size_t kCount>
Value Draw(const std::array<Named<Value>, kCount>& table, std::uint64_t& random_state) {
  return table[NextWord64(random_state) % kCount].value;
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

bool IsOutage(FaultKind kind) {
  return kind == FaultKind::kOutage300Ms || kind == FaultKind::kOutage1S ||
         kind == FaultKind::kOutage10S || kind == FaultKind::kOutage60S ||
         kind == FaultKind::kLongOutage;
}

bool IsFlip(FaultKind kind) {
  return kind == FaultKind::kFlippedRead || kind == FaultKind::kFlippedReads;
}

bool IsHang(FaultKind kind) {
  return kind == FaultKind::kHang || kind == FaultKind::kHangAtEnd;
}

bool TakesLong(FaultKind kind) {
  return kind == FaultKind::kOutage10S || kind == FaultKind::kOutage60S;
}

std::string_view WhyFaultExcluded(FaultKind fault, const FaultCase& cell) {
  if (!IsOfGfs(fault) && cell.tiers != Tiers::kRamAndSsd) {
    return "there is no SSD, or it is lost already";
  }
  if (fault == FaultKind::kSsdFlips && cell.phase == Phase::kCataloguing) {
    return "no segment has been written that could be damaged";
  }
  const bool is_first_read = cell.phase == Phase::kCataloguing || cell.phase == Phase::kStaging;
  const bool reads_once = cell.tiers == Tiers::kRam || cell.tiers == Tiers::kRamAndSsd;
  if (IsFlip(fault) &&
      (is_first_read || (reads_once && cell.phase == Phase::kStreaming))) {
    return "the first read of a byte is what all later ones are compared with";
  }
  if (fault == FaultKind::kShortReads && cell.phase == Phase::kCataloguing &&
      cell.format == Format::kRecords) {
    return "records are catalogued without a read";
  }
  return {};
}

// Two faults at once that tell nothing, because one hides the other.
std::string_view WhyPairExcluded(FaultKind first, FaultKind second) {
  if (first == second) return "one fault";
  if (IsOutage(first) && IsOutage(second)) return "one outage contains the other";
  if (IsHang(first) || IsHang(second)) return "what hangs is looked at alone";
  if (IsFlip(first) && IsFlip(second)) return "one flip contains the other";
  if (!IsOfGfs(first) && !IsOfGfs(second)) return "an SSD is lost once";
  return {};
}

// The pairs of the dimensions by which a selection is judged.
std::vector<std::tuple<int, int, int>> PairsOf(const FaultCase& cell) {
  const int fault = static_cast<int>(cell.fault);
  return {{0, fault, static_cast<int>(cell.phase)},
          {1, fault, static_cast<int>(cell.tiers)},
          {2, fault, static_cast<int>(cell.order)},
          {3, static_cast<int>(cell.phase), static_cast<int>(cell.format)},
          {4, static_cast<int>(cell.phase), static_cast<int>(cell.arrival)},
          {5, static_cast<int>(cell.phase), static_cast<int>(cell.tiers)}};
}

void Shuffle(std::vector<FaultCase>& cases, std::uint64_t random_state) {
  for (std::size_t i = cases.size(); i > 1; --i) {
    std::swap(cases[i - 1], cases[NextWord64(random_state) % i]);
  }
}

}  // namespace

std::vector<FaultKind> FaultCase::faults() const {
  std::vector<FaultKind> all = {fault};
  if (second_fault) all.push_back(*second_fault);
  return all;
}

std::string FaultCase::Name() const {
  std::string name(NameOf(kFaults, fault));
  if (second_fault) name.append("+").append(NameOf(kFaults, *second_fault));
  for (const std::string_view part :
       {NameOf(kPhases, phase), NameOf(kOrders, order), NameOf(kTiers, tiers),
        NameOf(kFormats, format), NameOf(kArrivals, arrival)}) {
    name.append("/").append(part);
  }
  return name + "/" + std::to_string(seed);
}

std::optional<FaultCase> ParseCase(std::string_view name) {
  const std::vector<std::string_view> parts = Split(name, '/');
  if (parts.size() != 7) return std::nullopt;
  FaultCase cell;
  const std::vector<std::string_view> faults = Split(parts[0], '+');
  if (faults.size() > 2 || !Parse(kFaults, faults[0], cell.fault)) return std::nullopt;
  if (faults.size() == 2 && !Parse(kFaults, faults[1], cell.second_fault.emplace())) {
    return std::nullopt;
  }
  const char* const end = parts[6].data() + parts[6].size();
  const auto number = std::from_chars(parts[6].data(), end, cell.seed);
  const bool is_known = Parse(kPhases, parts[1], cell.phase) &&
                        Parse(kOrders, parts[2], cell.order) &&
                        Parse(kTiers, parts[3], cell.tiers) &&
                        Parse(kFormats, parts[4], cell.format) &&
                        Parse(kArrivals, parts[5], cell.arrival) &&
                        number.ec == std::errc() && number.ptr == end;
  if (!is_known) return std::nullopt;
  return cell;
}

void PrintTo(const FaultCase& fault_case, std::ostream* out) { *out << fault_case.Name(); }

bool IsOfGfs(FaultKind kind) {
  return kind < FaultKind::kSsdFlips || kind == FaultKind::kNone;
}

bool HitsReadsOfSsd(FaultKind kind) {
  return kind == FaultKind::kSsdFlips || kind == FaultKind::kSsdGone ||
         kind == FaultKind::kSsdFails;
}

std::string_view WhyExcluded(const FaultCase& cell) {
  if (cell.order == OrderMode::kGlobal && cell.tiers == Tiers::kSmallRam) {
    return "order 'global' needs tiers that hold the data set, and is refused without";
  }
  for (const FaultKind fault : cell.faults()) {
    if (const std::string_view reason = WhyFaultExcluded(fault, cell); !reason.empty()) {
      return reason;
    }
  }
  return cell.second_fault ? WhyPairExcluded(cell.fault, *cell.second_fault) : std::string_view();
}

std::vector<FaultCase> WholeMatrix(std::uint64_t seed) {
  std::vector<FaultCase> cells;
  std::uint64_t random_state = seed;
  for (const auto& [fault, fault_name] : kFaults) {
    if (fault == FaultKind::kNone) continue;
    for (const auto& [phase, phase_name] : kPhases) {
      for (const auto& [order, order_name] : kOrders) {
        for (const auto& [tiers, tiers_name] : kTiers) {
          for (const auto& [format, format_name] : kFormats) {
            if (phase != Phase::kCataloguing && format != Format::kRecords) continue;
            const FaultCase cell = {.fault = fault,
                                    .second_fault = {},
                                    .phase = phase,
                                    .order = order,
                                    .tiers = tiers,
                                    .format = format,
                                    .arrival = Draw(kArrivals, random_state),
                                    .seed = seed};
            if (WhyExcluded(cell).empty()) cells.push_back(cell);
          }
        }
      }
    }
  }
  return cells;
}

std::vector<FaultCase> QuickSelection(std::uint64_t seed) {
  std::vector<FaultCase> cells = WholeMatrix(seed);
  Shuffle(cells, seed);
  std::erase_if(cells, [](const FaultCase& cell) { return TakesLong(cell.fault); });
  std::set<std::tuple<int, int, int>> covered;
  std::vector<FaultCase> selected;
  // Greedily the cell that covers most of what is not covered yet.
  while (true) {
    const FaultCase* best = nullptr;
    std::ptrdiff_t best_count = 0;
    for (const FaultCase& cell : cells) {
      const auto pairs = PairsOf(cell);
      const auto count = std::ranges::count_if(
          pairs, [&](const auto& pair) { return !covered.contains(pair); });
      if (count <= best_count) continue;
      best = &cell;
      best_count = count;
    }
    if (best == nullptr) return selected;
    for (const auto& pair : PairsOf(*best)) covered.insert(pair);
    selected.push_back(*best);
  }
}

FaultCase RandomCase(std::uint64_t& random_state) {
  while (true) {
    FaultCase cell = {.fault = Draw(kFaults, random_state),
                      .second_fault = {},
                      .phase = Draw(kPhases, random_state),
                      .order = Draw(kOrders, random_state),
                      .tiers = Draw(kTiers, random_state),
                      .format = Draw(kFormats, random_state),
                      .arrival = Draw(kArrivals, random_state),
                      .seed = NextWord64(random_state) % 1'000'000};
    if (NextWord64(random_state) % 2 == 0) cell.second_fault = Draw(kFaults, random_state);
    const bool is_unfit = cell.Has(FaultKind::kNone) ||
                          std::ranges::any_of(cell.faults(), TakesLong);
    if (!is_unfit && WhyExcluded(cell).empty()) return cell;
  }
}

}  // namespace forebay::fault

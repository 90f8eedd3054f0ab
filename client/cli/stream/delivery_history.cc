// Reads delivery logs and judges them. Each batch names a range of positions of an epoch. Per
// stream the ranges of all ranks and restarts are put together; what a restart took back is left
// out; then every position must occur once. The ids in the logs are compared with the order, which
// is computed again: for the whole data set exactly, for a selection by remembering which id came
// first at each index.
#include "client/cli/stream/delivery_history.h"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "client/cli/stream/epoch_judge.h"
#include "client/cli/stream/opening_order.h"
#include "proto/contract/limits.h"
#include "proto/contract/order.h"
#include "proto/contract/order_steps.h"

namespace forebay::cli {
namespace {

using nlohmann::json;

constexpr std::uint64_t kUnseen = std::numeric_limits<std::uint64_t>::max();
// What DeliveryLog writes first.
constexpr std::string_view kHeaderStart = "{\"forebay_delivery_log\":";
// What the line of a batch begins with, too.
constexpr std::string_view kBatchStart = "{\"";

Error Malformed(const std::string& place, const std::string& what) {
  return Error(ErrorCode::kInvalidArgument, place + ": " + what);
}

bool MayBeHalfAHeader(std::string_view line) {
  return line.starts_with(kHeaderStart) || kHeaderStart.starts_with(line);
}

// A non-negative whole number; false where the member is absent or something else.
bool ReadNumber(const json& object, const char* name, std::uint64_t& value) {
  const auto member = object.find(name);
  // Negative numbers and fractions are refused here, so no conversion below can change a value.
  if (member == object.end() || !member->is_number_unsigned()) return false;
  value = member->get<std::uint64_t>();
  return true;
}

bool ReadText(const json& object, const char* name, std::string& value) {
  const auto member = object.find(name);
  if (member == object.end() || !member->is_string()) return false;
  value = member->get<std::string>();
  return true;
}

Result<OrderSpec> ParseHexSpec(const std::string& hex) {
  // The length first: the loop below reads two digits for each byte of the specification.
  if (hex.size() != kOrderSpecBytes * 2) {
    return Error(ErrorCode::kInvalidArgument, "order_spec has a wrong length");
  }
  std::array<std::byte, kOrderSpecBytes> bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    unsigned value = 0;
    for (const char c : {hex[2 * i], hex[2 * i + 1]}) {
      const bool digit = c >= '0' && c <= '9';
      if (!digit && (c < 'a' || c > 'f')) {
        return Error(ErrorCode::kInvalidArgument, "order_spec is not hexadecimal");
      }
      value = value * 16 + static_cast<unsigned>(digit ? c - '0' : c - 'a' + 10);
    }
    bytes[i] = static_cast<std::byte>(value);
  }
  return OrderSpec::Parse(bytes);
}

Result<StepPlan> PlanOf(const LoggedOpening& opening) {
  return StepPlan::Create({.sample_count = opening.order.sample_count,
                           .global_batch = opening.global_batch,
                           .ranks = opening.ranks,
                           .tail = opening.order.tail});
}

Result<LoggedOpening> ParseHeader(const std::string& place, const json& object) {
  LoggedOpening opening;
  std::string spec;
  const bool whole = ReadText(object, "dataset", opening.dataset) &&
                     ReadText(object, "stream", opening.stream) &&
                     ReadText(object, "selection", opening.selection) &&
                     ReadText(object, "order_spec", spec) &&
                     ReadNumber(object, "catalog_fingerprint", opening.catalog_fingerprint) &&
                     ReadNumber(object, "global_batch", opening.global_batch) &&
                     ReadNumber(object, "ranks", opening.ranks) &&
                     ReadNumber(object, "rank", opening.rank) &&
                     ReadNumber(object, "epochs", opening.epochs) &&
                     ReadNumber(object, "first_epoch", opening.first_epoch) &&
                     ReadNumber(object, "first_step", opening.first_step) &&
                     ReadNumber(object, "opened_unix_ns", opening.opened_unix_ns);
  if (!whole) return Malformed(place, "the header lacks a member");
  std::uint64_t version = 0;
  // A log of a later version may mean something else by the same members, so it is refused.
  if (!ReadNumber(object, "forebay_delivery_log", version) || version != 1) {
    return Malformed(place, "delivery log version " + std::to_string(version) +
                                ", this program reads version 1");
  }
  constexpr std::uint64_t kEpochMax = std::numeric_limits<std::uint32_t>::max();
  if (opening.epochs > kEpochMax || opening.first_epoch > kEpochMax) {
    return Malformed(place, "the header names an epoch that cannot be");
  }
  Result<OrderSpec> order = ParseHexSpec(spec);
  if (!order) return order.error().WithContext(place);
  opening.order = *order;
  // Checked here, for each log, so that everything below may divide by these numbers.
  FOREBAY_TRY(PlanOf(opening));
  if (opening.rank >= opening.ranks) {
    return Malformed(place, fmt::format("the header names rank {} of {} ranks", opening.rank,
                                        opening.ranks));
  }
  Status fits = opening.order.CheckGlobalBatch(opening.global_batch);
  if (!fits) return fits.error().WithContext(place);
  return opening;
}

std::uint64_t Sum(const StreamVerdict& verdict, std::uint64_t EpochVerdict::* count) {
  std::uint64_t sum = 0;
  for (const EpochVerdict& epoch : verdict.epochs) sum += epoch.*count;
  return sum;
}

bool IsAllThere(const StreamVerdict& verdict) {
  return verdict.unjudged == 0 && Sum(verdict, &EpochVerdict::missing) == 0;
}

bool HasNoneTwice(const StreamVerdict& verdict) {
  return Sum(verdict, &EpochVerdict::duplicates) == 0;
}

Outcome OutcomeOf(const StreamVerdict& verdict) {
  if (!IsAllThere(verdict) || !HasNoneTwice(verdict) || verdict.wrong_ids != 0) {
    return Outcome::kViolation;
  }
  const bool have_all_begun = verdict.epochs.back().epoch + 1 >= verdict.end_epoch;
  return have_all_begun && Sum(verdict, &EpochVerdict::unfinished) == 0 ? Outcome::kWhole
                                                                        : Outcome::kUnfinished;
}

// Epochs from `first` to the one before `end` must be there, even if nobody consumed any of them.
void JudgeEach(StreamVerdict& verdict, std::map<std::uint64_t, EpochJudge>& judges,
               const StepPlan& plan, std::uint64_t first, std::uint64_t end) {
  const auto [open_epoch, open_step] = verdict.open_from;
  for (std::uint64_t epoch = first; epoch < end; ++epoch) {
    // A header can claim 2^32 epochs. What is not judged is a violation (OutcomeOf).
    if (verdict.epochs.size() == limits::kEpochsJudgedMax) {
      verdict.findings.push_back(fmt::format("epochs {} to {} were not judged", epoch, end - 1));
      verdict.unjudged = end - epoch;
      break;
    }
    const std::uint64_t open = epoch < open_epoch    ? plan.steps()
                               : epoch == open_epoch ? open_step
                                                     : 0;
    verdict.epochs.push_back(judges.try_emplace(epoch, epoch, plan).first->second.Judge(open));
  }
  verdict.outcome = OutcomeOf(verdict);
}

bool SaysTheSame(const StreamVerdict& a, const StreamVerdict& b) {
  return std::ranges::equal(a.epochs, b.epochs, [](const EpochVerdict& x, const EpochVerdict& y) {
    return std::tie(x.epoch, x.missing, x.duplicates, x.unfinished) ==
           std::tie(y.epoch, y.missing, y.duplicates, y.unfinished);
  });
}

// Says of which ranks there is no log. A log may claim a million ranks, so gaps are named and not
// each rank.
std::string RanksWithoutLog(std::uint64_t ranks, const std::set<std::uint64_t>& seen) {
  std::vector<std::string> gaps;
  std::uint64_t next = 0;
  const auto add_gap = [&](std::uint64_t end) {
    if (end == next + 1) gaps.push_back(std::to_string(next));
    if (end > next + 1) gaps.push_back(fmt::format("{} to {}", next, end - 1));
  };
  for (const std::uint64_t rank : seen) {
    add_gap(rank);
    next = rank + 1;
  }
  add_gap(ranks);
  const bool are_many = gaps.size() > kFindingsMax;
  if (are_many) gaps.resize(kFindingsMax);
  return fmt::format("{} of {} ranks have no log among these: rank {}{}", ranks - seen.size(),
                     ranks, fmt::join(gaps, ", "), are_many ? ", and others" : "");
}

}  // namespace

Status DeliveryHistory::Read(const std::string& name, std::istream& log) {
  ++logs_;
  Opening* current = nullptr;
  std::string torn;  // the place of half a line, as long as no header has followed it
  bool ends_in_header = true;
  std::string line;
  for (std::uint64_t number = 1; std::getline(log, line); ++number) {
    const std::string place = name + ":" + std::to_string(number);
    const json object = json::parse(line, nullptr, /*allow_exceptions=*/false);
    // A process was killed while it wrote, or has found the disk full.
    const bool is_half = object.is_discarded();
    const bool is_header = is_half ? MayBeHalfAHeader(line)
                                   : object.is_object() && object.contains("forebay_delivery_log");
    // Only a run that followed has begun a new line behind half a line (DeliveryLog::Open).
    if (!torn.empty() && !is_header) return Malformed(torn, "is not a JSON object");
    // The first bytes of a batch's line are the same.
    ends_in_header = is_half && is_header &&
                     (current == nullptr || !torn.empty() || line.size() > kBatchStart.size());
    torn.clear();
    // A whole object without a newline may be the last line of a log that an editor has saved.
    if (!is_half) {
      FOREBAY_TRY(ReadLine(place, object, current));
    } else if (!log.eof()) {
      torn = place;
    }
  }
  // What cannot be read is not the end: the rest would look as if it had never been delivered.
  if (log.bad()) {
    return Error(ErrorCode::kUnavailable, "cannot read the delivery log " + name + " to its end");
  }
  if (ends_in_header) {
    logs_ending_in_header_.push_back(name);
    return {};
  }
  if (!torn.empty()) return Malformed(torn, "is not a JSON object");
  if (current == nullptr) return Malformed(name, "is not a delivery log");
  return {};
}

Status DeliveryHistory::ReadLine(const std::string& place, const json& object,
                                 Opening*& current) {
  if (!object.is_object()) return Malformed(place, "is not a JSON object");
  // A file may have several headers: each restart appends to it.
  if (object.contains("forebay_delivery_log")) {
    FOREBAY_ASSIGN(LoggedOpening header, ParseHeader(place, object));
    // A copy that was made while the run went on is shorter, and would take back what came later.
    const auto [same, is_new] = headers_.try_emplace(object.dump(), place);
    if (!is_new) {
      return Malformed(place, "is the same opening as " + same->second +
                                  ": give each log once, and no copy of it");
    }
    openings_.push_back(std::make_unique<Opening>());
    current = openings_.back().get();
    current->header = std::move(header);
    current->place = place;
    current->log = logs_;
    return {};
  }
  if (current == nullptr) return Malformed(place, "a batch before any header");
  LoggedBatch batch;
  const auto ids = object.find("ids");
  if (!ReadNumber(object, "epoch", batch.epoch) || !ReadNumber(object, "step", batch.step) ||
      !ReadNumber(object, "position", batch.first) || ids == object.end() || !ids->is_array()) {
    return Malformed(place, "the batch lacks a member");
  }
  std::vector<std::uint64_t> samples;
  for (const json& id : *ids) {
    if (!id.is_number_unsigned()) return Malformed(place, "an id is not a number");
    samples.push_back(id.get<std::uint64_t>());
  }
  batch.count = samples.size();
  return AddBatch(place, *current, batch, samples);
}

Status DeliveryHistory::AddBatch(const std::string& place, Opening& opening,
                                 const LoggedBatch& batch,
                                 const std::vector<std::uint64_t>& ids) {
  // Without this check, whole epochs beyond the stream's end would pass as delivered exactly once.
  if (batch.epoch >= opening.header.epochs) {
    return Malformed(place, fmt::format("epoch {} does not exist: its header says that the stream "
                                        "ends before epoch {}",
                                        batch.epoch, opening.header.epochs));
  }
  // ParseHeader has checked that this plan exists.
  const StepPlan plan = *PlanOf(opening.header);
  Result<StepSlice> step = plan.Step(StepId(batch.step));
  if (!step) return Malformed(place, step.error().message());
  // Positions behind the step's last one are of no sample, or of samples that other batches have.
  if (batch.first < step->first || batch.first - step->first > step->count ||
      batch.count > step->count - (batch.first - step->first)) {
    return Malformed(place, "the batch does not lie in its step");
  }
  CheckIds(place, opening, batch, ids);
  opening.batches.push_back(batch);
  return {};
}

std::uint64_t& DeliveryHistory::SeenAt(SeenIds& seen, std::uint64_t index) {
  const auto [block, is_new] = seen.try_emplace(index / kBlockIds);
  if (is_new) block->second.fill(kUnseen);
  return block->second[index % kBlockIds];
}

void DeliveryHistory::CheckIds(const std::string& place, Opening& opening,
                               const LoggedBatch& batch,
                               const std::vector<std::uint64_t>& ids) {
  const OrderSpec& spec = opening.header.order;
  const Order order(spec, EpochId(static_cast<std::uint32_t>(batch.epoch)));
  // The log holds only the name of a selection and not its ids. So ids are compared with each
  // other: an index of the selection must have the same id in every epoch and log.
  SeenIds* seen = nullptr;
  if (opening.header.selection != "all" && spec.sample_count <= limits::kRememberedSamplesMax) {
    seen = &seen_ids_[spec.selection_fingerprint ^ opening.header.catalog_fingerprint];
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    // Positions behind the last sample are repeats of the first ones (tail policy "pad").
    const std::uint64_t position = (batch.first + i) % spec.sample_count;
    const std::uint64_t index = order.Forward(Position(position));
    std::uint64_t expected = index;
    if (seen != nullptr) {
      std::uint64_t& id = SeenAt(*seen, index);
      if (id == kUnseen) id = ids[i];
      expected = id;
    // A selection too large to remember: its positions are judged, its ids are not.
    } else if (opening.header.selection != "all") {
      return;
    }
    if (ids[i] == expected) continue;
    if (opening.wrong_ids++ == 0) {
      opening.first_wrong = fmt::format("{}: sample {} stands where the order has {}", place,
                                        ids[i], expected);
    }
  }
}

std::vector<StreamVerdict> DeliveryHistory::Judge(bool require_complete) const {
  using Key = std::tuple<std::string, std::string, std::uint64_t, std::uint64_t, std::uint64_t>;
  // Openings belong together if they read the same data in the same order. The number of ranks is
  // not part of the key: a run may go on with another one.
  std::map<Key, Group> groups;
  for (const auto& opening : openings_) {
    const LoggedOpening& header = opening->header;
    groups[{header.dataset, header.stream, header.order.Fingerprint(), header.global_batch,
            header.catalog_fingerprint}]
        .push_back(opening.get());
  }
  std::vector<StreamVerdict> verdicts;
  for (const auto& [key, group] : groups) {
    verdicts.push_back(JudgeGroup(group, require_complete));
  }
  return verdicts;
}

OpeningPlace DeliveryHistory::PlaceOf(const Opening& opening) {
  const LoggedOpening& header = opening.header;
  // ParseHeader has checked that this plan exists.
  const std::uint64_t steps = PlanOf(header)->steps();
  const auto place_of = [&](std::uint64_t epoch, std::uint64_t step) {
    return step < steps ? StepKey{epoch, step} : StepKey{epoch + 1, 0};
  };
  OpeningPlace place = {.log = opening.log,
                        .ranks = header.ranks,
                        .rank = header.rank,
                        .first = place_of(header.first_epoch, header.first_step),
                        .reached = place_of(header.first_epoch, header.first_step),
                        .opened_unix_ns = header.opened_unix_ns};
  for (const LoggedBatch& batch : opening.batches) {
    place.reached = std::max(place.reached, place_of(batch.epoch, batch.step + 1));
  }
  return place;
}

DeliveryHistory::Timeline DeliveryHistory::Arrange(const Group& group,
                                                   const std::vector<OpeningPlace>& places,
                                                   const std::vector<std::size_t>& order) {
  Timeline timeline;
  for (const std::size_t i : order) {
    timeline.openings.push_back(group[i]);
    timeline.places.push_back(places[i]);
  }
  timeline.taken_back = FindTakenBack(timeline.places);
  return timeline;
}

StreamVerdict DeliveryHistory::JudgeGroup(const Group& group, bool require_complete) {
  std::vector<OpeningPlace> places;
  for (const Opening* opening : group) places.push_back(PlaceOf(*opening));
  const std::vector<std::size_t> order = InOrderOfTime(places);
  const Timeline timeline = Arrange(group, places, order);
  const std::optional<StepKey> open_from =
      require_complete ? std::optional(kBehindEveryStep) : std::nullopt;
  StreamVerdict verdict = JudgeEpochs(timeline, &TakenBack::from, open_from);
  if (std::ranges::any_of(timeline.taken_back, [](const TakenBack& of_opening) {
        return of_opening.earliest != of_opening.latest;
      })) {
    WeighClocks(timeline, open_from, verdict);
  }
  const ClockOrder by_clocks = InOrderOfClocks(places);
  if (by_clocks.order != order) {
    WeighMissingLogs(JudgeEpochs(Arrange(group, places, by_clocks.order), &TakenBack::from,
                                 open_from),
                     verdict);
  }
  if (verdict.rests_on_clocks && !verdict.rests_on_all_logs) {
    verdict.findings.push_back(fmt::format(
        "the order of some restarts follows neither from files nor from tokens, only from the "
        "clocks of the nodes (opened_unix_ns): {}",
        verdict.outcome != Outcome::kUndecided
            ? "this verdict holds if they are right"
        : require_complete
            ? "if they are right, samples were lost or repeated; if not, perhaps none"
            : "if they are right, samples were lost or repeated; if not, perhaps work is "
              "unfinished. If the job has ended, use --complete"));
  }
  if (verdict.outcome == Outcome::kWhole && !verdict.rests_on_all_logs) return verdict;
  NameUnexplained(group, by_clocks.unexplained, verdict);
  std::map<std::uint64_t, std::set<std::uint64_t>> ranks_seen;
  for (const OpeningPlace& place : places) ranks_seen[place.ranks].insert(place.rank);
  for (const auto& [ranks, seen] : ranks_seen) {
    if (seen.size() < ranks) verdict.findings.push_back(RanksWithoutLog(ranks, seen));
  }
  return verdict;
}

// The batches that count in any order of the openings which files and tokens allow lie between a
// smallest and a largest set. If both give the verdict that clocks give, no clock matters. What is
// missing in the largest one is missing in any order, and so is what is repeated in the smallest.
// A rank may also lack one step in some orders and another one in the others.
void DeliveryHistory::WeighClocks(const Timeline& timeline, std::optional<StepKey> open_from,
                                  StreamVerdict& verdict) {
  const StreamVerdict smallest = JudgeEpochs(timeline, &TakenBack::earliest, open_from);
  // Where the smallest set may be unfinished work, so may the others.
  const StreamVerdict largest = JudgeEpochs(timeline, &TakenBack::latest, smallest.open_from);
  const bool is_proven = verdict.wrong_ids != 0 || !IsAllThere(largest) || !HasNoneTwice(smallest);
  const bool is_violation = verdict.outcome == Outcome::kViolation;
  if (is_violation && is_proven) return;
  if (SaysTheSame(verdict, smallest) && SaysTheSame(verdict, largest)) return;
  const std::optional<LosingRank> losing =
      is_violation ? FindLosingRank(timeline, smallest) : std::nullopt;
  if (losing.has_value()) {
    verdict.findings.push_back(fmt::format(
        "rank {} of {} lost samples in whatever order its restarts came, if no log is missing; "
        "which ones they are, only the clocks of the nodes say (opened_unix_ns)",
        losing->rank, losing->ranks));
    return;
  }
  verdict.rests_on_clocks = true;
  if (is_violation) verdict.outcome = Outcome::kUndecided;
}

std::optional<LosingRank> DeliveryHistory::FindLosingRank(const Timeline& timeline,
                                                          const StreamVerdict& smallest) {
  std::vector<CountedDelivery> deliveries;
  for (std::size_t i = 0; i < timeline.openings.size(); ++i) {
    deliveries.push_back({.place = timeline.places[i],
                          .end = timeline.taken_back[i].latest,
                          .batches = timeline.openings[i]->batches});
  }
  return FindSureLoss(deliveries, *PlanOf(smallest.stream), {smallest.epochs.front().epoch, 0},
                      std::min(smallest.open_from, {smallest.end_epoch, 0}));
}

// Tokens prove an order only if all logs are there. Where clocks contradict them, either a log is
// missing and the clocks are right, or the clocks are wrong. `by_clocks` is the verdict of the
// former.
void DeliveryHistory::WeighMissingLogs(const StreamVerdict& by_clocks, StreamVerdict& verdict) {
  if (verdict.wrong_ids != 0) return;
  const bool is_violation = verdict.outcome == Outcome::kViolation;
  const bool is_one_by_clocks = by_clocks.outcome == Outcome::kViolation;
  const char* what = "this verdict holds if no log is missing";
  if (verdict.outcome == Outcome::kUndecided) {
    if (is_one_by_clocks || !verdict.rests_on_clocks) return;
    what = "if a log is missing, perhaps no sample was lost or repeated; if the clocks are wrong, "
           "the order of some restarts is not known";
  } else if (is_violation) {
    if (is_one_by_clocks) return;
    what = "if the clocks are wrong, samples were lost or repeated; if a log is missing, perhaps "
           "none";
  } else if (verdict.rests_on_clocks) {
    if (!is_one_by_clocks) return;
    what = "if a log is missing, samples were lost or repeated; if the clocks are wrong, perhaps "
           "none";
  } else if (SaysTheSame(verdict, by_clocks)) {
    return;
  }
  verdict.rests_on_all_logs = true;
  if (is_violation || verdict.rests_on_clocks) verdict.outcome = Outcome::kUndecided;
  verdict.findings.push_back(fmt::format(
      "either a log is missing, or the clocks of the nodes (opened_unix_ns) are wrong: {}", what));
}

// Says which openings go on from what no log has, so that their user knows which one to look for.
void DeliveryHistory::NameUnexplained(const Group& group,
                                      const std::vector<std::size_t>& unexplained,
                                      StreamVerdict& verdict) {
  for (std::size_t n = 0; n < std::min(unexplained.size(), kFindingsMax); ++n) {
    const Opening& opening = *group[unexplained[n]];
    const auto [epoch, step] = PlaceOf(opening).first;
    verdict.findings.push_back(fmt::format(
        "{}: rank {} of {} begins at epoch {}, step {}, and no log of an earlier run leads there: "
        "such a log is missing, or the clock of its node was behind",
        opening.place, opening.header.rank, opening.header.ranks, epoch, step));
  }
  if (unexplained.size() > kFindingsMax) {
    verdict.findings.push_back(
        fmt::format("{} other openings begin where no log leads to, either",
                    unexplained.size() - kFindingsMax));
  }
}

// A job may go on with fewer epochs than it was begun with, so openings that others took something
// back from count only if there are no others.
std::uint64_t DeliveryHistory::EndEpochOf(const Timeline& timeline,
                                          StepKey TakenBack::* taken_back_from) {
  std::uint64_t of_last = 0;
  std::uint64_t of_all = 0;
  for (std::size_t i = 0; i < timeline.openings.size(); ++i) {
    const std::uint64_t epochs = timeline.openings[i]->header.epochs;
    of_all = std::max(of_all, epochs);
    if (timeline.taken_back[i].*taken_back_from != kBehindEveryStep) continue;
    of_last = std::max(of_last, epochs);
  }
  return of_last > 0 ? of_last : of_all;
}

StreamVerdict DeliveryHistory::JudgeEpochs(const Timeline& timeline,
                                           StepKey TakenBack::* taken_back_from,
                                           std::optional<StepKey> open_from) {
  const Group& group = timeline.openings;
  StreamVerdict verdict;
  verdict.stream = group.front()->header;
  verdict.openings = group.size();
  // ParseHeader has checked that this plan exists.
  const StepPlan plan = *PlanOf(verdict.stream);
  std::map<std::uint64_t, EpochJudge> judges;
  verdict.end_epoch = EndEpochOf(timeline, taken_back_from);
  StepKey start = kBehindEveryStep;
  for (std::size_t i = 0; i < group.size(); ++i) {
    start = std::min(start, timeline.places[i].first);
    for (const LoggedBatch& batch : group[i]->batches) {
      if (StepKey{batch.epoch, batch.step} >= timeline.taken_back[i].*taken_back_from) {
        // Consumed, then thrown away when the trainer restored an older checkpoint: not a
        // duplicate.
        ++verdict.superseded;
      } else {
        judges.try_emplace(batch.epoch, batch.epoch, plan).first->second.Add(batch);
      }
    }
    verdict.wrong_ids += group[i]->wrong_ids;
    if (group[i]->wrong_ids != 0) verdict.findings.push_back(group[i]->first_wrong);
  }
  // A program may have pulled batches by name that lie before.
  const std::uint64_t first = judges.empty() ? start.first
                                             : std::min(start.first, judges.begin()->first);
  std::uint64_t end = verdict.end_epoch;
  if (open_from != kBehindEveryStep) {
    end = std::min(end, (judges.empty() ? first : judges.rbegin()->first) + 1);
  }
  if (first >= end) {
    verdict.findings.push_back("the logs begin where the stream ends: they prove nothing");
    verdict.outcome = Outcome::kUndecided;
    return verdict;
  }
  // The run may have been stopped within the last epoch that was begun.
  verdict.open_from = open_from.value_or(
      StepKey{end - 1, judges.try_emplace(end - 1, end - 1, plan).first->second.OpenStep()});
  JudgeEach(verdict, judges, plan, first, end);
  return verdict;
}

}  // namespace forebay::cli

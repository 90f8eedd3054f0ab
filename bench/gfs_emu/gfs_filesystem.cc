// The model in three queues (RateQueue): disks, opens and other metadata. A request reserves its
// time in a queue and gets the deadline at which it is answered; nothing sleeps here. Two
// conditions make a figure that was measured on it wrong: a backing folder that is not in page
// cache (then the disk beneath is measured too), and clients that need more threads than the mount
// has.
#include "bench/gfs_emu/gfs_filesystem.h"

#include <fnmatch.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

namespace forebay::bench {
namespace {

// What may be caught up on after an idle moment. Small against every measurement, large
// against the wake-up delays of a busy machine.
constexpr std::int64_t kBurstNs = 10'000'000;

std::int64_t CostNs(double amount, double rate_per_s) {
  // A rate of 0 means no limit.
  return rate_per_s > 0 ? std::llround(amount / rate_per_s * 1e9) : 0;
}

nlohmann::json ToJson(const GfsCounts& counts) {
  return {{"opens", counts.opens},       {"reads", counts.reads},
          {"bytes", counts.bytes},       {"seeks", counts.seeks},
          {"lookups", counts.lookups},   {"getattrs", counts.getattrs},
          {"readdirs", counts.readdirs}, {"faults", counts.faults}};
}

std::uint64_t GfsCounts::*CounterOf(GfsOperation operation) {
  switch (operation) {
    case GfsOperation::kRead: return &GfsCounts::reads;
    case GfsOperation::kOpen: return &GfsCounts::opens;
    case GfsOperation::kGetattr: return &GfsCounts::getattrs;
    case GfsOperation::kLookup: return &GfsCounts::lookups;
    case GfsOperation::kReaddir: return &GfsCounts::readdirs;
  }
  return &GfsCounts::lookups;
}

nlohmann::json ToJson(const FaultRule& rule, std::int64_t now_ns) {
  nlohmann::json report = {{"kind", rule.KindName()},
                           {"pattern", rule.pattern},
                           {"seen", rule.seen},
                           {"injected", rule.injected}};
  for (const GfsOperation operation :
       {GfsOperation::kRead, GfsOperation::kOpen, GfsOperation::kGetattr, GfsOperation::kLookup,
        GfsOperation::kReaddir}) {
    if (rule.Concerns(operation)) report["ops"].push_back(GfsOperationName(operation));
  }
  if (rule.kind == FaultKind::kOutage) {
    report["is_over"] = rule.until_ns && now_ns >= *rule.until_ns;
  }
  return report;
}

}  // namespace

std::int64_t MonotonicNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

GfsFilesystem::GfsFilesystem(UniqueFd backing, const GfsProfile& profile)
    : backing_(std::move(backing)), profile_(profile), disks_(kBurstNs), opens_(kBurstNs),
      metadata_(kBurstNs) {
  NumberOf(".");
}

std::uint64_t GfsFilesystem::NumberOf(const std::string& path) {
  const std::lock_guard lock(objects_mutex_);
  // Numbers are never given again, so that a number which the kernel still holds after a remount
  // stays stale.
  const auto [entry, added] = number_of_path_.try_emplace(path, numbers_.size() + 1);
  if (added) {
    std::unique_ptr<Object>& object = objects_[path];
    // The object of a path outlives its numbers: its counters and streams are those of the path.
    if (object == nullptr) object = std::make_unique<Object>(path);
    numbers_.push_back({.object = object.get(), .is_stale = false});
  }
  return entry->second;
}

GfsFilesystem::Object& GfsFilesystem::object(std::uint64_t number) {
  const std::lock_guard lock(objects_mutex_);
  return *numbers_.at(number - 1).object;
}

bool GfsFilesystem::IsStale(std::uint64_t number) const {
  const std::lock_guard lock(objects_mutex_);
  return numbers_.at(number - 1).is_stale;
}

void GfsFilesystem::MakeStale(const std::string& pattern) {
  const std::lock_guard lock(objects_mutex_);
  // The number stays in numbers_, marked, and the path gets a new one at its next look-up. This is
  // what a client sees after a server was restarted: what it holds is stale, what it opens now
  // works.
  std::erase_if(number_of_path_, [&](const auto& entry) {
    const auto& [path, number] = entry;
    if (number == kRootNumber || fnmatch(pattern.c_str(), path.c_str(), 0) != 0) return false;
    numbers_[number - 1].is_stale = true;
    return true;
  });
}

std::int64_t GfsFilesystem::ChargeMetadata(pid_t thread_id, GfsOperation operation) {
  counters_.Add(thread_id, CounterOf(operation), 1);
  if (profile_.metadata_per_s <= 0) return 0;
  return metadata_.Reserve(MonotonicNs(), CostNs(1, profile_.metadata_per_s));
}

std::int64_t GfsFilesystem::ChargeOpen(pid_t thread_id, Object& object) {
  counters_.Add(thread_id, &GfsCounts::opens, 1);
  ++object.opens;
  // The stream begins at the open: finding the first byte of an object is part of what an open
  // costs, so a read at offset 0 costs no seek on top.
  {
    const std::lock_guard lock(object.mutex);
    object.streams.OnOpen();
  }
  // The rate limits how many opens begin per second; the latency comes after it and is waited for
  // by each client by itself, so concurrency hides it.
  const std::int64_t now_ns = MonotonicNs();
  const std::int64_t turn_ns =
      profile_.opens_per_s > 0 ? opens_.Reserve(now_ns, CostNs(1, profile_.opens_per_s)) : now_ns;
  return std::max(turn_ns, now_ns) + profile_.open_latency_ns;
}

std::int64_t GfsFilesystem::ChargeRead(pid_t thread_id, Object& object, const ReadRange& range) {
  StreamTracker::Verdict verdict;
  // A read at the end of the file answers nothing and moves no disk.
  if (range.bytes > 0) {
    const std::lock_guard lock(object.mutex);
    verdict = object.streams.OnRead(range.offset, range.bytes);
  }
  counters_.Add(thread_id, &GfsCounts::reads, 1);
  counters_.Add(thread_id, &GfsCounts::bytes, range.bytes);
  if (verdict.seek != verdict.refund) {
    // A refund takes back the early piece's seek; unsigned wrap-around of a sum is exact.
    counters_.Add(thread_id, &GfsCounts::seeks, verdict.seek ? 1 : ~std::uint64_t{0});
  }
  if (profile_.bandwidth_bytes_per_s <= 0) return 0;
  std::int64_t cost_ns = CostNs(static_cast<double>(range.bytes), profile_.bandwidth_bytes_per_s);
  if (verdict.seek) cost_ns += profile_.seek_ns;
  // The refund goes to the queue and not to the request that was charged: that one may have been
  // answered already.
  if (verdict.refund) disks_.Refund(profile_.seek_ns);
  return disks_.Reserve(MonotonicNs(), cost_ns);
}

std::optional<Fault> GfsFilesystem::TakeFault(const Arrival& arrival) {
  // Without the root's attributes the kernel finds no way to the control file.
  if (arrival.number == kRootNumber && arrival.operation == GfsOperation::kGetattr) return {};
  std::optional<Fault> fault;
  // Staleness wins over rules: an object that is stale answers nothing else.
  if (IsStale(arrival.number)) {
    faults_.CountStale(object(arrival.number).path);
    fault = Fault{.kind = FaultKind::kError, .ms = 0, .error_number = ESTALE};
  } else {
    fault = faults_.Take(arrival.path, arrival.operation,
                         counters_.ClientOf(arrival.thread_id), MonotonicNs());
  }
  if (!fault) return fault;
  counters_.Add(arrival.thread_id, &GfsCounts::faults, 1);
  // Everything else is counted as it is carried out.
  // An operation that fails was sent all the same, and clients are compared by what they send.
  if (fault->kind == FaultKind::kError) {
    counters_.Add(arrival.thread_id, CounterOf(arrival.operation), 1);
  }
  return fault;
}

std::string GfsFilesystem::CountersJson() const {
  nlohmann::json report;
  report["profile"] = {{"name", profile_.name},
                       {"bandwidth_bytes_per_s", profile_.bandwidth_bytes_per_s},
                       {"seek_ns", profile_.seek_ns},
                       {"opens_per_s", profile_.opens_per_s},
                       {"open_latency_ns", profile_.open_latency_ns},
                       {"metadata_per_s", profile_.metadata_per_s}};
  report["total"] = ToJson(counters_.total());
  report["clients"] = nlohmann::json::object();
  for (const auto& [process_id, client] : counters_.clients()) {
    nlohmann::json entry = ToJson(client.counts);
    entry["program"] = client.program;
    report["clients"][std::to_string(process_id)] = std::move(entry);
  }
  // The report lists the rules in their own order, by which a test finds its rule.
  report["faults"] = nlohmann::json::array();
  const std::int64_t now_ns = MonotonicNs();
  for (const FaultRule& rule : faults_.Snapshot()) {
    report["faults"].push_back(ToJson(rule, now_ns));
  }
  std::uint64_t opened = 0;
  std::uint64_t opens_max = 0;
  {
    const std::lock_guard lock(objects_mutex_);
    for (const auto& [path, object] : objects_) {
      const std::uint64_t opens = object->opens;
      opened += opens > 0 ? 1 : 0;
      opens_max = std::max(opens_max, opens);
    }
  }
  report["objects"] = {{"opened", opened}, {"opens_max", opens_max}};
  return report.dump(2) + "\n";
}

void GfsFilesystem::ResetCounters() {
  counters_.Reset();
  // Streams are reset too: else the first reads of a run would continue those of the run before it,
  // and cost no seek.
  const std::lock_guard lock(objects_mutex_);
  for (const auto& [path, object] : objects_) {
    object->opens = 0;
    const std::lock_guard object_lock(object->mutex);
    object->streams.Reset();
  }
}

Status GfsFilesystem::Control(std::string_view commands) {
  while (!commands.empty()) {
    const std::size_t end = std::min(commands.find('\n'), commands.size());
    // Lines before a wrong one have been executed. A test sees EINVAL and fails, so this needs no
    // rollback.
    FOREBAY_TRY(ControlLine(commands.substr(0, end)));
    commands.remove_prefix(std::min(end + 1, commands.size()));
  }
  return {};
}

Status GfsFilesystem::ControlLine(std::string_view line) {
  constexpr std::string_view kFault = "fault ";
  if (line.empty()) return {};
  if (line == "reset") {
    ResetCounters();
    return {};
  }
  if (line == "clear") {
    faults_.Clear();
    return {};
  }
  if (line.starts_with(kFault)) {
    FOREBAY_ASSIGN(FaultRule rule, FaultTable::Parse(line.substr(kFault.size())));
    return AddFault(std::move(rule));
  }
  return Error(ErrorCode::kInvalidArgument,
               "control: unknown command \"" + std::string(line) + "\" (reset, clear, fault)");
}

Status GfsFilesystem::AddFault(FaultRule rule) {
  const bool is_remount = rule.kind == FaultKind::kRemount;
  const std::string pattern = rule.pattern;
  // The rule first, so that operations which find an object stale find the rule to count them
  // against.
  FOREBAY_TRY(faults_.Add(std::move(rule), MonotonicNs()));
  if (is_remount) MakeStale(pattern);
  return {};
}

}  // namespace forebay::bench

// What a case of the fault matrix must come to, computed from the case alone: the rule that injects
// its faults, whether the epoch may end in an error, in which state the data set may be, and which
// counters must have noticed. CaseRun compares the daemon with it.
#include "tests/fault/expectation.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "proto/contract/mix64.h"

namespace forebay::fault {
namespace {

// What follows the kind and the pattern in a rule. `after=1`: an outage begins with the second
// operation that it concerns, so that it is not over before there is one.
struct RuleText {
  const char* kind;
  const char* words;
};

RuleText RuleTextOf(FaultKind kind) {
  switch (kind) {
    case FaultKind::kOutage300Ms: return {"outage", "ms=300 after=1"};
    case FaultKind::kOutage1S: return {"outage", "ms=1000 after=1"};
    case FaultKind::kOutage10S: return {"outage", "ms=10000 after=1"};
    case FaultKind::kOutage60S: return {"outage", "ms=60000 after=1"};
    case FaultKind::kLongOutage: return {"outage", "ms=6000 after=1"};
    case FaultKind::kIoErrors: return {"eio", "ops=all after=1 count=6"};
    case FaultKind::kInterrupts: return {"eintr", "ops=all after=1 count=40"};
    case FaultKind::kRemount: return {"remount", ""};
    case FaultKind::kHang:
    case FaultKind::kHangAtEnd: return {"hang", "ops=all after=1 count=1"};
    case FaultKind::kShortReads: return {"short", "after=1 count=6"};
    case FaultKind::kFlippedRead: return {"flip", "after=1 count=1"};
    case FaultKind::kFlippedReads: return {"flip", "count=0"};
    default: return {"", ""};
  }
}

bool IsOutage(FaultKind kind) { return kind <= FaultKind::kLongOutage; }

bool HasOutage(const FaultCase& fault_case) {
  return std::ranges::any_of(fault_case.faults(), IsOutage);
}

// True where what the SSD held, or was to hold, lies nowhere else.
bool LosesSsd(const FaultCase& fault_case) {
  return fault_case.tiers == Tiers::kLostSsd || fault_case.Has(FaultKind::kSsdGone) ||
         fault_case.Has(FaultKind::kSsdFails) || fault_case.Has(FaultKind::kSsdFull);
}

const v1::TierStatus* TierOf(const v1::StatusReply& status, const std::string& name) {
  for (const v1::TierStatus& tier : status.tiers()) {
    if (tier.name() == name) return &tier;
  }
  return nullptr;
}

std::string Bytes(std::uint64_t bytes) { return std::to_string(bytes) + " bytes"; }

void CheckState(const FaultCase& fault_case, const v1::DatasetStatus& dataset,
                std::vector<std::string>& untruths) {
  const std::uint64_t resident = dataset.ram_bytes() + dataset.ssd_bytes();
  if (dataset.state() == "staged") {
    if (dataset.unstaged_bytes() != 0 || !dataset.error().empty()) {
      untruths.push_back("staged, with an error or with bytes that are not: " + dataset.error());
    }
    if (resident < dataset.total_bytes()) {
      untruths.push_back("staged, but the tiers have " + Bytes(resident) + " of " +
                         Bytes(dataset.total_bytes()));
    }
    return;
  }
  if (dataset.state() == "partly staged") {
    if (dataset.unstaged_bytes() == 0 || dataset.unstaged_reason().empty()) {
      untruths.push_back("partly staged, without a number or a reason");
    }
    if (resident + dataset.unstaged_bytes() < dataset.total_bytes()) {
      untruths.push_back("partly staged, but " + Bytes(resident) + " on the tiers and " +
                         Bytes(dataset.unstaged_bytes()) + " on none are not all");
    }
    return;
  }
  const bool may_fail = fault_case.Has(FaultKind::kLongOutage) ||
                        fault_case.Has(FaultKind::kFlippedReads);
  // A daemon that was started again has not been asked for anything yet.
  if (dataset.state() == "idle" && fault_case.Has(FaultKind::kHangAtEnd)) return;
  if (dataset.state() != "failed" || dataset.error().empty() || !may_fail) {
    untruths.push_back("state '" + dataset.state() + "', error '" + dataset.error() + "'");
  }
}

}  // namespace

std::string GfsRule(const FaultCase& fault_case, FaultKind kind) {
  const RuleText text = RuleTextOf(kind);
  const std::string rule = std::string(text.kind) + " set* " + text.words;
  if (!IsOutage(kind)) return rule;
  constexpr std::array kTransient = {"EIO",      "ESTALE",    "ETIMEDOUT", "EREMOTEIO",
                                     "ENOTCONN", "EHOSTDOWN", "ENODEV"};
  std::uint64_t draw = fault_case.seed;
  for (const auto part : {static_cast<int>(fault_case.phase), static_cast<int>(fault_case.tiers),
                          static_cast<int>(fault_case.order), static_cast<int>(kind)}) {
    draw = Mix64(draw + kGolden64 * static_cast<std::uint64_t>(part + 1));
  }
  return rule + " errno=" + kTransient[draw % kTransient.size()];
}

bool MeetsFirstEpoch(const FaultCase& fault_case) {
  const bool holds_all =
      fault_case.tiers == Tiers::kRam || fault_case.tiers == Tiers::kRamAndSsd;
  return holds_all && std::ranges::none_of(fault_case.faults(), HitsReadsOfSsd);
}

Expectation ExpectationOf(const FaultCase& fault_case) {
  Expectation expected;
  if (fault_case.Has(FaultKind::kLongOutage)) expected.errors.insert(ErrorCode::kUnavailable);
  if (fault_case.Has(FaultKind::kFlippedReads)) expected.errors.insert(ErrorCode::kDataLoss);
  expected.may_be_refused = fault_case.order == OrderMode::kGlobal && LosesSsd(fault_case);
  expected.is_partly_staged = fault_case.tiers == Tiers::kSmallRam;
  expected.is_staged = fault_case.tiers != Tiers::kSmallRam && !LosesSsd(fault_case);
  return expected;
}

std::string_view WhyAwaited(const FaultCase&) { return {}; }

std::vector<std::string> UntruthsOf(const FaultCase& fault_case, const v1::StatusReply& status,
                                    const SsdDisk* ssd) {
  std::vector<std::string> untruths;
  const v1::DatasetStatus& dataset = status.datasets(0);
  CheckState(fault_case, dataset, untruths);
  const v1::TierStatus* const ram = TierOf(status, "ram");
  if (ram == nullptr || dataset.ram_bytes() > ram->capacity_bytes()) {
    untruths.push_back("more in RAM than the tier has");
  }
  const bool is_readable = ssd != nullptr && !fault_case.Has(FaultKind::kSsdFails);
  if (is_readable && !LosesSsd(fault_case) && dataset.ssd_bytes() > ssd->SegmentBytes()) {
    untruths.push_back(Bytes(dataset.ssd_bytes()) + " on SSD, but its segments have " +
                       Bytes(ssd->SegmentBytes()));
  }
  if (status.gfs().failing() != 0) untruths.push_back("the GFS is failing, long after");
  return untruths;
}

std::vector<std::string> UncountedIn(const FaultCase& fault_case, const v1::StatusReply& status) {
  std::vector<std::string> uncounted;
  const auto expect = [&](bool is_counted, const char* what) {
    if (!is_counted) uncounted.emplace_back(std::string("status does not count ") + what);
  };
  const v1::GfsCounters& gfs = status.gfs();
  if (HasOutage(fault_case) || fault_case.Has(FaultKind::kRemount)) {
    expect(gfs.incidents() > 0 && gfs.retries() > 0 && !gfs.last_error().empty(),
           "the failures of the GFS");
  }
  // A stream that is refused for want of room asks the GFS for nothing.
  if (fault_case.Has(FaultKind::kLongOutage) && !ExpectationOf(fault_case).may_be_refused) {
    expect(gfs.given_up() > 0, "what was given up");
  }
  // A read that fails beside the one with the flipped bit ends the extent before it is compared.
  const bool is_compared = !HasOutage(fault_case);
  if (is_compared && (fault_case.Has(FaultKind::kFlippedRead) ||
                      fault_case.Has(FaultKind::kFlippedReads))) {
    expect(status.datasets(0).mismatches() > 0, "reads that differ from the first");
  }
  const v1::TierStatus* const ssd = TierOf(status, "ssd");
  if (fault_case.Has(FaultKind::kSsdFlips)) {
    expect(ssd != nullptr && ssd->bad_extents() > 0, "damaged extents");
  }
  if (fault_case.Has(FaultKind::kSsdFails)) {
    expect(ssd != nullptr && ssd->device_errors() > 0, "errors of the SSD");
  }
  return uncounted;
}

}  // namespace forebay::fault

#include "tests/fault/case_run.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <nlohmann/json.hpp>

#include "tests/fault/expectation.h"
#include "tests/integration/raw_client.h"

namespace forebay::fault {
namespace {

using std::chrono::steady_clock;

// For an epoch, or for a state: what goes wrong may take so long, and an outage's length.
constexpr std::chrono::seconds kPatience(60);
constexpr std::chrono::seconds kStatusPatience(2);   // a status may take so long on a busy machine
constexpr std::chrono::seconds kEndPatience(12);     // kDrainDeadlineMs, and a busy machine
constexpr int kLostSegments = 6;

std::chrono::seconds PatienceFor(const FaultCase& fault_case) {
  if (fault_case.Has(FaultKind::kOutage60S)) return kPatience + std::chrono::seconds(60);
  if (fault_case.Has(FaultKind::kOutage10S)) return kPatience + std::chrono::seconds(10);
  return kPatience;
}

std::string Describe(const EpochResult& result) {
  std::string text = std::to_string(result.hashes.size()) + " samples";
  if (result.end) text += ", ended by " + result.end->ToString();
  if (!result.has_trailer) text += ", no trailer";
  if (!result.errors.empty()) {
    text += ", " + std::to_string(result.errors.size()) + " errors, first " +
            result.errors.front().ToString();
  }
  return text;
}

// At the open, with the tiers' room as the reason.
bool IsRefused(const EpochResult& result) {
  return result.end && result.hashes.empty() &&
         result.end->code() == ErrorCode::kResourceExhausted;
}

std::uint64_t InjectedByRules(const nlohmann::json& counters) {
  std::uint64_t injected = 0;
  for (const auto& rule : counters["faults"]) injected += rule["injected"].get<std::uint64_t>();
  return injected;
}

}  // namespace

std::string CaseReport::Text() const {
  std::string text;
  for (const std::string& problem : problems) text += "  " + problem + "\n";
  return text + "  " + std::to_string(faults) + " faults injected\n" + log;
}

CaseRun::CaseRun(const FaultCase& fault_case)
    : case_(fault_case), patience_(PatienceFor(fault_case)), rig_(fault_case) {}

void CaseRun::Expect(bool holds, const std::string& what) {
  if (!holds) report_.problems.push_back(what);
}

CaseReport CaseRun::Run() {
  const auto begin = steady_clock::now();
  report_.skipped = rig_.WhyImpossible();
  if (!report_.skipped.empty()) return std::move(report_);
  if (rig_.StartDaemon()) {
    MeetFaults();
    // What follows from a wrong epoch says nothing more.
    if (report_.problems.empty()) Recover();
  } else {
    Expect(false, "the daemon does not start");
  }
  Expect(report_.faults > 0 || case_.Has(FaultKind::kNone), "no fault was injected");
  if (!report_.problems.empty()) report_.log = rig_.log();
  report_.seconds = std::chrono::duration<double>(steady_clock::now() - begin).count();
  return std::move(report_);
}

void CaseRun::MeetFaults() {
  const bool is_lost_early = case_.phase == Phase::kCataloguing || case_.phase == Phase::kStaging;
  if (is_lost_early) LoseSsd();
  EpochResult faulty;
  switch (case_.phase) {
    case Phase::kCataloguing: faulty = Catalogue(); break;
    case Phase::kStaging: faulty = Stage(); break;
    case Phase::kStreaming:
      faulty = MeetsFirstEpoch(case_) ? StreamFirstEpoch() : StreamStaged();
      break;
    case Phase::kEviction: faulty = Evict(); break;
  }
  EndFaults();
  CheckFaultyEpoch(faulty);
}

void CaseRun::Recover() {
  // Damage that nobody has read yet is not known to anybody.
  const bool may_hide = case_.tiers == Tiers::kLostSsd ||
                        std::ranges::any_of(case_.faults(), HitsReadsOfSsd);
  CheckStatusAndEpoch(AwaitIdle(), "the epoch after the faults", may_hide);
  AskToStage(/*wait=*/true);
  const v1::StatusReply staged = AwaitIdle();
  const Expectation expected = ExpectationOf(case_);
  const std::string& state = staged.datasets(0).state();
  Expect(!(expected.is_staged && state != "staged") &&
             !(expected.is_partly_staged && state != "partly staged"),
         "'forebay stage' leaves the state '" + state + "': " + staged.datasets(0).error());
  if (report_.problems.empty()) {
    CheckStatusAndEpoch(staged, "the epoch after 'forebay stage'", /*may_hide=*/false);
  }
  // A daemon that was ended took its figures with it.
  if (!was_interrupted_) {
    for (const std::string& uncounted : UncountedIn(case_, StatusNow())) Expect(false, uncounted);
  }
  const std::optional<int> exit_code = rig_.EndDaemon(kEndPatience);
  Expect(exit_code == 0, "the daemon's exit code: " +
                             (exit_code ? std::to_string(*exit_code) : "it does not end"));
}

EpochResult CaseRun::Catalogue() {
  Inject();
  AskToStage(/*wait=*/false);
  LookAtHang();
  return ReadEpoch();
}

EpochResult CaseRun::Stage() {
  HoldReads();
  AskToStage(/*wait=*/false);
  AwaitHeldReads();
  Inject();
  LookAtHang();
  return ReadEpoch();
}

EpochResult CaseRun::StreamFirstEpoch() {
  HoldReads();
  const auto reader = StartReader();
  AwaitHeldReads();
  Inject();
  LookAtHang();
  return reader->Join();
}

EpochResult CaseRun::StreamStaged() {
  AskToStage(/*wait=*/true);
  CheckWholeEpoch(ReadEpoch(), "the epoch before the faults");
  LoseSsd();
  const auto reader = StartReader(rig_.samples().hashes.size() / 4);
  Expect(reader->AwaitPause(), "a quarter of an epoch was not delivered");
  Inject();
  reader->Resume();
  LookAtHang();
  return reader->Join();
}

EpochResult CaseRun::Evict() {
  AskToStage(/*wait=*/true);
  CheckWholeEpoch(ReadEpoch(), "the epoch before the faults");
  LoseSsd();
  const auto reader = StartReader(rig_.samples().hashes.size() / 4);
  Expect(reader->AwaitPause(), "a quarter of an epoch was not delivered");
  Inject();
  {
    integration::RawClient client(rig_.socket_path());
    v1::EvictRequest request;
    request.set_dataset(kDataset);
    // Where reads of the SSD are to fail, its copies must be the ones that are left.
    if (std::ranges::any_of(case_.faults(), HitsReadsOfSsd)) request.set_tier("ram");
    v1::EvictReply reply;
    const auto context = integration::NewContext();
    const grpc::Status status = client.admin().Evict(context.get(), request, &reply);
    Expect(status.ok() && reply.extents() > 0, "nothing was evicted");
  }
  reader->Resume();
  LookAtHang();
  return reader->Join();
}

void CaseRun::LoseSsd() {
  if (case_.tiers != Tiers::kLostSsd) return;
  Expect(rig_.ssd()->Remove() > 0, "the SSD could not be removed");
}

void CaseRun::HoldReads() {
  // A part has arrived, and nobody gets more until Inject. Segments are to be damaged once there
  // are some: RAM comes first.
  const bool needs_segments = std::ranges::any_of(case_.faults(), HitsReadsOfSsd);
  const std::uint64_t arrived = rig_.samples().reads * (needs_segments ? 3 : 1) / 4;
  Expect(rig_.gfs().Control("fault hang " + std::string(kDataset) + "* count=0 after=" +
                            std::to_string(arrived)),
         "gfs_emu does not hold reads");
}

void CaseRun::AwaitHeldReads() {
  const bool is_held = Await(patience_, [this] { return rig_.gfs().InjectedCount() > 0; });
  Expect(is_held, "the data set is not read");
}

void CaseRun::Inject() {
  std::string lines = "clear\nreset";
  for (const FaultKind kind : case_.faults()) {
    if (!IsOfGfs(kind)) report_.faults += InjectIntoSsd(kind);
  }
  for (const FaultKind kind : case_.faults()) {
    if (IsOfGfs(kind) && kind != FaultKind::kNone) lines += "\nfault " + GfsRule(case_, kind);
  }
  Expect(rig_.gfs().Control(lines), "gfs_emu refuses " + lines);
}

std::uint64_t CaseRun::InjectIntoSsd(FaultKind kind) {
  switch (kind) {
    case FaultKind::kSsdGone: return rig_.ssd()->Remove();
    case FaultKind::kSsdFails: return rig_.ssd()->Fail();
    case FaultKind::kSsdFull: return rig_.ssd()->Fill();
    default: break;
  }
  std::uint64_t flipped = 0;
  Await(patience_, [&] {
    flipped = rig_.ssd()->FlipBits(kLostSegments, case_.seed);
    return flipped > 0;
  });
  return flipped;
}

void CaseRun::LookAtHang() {
  if (!case_.Has(FaultKind::kHang) && !case_.Has(FaultKind::kHangAtEnd)) return;
  Expect(Await(patience_, [this] { return rig_.gfs().InjectedCount() > 0; }), "nothing hangs");
  const auto begin = steady_clock::now();
  StatusNow();
  Expect(steady_clock::now() - begin < kStatusPatience, "status waits for what hangs");
  // Folders and tar archives are catalogued in this phase too, and a catalog needs every object.
  if (case_.phase == Phase::kStaging && case_.format == Format::kRecords) {
    // One extent waits, and whatever else its thread was to read next. A quarter was here before.
    const bool goes_on = Await(patience_, [this] {
      const v1::DatasetStatus dataset = StatusNow().datasets(0);
      return dataset.total_bytes() > 0 && dataset.staged_bytes() > dataset.total_bytes() * 3 / 8;
    });
    Expect(goes_on, "others wait for what hangs");
  }
  // Once it counts as hung it is named. What one of several operations waits for may be the folder.
  const bool is_named = Await(patience_, [this] {
    const v1::GfsCounters gfs = StatusNow().gfs();
    return gfs.hung() > 0 && gfs.hung_oldest().find(kDataset) != std::string::npos;
  });
  Expect(is_named, "status does not name what hangs");
  if (case_.Has(FaultKind::kHangAtEnd)) EndDaemonWhileItHangs();
  EndFaults();
}

void CaseRun::EndDaemonWhileItHangs() {
  was_interrupted_ = true;
  const std::optional<int> exit_code = rig_.EndDaemon(kEndPatience);
  Expect(exit_code == 0,
         "told to end while a request hangs: " +
             (exit_code ? "exit code " + std::to_string(*exit_code) : "it does not end"));
  EndFaults();
  if (!exit_code) rig_.daemon().Kill();
  Expect(rig_.StartDaemon(), "the daemon does not start again");
}

void CaseRun::EndFaults() {
  report_.faults += InjectedByRules(rig_.gfs().Counters());
  rig_.gfs().Control("clear");
}

std::unique_ptr<EpochReader> CaseRun::StartReader(std::uint64_t pause_after) {
  ReaderOptions options;
  options.socket_path = rig_.socket_path();
  options.dataset = kDataset;
  options.order = case_.order;
  options.arrival = case_.arrival;
  options.order_seed = case_.seed;
  options.batch = case_.format == Format::kFolder ? 16 : 64;
  options.pause_after = pause_after;
  options.patience = patience_;
  return std::make_unique<EpochReader>(options);
}

void CaseRun::AskToStage(bool wait) {
  integration::RawClient client(rig_.socket_path());
  v1::StageRequest request;
  request.set_wait(wait);
  const auto context = integration::NewContext(patience_);
  const auto reader = client.admin().Stage(context.get(), request);
  v1::StageProgress progress;
  while (reader->Read(&progress)) {
  }
  const grpc::Status status = reader->Finish();
  Expect(status.ok(), "stage: " + status.error_message());
}

v1::StatusReply CaseRun::StatusNow() {
  integration::RawClient client(rig_.socket_path());
  return client.Status();
}

v1::StatusReply CaseRun::AwaitIdle() {
  v1::StatusReply status;
  const bool is_idle = Await(patience_, [&] {
    status = StatusNow();
    if (status.datasets_size() != 1) return false;
    const std::string& state = status.datasets(0).state();
    return state != "cataloguing" && state != "staging";
  });
  Expect(is_idle, "the data set is still being catalogued or staged");
  return status;
}

void CaseRun::CheckWholeEpoch(const EpochResult& result, const std::string& which) {
  const bool is_whole = result.hashes == rig_.samples().hashes && result.has_trailer;
  Expect(is_whole && result.errors.empty() && !result.end,
         which + " is not whole: " + Describe(result));
}

void CaseRun::CheckFaultyEpoch(const EpochResult& result) {
  Expect(std::ranges::includes(rig_.samples().hashes, result.hashes),
         "a wrong or repeated sample was delivered: " + Describe(result));
  const Expectation expected = ExpectationOf(case_);
  const std::string which = "the epoch that met the faults";
  if (was_interrupted_ && case_.phase != Phase::kCataloguing && case_.phase != Phase::kStaging) {
    // What hung may be an extent on its way home, which no batch waited for.
    const bool is_whole = result.hashes == rig_.samples().hashes && result.errors.empty();
    Expect(is_whole || (result.end && result.end->retryable()),
           which + " ends otherwise: " + Describe(result));
    return;
  }
  if (expected.may_be_refused && IsRefused(result)) {
    Expect(AwaitIdle().datasets(0).state() != "staged",
           which + " is refused, but status says that all is staged");
    return;
  }
  if (expected.errors.empty()) {
    CheckWholeEpoch(result, which);
    return;
  }
  for (const Error& error : result.errors) {
    Expect(expected.errors.contains(error.code()), which + " met " + error.ToString());
  }
  Expect(!result.end, which + " ended early: " + Describe(result));
  if (!expected.errors.contains(ErrorCode::kDataLoss)) {
    Expect(result.hashes == rig_.samples().hashes,
           which + " is not whole after asking again: " + Describe(result));
  } else {
    Expect(!result.errors.empty(), which + " met no error: " + Describe(result));
  }
}

void CaseRun::CheckStatusAndEpoch(const v1::StatusReply& status, const std::string& which,
                                  bool may_hide) {
  if (status.datasets_size() != 1) return;
  const v1::DatasetStatus& dataset = status.datasets(0);
  for (const std::string& untruth : UntruthsOf(case_, status, rig_.ssd())) {
    Expect(false, "before " + which + ", status says: " + untruth);
  }
  rig_.gfs().Control("reset");
  const EpochResult result = ReadEpoch();
  const std::uint64_t bytes = rig_.gfs().Counters()["total"]["bytes"].get<std::uint64_t>();
  // It is not refused where status says that all is there.
  const bool may_be_refused = ExpectationOf(case_).may_be_refused && dataset.state() != "staged";
  if (may_be_refused && IsRefused(result)) return;
  CheckWholeEpoch(result, which);
  Expect(dataset.state() != "staged" || bytes == 0 || may_hide,
         which + ": status says staged, but " + std::to_string(bytes) +
             " bytes were read from the GFS");
}

}  // namespace forebay::fault

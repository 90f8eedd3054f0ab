// A case brings a real daemon to the phase, injects the faults, and reads one epoch through them.
// It then ends the faults and reads two more epochs: one at once, one after `forebay stage`. No
// step depends on a pause: gfs_emu holds reads, or the reader pauses, until the faults are in
// place. Problems are collected, so that one report has all that a phase has found.
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

// The longest wait for an epoch or for a state; an outage's length is added.
constexpr std::chrono::seconds kPatience(60);
constexpr std::chrono::seconds kStatusPatience(30);  // a hang lasts until the test ends it
constexpr std::chrono::seconds kEndPatience(60);     // kDrainDeadlineMs, and a machine that stalls
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

// Whether the stream was refused when it was opened, because the tiers lack room.
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
    // After a wrong epoch, further problems would only be its consequences.
    if (report_.problems.empty()) Recover();
  } else {
    Expect(false, "the daemon does not start");
  }
  // A case in which nothing failed has tested nothing.
  Expect(report_.faults > 0 || case_.Has(FaultKind::kNone), "no fault was injected");
  if (!report_.problems.empty()) report_.log = rig_.log();
  report_.seconds = std::chrono::duration<double>(steady_clock::now() - begin).count();
  return std::move(report_);
}

void CaseRun::MeetFaults() {
  // Later phases need a data set that was staged with the SSD; they lose it after their first
  // epoch.
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

// The faults come before the request, so that the first operation of the pass can meet them.
EpochResult CaseRun::Catalogue() {
  Inject();
  AskToStage(/*wait=*/false);
  LookAtHang();
  return ReadEpoch();
}

// The pass stands still with a part of the data set read while the faults are put in place.
EpochResult CaseRun::Stage() {
  HoldReads();
  AskToStage(/*wait=*/false);
  AwaitHeldReads();
  Inject();
  LookAtHang();
  return ReadEpoch();
}

// The reader asks for batches of a data set that is not staged, so that it waits for held reads.
EpochResult CaseRun::StreamFirstEpoch() {
  HoldReads();
  const auto reader = StartReader();
  AwaitHeldReads();
  Inject();
  LookAtHang();
  return reader->Join();
}

// The reader pauses in an epoch of a data set that was staged before, as far as it fits. The rest
// of the epoch meets the faults.
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

// This phase is like StreamStaged, but extents are evicted during the pause, so that the reader's
// batches have to load them again.
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
  // A part of the data set arrives, and all later reads hang until Inject. If segments are to be
  // damaged, the part is larger, because extents go to RAM first and to the SSD later.
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
  // The SSD is damaged first, while reads are still held. The command to gfs_emu then releases the
  // reads and sets the rules of the GFS.
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
  // Segments are written in the background, so the first may appear only after a while.
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
  // `status` must answer while a request hangs, because the user needs it just then.
  Expect(steady_clock::now() - begin < kStatusPatience, "status waits for what hangs");
  // Folders and tar archives are catalogued in this phase too, and a catalog needs every object.
  if (case_.phase == Phase::kStaging && case_.format == Format::kRecords) {
    // One extent waits, and with it the reads that its thread would do next; all others must go on.
    // A quarter had arrived before, so three eighths show progress.
    const bool goes_on = Await(patience_, [this] {
      const v1::DatasetStatus dataset = StatusNow().datasets(0);
      return dataset.total_bytes() > 0 && dataset.staged_bytes() > dataset.total_bytes() * 3 / 8;
    });
    Expect(goes_on, "others wait for what hangs");
  }
  // Once the request counts as hung, `status` names it. It may name the folder and not the object,
  // so only the data set's name is compared.
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
  // The case goes on with a new daemon, so that one defect does not hide others.
  if (!exit_code) rig_.daemon().Kill();
  Expect(rig_.StartDaemon(), "the daemon does not start again");
}

void CaseRun::EndFaults() {
  // The counts are taken before `clear`, which removes the rules together with them.
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
  // A folder has fewer samples, so its batches are smaller.
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
  // The stream of progress ends when the request is done; its messages are not checked here.
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
  // Both lists are sorted, so this fails for a hash that no file has, and for one that came more
  // often than the files have it.
  Expect(std::ranges::includes(rig_.samples().hashes, result.hashes),
         "a wrong or repeated sample was delivered: " + Describe(result));
  const Expectation expected = ExpectationOf(case_);
  const std::string which = "the epoch that met the faults";
  if (was_interrupted_ && case_.phase != Phase::kCataloguing && case_.phase != Phase::kStaging) {
    // The hung request may have loaded an extent to its home while no batch waited for it. Then the
    // epoch is whole.
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
  // From here on errors are allowed: UNAVAILABLE must have passed when the reader asked again,
  // DATA_LOSS is final for its batch.
  for (const Error& error : result.errors) {
    Expect(expected.errors.contains(error.code()), which + " met " + error.ToString());
  }
  // No case that gets here may break the stream: a failed batch leaves the others readable.
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
  // The counters then show what this epoch alone reads from the GFS.
  rig_.gfs().Control("reset");
  const EpochResult result = ReadEpoch();
  const std::uint64_t bytes = rig_.gfs().Counters()["total"]["bytes"].get<std::uint64_t>();
  // A stream must not be refused while status says that the data set is staged.
  const bool may_be_refused = ExpectationOf(case_).may_be_refused && dataset.state() != "staged";
  if (may_be_refused && IsRefused(result)) return;
  CheckWholeEpoch(result, which);
  Expect(dataset.state() != "staged" || bytes == 0 || may_hide,
         which + ": status says staged, but " + std::to_string(bytes) +
             " bytes were read from the GFS");
}

}  // namespace forebay::fault

// Performs the steps of a sequence one after another, on one thread, and stops at the first
// difference between the service and the model. The threads of the rooms are not scheduled by the
// seed, so for every outcome the model keeps a set of what is allowed: the reasons for which a load
// may fail (`reasons_`), the catalogs that may have been saved (`saved_`), and the revisions of the
// GFS at which an extent may have been first read (ReadLedger). A set grows while work is under way
// and shrinks when the node is idle (JudgeWhenIdle).
#include "tests/model/sequence_run.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "proto/contract/check.h"
#include "server/tier/scrubber.h"
#include "server/tier/ssd/segment_format.h"
#include "tests/model/state_check.h"

namespace forebay::model {
namespace {

using stage::DatasetState;
using tier::ExtentKey;
using tier::TierKind;

// The code that begins an error's text.
std::optional<ErrorCode> CodeOf(std::string_view text) {
  for (int number = 1; number <= 16; ++number) {
    const auto code = static_cast<ErrorCode>(number);
    if (text.starts_with(fmt::format("{}: ", ErrorCodeName(code)))) return code;
  }
  return std::nullopt;
}

std::string SegmentPath(const ExtentKey& key) { return "/ssd/" + tier::SegmentName(key); }

}  // namespace

SequenceRun::SequenceRun(const SequencePlan& plan, std::string folder, Occurrences& occurrences)
    : plan_(plan), occurrences_(occurrences), node_(plan, std::move(folder)) {}

std::string SequenceRun::Run() {
  ModelRandom random(plan_.seed);
  for (const std::string& path : plan_.data.paths) {
    ObjectText text = plan_.data.DrawObject(path, random);
    const std::int64_t mtime_ns = node_.PutObject(path, text.bytes);
    gfs_.Put(path, mtime_ns, std::move(text));
  }
  random_ = ModelRandom(plan_.seed + 2);
  Status status = BeginLife(State::kNone);
  for (std::size_t i = 0; i < plan_.steps.size() && status.has_value(); ++i) {
    Log(fmt::format("{} {}", i, ActionName(plan_.steps[i].action)));
    status = Perform(plan_.steps[i]);
  }
  if (status.has_value()) status = Heal();
  if (status.has_value()) return "";
  open_.reset();
  return fmt::format("{}\n{}  what was done:\n{}", status.error().ToString(), plan_.Describe(),
                     log_);
}

// --- steps ------------------------------------------------------------------------------------

Status SequenceRun::Perform(const Step& step) {
  // A step draws from its own seed, so its draws do not depend on the steps before it.
  random_ = ModelRandom(step.seed);
  NoteReasons();
  if (step.fault) {
    armed_ = step.fault->place;
    io::FaultInjector& injector = node_.faults(*armed_);
    // The injector counts over the whole run; this step's faults are the difference.
    faults_before_ = faults_noted_ = injector.faults_injected();
    injector.Arm(step.fault->fault);
  }
  const Status status = Act(step);
  NoteFaults();
  if (armed_) {
    io::FaultInjector& injector = node_.faults(*armed_);
    injector.Disarm();
    const std::uint64_t injected = injector.faults_injected() - faults_before_;
    occurrences_.Count(FaultName(*step.fault), injected);
    if (injected > 0) Log(fmt::format("{} x {}", injected, FaultName(*step.fault)));
    // Such a write reports success and leaves other bytes, so damage may be found in any later
    // step.
    const bool lies = step.fault->fault.kind == io::FaultKind::kBitFlip ||
                      step.fault->fault.kind == io::FaultKind::kTornWrite;
    has_ssd_lied_ = has_ssd_lied_ || (injected > 0 && lies);
    armed_.reset();
  }
  return status;
}

Status SequenceRun::Act(const Step& step) {
  switch (step.action) {
    case Action::kStage: occurrences_.Count("stage"); return Stage();
    case Action::kRebuild: return Rebuild();
    case Action::kStageInBackground:
      if (is_pass_under_way_) return {};
      occurrences_.Count("stage in the background");
      BeginPass(false);
      rooms().stager().Stage(dataset());
      return {};
    case Action::kDemand: return Demand();
    case Action::kEpoch: return Epoch(true);
    case Action::kPartOfEpoch: return Epoch(false);
    case Action::kReadOn: return ReadOn();
    case Action::kRestart: case Action::kLoseState: case Action::kFlipState:
    case Action::kFlipManifest:
      return StartAgain(step.action);
    case Action::kKill: return Kill(false);
    case Action::kLosePower: return Kill(true);
    case Action::kFlipRam: return FlipRam();
    case Action::kScrub: return Scrub(std::nullopt);
    case Action::kReadNoise: return ReadNoise();
    case Action::kEvictRam: case Action::kEvictSsd: case Action::kEvictAll:
    case Action::kEvictSome:
      return ActOnTiers(step.action);
    case Action::kFlipSegment: case Action::kTruncateSegment: case Action::kRemoveSegment:
    case Action::kFillSsd: case Action::kFreeSsd:
      return ActOnSsd(step.action);
    default: return ActOnObjects(step.action);
  }
}

Status SequenceRun::ActOnTiers(Action action) {
  occurrences_.Count(ActionName(action));
  switch (action) {
    case Action::kEvictRam: return Evict(TierKind::kRam, 100);
    case Action::kEvictSsd: return Evict(TierKind::kSsd, 100);
    case Action::kEvictAll: return Evict(std::nullopt, 100);
    default: return Evict(std::nullopt, random_.Between(10, 70));
  }
}

Status SequenceRun::ActOnObjects(Action action) {
  // Objects change only after a pass has its catalog. A change during cataloguing would leave the
  // model without knowledge of which objects the catalog describes.
  FOREBAY_TRY(Catalogued());
  std::vector<std::string> paths = gfs_.paths();
  if (action == Action::kShowObject) {
    std::erase_if(paths, [&](const std::string& path) { return !gfs_.IsAway(path); });
    if (paths.empty()) return {};
  }
  const std::string path = paths[random_.Below(paths.size())];
  const bool is_away = gfs_.IsAway(path);
  switch (action) {
    case Action::kReplaceObject: {
      ObjectText text = plan_.data.DrawObject(path, random_);
      const std::int64_t mtime_ns = node_.PutObject(path, text.bytes);
      gfs_.Put(path, mtime_ns, std::move(text));
      break;
    }
    case Action::kFlipObject: {
      if (is_away) return {};
      // The bit lies within a value, so that the model knows what the change does to samples.
      const auto& samples = gfs_.Current(path)->samples();
      const auto& values = samples[random_.Below(samples.size())];
      const ValuePlace place = values[random_.Below(values.size())];
      const std::uint64_t bit = place.offset * 8 + random_.Below(place.length * 8);
      // At most one silent change happens between two idle moments. With two, a load could read one
      // bit before its flip and the other after it, and so see bytes that belong to no revision.
      if (revision_when_idle_ < gfs_.revision()) FOREBAY_TRY(JudgeWhenIdle());
      flips_.emplace_back(gfs_.Current(path), bit);
      FlipObject(path, bit);
      break;
    }
    case Action::kUnflipObject: {
      if (flips_.empty() || !gfs_.Has(flips_.back().first)) return {};
      const auto [object, bit] = flips_.back();
      if (revision_when_idle_ < gfs_.revision()) FOREBAY_TRY(JudgeWhenIdle());
      flips_.pop_back();
      FlipObject(object->path(), bit);
      break;
    }
    case Action::kHideObject:
      // Without any object there is no data set.
      if (is_away || gfs_.Present().size() < 2) return {};
      node_.HideObject(path);
      gfs_.SetAway(path, true);
      break;
    default:
      node_.ShowObject(path);
      gfs_.SetAway(path, false);
      break;
  }
  Log(path);
  occurrences_.Count(ActionName(action));
  NoteReasons();
  return {};
}

void SequenceRun::FlipObject(const std::string& path, std::uint64_t bit) {
  node_.FlipObject(path, bit);
  gfs_.Flip(path, bit);
  for (const auto& ledger : ledgers_) ledger->OnRevision(gfs_.revision());
}

Status SequenceRun::ActOnSsd(Action action) {
  if (action == Action::kFillSsd || action == Action::kFreeSsd) {
    is_disk_full_ = action == Action::kFillSsd;
    // The state directory shares the disk, so a save may fail from now on.
    is_state_doubtful_ = is_state_doubtful_ || is_disk_full_;
    if (is_disk_full_) node_.FillDisk(random_.Below(plan_.data.extent_bytes * 2));
    if (!is_disk_full_) node_.FreeDisk();
    occurrences_.Count(ActionName(action));
    return {};
  }
  const std::optional<ExtentKey> key = DrawResident(TierKind::kSsd);
  if (!key) return {};
  const std::string path = SegmentPath(*key);
  const std::uint64_t bytes = node_.FileBytes(path);
  if (bytes == 0) return {};  // it is lost already
  switch (action) {
    case Action::kFlipSegment: node_.FlipBit(path, random_.Word()); break;
    case Action::kTruncateSegment: node_.TruncateFile(path, random_.Below(bytes)); break;
    default:
      node_.RemoveFile(path);
      are_segments_lost_ = true;
      break;
  }
  Log(path);
  is_ssd_damaged_ = true;
  occurrences_.Count(ActionName(action));
  return {};
}

// After all steps, the remedies that the service names must make the data set whole again.
Status SequenceRun::Heal() {
  Log("heal");
  random_ = ModelRandom(plan_.seed + 1);
  FOREBAY_TRY(JudgeWhenIdle());
  for (const std::string& path : gfs_.paths()) {
    if (!gfs_.IsAway(path)) continue;
    node_.ShowObject(path);
    gfs_.SetAway(path, false);
  }
  node_.FreeDisk();
  is_disk_full_ = false;
  // Neither a daemon with a history nor a new one may need more than the remedies below.
  if (random_.Chance(50)) FOREBAY_TRY(StartAgain(Action::kRestart));
  FOREBAY_TRY(Stage());
  const bool is_well = dataset().progress().state == DatasetState::kStaged && served_ &&
                       served_->ReasonsToFail().empty() && !is_catalog_damaged_ &&
                       served_->objects().size() == gfs_.Present().size();
  // The errors of replaced or damaged objects tell the user to rebuild the catalog.
  if (!is_well) FOREBAY_TRY(Rebuild());
  FOREBAY_TRY(Epoch(true));
  open_.reset();
  FOREBAY_TRY(JudgeWhenIdle());
  FOREBAY_TRY(CheckEmptied(rooms(), !has_ssd_failed_));
  return EndLife();
}

// --- the daemon ---------------------------------------------------------------------------------

Status SequenceRun::BeginLife(State state) {
  const Status started = node_.Start();
  if (!started.has_value()) return started.error().WithContext("a daemon does not start");
  room_at_start_ = rooms().stager().space_left();
  const std::shared_ptr<ReadLedger> before = ledger_;
  if (state == State::kNone || !before) {
    ledger_ = std::make_shared<ReadLedger>(gfs_.revision(), gfs_.revision());
  } else {
    // The saved record of first reads survives. Whatever may have been lost of it becomes a doubt.
    ledger_ = std::make_shared<ReadLedger>(*before);
    if (state == State::kDoubtful) ledger_->Doubt(is_packed());
    if (may_copies_return_) ledger_->DoubtUnread(is_packed());
  }
  // A daemon that catalogued nothing put nothing on the tiers.
  if (served_ || !prior_) prior_ = before ? before : ledger_;
  ledgers_ = {ledger_};
  found_.clear();
  served_.reset();
  is_pass_under_way_ = false;
  reasons_.clear();
  has_ssd_failed_ = false;
  may_copies_return_ = false;
  // The flags of faults belong to one life, but a full disk stays full.
  is_state_doubtful_ = is_disk_full_;
  revision_when_idle_ = gfs_.revision();
  // A daemon stages from its start on; here a step may also come first.
  if (random_.Chance(60)) {
    BeginPass(false);
    rooms().stager().Stage(dataset());
  }
  return {};
}

Status SequenceRun::EndLife() {
  // It may get its catalog, and save it, while it ends.
  if (is_pass_under_way_ && !served_) {
    saved_.push_back(CurrentObjects());
    had_failed_pass_ = true;
  }
  open_.reset();
  node_.Stop();
  // Every room closes its files, also if the daemon ends in the middle of a pass or of a fault.
  if (node_.open_file_count() == 0) return {};
  return Difference(fmt::format("{} files are open after the daemon's end",
                                node_.open_file_count()));
}

SequenceRun::Saved SequenceRun::CurrentObjects() const { return gfs_.Present(); }

Status SequenceRun::StartAgain(Action action) {
  if (action == Action::kRestart) FOREBAY_TRY(JudgeWhenIdle());
  const bool saves = plan_.tiers.saves_state;
  // The flags are read before the next life resets them.
  State state = !saves ? State::kNone : is_state_doubtful_ ? State::kDoubtful : State::kKept;
  FOREBAY_TRY(EndLife());
  switch (action) {
    case Action::kLoseState:
      node_.RemoveState();
      saved_ = {std::nullopt};
      is_catalog_damaged_ = false;
      state = State::kNone;
      break;
    case Action::kFlipState: {
      const bool is_catalog = random_.Chance(50);
      if (!node_.FlipBit(node_.state_path(is_catalog ? "" : ".reads"), random_.Word())) break;
      occurrences_.Count(ActionName(action));
      is_catalog_damaged_ = is_catalog_damaged_ || is_catalog;
      // The next daemon may notice the damage at once and catalog again, or only when it needs the
      // page.
      if (is_catalog) saved_.push_back(std::nullopt);
      if (!is_catalog) state = State::kDoubtful;
      return BeginLife(state);
    }
    case Action::kFlipManifest:
      if (!node_.FlipBit("/ssd/manifest", random_.Word())) break;
      occurrences_.Count(ActionName(action));
      return BeginLife(state);
    default: break;
  }
  if (action == Action::kRestart || action == Action::kLoseState) {
    occurrences_.Count(ActionName(action));
  }
  return BeginLife(state);
}

// Ends the daemon while much is under way; nobody who waits is forgotten.
Status SequenceRun::Kill(bool loses_power) {
  constexpr io::CrashMode kModes[] = {io::CrashMode::kDropUnsynced, io::CrashMode::kRandomSubset,
                                      io::CrashMode::kRenameWithoutData};
  const bool dies_at_once = loses_power && random_.Chance(70);
  if (dies_at_once) {
    // After a number of calls every call fails, so nothing that the daemon does later, at its
    // orderly end for example, reaches the disks.
    const io::Fault death{.kind = io::FaultKind::kEio, .nth = random_.Between(1, 40),
                          .is_persistent = true};
    node_.faults(FaultPlace::kSsd).Arm(death);
    node_.faults(FaultPlace::kState).Arm(death);
  }
  if (!is_pass_under_way_) {
    BeginPass(false);
    rooms().stager().Stage(dataset());
  }
  const auto demands = std::make_shared<DemandLog>();
  if (const auto catalog = dataset().catalog()) {
    for (std::uint32_t i = 0; i < catalog->extent_count(); ++i) {
      demands->Demand(rooms().stager(), dataset(), ExtentId(i), stage::Stager::Access::kOnTier);
    }
  }
  const State kept = !plan_.tiers.saves_state            ? State::kNone
                     : loses_power || is_state_doubtful_ ? State::kDoubtful
                                                         : State::kKept;
  FOREBAY_TRY(EndLife());
  // Every demand must have one answer by now, be it an error, or a caller would wait for ever.
  FOREBAY_TRY(demands->Answers());
  if (armed_) node_.faults(*armed_).Disarm();  // the next daemon finds the devices sound
  occurrences_.Count(loses_power ? "lose power" : "kill");
  if (loses_power) {
    node_.faults(FaultPlace::kSsd).Disarm();
    node_.faults(FaultPlace::kState).Disarm();
    node_.LosePower({.mode = random_.OneOf(kModes),
                     .seed = random_.Word(),
                     .torn_bytes = random_.OneOf({std::size_t{512}, std::size_t{4096}})});
    // A removal of the saved catalog may or may not have reached the disk, so the next daemon may
    // find it or not.
    if (plan_.tiers.saves_state && dies_at_once) saved_.push_back(std::nullopt);
  }
  return BeginLife(kept);
}

// --- cataloguing and staging --------------------------------------------------------------------

void SequenceRun::BeginPass(bool is_rebuild) {
  // On small tiers a pass cannot evict extents that an open stream needs sooner, and waits five
  // seconds for each of its own. One pass in a hundred keeps the stream open, which is enough.
  if (!plan_.tiers.are_ample && !random_.Chance(1)) open_.reset();
  node_.BringStateToFolder();
  // A rebuild that has failed is tried again as one.
  is_rebuild = is_rebuild || (dataset().catalog() == nullptr && dataset().rebuilds() > 0);
  is_rebuild_ = is_rebuild;
  // It removes the saved catalog, at its beginning or when the new one takes its place.
  if (is_rebuild && plan_.tiers.saves_state) saved_.push_back(std::nullopt);
  const bool is_cataloguing = is_rebuild || dataset().catalog() == nullptr;
  if (is_cataloguing) {
    if (is_rebuild) found_.clear();
    // A rebuild trusts no copy.
    const bool are_kept = !is_rebuild;
    for (const TierKind kind : {TierKind::kRam, TierKind::kSsd}) {
      for (const ExtentKey& key : rooms().cache().Resident(kind)) {
        if (are_kept) found_.insert(key);
      }
    }
  }
  if (is_rebuild) {
    // A rebuild accepts the objects as they are now, so reads are counted from here on. Streams
    // that are open still read by the former catalog; its ledger stays in `ledgers_` for them.
    may_copies_return_ = may_copies_return_ || has_ssd_failed_;
    prior_ = ledger_;
    ledger_ = std::make_shared<ReadLedger>(gfs_.revision(), gfs_.revision());
    ledgers_.push_back(ledger_);
    served_.reset();
  }
  is_pass_under_way_ = true;
  NoteReasons();
}

Status SequenceRun::Stage() {
  FOREBAY_TRY(JudgeWhenIdle());
  BeginPass(false);
  rooms().stager().Stage(dataset());
  FOREBAY_TRY(JudgeWhenIdle());
  return JudgeStaged();
}

Status SequenceRun::Rebuild() {
  FOREBAY_TRY(JudgeWhenIdle());
  const Served before = {.served = served_, .ledger = ledger_, .prior = prior_,
                         .ledgers = ledgers_, .found = found_,
                         .may_copies_return = may_copies_return_};
  BeginPass(true);
  const Status begun = rooms().Rebuild();
  if (!begun.has_value()) return JudgeRefusedRebuild(begun.error(), before);
  occurrences_.Count("rebuild");
  FOREBAY_TRY(JudgeWhenIdle());
  return JudgeStaged();
}

// The objects could not be catalogued, so the service still uses the former catalog.
Status SequenceRun::JudgeRefusedRebuild(const Error& error, const Served& before) {
  NoteFaults();
  NoteReasons();
  FOREBAY_TRY(JudgeFailedPass(error.message()));
  occurrences_.Count("rebuild refused");
  is_pass_under_way_ = false;
  is_rebuild_ = false;
  served_ = before.served;
  ledger_ = before.ledger;
  prior_ = before.prior;
  ledgers_ = before.ledgers;
  found_ = before.found;
  may_copies_return_ = before.may_copies_return;
  return JudgeWhenIdle();
}

// Checks that every extent with a home is on a tier. There are exceptions: for an open stream, a
// guest that is needed sooner may displace an extent at home; a fault may cost a copy; and damage
// is found only when a copy is read.
Status SequenceRun::JudgeStaged() {
  CountHomes();
  const bool is_calm = !open_ && !is_ssd_damaged_ && !has_ssd_lied_ &&
                       (!armed_ || faults_noted_ == faults_before_);
  const bool is_staged = dataset().progress().state == DatasetState::kStaged;
  return is_staged && is_calm ? CheckStaged(rooms()) : Status();
}

void SequenceRun::CountHomes() {
  if (!served_) return;
  for (std::uint32_t i = 0; i < served_->extent_count(); ++i) {
    switch (dataset().home(ExtentId(i))) {
      case plan::HomeTier::kRam: occurrences_.Count("extent at home in ram"); break;
      case plan::HomeTier::kSsd: occurrences_.Count("extent at home on ssd"); break;
      case plan::HomeTier::kNone: occurrences_.Count("extent without a home"); break;
    }
  }
}

Status SequenceRun::Catalogued() {
  if (served_ || !is_pass_under_way_) return {};
  FOREBAY_TRY(AwaitCatalogued(rooms()));
  NoteFaults();
  return dataset().catalog() ? LearnCatalog() : Status();
}

Status SequenceRun::LearnCatalog() {
  const auto catalog = dataset().catalog();
  // The daemon may have loaded any of the saved catalogs, or made a new one of the objects that are
  // there now. The first candidate that describes its catalog is taken.
  std::vector<Saved> candidates = is_rebuild_ ? std::vector<Saved>{std::nullopt} : saved_;
  std::string why;
  for (const Saved& candidate : candidates) {
    const bool was_saved = candidate.has_value();
    std::vector<Object> objects = was_saved ? *candidate : gfs_.Present();
    if (!std::ranges::all_of(objects, [&](const Object& object) { return gfs_.Has(object); })) {
      continue;
    }
    auto model = ServedModel::Create(gfs_, std::move(objects), *catalog, ledger_);
    if (!model.has_value()) {
      why = model.error().message();
      continue;
    }
    served_ = std::move(*model);
    break;
  }
  if (!served_) return Difference("the catalog is of other objects than are there: " + why);
  for (std::uint32_t i = 0; i < served_->extent_count(); ++i) {
    CarryReads(served_->name(ExtentId(i)), ExtentId(i));
  }
  if (plan_.tiers.saves_state) {
    const bool is_certain = !is_state_doubtful_ && !is_disk_full_;
    // A save that succeeded replaces what was there. One that may have failed leaves both possible.
    if (is_certain) saved_.clear();
    if (is_rebuild_) is_catalog_damaged_ = false;
    saved_.emplace_back(served_->objects());
  }
  reasons_.merge(served_->ReasonsToFail());
  return {};
}

// Takes over the first read of a copy that this daemon found on a tier: the daemon that put it
// there has read it.
void SequenceRun::CarryReads(const std::string& extent, ExtentId number) {
  if (ledger_->Knows(extent) || !found_.contains(dataset().key(number))) return;
  // A pass over shards looks at every byte, and a rebuild accepts what it sees.
  if (is_rebuild_ && plan_.data.format == catalog::Format::kTar) return;
  const bool is_certain = plan_.tiers.are_ample && !is_packed() && !had_failed_pass_ &&
                          !is_ssd_damaged_ && !has_ssd_lied_ && !has_ssd_failed_ &&
                          prior_->Knows(extent);
  ReadLedger::Entry entry =
      is_certain ? prior_->Of(extent) : ledger_->Doubtful(/*is_loose=*/is_packed());
  if (is_certain) entry.is_read = true;
  ledger_->Set(extent, std::move(entry));
}

SequenceRun::Codes SequenceRun::ReasonsToFailCataloguing() const {
  Codes reasons;
  for (const Saved& saved : saved_) {
    for (const Object& object : saved.value_or(std::vector<Object>())) {
      if (is_rebuild_ || gfs_.Has(object)) continue;
      reasons.insert(ErrorCode::kFailedPrecondition);
      if (gfs_.IsAway(object->path())) reasons.insert(ErrorCode::kNotFound);
    }
  }
  const auto paths = gfs_.paths();
  // A sample of raw files needs one object of each path, so a single missing object fails the pass.
  const bool is_raw = plan_.data.format == catalog::Format::kRaw;
  if (is_raw && gfs_.Present().size() < paths.size()) reasons.insert(ErrorCode::kNotFound);
  for (const Object& object : gfs_.Present()) {
    // Only a pass over tar shards reads all bytes, and so may notice a silent change.
    const bool is_read = plan_.data.format == catalog::Format::kTar;
    // A copy of before is the first read, where nothing else tells.
    const std::uint64_t since = found_.empty() ? ledger_->since() : 0;
    if (is_read && object->HasChangedSince(since)) reasons.insert(ErrorCode::kDataLoss);
  }
  return reasons;
}

void SequenceRun::NoteReasons() {
  if (!is_pass_under_way_) return;
  if (is_catalog_damaged_) reasons_.insert(ErrorCode::kDataLoss);
  reasons_.merge(served_ ? served_->ReasonsToFail() : ReasonsToFailCataloguing());
}

void SequenceRun::NoteFaults() {
  if (!armed_) return;
  const std::uint64_t injected = node_.faults(*armed_).faults_injected();
  if (injected == faults_noted_) return;
  faults_noted_ = injected;
  switch (*armed_) {
    case FaultPlace::kGfs: reasons_.insert(ErrorCode::kUnavailable); break;
    case FaultPlace::kSsd: has_ssd_failed_ = true; break;
    case FaultPlace::kState:
      is_state_doubtful_ = true;
      for (const auto& ledger : ledgers_) ledger->Doubt(is_packed());
      saved_.push_back(std::nullopt);
      break;
  }
}

Status SequenceRun::JudgeWhenIdle() {
  FOREBAY_TRY(Catalogued());
  FOREBAY_TRY(AwaitIdle(rooms()));
  NoteFaults();
  NoteReasons();
  if (is_pass_under_way_) FOREBAY_TRY(JudgePass());
  is_pass_under_way_ = false;
  if (served_) {
    const std::vector<bool> resident = ResidentExtents(rooms());
    for (std::uint32_t i = 0; i < resident.size(); ++i) {
      if (resident[i]) served_->OnResident(ExtentId(i));
    }
  }
  // These two hold only while nothing is under way.
  FOREBAY_TRY(CheckMemory(rooms()));
  FOREBAY_TRY(CheckRoom(rooms(), room_at_start_));
  reasons_.clear();
  revision_when_idle_ = gfs_.revision();
  return {};
}

Status SequenceRun::JudgePass() {
  const stage::DatasetProgress progress = dataset().progress();
  Log(fmt::format("{}: {} of {} bytes {}", stage::DatasetStateName(progress.state),
                  progress.staged_bytes, progress.total_bytes, progress.error));
  if (served_) Log(DescribeTiers(rooms()));
  if (progress.state == DatasetState::kStaged) return {};
  had_failed_pass_ = had_failed_pass_ || !served_;
  if (progress.state != DatasetState::kFailed) {
    return Difference(fmt::format("a pass ended as {}: {}",
                                  stage::DatasetStateName(progress.state), progress.error));
  }
  return JudgeFailedPass(progress.error);
}

Status SequenceRun::JudgeFailedPass(const std::string& error) {
  const std::optional<ErrorCode> code = CodeOf(error);
  // The set has every reason since the last idle moment, because a load may have met any of them.
  if (!code || !reasons_.contains(*code)) {
    return Difference("a pass failed for no reason: " + error);
  }
  occurrences_.Count(fmt::format("failed pass: {}", ErrorCodeName(*code)));
  return {};
}

// --- reading ------------------------------------------------------------------------------------

stream::ServeFixture::Ask SequenceRun::DrawAsk(std::string name) {
  constexpr OrderMode kModes[] = {OrderMode::kBlock, OrderMode::kSequential, OrderMode::kGlobal};
  stream::ServeFixture::Ask ask;
  ask.name = std::move(name);
  ask.mode = random_.OneOf(kModes);
  // Batches that need more extents at once than the RAM tier holds wait for memory a long time
  // before they are read in pieces, and of packed extents five seconds for each: a few are enough.
  const bool must_wait = is_packed() && dataset().bytes_without_home() > 0;
  ask.credits = must_wait ? 1 : static_cast<std::uint32_t>(random_.Between(1, 3));
  const std::uint64_t extent_bytes = plan_.data.extent_bytes;
  const std::uint64_t extents_at_once = plan_.tiers.ram.capacity_bytes / extent_bytes / 2;
  const std::uint64_t objects_of_sample =
      plan_.data.format == catalog::Format::kRaw ? plan_.data.paths.size() : 1;
  const std::uint64_t extents_of_sample =
      objects_of_sample * (1 + plan_.data.sample_bytes_max / extent_bytes);
  const std::uint64_t fitting =
      std::clamp<std::uint64_t>(extents_at_once / extents_of_sample / ask.credits, 1, 12);
  const std::uint64_t most = !must_wait && random_.Chance(2) ? 12 : fitting;
  ask.batch = static_cast<std::uint32_t>(random_.Between(1, most));
  ask.delivery = random_.Chance(50) ? Delivery::kContiguous : Delivery::kViews;
  ask.block_samples = random_.Between(1, 16);
  ask.window_runs = random_.Between(1, 4);
  ask.seed = random_.Word();
  ask.tail = TailPolicy::kShort;
  return ask;
}

// Returns null if the service refuses the stream and is right.
Result<std::unique_ptr<CheckedStream>> SequenceRun::OpenStream(
    const stream::ServeFixture::Ask& ask) {
  const bool is_global = ask.mode == OrderMode::kGlobal;
  const bool fits = dataset().bytes_without_home() == 0;
  auto opened = CheckedStream::Open(rooms(), served_, ask);
  if (opened.has_value()) {
    // A global order visits extents at random, so it is allowed only if every extent has a home.
    // Homes are not known for certain while a pass is under way.
    const bool must_be_refused = is_global && !fits && !is_pass_under_way_;
    if (must_be_refused) return Difference("a global order was opened over what does not fit");
    return opened;
  }
  const bool is_expected =
      is_global && (!fits || is_pass_under_way_) &&
      opened.error().code() == ErrorCode::kResourceExhausted;
  if (!is_expected) return opened.error().WithContext("a stream was refused");
  occurrences_.Count("global order refused");
  return std::unique_ptr<CheckedStream>();
}

Status SequenceRun::Read(CheckedStream& stream, std::uint64_t steps) {
  std::vector<CheckedStream::Refusal> refusals;
  // Samples are compared within Pull; only the service's errors come back here, to be judged.
  const std::uint64_t before = stream.delivered();
  FOREBAY_TRY(stream.Pull(steps, refusals));
  occurrences_.Count("samples delivered", stream.delivered() - before);
  NoteFaults();
  for (const CheckedStream::Refusal& refusal : refusals) {
    FOREBAY_TRY(Judge(refusal.error, stream.served(),
                      stream.served().ExtentsOf(refusal.samples)));
  }
  return stream.steps_left() == 0 ? stream.EndEpoch() : Status();
}

// Whether the error has a reason in the GFS or in a fault.
Status SequenceRun::Judge(const Error& error, ServedModel& served,
                          const std::set<ExtentId>& extents) {
  Codes expected = reasons_;
  if (is_catalog_damaged_) expected.insert(ErrorCode::kDataLoss);
  for (const ExtentId extent : extents) expected.merge(served.ReasonsToFail(extent));
  if (&served != served_.get() && gfs_.revision() > 0) {
    // A rebuild may have accepted what changed.
    expected.insert(ErrorCode::kFailedPrecondition);
  }
  if (is_packed() && dataset().bytes_without_home() > 0) {
    // Packed extents cannot be read in pieces.
    expected.insert({ErrorCode::kUnavailable, ErrorCode::kResourceExhausted});
  }
  Log("refused: " + error.ToString());
  if (!expected.contains(error.code())) return error.WithContext("an error for no reason");
  occurrences_.Count(fmt::format("refused: {}", ErrorCodeName(error.code())));
  return {};
}

// Whether everything lies undamaged on the tiers, so that an epoch must not read from the GFS.
bool SequenceRun::IsQuiet() {
  if (is_pass_under_way_ || armed_ || is_ssd_damaged_ || are_segments_lost_ || has_ssd_lied_) {
    return false;
  }
  const std::vector<bool> resident = ResidentExtents(rooms());
  return dataset().progress().state == DatasetState::kStaged &&
         std::ranges::count(resident, false) == 0;
}

Status SequenceRun::Epoch(bool is_whole) {
  FOREBAY_TRY(Catalogued());
  // It is known only when staging has ended which compressed extents fit on the tiers.
  if (is_packed()) FOREBAY_TRY(JudgeWhenIdle());
  if (!served_) {
    occurrences_.Count("no catalog to read by");
    return {};
  }
  const bool is_quiet = IsQuiet();
  const std::uint64_t gfs_bytes = dataset().progress().gfs_bytes;
  FOREBAY_ASSIGN(const auto stream, OpenStream(DrawAsk("epoch")));
  if (!stream) return {};
  const std::uint64_t steps = stream->steps_left();
  FOREBAY_TRY(Read(*stream, is_whole ? steps : random_.Between(1, steps)));
  occurrences_.Count(is_whole ? "epoch" : "part of an epoch");
  const std::uint64_t read = dataset().progress().gfs_bytes - gfs_bytes;
  if (is_quiet && read > 0) {
    return Difference(fmt::format("{} bytes were read from the GFS for what is staged", read));
  }
  if (is_quiet) occurrences_.Count("epoch without the GFS");
  return {};
}

Status SequenceRun::ReadOn() {
  FOREBAY_TRY(Catalogued());
  if (is_packed()) FOREBAY_TRY(JudgeWhenIdle());
  if (!served_ && !open_) return {};
  if (!open_) {
    FOREBAY_ASSIGN(open_, OpenStream(DrawAsk("long")));
  }
  if (!open_) return {};
  // A stream that was opened before a rebuild goes on with the catalog that it began with.
  const bool is_of_replaced = &open_->served() != served_.get();
  FOREBAY_TRY(Read(*open_, random_.Between(1, 12)));
  occurrences_.Count(is_of_replaced ? "read on after a rebuild" : "read on");
  if (random_.Chance(15)) open_.reset();
  return {};
}

Status SequenceRun::Demand() {
  constexpr stage::Stager::Access kAccesses[] = {
      stage::Stager::Access::kOnTier, stage::Stager::Access::kInRam,
      stage::Stager::Access::kPiecesIfNoHome, stage::Stager::Access::kPieces};
  FOREBAY_TRY(Catalogued());
  if (!served_) return {};
  const auto demands = std::make_shared<DemandLog>();
  std::vector<ExtentId> extents;
  for (std::uint64_t i = random_.Between(1, 5); i > 0; --i) {
    extents.push_back(
        ExtentId(static_cast<std::uint32_t>(random_.Below(served_->extent_count()))));
    demands->Demand(rooms().stager(), dataset(), extents.back(), random_.OneOf(kAccesses));
  }
  // An answer may be an error, but it has to come.
  if (!demands->Wait()) return Difference("a demand is never answered");
  NoteFaults();
  FOREBAY_ASSIGN(const std::vector<Status> answers, demands->Answers());
  // A demand for whole extents has to wait where a stream needs all others sooner, or a pass works
  // in what is not at home; streams read in pieces then.
  const bool may_be_short = !plan_.tiers.are_ample && (open_ || is_pass_under_way_);
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (answers[i].has_value()) continue;
    const Error& error = answers[i].error();
    if (may_be_short && error.code() == ErrorCode::kResourceExhausted) continue;
    FOREBAY_TRY(Judge(error, *served_, {extents[i]}));
  }
  occurrences_.Count("demand");
  return {};
}

// --- damage -------------------------------------------------------------------------------------

std::optional<ExtentKey> SequenceRun::DrawResident(TierKind kind) {
  const std::vector<ExtentKey> keys = rooms().cache().Resident(kind);
  if (keys.empty()) return std::nullopt;
  return keys[random_.Below(keys.size())];
}

Status SequenceRun::Evict(std::optional<TierKind> kind, std::uint64_t percent) {
  for (const TierKind tier : {TierKind::kRam, TierKind::kSsd}) {
    // Without a kind, both tiers are meant.
    if (kind.value_or(tier) != tier) continue;
    for (const ExtentKey& key : rooms().cache().Resident(tier)) {
      if (!random_.Chance(percent)) continue;
      const Status evicted = rooms().cache().Evict(key, tier);
      NoteFaults();
      // Others may be faster while much is under way.
      const bool is_expected = evicted.has_value() || is_pass_under_way_ || is_disk_full_ ||
                               has_ssd_failed_;
      if (!is_expected) return evicted.error().WithContext("an eviction failed");
    }
    // Damage goes with the copies that had it.
    if (tier == TierKind::kSsd && rooms().cache().Resident(tier).empty()) {
      is_ssd_damaged_ = false;
      are_segments_lost_ = false;
    }
  }
  return {};
}

Status SequenceRun::FlipRam() {
  FOREBAY_TRY(JudgeWhenIdle());
  const std::optional<ExtentKey> key = DrawResident(TierKind::kRam);
  if (!key) return {};
  {
    const tier::ExtentRef extent = rooms().cache().FindOn(*key, TierKind::kRam);
    const std::span<std::byte> image = extent->block.bytes();
    const std::uint64_t bit = random_.Below(image.size() * 8);
    image[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
  }
  FOREBAY_TRY(Scrub(key));
  if (rooms().cache().FindOn(*key, TierKind::kRam)) {
    return Difference("a scrub left an extent in RAM that has a flipped bit");
  }
  occurrences_.Count("flip a bit in ram, and scrub");
  return {};
}

// Looks at every copy. Of those in RAM, only `damaged` may be found to be bad.
Status SequenceRun::Scrub(const std::optional<ExtentKey>& damaged) {
  io::SteadyClock clock;
  const auto pieces_of = [this](const ExtentKey& key, std::vector<catalog::Range>& pieces) {
    const auto catalog = dataset().catalog();
    const auto extent =
        catalog && !dataset().form() ? dataset().ExtentOf(key) : std::nullopt;
    return extent ? catalog->Pieces(*extent, pieces)
                  : Status(Error(ErrorCode::kNotFound, "not of this catalog"));
  };
  FOREBAY_ASSIGN(tier::Scrubber scrubber, tier::Scrubber::Create(rooms().cache(), clock, pieces_of,
                                                                 {.bytes_per_second = 0}));
  FOREBAY_ASSIGN(const auto queue, node_.backend().CreateQueue({.depth = 8}));
  for (const TierKind tier : {TierKind::kRam, TierKind::kSsd}) {
    for (const ExtentKey& key : rooms().cache().Resident(tier)) {
      const tier::ExtentRef extent = rooms().cache().FindOn(key, tier);
      if (!extent) continue;
      const Status found = scrubber.ScrubExtent(extent, *queue);
      if (found.has_value()) continue;
      NoteFaults();
      scrubber.DropIfDamaged(extent, found);
      const bool may_be_bad = tier == TierKind::kRam
                                  ? key == damaged
                                  : is_ssd_damaged_ || has_ssd_lied_ || has_ssd_failed_;
      if (!may_be_bad) return found.error().WithContext("a scrub found what nobody damaged");
      occurrences_.Count(tier == TierKind::kRam ? "bad copy in ram found"
                                                : "bad copy on ssd found by a scrub");
    }
  }
  if (!armed_) is_ssd_damaged_ = false;
  occurrences_.Count("scrub");
  return {};
}

// A bit that flips once on the way from the GFS is noticed where the extent was read before.
Status SequenceRun::ReadNoise() {
  FOREBAY_TRY(JudgeWhenIdle());
  if (!served_ || !served_->ReasonsToFail().empty()) return {};
  for (std::uint32_t i = 0; i < served_->extent_count(); ++i) {
    const ReadLedger::Entry& entry = ledger_->Of(served_->name(ExtentId(i)));
    // Without a certain first read of every extent, the service has nothing to compare with.
    if (!entry.is_read || entry.is_loose) return {};
  }
  FOREBAY_TRY(Evict(std::nullopt, 100));
  io::FaultInjector& injector = node_.faults(FaultPlace::kGfs);
  const std::uint64_t before = injector.faults_injected();
  // `armed_` stays unset, so no error is allowed: the service has to notice the wrong bytes and to
  // read them again.
  injector.Arm({.kind = io::FaultKind::kBitFlip, .call = io::IoCall::kRead,
                .nth = random_.Between(1, 8), .seed = random_.Word()});
  const Status status = Epoch(true);
  injector.Disarm();
  const std::uint64_t injected = injector.faults_injected() - before;
  occurrences_.Count("read noise", injected);
  return status;
}

}  // namespace forebay::model

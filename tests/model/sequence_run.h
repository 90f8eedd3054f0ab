// SequenceRun: performs a sequence on a node and holds what the service does against the model.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/model/checked_stream.h"
#include "tests/model/demand_log.h"
#include "tests/model/gfs_model.h"
#include "tests/model/model_node.h"
#include "tests/model/model_random.h"
#include "tests/model/occurrences.h"
#include "tests/model/read_ledger.h"
#include "tests/model/sequence_plan.h"
#include "tests/model/served_model.h"

namespace forebay::model {

// One run of one sequence. Not thread-safe; the rooms' threads never come here.
class SequenceRun {
 public:
  // All are borrowed. `folder` is an empty directory of the machine.
  SequenceRun(const SequencePlan& plan, std::string folder, Occurrences& occurrences);
  // The first difference to the model, with what was done until then; empty: there was none.
  std::string Run();

 private:
  // What the next daemon may know of this one's first reads and catalog.
  enum class State : std::uint8_t { kNone, kKept, kDoubtful };
  using Saved = std::optional<std::vector<Object>>;  // nothing: no catalog
  using Codes = std::set<ErrorCode>;

  Status Perform(const Step& step);
  Status Act(const Step& step);
  Status ActOnTiers(Action action);
  Status ActOnObjects(Action action);
  Status ActOnSsd(Action action);
  Status Heal();

  // --- the daemon -----------------------------------------------------------------------------
  Status BeginLife(State state);
  Status EndLife();
  Status StartAgain(Action action);
  Status Kill(bool loses_power);
  void CarryReads(const std::string& extent, ExtentId number);
  Saved CurrentObjects() const;

  // --- cataloguing and staging ----------------------------------------------------------------
  void BeginPass(bool is_rebuild);
  Status Stage();
  Status Rebuild();
  // What is served, as far as a rebuild changes it.
  struct Served {
    std::shared_ptr<ServedModel> served;
    std::shared_ptr<ReadLedger> ledger;
    std::shared_ptr<ReadLedger> prior;
    std::vector<std::shared_ptr<ReadLedger>> ledgers;
    std::set<tier::ExtentKey> found;
    bool may_copies_return = false;
  };
  Status JudgeRefusedRebuild(const Error& error, const Served& before);
  Status Catalogued();  // waits for it
  Status JudgeWhenIdle();
  Status JudgePass();
  Status JudgeFailedPass(const std::string& error);
  Status JudgeStaged();
  void CountHomes();
  Status LearnCatalog();
  Codes ReasonsToFailCataloguing() const;
  void NoteReasons();
  void NoteFaults();

  // --- reading --------------------------------------------------------------------------------
  stream::ServeFixture::Ask DrawAsk(std::string name);
  Result<std::unique_ptr<CheckedStream>> OpenStream(const stream::ServeFixture::Ask& ask);
  Status Read(CheckedStream& stream, std::uint64_t steps);
  Status Epoch(bool is_whole);
  Status ReadOn();
  Status Demand();
  Status Judge(const Error& error, ServedModel& served, const std::set<ExtentId>& extents);
  bool IsQuiet();

  // --- damage ---------------------------------------------------------------------------------
  std::optional<tier::ExtentKey> DrawResident(tier::TierKind kind);
  Status Evict(std::optional<tier::TierKind> kind, std::uint64_t percent);
  Status FlipRam();
  Status Scrub(const std::optional<tier::ExtentKey>& damaged);
  Status ReadNoise();
  void FlipObject(const std::string& path, std::uint64_t bit);

  void Log(std::string what) { log_ += "    " + std::move(what) + "\n"; }
  stream::ServeFixture& rooms() { return node_.rooms(); }
  stage::Dataset& dataset() { return rooms().dataset(); }
  bool is_packed() const { return plan_.tiers.compression != stage::Compression::kOff; }

  const SequencePlan& plan_;
  Occurrences& occurrences_;
  GfsModel gfs_;
  ModelNode node_;
  ModelRandom random_{0};  // of the step
  std::string log_;

  // Of this life.
  plan::TierSpace room_at_start_;
  std::shared_ptr<ReadLedger> ledger_;
  std::shared_ptr<ReadLedger> prior_;   // of whoever put on the tiers what is `found_` there
  std::set<tier::ExtentKey> found_;     // before the data set was catalogued
  std::shared_ptr<ServedModel> served_;  // null: there is no catalog
  std::vector<std::shared_ptr<ReadLedger>> ledgers_;  // of all data sets that are still read
  std::unique_ptr<CheckedStream> open_;
  bool had_failed_pass_ = false;
  // An SSD that failed to remove a copy of before a rebuild shows it to the next daemon, which may
  // take it for the first read of an extent that was not read since.
  bool may_copies_return_ = false;

  // Of the pass that is under way, or nothing.
  bool is_pass_under_way_ = false;
  bool is_rebuild_ = false;
  Codes reasons_;  // why loads may fail that have begun since nothing was under way
  std::uint64_t revision_when_idle_ = 0;

  // Of the step's fault.
  std::optional<FaultPlace> armed_;
  std::uint64_t faults_before_ = 0;
  std::uint64_t faults_noted_ = 0;

  // Of the disks, over all lives.
  std::vector<Saved> saved_ = {std::nullopt};  // what the state directory may hold
  bool is_catalog_damaged_ = false;  // the saved one, perhaps where nobody looks before it is used
  bool is_state_doubtful_ = false;   // something failed to be saved in this life
  bool is_ssd_damaged_ = false;      // some copy there is
  bool are_segments_lost_ = false;
  bool has_ssd_lied_ = false;        // it stored other bytes than it was given
  bool has_ssd_failed_ = false;      // in this life
  bool is_disk_full_ = false;
  std::vector<std::pair<Object, std::uint64_t>> flips_;
};

}  // namespace forebay::model

// Rank 0 looks at the folders and decides; the others learn the result (FromRankZero, AgreeOn).
// Looking and claiming are two steps. FindRunStart changes nothing, so that a run which fails
// later, for a wrong configuration or a missing data set, leaves the folder as it was. Claim moves
// other histories aside, immediately before the first step.
#include "trainer/core/loop/run_start.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>
#include <vector>

#include "trainer/core/checkpoint/checkpoint_lineage.h"
#include "trainer/core/loop/rank_agreement.h"
#include "trainer/core/without_exceptions.h"

namespace forebay::train {
namespace {

namespace fs = std::filesystem;

// A user must see that the newest checkpoint was not the one that was used.
void NamePassedOver(const std::vector<std::string>& skipped, const StartParts& parts) {
  for (const std::string& line : skipped) parts.print("checkpoint passed over: " + line);
}

// The newest intact one of `folder` and of its `best`, which may be the only one, or newer than the
// last regular one, where a run was killed early.
Result<std::optional<fs::path>> NewestOfBoth(const fs::path& folder,
                                             std::vector<std::string>& skipped) {
  FOREBAY_ASSIGN(const std::optional<fs::path> regular, NewestCheckpoint(folder, skipped));
  std::error_code code;
  if (!fs::is_directory(folder / kBestFolder, code)) return regular;
  FOREBAY_ASSIGN(const std::optional<fs::path> best,
                 NewestCheckpoint(folder / kBestFolder, skipped));
  if (!regular || !best) return regular ? regular : best;
  // Names of higher steps are later ones.
  return best->filename() > regular->filename() ? best : regular;
}

// The newest intact checkpoint of the folder, for --resume auto. Returns "" if there is none yet.
Result<std::string> ChooseNewest(const CheckpointConfig& config, const StartParts& parts) {
  const fs::path folder = config.checkpoint_dir;
  FOREBAY_ASSIGN(const std::vector<StoredCheckpoint> stored, ListCheckpoints(folder));
  // --resume auto is for jobs that are requeued: the first time there is nothing to resume.
  if (stored.empty()) {
    parts.print("no checkpoint yet: starting afresh");
    return std::string();
  }
  std::vector<std::string> skipped;
  const auto newest = NewestOfBoth(folder, skipped);
  NamePassedOver(skipped, parts);
  if (!newest.has_value()) return newest.error().WithContext("checkpoint.resume = \"auto\"");
  if (!*newest) {
    return Error(ErrorCode::kDataLoss,
                 fmt::format("checkpoint.resume = \"auto\": {} holds checkpoints, but none that is "
                             "intact; --new-run without --resume moves all aside and starts afresh",
                             folder.string()));
  }
  FOREBAY_ASSIGN(const Manifest manifest, ReadManifest(**newest));
  // The newest one decides which run goes on. Checkpoints of two runs in a folder are refused,
  // because the wrong one might be continued.
  FOREBAY_TRY(CheckOneRun(folder, manifest.state.run));
  return (*newest)->string();
}

// A checkpoint that the user named. If it lies elsewhere, the run begins a history of its own.
Result<std::string> ChooseNamed(const CheckpointConfig& config, const StartParts& parts) {
  std::vector<std::string> skipped;
  const auto found = FindCheckpoint(config.resume, skipped);
  NamePassedOver(skipped, parts);
  if (!found.has_value()) return found.error().WithContext("checkpoint.resume");
  // Going on from a checkpoint elsewhere starts a history of its own, which needs an unused folder.
  const bool may_write = config.checkpoint_dir.empty() || config.new_run ||
                         LiesIn(*found, config.checkpoint_dir);
  if (!may_write) FOREBAY_TRY(CheckUnused(config.checkpoint_dir));
  return found->string();
}

// Rank 0 looks, so that all ranks resume from the same one even while it is being replaced. "":
// the run starts afresh.
Result<std::string> ChoosePath(const CheckpointConfig& config, const StartParts& parts) {
  if (!config.checkpoint_dir.empty()) {
    // A crash may have left the newest checkpoint under its temporary name.
    FOREBAY_TRY(RestoreReplaced(config.checkpoint_dir));
    FOREBAY_TRY(RestoreReplaced(fs::path(config.checkpoint_dir) / kBestFolder));
  }
  if (config.resume == "auto") return ChooseNewest(config, parts);
  if (!config.resume.empty()) return ChooseNamed(config, parts);
  if (!config.checkpoint_dir.empty() && !config.new_run) {
    FOREBAY_TRY(CheckUnused(config.checkpoint_dir));
  }
  return std::string();
}

}  // namespace

// Rank 0 chooses the path; then every rank opens the checkpoint, and all agree that they could.
Result<RunStart> FindRunStart(const CheckpointConfig& config, const StartParts& parts) {
  const bool leads = parts.communicator.rank() == 0;
  FOREBAY_ASSIGN(const std::string path,
                 FromRankZero(leads ? WithoutExceptions(
                                          config.checkpoint_dir,
                                          [&] { return ChoosePath(config, parts); })
                                    : Result<std::string>(""),
                              parts.communicator));
  RunStart start;
  // Only rank 0's name is used, in the manifest that it writes.
  start.run = fmt::format("{:016x}", parts.draw_run());
  if (path.empty()) return start;
  Result<CheckpointReader> reader =
      WithoutExceptions(path, [&] { return CheckpointReader::Open(path); });
  // Every rank opens all shards: it does not know yet which tensors it will hold.
  FOREBAY_TRY(AgreeOn(reader.has_value() ? Status() : Status(reader.error()),
                      parts.communicator));
  const Checkpoint& state = reader->state();
  // A run that resumes from its own folder keeps its name; any other gets a new one.
  start.goes_on = !config.new_run && LiesIn(path, config.checkpoint_dir);
  start.resumed_from = {.run = state.run, .step = state.global_step};
  if (start.goes_on) start.run = state.run;
  if (leads) {
    parts.print(fmt::format("resuming at epoch {} step {} from {}", state.epoch + 1, state.step,
                            path));
  }
  start.checkpoint = *std::move(reader);
  return start;
}

Status RunFolders::Lock(const CheckpointConfig& config, Communicator& communicator) {
  std::error_code code;
  // Only rank 0 writes manifests and renames folders, so that its lock is enough.
  const bool locks = communicator.rank() == 0 && fs::is_directory(config.checkpoint_dir, code);
  return AgreeOn(locks ? LockHere(config) : Status(), communicator);
}

Status RunFolders::LockHere(const CheckpointConfig& config) {
  // The folder may have been locked before it was looked at.
  if (lock_) return {};
  FOREBAY_ASSIGN(std::optional<FolderLock> lock, FolderLock::Take(config.checkpoint_dir));
  if (lock) lock_.emplace(*std::move(lock));
  return {};
}

Status RunFolders::Open(const CheckpointConfig& config, Communicator& communicator) {
  regular_.folder = config.checkpoint_dir;
  best_.folder = regular_.folder / kBestFolder;
  const Status opened =
      communicator.rank() == 0
          ? WithoutExceptions(config.checkpoint_dir, [&] { return OpenHere(config); })
          : Status();
  return AgreeOn(opened, communicator);
}

// On rank 0 only, as the next two.
Status RunFolders::OpenHere(const CheckpointConfig& config) {
  std::error_code code;
  fs::create_directories(config.checkpoint_dir, code);
  if (code) return Error::FromErrno(code.value(), config.checkpoint_dir);
  // If the folder did not exist before, it was not locked.
  FOREBAY_TRY(LockHere(config));
  const auto kept = static_cast<std::uint64_t>(config.checkpoints_kept);
  FOREBAY_ASSIGN(folders_[0], CheckpointFolder::Open(regular_.folder, kept));
  regular_.publisher = &*folders_[0];
  if (!config.keep_best) return {};
  // Of best checkpoints only the last one is kept.
  FOREBAY_ASSIGN(folders_[1], CheckpointFolder::Open(best_.folder, 1));
  best_.publisher = &*folders_[1];
  return {};
}

Status RunFolders::Claim(const CheckpointConfig& config, const RunStart& start,
                         const StartParts& parts) {
  const Status claimed =
      parts.communicator.rank() == 0
          ? WithoutExceptions(config.checkpoint_dir,
                              [&] { return ClaimHere(config, start, parts); })
          : Status();
  return AgreeOn(claimed, parts.communicator);
}

// From here on the folder holds this run's history alone.
Status RunFolders::ClaimHere(const CheckpointConfig& config, const RunStart& start,
                             const StartParts& parts) {
  if (start.goes_on || config.new_run) {
    FOREBAY_ASSIGN(const std::vector<std::string> moved,
                   MoveAside(regular_.folder, start.goes_on ? start.resumed_from : std::nullopt));
    for (const std::string& line : moved) parts.print(line);
  } else {
    FOREBAY_TRY(CheckUnused(regular_.folder));  // some may have come meanwhile
  }
  for (std::optional<CheckpointFolder>& folder : folders_) {
    if (folder) FOREBAY_TRY(folder->Adopt());
  }
  return config.keep_best && start.checkpoint ? NoteBest(*start.checkpoint, parts) : Status();
}

// The best evaluation of a history that goes on may be of a checkpoint that a better one, which is
// aside now, had taken the place of.
Status RunFolders::NoteBest(const CheckpointReader& checkpoint, const StartParts& parts) const {
  const std::optional<BestMark>& best = checkpoint.state().best;
  FOREBAY_ASSIGN(const std::vector<std::uint64_t> steps, PublishedSteps(best_.folder));
  if (!best || !steps.empty()) return {};
  parts.print(fmt::format("note: {} is empty: the checkpoint of the best evaluation so far ({} "
                          "{:.4f} of epoch {}) is not there; the next better one is kept",
                          best_.folder.string(), best->metric, best->value, best->epoch + 1));
  return {};
}

}  // namespace forebay::train

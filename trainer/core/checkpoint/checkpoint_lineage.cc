// Every checkpoint carries the name of its run. From the names in a folder follows which of them a
// run that starts now continues; all others are moved to `aside-<run>-<number>` by renaming.
// Nothing is ever deleted here. A checkpoint whose manifest is damaged counts for the run of the
// newest readable one, because it most likely belongs to it.
#include "trainer/core/checkpoint/checkpoint_lineage.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <system_error>
#include <utility>

#include "trainer/core/checkpoint/checkpoint_folder.h"
#include "trainer/core/checkpoint/checkpoint_reader.h"
#include "trainer/core/checkpoint/checkpoint_shard.h"

namespace forebay::train {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kAsideFoldersMax = 1'000'000;  // of one run

// As in the name of a folder.
std::string PrintedRun(const std::string& run) { return run.empty() ? "unnamed" : run; }

// For messages: "run 0123456789abcdef".
std::string Describe(const std::optional<std::string>& run) {
  if (!run) return "a run that its damaged manifest does not tell";
  return run->empty() ? "a run without a name" : "run " + *run;
}

// Adds the checkpoints of `folder`, by ascending step.
Status ListInto(const fs::path& folder, bool is_best, std::vector<StoredCheckpoint>& stored) {
  std::error_code code;
  if (!fs::is_directory(folder, code)) return {};
  FOREBAY_ASSIGN(const std::vector<std::uint64_t> steps, PublishedSteps(folder));
  for (const std::uint64_t step : steps) {
    StoredCheckpoint found{
        .path = PublishedFolder(folder, step), .step = step, .is_best = is_best, .run = {}};
    const Result<Manifest> manifest = ReadManifest(found.path);
    // Without a readable manifest the run stays unknown, and the caller decides.
    if (manifest.has_value()) found.run = manifest->state.run;
    stored.push_back(std::move(found));
  }
  return {};
}

// The run that a checkpoint without a readable manifest counts for: that of the newest one.
std::string RunOfFolder(const std::vector<StoredCheckpoint>& stored) {
  const StoredCheckpoint* newest = nullptr;
  for (const StoredCheckpoint& found : stored) {
    if (found.run && (newest == nullptr || found.step >= newest->step)) newest = &found;
  }
  return newest == nullptr ? std::string() : *newest->run;
}

// Of the run that goes on, up to the step that it goes on from. Later steps are an abandoned branch
// of its history.
bool IsKept(const StoredCheckpoint& found, const std::optional<CheckpointOrigin>& kept) {
  return kept && found.step <= kept->step && found.run.value_or(kept->run) == kept->run;
}

// Makes the next `aside-<run>-<number>`.
Result<fs::path> MakeAside(const fs::path& folder, const std::string& run) {
  for (std::uint32_t number = 1; number <= kAsideFoldersMax; ++number) {
    fs::path aside = folder / fmt::format("aside-{}-{}", PrintedRun(run), number);
    std::error_code code;
    // create_directory returns false for a folder that exists already: that number is taken.
    if (fs::create_directory(aside, code)) return aside;
    if (code) return Error::FromErrno(code.value(), aside.string());
  }
  return Error(ErrorCode::kResourceExhausted,
               fmt::format("{}: has {} folders aside-{}-*: remove some", folder.string(),
                           kAsideFoldersMax, PrintedRun(run)));
}

// Renames `from` into `folder`, and sees to it that this is not undone by a crash of the machine
// after a later move.
Status MoveInto(const fs::path& from, const fs::path& folder) {
  std::error_code code;
  fs::create_directories(folder, code);
  if (code) return Error::FromErrno(code.value(), folder.string());
  fs::rename(from, folder / from.filename(), code);
  if (code) {
    return Error::FromErrno(code.value(),
                            fmt::format("{}: move to {}", from.string(), folder.string()));
  }
  FOREBAY_TRY(SyncFolder(folder));
  return SyncFolder(from.parent_path());
}

}  // namespace

Result<std::vector<StoredCheckpoint>> ListCheckpoints(const fs::path& folder) {
  std::vector<StoredCheckpoint> stored;
  FOREBAY_TRY(ListInto(folder, false, stored));
  FOREBAY_TRY(ListInto(folder / kBestFolder, true, stored));
  return stored;
}

bool LiesIn(const fs::path& checkpoint, const fs::path& folder) {
  std::error_code code;
  const fs::path parent = fs::canonical(checkpoint, code).parent_path();
  if (code) return false;
  // By inode and not by name: paths may have links and dots in them.
  if (fs::equivalent(parent, folder, code)) return true;
  return fs::equivalent(parent, folder / kBestFolder, code);
}

Status CheckUnused(const fs::path& folder) {
  FOREBAY_ASSIGN(const std::vector<StoredCheckpoint> stored, ListCheckpoints(folder));
  if (stored.empty()) return {};
  // Behind all regular ones come those of `best`.
  const auto best = std::ranges::find(stored, true, &StoredCheckpoint::is_best);
  const StoredCheckpoint& newest = best == stored.begin() ? stored.back() : *std::prev(best);
  return Error(ErrorCode::kAlreadyExists,
               fmt::format("{}: holds {} checkpoint{} of {}, the newest {}; a run that does not go "
                           "on from there does not belong in it. --resume auto goes on, another "
                           "--checkpoint-dir starts elsewhere, --new-run (checkpoint.new_run) "
                           "moves what is there to {}",
                           folder.string(), stored.size(), stored.size() == 1 ? "" : "s",
                           Describe(newest.run), newest.path.lexically_relative(folder).string(),
                           (folder / fmt::format("aside-{}-1", PrintedRun(RunOfFolder(stored))))
                               .string()));
}

// A damaged manifest counts for the run itself.
Status CheckOneRun(const fs::path& folder, const std::string& run) {
  FOREBAY_ASSIGN(const std::vector<StoredCheckpoint> stored, ListCheckpoints(folder));
  for (const StoredCheckpoint& found : stored) {
    if (found.run.value_or(run) == run) continue;
    return Error(ErrorCode::kFailedPrecondition,
                 fmt::format("{}: holds checkpoints of {} and, {}, of {}: name the one to go on "
                             "from, --resume {}/step-...; what is not of its run is moved aside",
                             folder.string(), Describe(run),
                             found.path.lexically_relative(folder).string(), Describe(found.run),
                             folder.string()));
  }
  return {};
}

// In ascending order of steps: if a crash comes in between, the newest checkpoint is still there.
Result<std::vector<std::string>> MoveAside(const fs::path& folder,
                                           const std::optional<CheckpointOrigin>& kept) {
  FOREBAY_ASSIGN(const std::vector<StoredCheckpoint> stored, ListCheckpoints(folder));
  const std::string run_of_folder = kept ? kept->run : RunOfFolder(stored);
  std::map<std::string, fs::path> asides;  // by run
  std::map<std::string, std::vector<std::string>> moved;
  for (const StoredCheckpoint& found : stored) {
    if (IsKept(found, kept)) continue;
    const std::string run = found.run.value_or(run_of_folder);
    // One folder for each run, made when its first checkpoint is moved.
    if (!asides.contains(run)) {
      FOREBAY_ASSIGN(asides[run], MakeAside(folder, run));
    }
    FOREBAY_TRY(MoveInto(found.path, found.is_best ? asides[run] / kBestFolder : asides[run]));
    moved[run].push_back(found.path.lexically_relative(folder).string());
  }
  std::vector<std::string> lines;
  for (const auto& [run, names] : moved) {
    lines.push_back(fmt::format("moved aside to {}: {}", asides[run].string(),
                                fmt::join(names, ", ")));
  }
  return lines;
}

}  // namespace forebay::train

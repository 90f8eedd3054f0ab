// Publishing is a rename: all ranks write their shards to `step-N.tmp`, rank 0 checks that all are
// there, adds the manifest, syncs, and renames the folder to `step-N`. So a folder with a
// checkpoint's name is whole. Saving a step again moves the old folder to `step-N.replaced.tmp`
// first; RestoreReplaced brings it back if a crash happens between the two renames. Removing
// renames as well, so that no half-removed checkpoint keeps its name.
#include "trainer/core/checkpoint/checkpoint_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <string_view>
#include <system_error>

#include "proto/contract/check.h"
#include "trainer/core/checkpoint/checkpoint_reader.h"
#include "trainer/core/checkpoint/checkpoint_shard.h"

namespace forebay::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kUnpublished = ".tmp";
constexpr std::string_view kRemoved = ".old.tmp";
constexpr std::string_view kReplaced = ".replaced.tmp";  // until the new one has its name

// std::error_code of the file system has the numbers of errno here.
Error FromErrorCode(const fs::path& path, const std::error_code& code) {
  return Error::FromErrno(code.value(), path.string());
}

// Twelve digits, so that names sort as steps do, also in a listing.
std::string NameOfStep(std::uint64_t step) { return fmt::format("{}{:012}", kPrefix, step); }

// The step in "step-000000000042"; nullopt for any other name.
std::optional<std::uint64_t> StepOfName(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  std::uint64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return step;
}

// Without a suffix that names of checkpoints do not have; nullopt for any other name.
std::optional<std::string> WithoutSuffix(std::string_view name, std::string_view suffix) {
  if (!name.ends_with(suffix)) return std::nullopt;
  name.remove_suffix(suffix.size());
  return StepOfName(name) ? std::optional(std::string(name)) : std::nullopt;
}

// Names that a run which was killed may leave behind.
bool IsLeftover(std::string_view name) {
  return WithoutSuffix(name, kReplaced) || WithoutSuffix(name, kRemoved) ||
         WithoutSuffix(name, kUnpublished);
}

// Names of what is in `folder`.
Result<std::vector<std::string>> List(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code code;
  fs::directory_iterator entries(folder, code);
  if (code) return FromErrorCode(folder, code);
  // increment(code) and not ++, which throws.
  for (; entries != fs::directory_iterator(); entries.increment(code)) {
    if (code) return FromErrorCode(folder, code);
    names.push_back(entries->path().filename().string());
  }
  return names;
}

Status Rename(const fs::path& from, const fs::path& to) {
  std::error_code code;
  fs::rename(from, to, code);
  if (code) return Error::FromErrno(code.value(), to.string() + ": rename");
  return {};
}

// What cannot be removed costs space, not correctness.
void Remove(const fs::path& path) {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

// All of it or nothing: a folder without its name is no checkpoint.
void RemoveCheckpoint(const fs::path& path) {
  const fs::path leftover = path.string() + std::string(kRemoved);
  Remove(leftover);  // of a step that was saved and removed before
  if (Rename(path, leftover).has_value()) Remove(leftover);
}

// Before the checkpoint is published: that all shards are there, with the sizes that the other
// ranks have told.
Status CheckShards(const fs::path& folder, const Manifest& manifest) {
  for (std::size_t at = 0; at < manifest.shards.size(); ++at) {
    const fs::path path = folder / ShardName(at);
    std::error_code code;
    // Rank 0 must see the files of all ranks. It does not if every node has a disk of its own
    // there.
    const std::uint64_t bytes = fs::file_size(path, code);
    if (!code && bytes == manifest.shards[at].bytes) continue;
    return Error(ErrorCode::kFailedPrecondition,
                 fmt::format("{}: another rank wrote it, and rank 0 does not see it so: "
                             "checkpoint.checkpoint_dir must lie where all ranks share files",
                             path.string()));
  }
  return {};
}

// Nothing that another try, another user or another program could read.
bool IsDamage(const Error& error) {
  return error.code() == ErrorCode::kDataLoss || error.code() == ErrorCode::kInvalidArgument ||
         error.code() == ErrorCode::kNotFound;
}

// That files can be made in `folder`. A full disk may have room later.
Status CheckWritable(const fs::path& folder) {
  const fs::path probe = folder / (std::string("probe") + std::string(kUnpublished));
  const Status written = WriteSynced(probe, "probe");
  Remove(probe);
  if (written.has_value() || written.error().code() == ErrorCode::kResourceExhausted) return {};
  return written.error().WithContext("checkpoint.checkpoint_dir cannot be written to");
}

}  // namespace

fs::path UnpublishedFolder(const fs::path& folder, std::uint64_t step) {
  return folder / (NameOfStep(step) + std::string(kUnpublished));
}

fs::path PublishedFolder(const fs::path& folder, std::uint64_t step) {
  return folder / NameOfStep(step);
}

Result<std::vector<std::uint64_t>> PublishedSteps(const fs::path& folder) {
  std::vector<std::uint64_t> steps;
  FOREBAY_ASSIGN(const std::vector<std::string> names, List(folder));
  for (const std::string& name : names) {
    const std::optional<std::uint64_t> step = StepOfName(name);
    // `step-7` is not a name that we give, so it is left alone.
    if (step && name == NameOfStep(*step)) steps.push_back(*step);
  }
  std::ranges::sort(steps);
  return steps;
}

Status RestoreReplaced(const fs::path& folder) {
  std::error_code code;
  if (!fs::is_directory(folder, code)) return {};
  FOREBAY_ASSIGN(const std::vector<std::string> names, List(folder));
  for (const std::string& name : names) {
    const std::optional<std::string> plain = WithoutSuffix(name, kReplaced);
    // If the new checkpoint has its name, the replaced one is merely not removed yet.
    if (!plain || fs::exists(folder / *plain, code)) continue;
    FOREBAY_TRY(Rename(folder / name, folder / *plain));
    FOREBAY_TRY(SyncFolder(folder));
  }
  return {};
}

Result<CheckpointFolder> CheckpointFolder::Open(fs::path folder, std::uint64_t kept) {
  FOREBAY_CHECK(kept >= 1);
  std::error_code code;
  fs::create_directories(folder, code);
  if (code) return FromErrorCode(folder, code);
  FOREBAY_TRY(RestoreReplaced(folder));
  FOREBAY_ASSIGN(const std::vector<std::string> names, List(folder));
  for (const std::string& name : names) {
    // Safe: the folder is locked (FolderLock), so no other run is writing these.
    if (IsLeftover(name)) Remove(folder / name);
  }
  FOREBAY_TRY(CheckWritable(folder));
  return CheckpointFolder(std::move(folder), kept);
}

Result<fs::path> CheckpointFolder::Publish(const Manifest& manifest) {
  const std::uint64_t step = manifest.state.global_step;
  const fs::path unpublished = UnpublishedFolder(folder_, step);
  fs::path path = PublishedFolder(folder_, step);
  std::error_code code;
  // A checkpoint of this run's history may be written again, as when a run only made up an
  // evaluation. Any other one stays.
  if (fs::exists(path, code) && !own_.contains(step)) {
    return Error(ErrorCode::kFailedPrecondition,
                 fmt::format("{}: another run has written it meanwhile; two runs cannot share a "
                             "checkpoint.checkpoint_dir",
                             path.string()));
  }
  FOREBAY_TRY(CheckShards(unpublished, manifest));
  FOREBAY_TRY(WriteSynced(unpublished / kManifestName, EncodeManifest(manifest)));
  // The entries of the files have to be on the disk before the folder gets its name.
  FOREBAY_TRY(SyncFolder(unpublished));
  const Status published = Replace(unpublished, path);
  // It may have its name although the sync of the folder failed: then it is this run's all the
  // same, and the next save may write it again.
  if (!fs::exists(unpublished, code) && fs::exists(path, code)) own_.insert(step);
  FOREBAY_TRY(published);
  // Last: if removing fails or the machine crashes, there is a checkpoint too many.
  RemoveOlderThan(step);
  return path;
}

// A crash between the two renames is what RestoreReplaced is for.
Status CheckpointFolder::Replace(const fs::path& unpublished, const fs::path& path) {
  const fs::path replaced = path.string() + std::string(kReplaced);
  std::error_code code;
  const bool replaces = fs::exists(path, code);
  if (replaces) FOREBAY_TRY(Rename(path, replaced));
  const Status published = Rename(unpublished, path);
  if (!published.has_value()) {
    // The old one gets its name back: a failed save leaves what was there.
    if (replaces) FOREBAY_TRY(Rename(replaced, path));
    return published;
  }
  FOREBAY_TRY(SyncFolder(folder_));
  if (replaces) Remove(replaced);
  return {};
}

void CheckpointFolder::RemoveOlderThan(std::uint64_t published) {
  // Only checkpoints of this run's history are ever removed; the set knows no others.
  own_.insert(published);
  for (auto oldest = own_.begin(); own_.size() > kept_ && *oldest < published;
       oldest = own_.erase(oldest)) {
    RemoveCheckpoint(PublishedFolder(folder_, *oldest));
  }
}

Status CheckpointFolder::Adopt() {
  FOREBAY_ASSIGN(const std::vector<std::uint64_t> steps, PublishedSteps(folder_));
  own_.insert(steps.begin(), steps.end());
  return {};
}

void CheckpointFolder::Abandon(std::uint64_t step) { Remove(UnpublishedFolder(folder_, step)); }

Result<std::optional<fs::path>> NewestCheckpoint(const fs::path& folder,
                                                 std::vector<std::string>& skipped) {
  FOREBAY_ASSIGN(const std::vector<std::uint64_t> steps, PublishedSteps(folder));
  // The newest first. A damaged one is passed over and named.
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    const fs::path path = PublishedFolder(folder, *step);
    const Status intact = VerifyCheckpoint(path);
    if (intact.has_value()) return std::optional(path);
    // What cannot be read now may be intact: going on from an older one would leave it behind.
    if (!IsDamage(intact.error())) {
      return intact.error().WithContext("the newest checkpoint cannot be read");
    }
    skipped.push_back(intact.error().ToString());
  }
  return std::optional<fs::path>();
}

Result<fs::path> FindCheckpoint(const fs::path& path, std::vector<std::string>& skipped) {
  std::error_code code;
  // A user may name a checkpoint, its manifest, or the folder with all checkpoints of a run.
  const fs::file_status status = fs::status(path, code);
  if (!fs::exists(status)) return Error(ErrorCode::kNotFound, path.string() + ": is not there");
  const bool is_manifest = !fs::is_directory(status) && path.filename() == kManifestName;
  if (!fs::is_directory(status) && !is_manifest) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{}: a checkpoint is a folder with {} in it; name that folder, or "
                             "the one it lies in",
                             path.string(), kManifestName));
  }
  fs::path folder = is_manifest ? path.parent_path() : path;
  // The parent of a bare file name is empty.
  if (folder.empty()) folder = ".";
  if (is_manifest || fs::exists(folder / kManifestName, code)) {
    FOREBAY_TRY(VerifyCheckpoint(folder));
    return folder;
  }
  FOREBAY_ASSIGN(std::optional<fs::path> newest, NewestCheckpoint(folder, skipped));
  if (newest) return *std::move(newest);
  std::string text = path.string() + ": no intact checkpoint in it";
  for (const std::string& line : skipped) text += "; passed over: " + line;
  return Error(ErrorCode::kNotFound, std::move(text));
}

}  // namespace forebay::train

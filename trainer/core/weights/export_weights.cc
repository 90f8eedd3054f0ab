// Writes the weights and running statistics of a checkpoint, without the optimiser's state, to one
// safetensors file. The file is written under a temporary name and renamed when it is whole, so
// that a failure leaves what was there. A file inside a checkpoint is never overwritten.
#include "trainer/core/weights/export_weights.h"

#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <map>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "proto/contract/unique_fd.h"
#include "trainer/core/checkpoint/checkpoint_folder.h"
#include "trainer/core/checkpoint/checkpoint_reader.h"
#include "trainer/core/checkpoint/checkpoint_shard.h"
#include "trainer/core/without_exceptions.h"

namespace forebay::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kExportUsage =
    "forebay-train export CHECKPOINT -o FILE.safetensors [--force]\n"
    "Writes the weights and running statistics of a checkpoint (or of the newest intact one in a\n"
    "folder) to one safetensors file, without the optimiser's state, under the names that they\n"
    "have in the checkpoint: \"conv1.weight\". PyTorch: safetensors.torch.load_file(FILE).\n"
    "A file that is there is replaced with --force only.\n";

// A mistake in the command line, with the usage below it.
Error WrongExport(const std::string& what) {
  return Error(ErrorCode::kInvalidArgument, fmt::format("export: {}\n{}", what, kExportUsage));
}

// State s of weight w is tensor "w/s".
bool IsState(const CheckpointReader& reader, std::string_view name) {
  return std::ranges::any_of(reader.state().optimiser_states, [&](const std::string& state) {
    return name.ends_with("/" + state) &&
           reader.Find(name.substr(0, name.size() - state.size() - 1)) != nullptr;
  });
}

// The tensors of the new file, one behind the other, in the order of their names. Offsets in the
// shards have no meaning here.
std::vector<TensorEntry> EntriesOf(const CheckpointReader& reader) {
  std::vector<TensorEntry> entries;
  std::uint64_t end = 0;
  for (const std::string& name : reader.Names()) {
    if (IsState(reader, name)) continue;
    TensorEntry entry = *reader.Find(name);
    const std::uint64_t bytes = entry.end - entry.begin;
    // A checkpoint's tensors lie in several shards, each with offsets of its own.
    entry.begin = end;
    end += bytes;
    entry.end = end;
    entries.push_back(std::move(entry));
  }
  return entries;
}

// Header and tensors go to the file in the order of `entries`, which is that of their offsets.
Status WriteTensors(const CheckpointReader& reader, std::span<const TensorEntry> entries,
                    const fs::path& path) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd.valid()) return Error::FromErrno(errno, path.string());
  const Checkpoint& state = reader.state();
  const std::map<std::string, std::string, std::less<>> metadata = {
      {"format", "pt"},  // what PyTorch's loaders look for
      {"model", state.model},
      {"global_step", std::to_string(state.global_step)}};
  FOREBAY_TRY(WriteAll(fd.get(), EncodeSafetensorsHeader(metadata, entries), path));
  for (const TensorEntry& entry : entries) {
    // One tensor at a time: the weights need not fit into memory twice.
    std::vector<std::byte> bytes(static_cast<std::size_t>(entry.end - entry.begin));
    FOREBAY_TRY(reader.Read(entry.name, bytes));
    FOREBAY_TRY(WriteAll(fd.get(), bytes, path));
  }
  // Before the rename: a crash must not leave the new name with half of the bytes.
  if (::fsync(fd.get()) != 0) return Error::FromErrno(errno, path.string());
  return {};
}

// Refuses a file in the folder of a checkpoint, whose shards must stay as they are, and one that
// exists, unless the user wants it replaced.
Status CheckOutput(const fs::path& output, bool replaces) {
  const fs::path folder = output.has_parent_path() ? output.parent_path() : fs::path(".");
  std::error_code code;
  if (fs::exists(folder / kManifestName, code)) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("export: {} lies in a checkpoint; choose another folder",
                             output.string()));
  }
  if (replaces || !fs::exists(output, code)) return {};
  return Error(ErrorCode::kAlreadyExists,
               fmt::format("export: {} is there already; choose another name, or replace it with "
                           "--force",
                           output.string()));
}

}  // namespace

// Returns the line that says what was written. The checkpoint's shards have been verified by
// FindCheckpoint.
Result<std::string> ExportWeights(const fs::path& folder, const fs::path& output) {
  FOREBAY_ASSIGN(const CheckpointReader reader, CheckpointReader::Open(folder));
  const std::vector<TensorEntry> entries = EntriesOf(reader);
  if (entries.empty()) {
    return Error(ErrorCode::kFailedPrecondition,
                 fmt::format("{}: the checkpoint has no weights", folder.string()));
  }
  // In the same folder, because a rename works within one file system only.
  const fs::path partial = output.string() + ".partial";
  Status written = WriteTensors(reader, entries, partial);
  if (written.has_value() && ::rename(partial.c_str(), output.c_str()) != 0) {
    written = Error::FromErrno(errno, output.string());
  }
  if (!written.has_value()) {
    std::error_code ignored;  // the first error is what counts
    fs::remove(partial, ignored);
    return written.error();
  }
  // The new name is on the disk when the command says that the file is written.
  FOREBAY_TRY(SyncFolder(output.has_parent_path() ? output.parent_path() : fs::path(".")));
  return fmt::format("{}: {} tensors, {} bytes, of {} at step {}", output.string(),
                     entries.size(), entries.back().end, reader.state().model,
                     reader.state().global_step);
}

Result<std::string> ExportCommand(int argc, const char* const* argv) {
  std::string checkpoint;
  std::string output;
  bool replaces = false;
  // argv[1] is the command "export" itself.
  for (int at = 2; at < argc; ++at) {
    const std::string_view word = argv[at];
    if (word == "-h" || word == "--help") return std::string(kExportUsage);
    if ((word == "-o" || word == "--output") && at + 1 < argc) {
      output = argv[++at];
    } else if (word == "--force") {
      replaces = true;
    } else if (!word.starts_with("-") && checkpoint.empty()) {
      checkpoint = word;
    } else {
      return WrongExport(std::string(word));
    }
  }
  if (checkpoint.empty()) return WrongExport("no checkpoint");
  if (output.empty()) return WrongExport("no -o FILE");
  // std::filesystem and the allocation of large tensors may throw.
  return WithoutExceptions(checkpoint, [&]() -> Result<std::string> {
    // Before the checkpoint is verified, which reads all of it and may take minutes.
    FOREBAY_TRY(CheckOutput(output, replaces));
    std::vector<std::string> skipped;
    FOREBAY_ASSIGN(const fs::path folder, FindCheckpoint(checkpoint, skipped));
    FOREBAY_ASSIGN(const std::string line, ExportWeights(folder, output));
    std::string text;
    for (const std::string& passed_over : skipped) {
      text += fmt::format("checkpoint passed over: {}\n", passed_over);
    }
    return text + line + "\n";
  });
}

}  // namespace forebay::train

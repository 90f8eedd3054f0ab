// Decodes every chunk of a pack, which checks all checksums, and measures the values on the way to
// compare the statistics that the file has. It goes on after damage, so that the user sees all of
// it. A failure of the system (a disk that cannot be read) ends it: that says nothing about the
// pack.
#include "client/cli/inspect/pack_verify.h"

#include <utility>

#include <fmt/format.h>

#include "client/cli/human_text.h"
#include "client/cli/printable_stream.h"
#include "client/cli/progress_line.h"
#include "proto/contract/printable.h"

namespace forebay::cli {

using compress::ChunkEntry;
using compress::FieldStatistics;

namespace {

// Measures what is decoded, chunk by chunk, and compares it with what the file says.
class StatisticsCheck {
 public:
  explicit StatisticsCheck(const compress::PackFile& pack)
      : pack_(pack),
        fields_(pack.schema().fields),
        sums_(fields_.size()),
        mergers_(fields_.size()),
        lost_(fields_.size(), false) {}

  void Take(std::uint32_t field, const compress::ChunkHead& head,
            std::span<const std::byte> decoded) {
    const compress::PackField& spec = fields_[field];
    // A pack of version 1 stores sums; a later one stores statistics that are merged. The file's
    // own kind is measured, because one cannot be computed from the other to the last bit.
    if (has_sums()) {
      compress::AddChunkSums(spec, head, decoded, sums_[field]);
    } else {
      // Chunks are merged in the order of the index, which is the writer's order, because
      // floating-point sums depend on the order.
      mergers_[field].Take(spec, compress::MeasureChunk(spec, head, decoded));
    }
  }
  // A chunk that cannot be read: nothing is known of its field.
  void Lose(std::uint32_t field) { lost_[field] = true; }

  // Errors: those of reading the file's.
  Status Compare(std::vector<std::string>& damage) const {
    if (has_sums()) {
      FOREBAY_ASSIGN(const std::vector<compress::FieldSums> written, pack_.Sums());
      for (std::size_t field = 0; field < written.size(); ++field) {
        CompareField(field, compress::WriteFieldSums({written[field]}),
                     compress::WriteFieldSums({sums_[field]}), damage);
      }
      return {};
    }
    FOREBAY_ASSIGN(const std::vector<FieldStatistics> written, pack_.Statistics());
    for (std::size_t field = 0; field < written.size(); ++field) {
      CompareField(field, compress::WriteStatistics({written[field]}),
                   compress::WriteStatistics({mergers_[field].Merged(fields_[field])}), damage);
    }
    return {};
  }

 private:
  bool has_sums() const { return pack_.header().major == 1; }

  void CompareField(std::size_t field, const std::vector<std::byte>& written,
                    const std::vector<std::byte>& found, std::vector<std::string>& damage) const {
    // Compared as encoded bytes: that is exact also for NaN and for sums whose last digit matters.
    if (lost_[field] || written == found) return;
    damage.push_back("statistics of field " + fields_[field].name +
                     " are not those of its values");
  }

  const compress::PackFile& pack_;
  const std::vector<compress::PackField>& fields_;
  std::vector<compress::FieldSums> sums_;  // of a pack of version 1
  std::vector<compress::StatisticsMerger> mergers_;
  std::vector<bool> lost_;
};

}  // namespace

Result<std::vector<std::string>> VerifyPack(CommandContext& context, const OpenedPack& pack) {
  std::vector<std::string> damage;
  StatisticsCheck statistics(*pack.file);
  std::vector<std::byte> scratch(pack.file->ScratchBytes());
  ProgressLine line(context.out, context.terminal);
  ProgressLine::State state{.name = "verifying", .note = {}};
  for (const ChunkEntry& entry : pack.file->index().chunks) {
    // Bytes and not chunks, because chunks of labels are small and chunks of images are not.
    state.bytes_total += entry.head_bytes + entry.payload_bytes;
  }
  for (const ChunkEntry& entry : pack.file->index().chunks) {
    const auto decoded = pack.file->DecodeWhole(entry, scratch);
    // Whatever is wrong with the bytes: a decoder calls damage by several names.
    if (!decoded && decoded.error().system_errno() != 0) return decoded.error();
    if (!decoded) damage.push_back(decoded.error().message());
    if (decoded) {
      // The bytes are in `scratch` and are gone with the next chunk.
      statistics.Take(entry.field, decoded->head, decoded->bytes);
    } else {
      // Without this chunk the field's statistics cannot agree. That would be reported as a second
      // damage, which it is not.
      statistics.Lose(entry.field);
    }
    state.bytes_done += entry.head_bytes + entry.payload_bytes;
    if (!damage.empty()) state.note = fmt::format("{} damaged", damage.size());
    if (!context.json && context.terminal) line.Show(state);
  }
  if (!context.json && context.terminal) context.out << EraseLine;
  // Keys have records of their own, which no chunk refers to.
  for (const compress::KeyEntry& entry : pack.file->index().keys) {
    const auto keys = pack.file->Keys(entry.first_sample, entry.sample_count);
    if (!keys && keys.error().system_errno() != 0) return keys.error();
    if (!keys) {
      damage.push_back(fmt::format("keys of samples {} to {}, at byte {}: {}", entry.first_sample,
                                   entry.first_sample + entry.sample_count - 1, entry.offset,
                                   keys.error().message()));
    }
  }
  const Status compared = statistics.Compare(damage);
  if (!compared && compared.error().system_errno() != 0) return compared.error();
  // The statistics' own record is damaged.
  if (!compared) damage.push_back(compared.error().message());
  return damage;
}

// A word with '/' would be an odd name for a data set; one that has it anyway is verified by
// `verify` without names.
bool IsPackPath(const std::string& name) {
  return name.find('/') != std::string::npos || name.ends_with(".fbp") ||
         name.ends_with(".fbset");
}

namespace {

struct PackVerdict {
  std::uint64_t packs = 0, samples = 0, chunks = 0, file_bytes = 0;
  std::vector<std::string> damage;
};

// A shard that cannot be had is damage of its set; the others are looked at all the same.
Result<PackVerdict> VerifyOne(CommandContext& context, const std::string& path) {
  FOREBAY_ASSIGN(const OpenedPacks packs, OpenedPacks::Open(path, false));
  PackVerdict verdict{.packs = packs.count(), .samples = packs.samples(), .damage = {}};
  for (std::size_t i = 0; i < packs.count(); ++i) {
    // Opened when its turn comes: the set closes the shards that were used longest ago.
    const auto pack = packs.Pack(i);
    if (!pack) {
      verdict.damage.push_back(pack.error().message());
      continue;
    }
    verdict.chunks += pack->file->index().chunks.size();
    verdict.file_bytes += pack->source->size();
    FOREBAY_ASSIGN(std::vector<std::string> damage, VerifyPack(context, *pack));
    for (const std::string& line : damage) {
      verdict.damage.push_back(packs.Path(i) + ": " + line);
    }
  }
  return verdict;
}

}  // namespace

Status VerifyPackFiles(CommandContext& context, const std::vector<std::string>& paths) {
  Status first_failure;
  for (const std::string& path : paths) {
    const auto verdict = VerifyOne(context, path);
    if (!verdict) {
      // The others are verified all the same; the first failure decides on the exit code.
      if (first_failure) {
        first_failure = verdict.error();
      } else {
        context.Fail(verdict.error());
      }
      continue;
    }
    if (!verdict->damage.empty()) context.exit_code = ExitCode::kViolation;
    if (context.json) {
      context.PrintJson("verify_pack", {{"path", path},
                                        {"packs", verdict->packs},
                                        {"samples", verdict->samples},
                                        {"chunks", verdict->chunks},
                                        {"file_bytes", verdict->file_bytes},
                                        {"damage", verdict->damage}});
      continue;
    }
    for (const std::string& line : verdict->damage) context.err << PrintableLine(line) << '\n';
    context.out << fmt::format("{}: verified {} samples, {} chunks, {}: {} damaged\n", path,
                               HumanCount(verdict->samples), HumanCount(verdict->chunks),
                               HumanBytes(verdict->file_bytes),
                               HumanCount(verdict->damage.size()));
  }
  return first_failure;
}

}  // namespace forebay::cli

// Opens packs and sets, and counts what is in them. Only the heads of chunks are read and checked,
// not their payloads, which are most of a pack's bytes; pack_verify.cc reads those.
#include "client/cli/inspect/pack_survey.h"

#include <utility>

#include "compress/decode/pack/predictor_file.h"

namespace forebay::cli {

using compress::ChunkCodec;
using compress::ChunkEntry;
using compress::PackFile;

namespace {

// Bounds open files, not shards: a set closes the ones that were used longest ago.
constexpr std::size_t kShardsOpenMax = 64;

// Packs that a service refuses for the memory that they take are shown and converted. Learned
// predictors that a pack names may lie beside it.
compress::PackReadOptions ReadOptions(const std::string& path) {
  return {.budget = {},
          .find_predictor = compress::PredictorsBeside(path),
          .scratch_bytes_max = compress::kConvertScratchBytesMax};
}

}  // namespace

Result<OpenedPack> OpenPack(const std::string& path, bool recover) {
  OpenedPack pack;
  FOREBAY_ASSIGN(pack.source, compress::OpenByteSource(path));
  const compress::PackReadOptions options = ReadOptions(path);
  auto file = recover ? PackFile::Recover(*pack.source, options)
                      : PackFile::Open(*pack.source, options);
  // The hint is given only where recovering may help and was not tried already.
  if (!file && file.error().code() == ErrorCode::kDataLoss && !recover) {
    return Error(ErrorCode::kDataLoss, path + ": " + file.error().message() +
                                           "; `forebay inspect --recover` shows what is left");
  }
  if (!file) return file.error().WithContext(path);
  pack.file = std::make_shared<const PackFile>(std::move(*file));
  return pack;
}

Result<OpenedPacks> OpenedPacks::Open(const std::string& path, bool recover) {
  OpenedPacks packs;
  packs.path_ = path;
  FOREBAY_ASSIGN(const bool is_set, compress::IsManifestFile(path));
  if (!is_set) {
    // A single pack is opened at once, and stays open; shards are opened when they are asked for.
    FOREBAY_ASSIGN(packs.single_, OpenPack(path, recover));
    return packs;
  }
  // Recovering guesses where a file ends. A set names the sizes of its shards, so there is nothing
  // to guess.
  if (recover) {
    return Error(ErrorCode::kInvalidArgument,
                 path + ": a set of packs; --recover is for one of its shards");
  }
  FOREBAY_ASSIGN(packs.set_, compress::PackSet::Open(path, kShardsOpenMax, ReadOptions(path)));
  return packs;
}

std::string OpenedPacks::Path(std::size_t number) const {
  return is_set() ? compress::FolderOf(path_) + set_->manifest().shards[number].name : path_;
}

Result<OpenedPack> OpenedPacks::Pack(std::size_t number) const {
  if (!is_set()) return single_;
  const auto shard = set_->Shard(number);
  if (!shard) return shard.error().WithContext(path_);
  // Both share the shard, which is open as long as one of them is.
  return OpenedPack{.source = {*shard, (*shard)->source.get()},
                    .file = {*shard, &(*shard)->file}};
}

Result<ChunkFacts> ReadChunkFacts(const OpenedPack& pack, const ChunkEntry& entry) {
  const auto damaged = [&](const char* what) {
    return Error(ErrorCode::kDataLoss, "chunk of field " +
                                           pack.file->schema().fields[entry.field].name +
                                           " at byte " + std::to_string(entry.offset) + ": " +
                                           what);
  };
  // The index was checked: heads lie within the file. That bounds the memory, too.
  std::vector<std::byte> bytes(entry.head_bytes);
  FOREBAY_TRY(pack.source->ReadAt(entry.offset, bytes));
  // The head carries its own checksum, over the pack's identity and its offset as well. So a record
  // of another pack, or of another place, is noticed without reading the payload.
  // The checks go from the outside inwards, so that the message names the first thing that is
  // wrong.
  const auto prefix = compress::ReadRecordPrefix(bytes);
  if (!prefix) return damaged("its record does not begin as one");
  const auto added = compress::CheckRecordHead(pack.file->identity(), entry.offset, bytes);
  if (!added) return damaged("its head does not match its checksum");
  const auto head = compress::ReadChunkHead(pack.file->schema(), *added);
  if (!head) return damaged("its head is not sound");
  // Sound by itself, but not what the index says: a record that was written over by another one.
  if (prefix->type != compress::RecordType::kChunk ||
      prefix->head_checksum != entry.head_checksum) {
    return damaged("its record is not the one that the index names");
  }
  return ChunkFacts{.entry = entry,
                    .codec = head->codec,
                    .begins_sequence = head->begins_sequence,
                    .raw_bytes = head->raw_bytes};
}

Result<PackSurvey> SurveyPack(const OpenedPack& pack) {
  PackSurvey survey;
  survey.file_bytes = pack.source->size();
  survey.fields.resize(pack.file->schema().fields.size());
  for (const ChunkEntry& entry : pack.file->index().chunks) {
    FieldSurvey& field = survey.fields[entry.field];
    ++field.chunks;
    // The sizes come from the index, which was checked, so a chunk's bytes are counted even if its
    // head is damaged.
    field.stored_bytes += entry.head_bytes + entry.payload_bytes;
    const auto facts = ReadChunkFacts(pack, entry);
    // A disk that fails says nothing about the pack, and each further read might wait for it again.
    if (!facts && facts.error().code() != ErrorCode::kDataLoss) return facts.error();
    if (!facts) {
      ++field.unreadable;
      continue;
    }
    field.raw_bytes += facts->raw_bytes;
    field.raw_of_codec.at(static_cast<std::size_t>(facts->codec)) += facts->raw_bytes;
    survey.raw_bytes += facts->raw_bytes;
  }
  return survey;
}

void AddSurvey(const PackSurvey& more, PackSurvey& sum) {
  if (sum.fields.empty()) sum.fields.resize(more.fields.size());
  for (std::size_t i = 0; i < more.fields.size(); ++i) {
    FieldSurvey& field = sum.fields[i];
    field.chunks += more.fields[i].chunks;
    field.unreadable += more.fields[i].unreadable;
    field.raw_bytes += more.fields[i].raw_bytes;
    field.stored_bytes += more.fields[i].stored_bytes;
    for (std::size_t codec = 0; codec < FieldSurvey::kCodecs; ++codec) {
      field.raw_of_codec[codec] += more.fields[i].raw_of_codec[codec];
    }
  }
  sum.file_bytes += more.file_bytes;
  sum.raw_bytes += more.raw_bytes;
}

const char* CodecName(ChunkCodec codec) {
  switch (codec) {
    case ChunkCodec::kStore: return "store";
    case ChunkCodec::kZstd: return "zstd";
    case ChunkCodec::kLz4: return "lz4";
    case ChunkCodec::kCoded: return "coded";
  }
  return "unknown";
}

}  // namespace forebay::cli

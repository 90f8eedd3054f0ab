#include "client/cli/pack_survey.h"

#include <utility>

namespace forebay::cli {

using compress::ChunkCodec;
using compress::ChunkEntry;
using compress::PackFile;

Result<OpenedPack> OpenPack(const std::string& path, bool recover) {
  OpenedPack pack;
  FOREBAY_ASSIGN(pack.source, compress::OpenByteSource(path));
  auto file = recover ? PackFile::Recover(*pack.source) : PackFile::Open(*pack.source);
  if (!file && file.error().code() == ErrorCode::kDataLoss && !recover) {
    return Error(ErrorCode::kDataLoss, path + ": " + file.error().message() +
                                           "; `forebay inspect --recover` shows what is left");
  }
  if (!file) return file.error().WithContext(path);
  pack.file = std::make_unique<PackFile>(std::move(*file));
  return pack;
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
  const auto prefix = compress::ReadRecordPrefix(bytes);
  if (!prefix) return damaged("its record does not begin as one");
  const auto added = compress::CheckRecordHead(pack.file->identity(), entry.offset, bytes);
  if (!added) return damaged("its head does not match its checksum");
  const auto head = compress::ReadChunkHead(pack.file->schema(), *added);
  if (!head) return damaged("its head is not sound");
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
    field.stored_bytes += entry.head_bytes + entry.payload_bytes;
    const auto facts = ReadChunkFacts(pack, entry);
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

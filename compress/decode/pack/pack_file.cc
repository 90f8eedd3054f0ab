// An open pack: header, schema, index, and reading through them. Opening reads the footer first,
// then the index it names, and checks that every record lies in the file. Recover builds an index
// from a walk over the records instead, with the samples that are complete in all fields. Reading
// finds the chunks of a request by binary search, loads a record into scratch memory and decodes it
// (chunk_record.h).
#include "compress/decode/pack/pack_file.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "compress/decode/pack/pack_walk.h"
#include "compress/decode/scratch_arena.h"
#include "compress/format/damaged.h"
#include "proto/contract/byte_cursor.h"
#include "proto/contract/limits.h"

namespace forebay::compress {
namespace {

constexpr std::string_view kPackPart = "pack";  // in errors

// Whether a record that the index names lies between `begin` and `end`.
// Written as differences, because sums of an entry's numbers could overflow: a checksum vouches for
// the index's bytes and not for the honesty of its writer.
template <typename Entry>
bool Within(const Entry& entry, std::uint64_t begin, std::uint64_t end) {
  return entry.offset >= begin && entry.offset <= end && entry.head_bytes <= end - entry.offset &&
         entry.payload_bytes <= end - entry.offset - entry.head_bytes;
}

}  // namespace

Result<PackFile> PackFile::Open(const ByteSource& source, const PackReadOptions& options) {
  PackFile file(source);
  FOREBAY_TRY(file.ReadStart(options));
  // The schema comes before the index, since only the schema says which chunks an index must have.
  FOREBAY_TRY(file.ReadIndex());
  file.SizeScratch();
  return file;
}

Status PackFile::ReadStart(const PackReadOptions& options) {
  std::array<std::byte, kPackHeaderBytes> header;
  if (source_->size() < header.size()) {
    return Error(ErrorCode::kInvalidArgument, "pack: not a pack file, only " +
                                                  std::to_string(source_->size()) + " bytes");
  }
  // The header says how long the schema is, so a file is read in two steps; its size is compared
  // before memory of that size is taken.
  FOREBAY_TRY(source_->ReadAt(0, header));
  FOREBAY_ASSIGN(header_, ReadPackHeader(header));
  start_bytes_ = kPackHeaderBytes + header_.schema_bytes;
  identity_ = PackIdentity(header);
  if (start_bytes_ > source_->size()) return Damaged(kPackPart, "the file ends within its schema");
  std::vector<std::byte> start(static_cast<std::size_t>(start_bytes_));
  FOREBAY_TRY(source_->ReadAt(0, start));
  FOREBAY_ASSIGN(schema_, ReadPackStart(start, options.budget));
  // A pack whose chunks would take too much memory is refused here, before any chunk is read.
  FOREBAY_TRY(CheckScratch(schema_, options.scratch_bytes_max));
  // The finder may read files, so it is asked last: a pack that is refused above costs no search.
  FOREBAY_TRY(FindPredictors(options.find_predictor, schema_));
  FOREBAY_ASSIGN(schema_fingerprint_, SchemaFingerprint(start));
  return {};
}

Result<std::vector<std::byte>> PackFile::ReadRecord(std::uint64_t offset, std::uint64_t bytes_max,
                                                    RecordType type,
                                                    const std::uint64_t* head_checksum) const {
  std::array<std::byte, kRecordPrefixBytes> bytes;
  FOREBAY_TRY(source_->ReadAt(offset, bytes));
  FOREBAY_ASSIGN(const RecordPrefix prefix, ReadRecordPrefix(bytes));
  // The sizes come from the file and are not yet checked by anything: they are compared with what
  // the caller allows and with the file before memory is allocated.
  if (prefix.type != type || prefix.payload_bytes > bytes_max ||
      (head_checksum != nullptr && prefix.head_checksum != *head_checksum) ||
      prefix.head_bytes > source_->size() - offset ||
      prefix.payload_bytes > source_->size() - offset - prefix.head_bytes) {
    return Damaged(kPackPart,
                   "the record at byte " + std::to_string(offset) + " has the wrong type or size");
  }
  std::vector<std::byte> head(prefix.head_bytes);
  FOREBAY_TRY(source_->ReadAt(offset, head));
  // Read a second time as a whole, head included: the checksum covers the prefix, too.
  FOREBAY_TRY(CheckRecordHead(identity_, offset, head));
  std::vector<std::byte> payload(static_cast<std::size_t>(prefix.payload_bytes));
  FOREBAY_TRY(source_->ReadAt(offset + prefix.head_bytes, payload));
  if (PayloadChecksum(identity_, type, offset, payload) != prefix.payload_checksum) {
    return Damaged(kPackPart, "the record at byte " + std::to_string(offset) +
                   " does not match its checksum");
  }
  return payload;
}

Status PackFile::ReadIndex() {
  std::array<std::byte, kFooterBytes> bytes;
  if (source_->size() - start_bytes_ < bytes.size()) {
    return Damaged(kPackPart, "the file is too short for a footer");
  }
  FOREBAY_TRY(source_->ReadAt(source_->size() - bytes.size(), bytes));
  FOREBAY_ASSIGN(const PackFooter footer, ReadPackFooter(identity_, bytes));
  const std::uint64_t end = source_->size() - bytes.size();
  // The index must end exactly where the footer begins, so the footer cannot point to another
  // record that looks like one.
  if (footer.index_offset < start_bytes_ || footer.index_offset > end ||
      footer.index_bytes != end - footer.index_offset) {
    return Damaged(kPackPart, "the footer does not point to the index");
  }
  std::array<std::byte, kRecordPrefixBytes> prefix_bytes;
  FOREBAY_TRY(source_->ReadAt(footer.index_offset, prefix_bytes));
  FOREBAY_ASSIGN(const RecordPrefix prefix, ReadRecordPrefix(prefix_bytes));
  // The checksum of the index record's head covers the checksum of the index, and the index has the
  // checksums of the heads of all chunks and keys. So this word identifies what the samples are
  // (not the statistics, which the index does not name): see root(). It is not verified yet:
  // ReadRecord reads the head again, requires the same word, and verifies the head.
  root_ = prefix.head_checksum;
  FOREBAY_ASSIGN(const std::vector<std::byte> payload,
                 ReadRecord(footer.index_offset, footer.index_bytes, RecordType::kIndex, &root_));
  FOREBAY_ASSIGN(index_, ReadPackIndex(schema_, payload));
  // Statistics are read when they are asked for, so that damage to them costs nothing else.
  statistics_offset_ = footer.statistics_offset;
  statistics_bytes_ = footer.statistics_bytes;
  if (index_.samples != footer.samples) {
    return Damaged(kPackPart, "the footer and the index disagree about the number of samples");
  }
  for (const ChunkEntry& entry : index_.chunks) {
    if (!Within(entry, start_bytes_, end)) {
      return Damaged(kPackPart, NameOf(schema_, entry) + ": it lies outside the file");
    }
  }
  for (const KeyEntry& entry : index_.keys) {
    if (!Within(entry, start_bytes_, end)) {
      return Damaged(kPackPart, "the index names keys outside the file");
    }
  }
  return {};
}

void PackFile::SizeScratch() {
  // CheckPackIndex has made sure that chunks are sorted by field.
  field_begins_.assign(1, 0);
  std::size_t next = 0;
  std::size_t record = 0;
  for (std::uint32_t field = 0; field < schema_.fields.size(); ++field) {
    while (next < index_.chunks.size() && index_.chunks[next].field == field) {
      const ChunkEntry& entry = index_.chunks[next++];
      record = std::max(record, entry.head_bytes + static_cast<std::size_t>(entry.payload_bytes));
    }
    field_begins_.push_back(next);
  }
  // A smaller shape may take more scratch memory, because stacked frames become narrow: ask for
  // every shape that occurs, once.
  std::size_t decode = 0;
  std::size_t raw = 0;
  std::set<std::tuple<std::uint32_t, std::array<std::uint32_t, kChunkRankMax>, std::uint32_t>>
      seen;
  for (const ChunkEntry& entry : index_.chunks) {
    const PackField& field = schema_.fields[entry.field];
    const ChunkShape shape = field.variable() ? BytesShape(limits::kChunkBytesMax)
                                              : field.Shape(entry.tile, entry.sample_count);
    if (!seen.emplace(entry.field, shape.extent, shape.samples).second) continue;
    decode = std::max(decode, ChunkScratchBytes(shape));
    raw = std::max(raw, shape.bytes());
  }
  ScratchArena arena;
  // Load, DecodeTile or DecodeWhole, and the decoder take memory in this order.
  arena.Take<std::byte>(record);
  arena.Take<std::byte>(raw);
  arena.Take<std::byte>(decode);
  scratch_bytes_ = arena.bytes();
}

Result<std::uint32_t> PackFile::FindField(std::string_view name) const {
  std::string names;
  for (std::uint32_t field = 0; field < schema_.fields.size(); ++field) {
    if (schema_.fields[field].name == name) return field;
    // Collected for the message: whoever misspelt a name sees the right ones.
    names += (field > 0 ? ", " : "") + schema_.fields[field].name;
  }
  return Error(ErrorCode::kNotFound,
               "pack: no field " + std::string(name) + "; there are: " + names);
}

// The index has a field's chunks in the order of samples, so those of a range lie together: the
// first that ends behind the range's begin, up to the first that begins behind its end.
std::span<const ChunkEntry> PackFile::Chunks(std::uint32_t field, std::uint64_t first_sample,
                                             std::uint64_t count) const {
  const std::span<const ChunkEntry> all(index_.chunks);
  const auto chunks = all.subspan(field_begins_[field],
                                  field_begins_[field + 1] - field_begins_[field]);
  const auto begin = std::ranges::partition_point(chunks, [&](const ChunkEntry& entry) {
    return entry.first_sample + entry.sample_count <= first_sample;
  });
  const auto end = std::ranges::partition_point(chunks, [&](const ChunkEntry& entry) {
    return entry.first_sample < first_sample + count;
  });
  return begin < end ? std::span<const ChunkEntry>(begin, end) : std::span<const ChunkEntry>();
}

// Reads a record to the front of the scratch memory and checks it. What is left of the memory is
// for decoding; SizeScratch has counted both.
Result<PackFile::LoadedChunk> PackFile::Load(const ChunkEntry& entry,
                                             std::span<std::byte> scratch) const {
  const std::size_t bytes = entry.head_bytes + static_cast<std::size_t>(entry.payload_bytes);
  // Compared with the need of the whole pack and not of this chunk, so that a program that passes
  // too little finds out at its first read.
  if (scratch.size() < scratch_bytes_) {
    return Error(ErrorCode::kInvalidArgument, "pack: scratch memory of " +
                                                  std::to_string(scratch.size()) +
                                                  " bytes, needed are " +
                                                  std::to_string(scratch_bytes_));
  }
  ScratchArena arena(scratch);
  const std::span<std::byte> record = arena.Take<std::byte>(bytes);
  FOREBAY_TRY(source_->ReadAt(entry.offset, record));
  FOREBAY_ASSIGN(const ChunkRecord chunk, ReadChunkRecord(context(), entry, record));
  return LoadedChunk{.record = chunk,
                     // bytes() has a reserve for aligning an unknown address. Here the address is
                     // known, so only what was used is cut off.
                     .rest = scratch.subspan(arena.bytes() - ScratchArena::kAlignment)};
}

Status PackFile::Read(std::uint32_t field, std::uint64_t first_sample, std::uint64_t count,
                      const PackRegion& region, const StridedOutput& out,
                      std::span<std::byte> scratch) const {
  if (field >= schema_.fields.size() || schema_.fields[field].variable()) {
    return Error(ErrorCode::kInvalidArgument, "pack: not a field of fixed size");
  }
  if (first_sample > samples() || count > samples() - first_sample) {
    return Error(ErrorCode::kOutOfRange, "pack: it has " + std::to_string(samples()) + " samples");
  }
  for (std::size_t axis = 0; axis < kChunkRankMax; ++axis) {
    const std::uint32_t extent = schema_.fields[field].extent[axis];
    // Written without a sum, which a caller's numbers could make overflow.
    if (region.origin[axis] > extent || region.extent[axis] > extent - region.origin[axis]) {
      return Error(ErrorCode::kOutOfRange,
                   "pack: axis " + std::to_string(axis) + " of field " +
                       schema_.fields[field].name + " has " + std::to_string(extent));
    }
  }
  if (count == 0) return {};
  const TileRequest request{
      .first_sample = first_sample, .count = count, .region = region, .out = out};
  // One chunk after the other through the same scratch memory. Chunks that were decoded before an
  // error stay in the output, which is then undefined as a whole.
  for (const ChunkEntry& entry : Chunks(field, first_sample, count)) {
    if (!Intersects(schema_, request, entry)) continue;
    FOREBAY_ASSIGN(const LoadedChunk chunk, Load(entry, scratch));
    FOREBAY_TRY(DecodeTile(context(), entry, chunk.record, request, chunk.rest));
  }
  return {};
}

Status PackFile::ReadSamples(std::uint32_t field, std::uint64_t first_sample, std::uint64_t count,
                             std::span<std::byte> out, std::span<std::byte> scratch) const {
  if (field >= schema_.fields.size()) {
    return Error(ErrorCode::kInvalidArgument, "pack: no such field");
  }
  const TileRequest whole =
      TileRequest::Samples(schema_.fields[field], first_sample, count, out);
  return Read(field, first_sample, count, whole.region, whole.out, scratch);
}

Result<PackFile::DecodedChunk> PackFile::DecodeWhole(const ChunkEntry& entry,
                                                     std::span<std::byte> scratch) const {
  FOREBAY_ASSIGN(const LoadedChunk chunk, Load(entry, scratch));
  const std::size_t bytes = static_cast<std::size_t>(chunk.record.head.raw_bytes);
  ScratchArena arena(chunk.rest);
  const std::span<std::byte> out = arena.Take<std::byte>(bytes);
  const std::span<std::byte> rest =
      chunk.rest.subspan(arena.bytes() - ScratchArena::kAlignment);
  FOREBAY_TRY(DecodeRecord(context(), entry, chunk.record, out, rest));
  return DecodedChunk{.head = chunk.record.head, .bytes = out};
}

Result<std::uint64_t> PackFile::SampleBytes(std::uint32_t field, std::uint64_t sample,
                                            std::span<std::byte> scratch) const {
  if (field >= schema_.fields.size() || sample >= samples()) {
    return Error(ErrorCode::kOutOfRange, "pack: no such field or sample");
  }
  if (!schema_.fields[field].variable()) return schema_.fields[field].sample_bytes();
  // CheckPackIndex has made sure that each field's chunks cover every sample.
  const ChunkEntry& entry = Chunks(field, sample, 1).front();
  // Only a sample in several parts has its length in the index. Others have it in the head of their
  // chunk.
  if (entry.sample_bytes != 0) return entry.sample_bytes;
  FOREBAY_ASSIGN(const LoadedChunk chunk, Load(entry, scratch));
  return chunk.record.head.LengthOf(
      static_cast<std::uint32_t>(sample - entry.first_sample));
}

// A sample longer than a chunk lies in several chunks, each with one part. All are read in order,
// and each must begin where the one before has ended.
Status PackFile::ReadBytes(std::uint32_t field, std::uint64_t sample, std::span<std::byte> out,
                           std::span<std::byte> scratch) const {
  if (field >= schema_.fields.size() || !schema_.fields[field].variable() ||
      sample >= samples()) {
    return Error(ErrorCode::kInvalidArgument, "pack: not a sample of a variable field");
  }
  std::uint64_t filled = 0;
  for (const ChunkEntry& entry : Chunks(field, sample, 1)) {
    FOREBAY_ASSIGN(const DecodedChunk chunk, DecodeWhole(entry, scratch));
    const auto wanted = static_cast<std::uint32_t>(sample - entry.first_sample);
    std::size_t at = 0;
    // ReadChunkHead has compared the sum of all lengths with the chunk's bytes.
    for (std::uint32_t i = 0; i < wanted; ++i) at += chunk.head.LengthOf(i);
    const std::size_t length = chunk.head.LengthOf(wanted);
    // CheckPackIndex has checked the parts; this holds for what Recover found, too.
    if (entry.part_offset != filled) return Damaged(kPackPart, "parts of a sample are missing");
    if (length > out.size() - filled) {
      return Error(ErrorCode::kInvalidArgument,
                   "pack: the output does not have the sample's length");
    }
    if (length > 0) std::memcpy(out.data() + filled, chunk.bytes.data() + at, length);
    filled += length;
  }
  if (filled != out.size()) {
    return Error(ErrorCode::kInvalidArgument,
                 "pack: the output does not have the sample's length");
  }
  return {};
}

// A writer marks the first chunk of each sequence in the chunk's head. It ends chunks where
// sequences end only in fields with frames (two axes or more); all of those have the same
// sequences, so the heads of the first such field are enough. Payloads are not read.
Result<std::vector<std::uint64_t>> PackFile::SequenceStarts() const {
  std::vector<std::uint64_t> starts;
  if (samples() > 0) starts.push_back(0);
  const auto field = std::ranges::find_if(
      schema_.fields, [](const PackField& candidate) { return candidate.rank >= 2; });
  if (field == schema_.fields.end()) return starts;
  const auto number = static_cast<std::uint32_t>(field - schema_.fields.begin());
  std::vector<std::byte> bytes;
  for (const ChunkEntry& entry : Chunks(number, 0, samples())) {
    // All tiles of a sample have the same flag, and the first sample is in the list already.
    if (entry.tile != 0 || entry.first_sample == 0) continue;
    bytes.resize(entry.head_bytes);
    FOREBAY_TRY(source_->ReadAt(entry.offset, bytes));
    const auto prefix = ReadRecordPrefix(bytes);
    const auto added = CheckRecordHead(identity_, entry.offset, bytes);
    if (!prefix.has_value() || !added.has_value() ||
        prefix->head_checksum != entry.head_checksum) {
      return Damaged(kPackPart, NameOf(schema_, entry) + ": its head is damaged");
    }
    FOREBAY_ASSIGN(const ChunkHead head, ReadChunkHead(schema_, *added));
    if (head.begins_sequence) starts.push_back(entry.first_sample);
  }
  return starts;
}

Result<std::vector<std::byte>> PackFile::StatisticsPayload() const {
  auto payload =
      ReadRecord(statistics_offset_, statistics_bytes_, RecordType::kStatistics, nullptr);
  if (!payload.has_value()) return payload.error().WithContext("statistics");
  return payload;
}

Result<std::vector<FieldStatistics>> PackFile::Statistics() const {
  if (statistics_bytes_ == 0) return std::vector<FieldStatistics>();
  // Packs of version 1 have sums in place of mean and moment.
  if (header_.major > 1) {
    FOREBAY_ASSIGN(const std::vector<std::byte> payload, StatisticsPayload());
    return ReadStatistics(schema_, payload);
  }
  FOREBAY_ASSIGN(const std::vector<FieldSums> sums, Sums());
  std::vector<FieldStatistics> statistics;
  for (const FieldSums& field : sums) statistics.push_back(StatisticsOfSums(field));
  return statistics;
}

Result<std::vector<FieldSums>> PackFile::Sums() const {
  if (statistics_bytes_ == 0 || header_.major > 1) return std::vector<FieldSums>();
  FOREBAY_ASSIGN(const std::vector<std::byte> payload, StatisticsPayload());
  return ReadFieldSums(schema_, payload);
}

Result<std::vector<std::string>> PackFile::Keys(std::uint64_t first_sample,
                                                std::uint64_t count) const {
  if (first_sample > samples() || count > samples() - first_sample) {
    return Error(ErrorCode::kOutOfRange, "pack: it has " + std::to_string(samples()) + " samples");
  }
  std::vector<std::string> keys;
  if (!schema_.keyed) {
    // A pack without keys gives an empty key for each sample, so callers need no case of their own.
    keys.resize(static_cast<std::size_t>(count));
    return keys;
  }
  const auto begin = std::ranges::partition_point(index_.keys, [&](const KeyEntry& entry) {
    return entry.first_sample + entry.sample_count <= first_sample;
  });
  for (const KeyEntry& entry : std::span(begin, index_.keys.end())) {
    if (entry.first_sample >= first_sample + count) break;
    FOREBAY_ASSIGN(const std::vector<std::byte> payload,
                   ReadRecord(entry.offset, limits::kPackKeysBytesMax, RecordType::kKeys,
                              &entry.head_checksum));
    ByteReader reader(payload);
    for (std::uint32_t i = 0; i < entry.sample_count && reader.ok(); ++i) {
      const std::string_view key = reader.ReadString(limits::kPackKeyBytesMax);
      const std::uint64_t sample = entry.first_sample + i;
      if (sample >= first_sample && sample < first_sample + count) keys.emplace_back(key);
    }
    if (!reader.ok() || reader.remaining() != 0) {
      return Damaged(kPackPart, "a key record has the wrong length");
    }
  }
  return keys;
}

namespace {

struct SampleRun {
  std::uint64_t begin = 0, end = 0;
};

// The largest number of samples, at most `samples`, that no chunk and no key record crosses: each
// is kept or dropped as a whole. One sweep from the last begin to the first is enough, because
// after a cut only runs that begin earlier can cross it.
std::uint64_t CutBetween(std::vector<SampleRun>& runs, std::uint64_t samples) {
  std::ranges::sort(runs, std::ranges::greater(), &SampleRun::begin);
  for (const SampleRun& run : runs) {
    if (run.begin < samples && samples < run.end) samples = run.begin;
  }
  return samples;
}

// The index of what a walk over the records found: the chunks of each field up to the sample
// that all fields and the keys have reached.
PackIndex CompleteSamples(const PackSchema& schema, std::vector<ChunkEntry> chunks,
                          std::vector<KeyEntry> keys) {
  std::vector<std::uint64_t> reached(schema.fields.size(), 0);
  for (const ChunkEntry& entry : chunks) {
    const PackField& field = schema.fields[entry.field];
    // Tiles and parts of a sample follow one another in the file, so the last one completes it.
    const bool last_tile = entry.tile + 1 == field.tiles();
    const bool last_part = entry.sample_bytes == 0 ||
                           entry.sample_bytes - entry.part_offset <= limits::kChunkBytesMax;
    if (last_tile && last_part) reached[entry.field] = entry.first_sample + entry.sample_count;
  }
  PackIndex index;
  index.samples = *std::ranges::min_element(reached);
  if (schema.keyed) {
    const std::uint64_t keyed =
        keys.empty() ? 0 : keys.back().first_sample + keys.back().sample_count;
    index.samples = std::min(index.samples, keyed);
  }
  std::vector<SampleRun> runs;
  runs.reserve(chunks.size() + keys.size());
  const auto add = [&](const auto& entry) {
    runs.push_back({entry.first_sample, entry.first_sample + entry.sample_count});
  };
  std::ranges::for_each(chunks, add);
  std::ranges::for_each(keys, add);
  index.samples = CutBetween(runs, index.samples);
  const auto beyond = [&](const auto& entry) {
    return entry.first_sample + entry.sample_count > index.samples;
  };
  std::erase_if(chunks, beyond);
  std::erase_if(keys, beyond);
  // Stable: the file has each field's chunks in the order of samples, which must stay.
  std::ranges::stable_sort(chunks, {}, &ChunkEntry::field);
  index.chunks = std::move(chunks);
  index.keys = std::move(keys);
  return index;
}

}  // namespace

Result<PackFile> PackFile::Recover(const ByteSource& source, const PackReadOptions& options) {
  PackFile file(source);
  FOREBAY_TRY(file.ReadStart(options));
  PackWalk walk(source, file.schema_, file.identity_, file.start_bytes_, false);
  // Payloads are not verified here, so that opening a large pack reads its heads only.
  while (walk.Next()) continue;
  file.index_ = CompleteSamples(file.schema_, walk.chunks(), walk.keys());
  // Records that are sound one by one may still overlap or leave gaps.
  FOREBAY_TRY(CheckPackIndex(file.schema_, file.index_));
  file.SizeScratch();
  return file;
}

}  // namespace forebay::compress

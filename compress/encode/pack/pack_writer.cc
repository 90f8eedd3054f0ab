// Writes a pack: collects samples until chunks are full and hands them to the RecordQueue. Which
// samples a chunk holds depends only on the schema and the order of calls. Therefore a run that was
// killed can be resumed: Resume walks over the records that are whole, cuts off the rest, and the
// caller adds the samples again from the first one that is not complete in every field.
#include "compress/encode/pack/pack_writer.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "compress/decode/pack/byte_source.h"
#include "compress/decode/pack/chunk_record.h"
#include "compress/decode/pack/pack_walk.h"
#include "compress/encode/pack/publish_file.h"
#include "compress/encode/pack/record_queue.h"
#include "proto/contract/byte_cursor.h"
#include "proto/contract/limits.h"
#include "proto/contract/unique_fd.h"

namespace forebay::compress {
namespace {

// A key record ends at so many keys or bytes, whichever comes first.
constexpr std::uint32_t kKeysPerRecord = 4096;
constexpr std::size_t kKeyRecordBytes = 1 << 20;  // or so many bytes of them

// Appends the tile's part of a sample, element after element in row-major order.
void AppendTile(const PackField& field, std::uint32_t tile, std::span<const std::byte> sample,
                std::vector<std::byte>& to) {
  const auto origin = field.TileOrigin(tile);
  const auto extent = field.TileExtent(tile);
  // Elements are contiguous along the last axes that the tile has whole, and the one before them.
  std::size_t along = kChunkRankMax - 1, run = extent[along];
  while (along > 0 && extent[along] == field.extent[along]) run *= extent[--along];
  std::size_t runs = 1;
  for (std::size_t axis = 0; axis < along; ++axis) runs *= extent[axis];
  const std::size_t element = DtypeBytes(field.dtype);
  // The number of the run, taken apart into its coordinates within the tile, gives its place in the
  // sample.
  for (std::size_t i = 0; i < runs; ++i) {
    std::size_t at = 0, left = i, left_of = runs;
    for (std::size_t axis = 0; axis < kChunkRankMax; ++axis) {
      at = at * field.extent[axis] + origin[axis];
      if (axis >= along) continue;
      left_of /= extent[axis];
      at += left / left_of;
      left %= left_of;
    }
    const auto from = sample.subspan(at * element, run * element);
    to.insert(to.end(), from.begin(), from.end());
  }
}

// Refuses a file that exists already, before any work is done. PublishFile refuses one that appears
// later.
Status CheckVacant(const std::string& path, const PackWriterOptions& options) {
  // Another error than "not there" shows when the file is named.
  if (options.replace || access(path.c_str(), F_OK) != 0) return {};
  return Error(ErrorCode::kAlreadyExists, path + ": exists already; remove it first");
}

Status WriteAll(int file, std::span<const std::byte> bytes, const std::string& name) {
  std::size_t at = 0;
  while (at < bytes.size()) {
    const ssize_t written = pwrite(file, bytes.data() + at, bytes.size() - at,
                                   static_cast<off_t>(at));
    // A signal is no failure. Nothing was written, so the same write is tried again.
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Error::FromErrno(errno, name + ": writing");
    at += static_cast<std::size_t>(written);
  }
  return {};
}

// Whether the open file and the one at `path` are the same file, by device and inode.
bool IsOneFile(int file, const std::string& path) {
  struct stat mine{}, other{};
  return fstat(file, &mine) == 0 && stat(path.c_str(), &other) == 0 &&
         mine.st_dev == other.st_dev && mine.st_ino == other.st_ino;
}

// One process writes a file: if two did, the first to end would give the pack's name to what the
// other has not finished. The lock ends with the descriptor. A file system without locks leaves it
// to the comparison in Finish.
Status Lock(int file, const std::string& part) {
  if (flock(file, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return {};
  return Error(ErrorCode::kFailedPrecondition,
               part + ": another process is writing it; wait until it is done, or end it");
}

// The file was opened, and then has got another name or none: by a writer that has finished, or
// that has begun anew.
Error Replaced(const std::string& part) {
  return Error(ErrorCode::kFailedPrecondition,
               part + ": another process has removed or replaced it meanwhile");
}

Result<PackId> RandomPackId() {
  PackId id{};
  ssize_t got = 0;
  do {
    got = getrandom(id.data(), id.size(), 0);  // so few bytes come at once or not at all
  } while (got < 0 && errno == EINTR);
  if (got == static_cast<ssize_t>(id.size())) return id;
  return Error::FromErrno(errno, "random numbers for the id of a pack; give it one");
}

Result<PackId> IdOfNewPack(const PackWriterOptions& options) {
  if (options.id.has_value()) return *options.id;
  return RandomPackId();
}

// The header and schema of a pack that continues `source`, which is PATH.part. The pack keeps its
// id; if the file was cut off before the id was whole, it gets a new one. Fails if the file was
// begun with another schema, other options, another id or an earlier version.
Result<std::vector<std::byte>> StartToGoOnWith(const ByteSource& source, const PackSchema& schema,
                                               const PackWriterOptions& options,
                                               const std::string& part) {
  const auto other = [&](const std::string& what) {
    return Error(ErrorCode::kFailedPrecondition,
                 part + ": begun " + what + "; remove it to begin anew");
  };
  std::array<std::byte, kPackHeaderBytes> bytes;
  // An id that the caller gave must be the file's. Otherwise the file's is kept, because every
  // checksum in it depends on it.
  std::optional<PackId> id = options.id;
  const bool has_header = source.size() >= bytes.size();
  if (has_header) {
    FOREBAY_TRY(source.ReadAt(0, bytes));
    const auto header = ReadPackHeader(bytes);
    if (!header.has_value()) return other("by something else: " + header.error().message());
    if (header->major != kPackMajor) {
      return other("by an earlier version, in format " + std::to_string(header->major) + "." +
                   std::to_string(header->minor));
    }
    if (id.has_value() && id != header->id) {
      return other("with the id " + PackIdHex(*header->id) + ", not " + PackIdHex(*id));
    }
    id = header->id;
  }
  if (!id.has_value()) {
    FOREBAY_ASSIGN(id, RandomPackId());
  }
  const std::vector<std::byte> start = WritePackStart(schema, *id);
  std::vector<std::byte> there(std::min<std::uint64_t>(start.size(), source.size()));
  FOREBAY_TRY(source.ReadAt(0, there));
  // A file that was cut off within its header has no id yet, so only what lies before the id can be
  // compared.
  const std::size_t compared = has_header ? there.size() : std::min(there.size(), kPackIdOffset);
  if (!std::equal(there.begin(), there.begin() + static_cast<std::ptrdiff_t>(compared),
                  start.begin())) {
    return other("with another schema or other options");
  }
  return start;
}

// Statistics of chunks that a killed run wrote. They are not encoded again, so they are decoded and
// measured here.
Result<std::vector<FieldStatistics>> MeasureAgain(const ByteSource& source,
                                                  const PackContext& pack,
                                                  const std::vector<ChunkEntry>& chunks) {
  std::vector<FieldStatistics> statistics;
  std::vector<std::byte> bytes, decoded, scratch;
  for (const ChunkEntry& entry : chunks) {
    // One chunk after the other through the same memory: a file may be larger than the machine's.
    bytes.resize(entry.head_bytes + static_cast<std::size_t>(entry.payload_bytes));
    FOREBAY_TRY(source.ReadAt(entry.offset, bytes));
    FOREBAY_ASSIGN(const ChunkRecord record, ReadChunkRecord(pack, entry, bytes));
    decoded.resize(static_cast<std::size_t>(record.head.raw_bytes));
    scratch.resize(std::max(scratch.size(), RecordScratchBytes(pack.schema, entry)));
    FOREBAY_TRY(DecodeRecord(pack, entry, record, decoded, scratch));
    statistics.push_back(MeasureChunk(pack.schema.fields[entry.field], record.head, decoded));
  }
  return statistics;
}

}  // namespace

PackWriter::PackWriter(std::string path, const PackSchema& schema)
    : path_(std::move(path)), schema_(schema) {
  buffers_.resize(schema_.fields.size());
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    // Each tile gathers its own chunk, so a sample is cut up as soon as it is added.
    buffers_[i].tiles.resize(schema_.fields[i].tiles());
  }
}

PackWriter::~PackWriter() = default;

// Takes the open file. Records are appended from `offset` on.
void PackWriter::Start(const PackWriterOptions& options, std::uint64_t identity, UniqueFd file,
                       std::uint64_t offset) {
  queue_ = std::make_unique<RecordQueue>(
      schema_, ChunkOptions{.profile = options.profile, .predictor = options.predictor},
      options.threads, identity, path_ + ".part", std::move(file), offset);
  if (options.statistics) queue_->KeepStatistics();
  replace_ = options.replace;
}

// Takes over the records that a walk found. Each field continues behind its last chunk that has all
// its tiles and parts.
void PackWriter::SetPresent(const PackWalk& walk, std::vector<FieldStatistics> statistics) {
  for (const ChunkEntry& entry : walk.chunks()) {
    const PackField& field = schema_.fields[entry.field];
    const bool last_part =
        entry.sample_bytes == 0 || entry.sample_bytes - entry.part_offset <= limits::kChunkBytesMax;
    if (entry.tile + 1 == field.tiles() && last_part) {
      FieldBuffer& buffer = buffers_[entry.field];
      buffer.begin = buffer.first_sample = entry.first_sample + entry.sample_count;
      buffer.begins_sequence = false;
    }
  }
  // Fields fill their chunks at different rates. The caller goes on from the sample that the
  // slowest one lacks, and the others pass over what they have.
  next_ = buffers_[0].begin;
  for (const FieldBuffer& buffer : buffers_) next_ = std::min(next_, buffer.begin);
  if (schema_.keyed) {
    if (!walk.keys().empty()) {
      keys_.first_sample = walk.keys().back().first_sample + walk.keys().back().sample_count;
    }
    next_ = std::min(next_, keys_.first_sample);
  }
  queue_->SetPresent(walk.chunks(), walk.keys(), std::move(statistics));
}

Status PackWriter::BeginSequence() {
  FOREBAY_TRY(failure_);
  for (std::uint32_t field = 0; field < schema_.fields.size(); ++field) {
    // Nothing is predicted across a sequence's begin, so fields with frames end their chunks there.
    // Labels and the like are not predicted from frame to frame, and run on.
    if (schema_.fields[field].rank < 2 || next_ < buffers_[field].begin) continue;
    FOREBAY_TRY(Remember(Flush(field)));
    buffers_[field].begins_sequence = true;
  }
  return {};
}

Status PackWriter::Add(std::span<const std::span<const std::byte>> fields, std::string_view key) {
  FOREBAY_TRY(failure_);
  // Before anything is changed: a sample that is refused leaves the writer as it was, and the error
  // is not remembered.
  FOREBAY_TRY(CheckSample(fields, key));
  for (std::uint32_t field = 0; field < fields.size(); ++field) {
    // Counted for samples that a resumed file has, too, so that the summary describes the whole
    // pack.
    raw_bytes_ += fields[field].size();
    // A resumed file has this sample of this field already.
    if (next_ < buffers_[field].begin) continue;
    FOREBAY_TRY(Remember(AddField(field, fields[field])));
  }
  if (schema_.keyed && next_ >= keys_.first_sample) {
    key_bytes_.String(key);
    ++keys_.sample_count;
    if (keys_.sample_count == kKeysPerRecord || key_bytes_.size() >= kKeyRecordBytes) {
      FOREBAY_TRY(Remember(FlushKeys()));
    }
  }
  ++next_;
  return {};
}

Result<PackSummary> PackWriter::Finish() {
  FOREBAY_TRY(failure_);
  // Before anything is flushed, because the index would otherwise end before records that are in
  // the file.
  FOREBAY_TRY(CheckAllAdded());
  for (std::uint32_t field = 0; field < schema_.fields.size(); ++field) {
    FOREBAY_TRY(Remember(Flush(field)));
  }
  FOREBAY_TRY(Remember(FlushKeys()));
  FOREBAY_TRY(Remember(queue_->Finish(next_)));
  if (!IsOneFile(queue_->file(), path_ + ".part")) {
    FOREBAY_TRY(Remember(Error(ErrorCode::kFailedPrecondition,
                               path_ + ".part: another process has removed or replaced it; what "
                                       "this one has written is lost")));
  }
  // The last step: until now the file has the name PATH.part, which no reader opens by mistake.
  FOREBAY_TRY(Remember(PublishFile(path_ + ".part", path_, replace_)));
  // From here on every call fails with this message.
  failure_ = Error(ErrorCode::kFailedPrecondition, path_ + ": finished already");
  return PackSummary{.samples = next_,
                     .raw_bytes = raw_bytes_,
                     .file_bytes = queue_->offset(),
                     .chunks = queue_->index().chunks.size()};
}

Status PackWriter::Remember(Status status) {
  // A writer that has failed may have written half of a sample. Every later call returns the same
  // error.
  if (!status.has_value()) failure_ = status;
  return status;
}

// Refuses to finish if a resumed file holds more samples than the caller has added.
Status PackWriter::CheckAllAdded() const {
  std::uint64_t present = keys_.first_sample;
  for (const FieldBuffer& buffer : buffers_) present = std::max(present, buffer.begin);
  if (present <= next_) return {};
  return Error(ErrorCode::kFailedPrecondition,
               path_ + ".part: has " + std::to_string(present) + " samples, more than the " +
                   std::to_string(next_) + " that were added; remove it to begin anew");
}

Status PackWriter::CheckSample(std::span<const std::span<const std::byte>> fields,
                               std::string_view key) {
  const std::string where = path_ + ": sample " + std::to_string(next_) + ": ";
  if (fields.size() != schema_.fields.size()) {
    return Error(ErrorCode::kInvalidArgument, where + std::to_string(fields.size()) +
                                                  " fields, the schema has " +
                                                  std::to_string(schema_.fields.size()));
  }
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const PackField& field = schema_.fields[i];
    const std::uint64_t wanted = field.variable() ? fields[i].size() : field.sample_bytes();
    if (fields[i].size() != wanted || fields[i].size() > limits::kSampleBytesMax) {
      return Error(ErrorCode::kInvalidArgument, where + "field " + field.name + " has " +
                                                    std::to_string(fields[i].size()) +
                                                    " bytes, wanted are " + std::to_string(wanted));
    }
  }
  if (key.size() > limits::kPackKeyBytesMax) {
    return Error(
        ErrorCode::kInvalidArgument,
        where + "a key of more than " + std::to_string(limits::kPackKeyBytesMax) + " bytes");
  }
  if (schema_.keyed == key.empty()) {
    return Error(ErrorCode::kInvalidArgument,
                 where + (schema_.keyed ? "without a key" : "with a key; the pack has none"));
  }
  return {};
}

Status PackWriter::AddField(std::uint32_t number, std::span<const std::byte> bytes) {
  const PackField& field = schema_.fields[number];
  FieldBuffer& buffer = buffers_[number];
  if (field.variable()) {
    FOREBAY_TRY(AddString(number, bytes));
  } else {
    for (std::uint32_t tile = 0; tile < buffer.tiles.size(); ++tile) {
      std::vector<std::byte>& to = buffer.tiles[tile];
      // A growing vector would need old and new memory at once; BufferedBytesMax promises less.
      if (buffer.samples == 0) to.reserve(field.Shape(tile, field.samples_per_chunk).bytes());
      AppendTile(field, tile, bytes, to);
    }
    ++buffer.samples;
  }
  if (buffer.samples == field.samples_per_chunk) FOREBAY_TRY(Flush(number));
  return {};
}

Status PackWriter::AddString(std::uint32_t number, std::span<const std::byte> bytes) {
  FieldBuffer& buffer = buffers_[number];
  if (buffer.tiles[0].size() + bytes.size() > limits::kChunkBytesMax) {
    FOREBAY_TRY(Flush(number));
  }
  // After the flush above, so the parts follow the samples before them.
  if (bytes.size() > limits::kChunkBytesMax) return AddParts(number, bytes);
  // Reserve the whole chunk: a growing vector needs old and new memory at once.
  if (buffer.samples == 0) buffer.tiles[0].reserve(limits::kChunkBytesMax);
  buffer.lengths.push_back(static_cast<std::uint32_t>(bytes.size()));
  buffer.tiles[0].insert(buffer.tiles[0].end(), bytes.begin(), bytes.end());
  ++buffer.samples;
  return {};
}

// Pushes a byte string that is longer than a chunk, as chunks of their own with one part each.
Status PackWriter::AddParts(std::uint32_t number, std::span<const std::byte> bytes) {
  FieldBuffer& buffer = buffers_[number];
  for (std::size_t at = 0; at < bytes.size(); at += limits::kChunkBytesMax) {
    const auto part =
        bytes.subspan(at, std::min<std::size_t>(limits::kChunkBytesMax, bytes.size() - at));
    FOREBAY_TRY(queue_->Push({.head = {.field = number,
                                       .first_sample = buffer.first_sample,
                                       .sample_count = 1,
                                       .begins_sequence = buffer.begins_sequence,
                                       .part_offset = at,
                                       .sample_bytes = bytes.size()},
                              .lengths = {static_cast<std::uint32_t>(part.size())},
                              .raw = {part.begin(), part.end()},
                              .keys = {}}));
    buffer.begins_sequence = false;
  }
  ++buffer.first_sample;
  return {};
}

// Pushes the field's buffered samples, one record for each tile. The memory moves into the queue.
Status PackWriter::Flush(std::uint32_t number) {
  FieldBuffer& buffer = buffers_[number];
  // Nothing is waiting, for example where a sequence begins at a chunk's border anyway.
  if (buffer.samples == 0) return {};
  for (std::uint32_t tile = 0; tile < buffer.tiles.size(); ++tile) {
    FOREBAY_TRY(queue_->Push({.head = {.field = number,
                                       .tile = tile,
                                       .first_sample = buffer.first_sample,
                                       .sample_count = buffer.samples,
                                       .begins_sequence = buffer.begins_sequence},
                              .lengths = buffer.lengths,
                              .raw = std::exchange(buffer.tiles[tile], {}),
                              .keys = {}}));
  }
  buffer.first_sample += buffer.samples;
  buffer.samples = 0;
  buffer.begins_sequence = false;
  buffer.lengths.clear();
  return {};
}

Status PackWriter::FlushKeys() {
  if (keys_.sample_count == 0) return {};
  // The next record begins behind this one, whatever becomes of the push.
  const KeyEntry keys = keys_;
  keys_ = {.first_sample = keys.first_sample + keys.sample_count};
  return queue_->Push({.type = RecordType::kKeys,
                       .head = {},
                       .lengths = {},
                       .raw = std::exchange(key_bytes_, ByteWriter()).Release(),
                       .keys = keys});
}

Status CheckWritable(const PackSchema& schema) {
  FOREBAY_TRY(CheckSchema(schema));
  for (const PackField& field : schema.fields) FOREBAY_TRY(CheckWritableBound(field));
  FOREBAY_TRY(CheckScratch(schema));
  return {};
}

std::uint64_t BufferedBytesMax(const PackSchema& schema, unsigned threads) {
  // The buffer of keys grows: for a moment there are an old one and one of twice its size.
  std::uint64_t waiting = schema.keyed ? 3 * (kKeyRecordBytes + limits::kPackKeyBytesMax) : 0;
  std::uint64_t chunk = waiting;  // the largest record
  for (const PackField& field : schema.fields) {
    const bool variable = field.variable();
    waiting += variable ? limits::kChunkBytesMax : field.samples_per_chunk * field.sample_bytes();
    chunk = std::max<std::uint64_t>(
        chunk, variable ? limits::kChunkBytesMax : field.Shape(0, field.samples_per_chunk).bytes());
  }
  return waiting + (threads > 1 ? 2 * std::uint64_t{threads} + 2 : 1) * chunk;
}

// The profile's name is part of the provenance and so of the schema: a file that was begun with
// another profile is not continued.
PackSchema SchemaAsWritten(PackSchema wanted, const PackWriterOptions& options) {
  static constexpr std::array<const char*, 5> kNames = {"fast", "balanced", "dense", "learned",
                                                        "auto"};
  wanted.provenance.emplace_back("profile",
                                 kNames.at(static_cast<std::size_t>(options.profile)));
  if (options.profile == Profile::kLearned && options.predictor != nullptr) {
    wanted.predictors.push_back(options.predictor);
    if (!options.embed_predictor) wanted.named_predictors.push_back(options.predictor->id());
  }
  return wanted;
}

Result<std::unique_ptr<PackWriter>> PackWriter::Create(const std::string& path,
                                                       const PackSchema& wanted,
                                                       const PackWriterOptions& options) {
  const PackSchema schema = SchemaAsWritten(wanted, options);
  FOREBAY_TRY(CheckWritable(schema));
  FOREBAY_TRY(CheckVacant(path, options));
  FOREBAY_ASSIGN(const PackId id, IdOfNewPack(options));
  const std::string part = path + ".part";
  // O_EXCL: two writers of one path cannot both begin, and unfinished work is never overwritten.
  UniqueFd file(open(part.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (file.get() < 0 && errno == EEXIST) {
    return Error(ErrorCode::kAlreadyExists,
                 part + ": an unfinished pack; resume it or remove it first");
  }
  if (file.get() < 0) return Error::FromErrno(errno, part + ": creating");
  FOREBAY_TRY(Lock(file.get(), part));
  const std::vector<std::byte> start = WritePackStart(schema, id);
  FOREBAY_TRY(WriteAll(file.get(), start, part));
  std::unique_ptr<PackWriter> writer(new PackWriter(path, schema));
  writer->Start(options, PackIdentity(start), std::move(file), start.size());
  return writer;
}

Status PackWriter::Discard(const std::string& path) {
  const std::string part = path + ".part";
  // For reading is enough, because the folder's permissions say who may remove a file.
  const UniqueFd file(open(part.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0 && errno == ENOENT) return {};
  if (file.get() < 0) return Error::FromErrno(errno, part + ": opening");
  FOREBAY_TRY(Lock(file.get(), part));
  if (!IsOneFile(file.get(), part)) return Replaced(part);
  if (unlink(part.c_str()) != 0 && errno != ENOENT) {
    return Error::FromErrno(errno, part + ": removing");
  }
  return {};
}

Result<std::unique_ptr<PackWriter>> PackWriter::Resume(const std::string& path,
                                                       const PackSchema& wanted,
                                                       const PackWriterOptions& options) {
  const PackSchema schema = SchemaAsWritten(wanted, options);
  FOREBAY_TRY(CheckWritable(schema));
  FOREBAY_TRY(CheckVacant(path, options));
  const std::string part = path + ".part";
  UniqueFd file(open(part.c_str(), O_RDWR | O_CLOEXEC));
  if (file.get() < 0) return Error::FromErrno(errno, part + ": opening");
  FOREBAY_TRY(Lock(file.get(), part));
  if (!IsOneFile(file.get(), part)) return Replaced(part);
  if (IsOneFile(file.get(), path)) {
    // A run was killed while the finished pack got its name (where a hard link gives it, the old
    // name is there until it is removed). The pack is whole, so it is not continued; it stays until
    // the new one replaces it.
    if (unlink(part.c_str()) != 0) {
      return Error::FromErrno(errno, part + ": dropping the finished pack's old name");
    }
    return Create(path, wanted, options);
  }
  // After a sync that failed, the kernel takes pages for written that are not. They are dropped, so
  // that the walk sees what is on the medium.
  if (fdatasync(file.get()) != 0) return Error::FromErrno(errno, part + ": syncing");
  static_cast<void>(posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED));
  FOREBAY_ASSIGN(const std::unique_ptr<ByteSource> source, OpenByteSource(part));
  FOREBAY_ASSIGN(const std::vector<std::byte> start,
                 StartToGoOnWith(*source, schema, options, part));
  const std::uint64_t identity = PackIdentity(start);
  PackWalk walk(*source, schema, identity, start.size(), true);
  // The walk ends at the first record that is not whole: behind it nothing can be relied on.
  while (walk.Next()) continue;
  // A record that could not be read may be whole: cutting it off would throw away what is there.
  if (!walk.status().has_value()) {
    return walk.status().error().WithContext(part + ": looking for what is there already");
  }
  std::vector<FieldStatistics> statistics;
  if (options.statistics) {
    FOREBAY_ASSIGN(statistics,
                   MeasureAgain(*source, {.schema = schema, .identity = identity},
                                walk.chunks()));
  }
  FOREBAY_TRY(WriteAll(file.get(), start, part));
  // The start is written again, as the run may have been killed within it. What lies behind the
  // last whole record is cut off.
  if (ftruncate(file.get(), static_cast<off_t>(walk.offset())) != 0) {
    return Error::FromErrno(errno, part + ": cutting off what is not whole");
  }
  std::unique_ptr<PackWriter> writer(new PackWriter(path, schema));
  writer->Start(options, identity, std::move(file), walk.offset());
  writer->SetPresent(walk, std::move(statistics));
  return writer;
}

}  // namespace forebay::compress

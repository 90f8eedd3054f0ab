// Each record is 64 bytes and ends with a checksum over its bytes, its offset and the generation of
// the file. So neither a torn write, nor a stale block of an earlier manifest at the same place,
// can pass as a record. A rewrite makes a new generation.
#include "server/tier/ssd/manifest_log.h"

#include <algorithm>
#include <string>
#include <utility>

#include "proto/contract/byte_cursor.h"

namespace forebay::tier {
namespace {

constexpr std::uint64_t kManifestMagic = 0x3146494E'414D4246;  // "FBMANIF1" as bytes
constexpr std::size_t kSummedBytes = kManifestRecordBytes - 8;
constexpr std::uint64_t kTransferBytes = 4 * limits::kMiB;
constexpr std::uint64_t kManifestBytesMax = (kManifestRecordsMax + 2) * kManifestRecordBytes;

ChecksumIdentity RecordIdentity(std::uint64_t generation, std::uint64_t offset) {
  // The identity has four words; the magic number takes the place of one that records do not need.
  return {generation, kManifestMagic, offset, kSummedBytes};
}

std::uint64_t SumAt(std::span<const std::byte> record) {
  return ByteReader(record.subspan(kSummedBytes)).ReadLe<std::uint64_t>();
}

// Pads the words to the size of a record and appends their checksum.
std::vector<std::byte> Seal(ByteWriter words, const ChecksumIdentity& identity) {
  std::vector<std::byte> bytes = words.Release();
  // Zeros up to the checksum leave room for more words in a later version.
  bytes.resize(kSummedBytes);
  ByteWriter sealed;
  sealed.Bytes(bytes);
  sealed.Le(Checksum(identity, bytes));
  return sealed.Release();
}

// False if the record is incomplete, damaged, or was written for another offset or generation.
bool ParseRecord(std::span<const std::byte> bytes, const ChecksumIdentity& identity,
                 ManifestRecord& record) {
  if (bytes.size() < kManifestRecordBytes) return false;
  bytes = bytes.first(kManifestRecordBytes);
  if (SumAt(bytes) != Checksum(identity, bytes.first(kSummedBytes))) return false;
  ByteReader reader(bytes);
  // The checksum has shown that these are the bytes that were written, so a value that is refused
  // below comes from other code.
  const auto length = reader.ReadLe<std::uint32_t>();
  const auto kind = reader.ReadLe<std::uint32_t>();
  record.key.dataset = reader.ReadLe<std::uint64_t>();
  record.key.identity = reader.ReadLe<std::uint64_t>();
  record.key.extent = ExtentId(reader.ReadLe<std::uint32_t>());
  record.shape.piece_count = reader.ReadLe<std::uint32_t>();
  record.shape.image_bytes = reader.ReadLe<std::uint64_t>();
  if (kind != static_cast<std::uint32_t>(ManifestKind::kPublish) &&
      kind != static_cast<std::uint32_t>(ManifestKind::kRemove)) {
    return false;
  }
  record.kind = static_cast<ManifestKind>(kind);
  // Checked although the checksum matched: an invalid shape would compute a wrong file size.
  return length == kManifestRecordBytes && record.shape.IsValid();
}

}  // namespace

std::vector<std::byte> EncodeManifestHeader(std::uint64_t generation) {
  ByteWriter words;
  words.Le(kManifestMagic);
  words.Le(kManifestVersion);
  words.Le(static_cast<std::uint32_t>(kManifestRecordBytes));
  words.Le(generation);
  // The header cannot be sealed with its generation, which a reader learns only from it.
  return Seal(std::move(words), RecordIdentity(0, 0));
}

std::vector<std::byte> EncodeManifestRecord(const ManifestRecord& record,
                                            std::uint64_t generation, std::uint64_t offset) {
  ByteWriter words;
  words.Le(static_cast<std::uint32_t>(kManifestRecordBytes));
  words.Le(static_cast<std::uint32_t>(record.kind));
  words.Le(record.key.dataset);
  words.Le(record.key.identity);
  words.Le(record.key.extent.value());
  words.Le(record.shape.piece_count);
  words.Le(record.shape.image_bytes);
  return Seal(std::move(words), RecordIdentity(generation, offset));
}

Result<ParsedManifest> ParseManifest(std::span<const std::byte> bytes) {
  ParsedManifest manifest;
  // Records, complete or not, from an offset to the end.
  // Counted by size, because a damaged record does not say where the next one begins.
  const auto slots = [&](std::uint64_t offset) {
    return (bytes.size() - offset + kManifestRecordBytes - 1) / kManifestRecordBytes;
  };
  ByteReader header(bytes);
  const auto magic = header.ReadLe<std::uint64_t>();
  const auto version = header.ReadLe<std::uint32_t>();
  const auto record_bytes = header.ReadLe<std::uint32_t>();
  manifest.generation = header.ReadLe<std::uint64_t>();
  const bool is_whole =
      bytes.size() >= kManifestRecordBytes && magic == kManifestMagic &&
      SumAt(bytes) == Checksum(RecordIdentity(0, 0), bytes.first(kSummedBytes));
  if (!is_whole) {
    // The header was complete when the file got its name (Rewrite). If it is damaged, its
    // generation is not known, and without that no record can be verified.
    manifest.generation = 0;
    manifest.dropped_records = slots(0);
    return manifest;
  }
  if (version != kManifestVersion || record_bytes != kManifestRecordBytes) {
    return Error(ErrorCode::kFailedPrecondition,
                 "the segment store's manifest has format version " + std::to_string(version) +
                     ", this daemon reads " + std::to_string(kManifestVersion) +
                     "; empty tier.ssd.directory, or choose another one");
  }
  std::uint64_t offset = kManifestRecordBytes;
  for (; offset < bytes.size(); offset += kManifestRecordBytes) {
    ManifestRecord record;
    if (!ParseRecord(bytes.subspan(offset), RecordIdentity(manifest.generation, offset),
                     record)) {
      // Every append is synced before the next one, so a crash can damage only the last record.
      // Damage before that is reported as lost records.
      // A torn tail is no loss: its append was not acknowledged, and a segment whose record is torn
      // counts as not published.
      manifest.has_torn_tail = slots(offset) == 1;
      if (!manifest.has_torn_tail) manifest.dropped_records = slots(offset);
      break;
    }
    manifest.records.push_back(record);
  }
  return manifest;
}

Result<ParsedManifest> ManifestLog::Load(io::IoQueue& queue) {
  Result<std::unique_ptr<io::File>> file = directory_.Open(kManifestName, io::OpenMode::kRead);
  if (!file.has_value()) {
    // A directory that was never used.
    if (file.error().code() == ErrorCode::kNotFound) return ParsedManifest{};
    return file.error().WithContext("segment store's manifest");
  }
  FOREBAY_ASSIGN(const io::FileInfo info, (*file)->Info());
  // The size comes from outside, so it is bounded before memory is allocated for it.
  if (info.bytes > kManifestBytesMax) {
    return Error(ErrorCode::kResourceExhausted,
                 "the segment store's manifest has " + std::to_string(info.bytes) +
                     " bytes, at most " + std::to_string(kManifestBytesMax) + " are read");
  }
  std::vector<std::byte> bytes(info.bytes);
  for (std::uint64_t offset = 0; offset < bytes.size(); offset += kTransferBytes) {
    const std::uint64_t length = std::min<std::uint64_t>(kTransferBytes, bytes.size() - offset);
    FOREBAY_TRY(
        io::ReadFully(queue, **file, offset, std::span(bytes).subspan(offset, length)));
  }
  FOREBAY_ASSIGN(ParsedManifest manifest, ParseManifest(bytes));
  // The next Rewrite adds 1, so no record of this file fits the new one.
  generation_ = manifest.generation;
  return manifest;
}

Status ManifestLog::Rewrite(io::IoQueue& queue, std::span<const ManifestRecord> live) {
  const std::uint64_t generation = ++generation_;
  std::vector<std::byte> bytes = EncodeManifestHeader(generation);
  bytes.reserve((live.size() + 1) * kManifestRecordBytes);
  for (const ManifestRecord& record : live) {
    // The record's offset is the number of bytes before it, so records are encoded in the order of
    // the file.
    const std::vector<std::byte> encoded =
        EncodeManifestRecord(record, generation, bytes.size());
    bytes.insert(bytes.end(), encoded.begin(), encoded.end());
  }
  // A temporary file that a failed rewrite has left must go first. Usually there is none.
  if (const Status cleared = directory_.Unlink(kManifestTempName);
      !cleared.has_value() && cleared.error().code() != ErrorCode::kNotFound) {
    return cleared;
  }
  FOREBAY_ASSIGN(std::unique_ptr<io::File> file,
                 directory_.Open(kManifestTempName, io::OpenMode::kCreate));
  Status written;
  for (std::uint64_t offset = 0; written.has_value() && offset < bytes.size();
       offset += kTransferBytes) {
    const std::uint64_t length = std::min<std::uint64_t>(kTransferBytes, bytes.size() - offset);
    written = io::WriteFully(queue, *file, offset, std::span(bytes).subspan(offset, length));
  }
  if (written.has_value()) written = io::DataSync(queue, *file);
  if (!written.has_value()) {
    // Best effort: a file that stays is removed by the next Rewrite, or by the next Open.
    static_cast<void>(directory_.Unlink(kManifestTempName));
    return written.error().WithContext("rewriting the manifest");
  }
  // Until the directory is synced, it is unknown which manifest a restart would find. So nothing
  // may be appended to the old one from here on.
  file_.reset();
  if (Status renamed = directory_.Rename(kManifestTempName, kManifestName);
      !renamed.has_value()) {
    static_cast<void>(directory_.Unlink(kManifestTempName));
    return renamed.error().WithContext("rewriting the manifest");
  }
  // After an error here file_ stays empty, so the next append begins with another rewrite.
  FOREBAY_TRY(directory_.Sync(""));
  file_ = std::move(file);
  file_generation_ = generation;
  record_count_ = live.size();
  return {};
}

Status ManifestLog::Append(io::IoQueue& queue, const ManifestRecord& record) {
  if (needs_rewrite()) {
    return Error(ErrorCode::kFailedPrecondition, "the manifest must be rewritten first");
  }
  // After the header, which has the size of a record.
  const std::uint64_t offset = (record_count_ + 1) * kManifestRecordBytes;
  Status status = io::WriteFully(queue, *file_, offset,
                                 EncodeManifestRecord(record, file_generation_, offset));
  if (status.has_value()) status = io::DataSync(queue, *file_);
  if (!status.has_value()) {
    // Part of the record may be in the file, and a sync that failed is not repeated. Only a rewrite
    // makes the end of the file known again.
    file_.reset();
    return status.error().WithContext("appending to the manifest");
  }
  ++record_count_;
  return {};
}

}  // namespace forebay::tier

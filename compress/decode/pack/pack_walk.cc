// Walks over the records of a pack one after the other, for files whose index is missing: a run to
// be resumed, or a pack to be recovered. The walk ends at the first record that is damaged, cut off
// or out of order, since nothing behind it can be found.
#include "compress/decode/pack/pack_walk.h"

#include <array>

#include "proto/contract/byte_cursor.h"
#include "proto/contract/limits.h"

namespace forebay::compress {

bool PackWalk::Next() {
  std::array<std::byte, kRecordPrefixBytes> bytes;
  const std::uint64_t size = source_.size();
  if (offset_ > size || size - offset_ < bytes.size()) return false;
  if (!Read(offset_, bytes)) return false;
  const auto prefix = ReadRecordPrefix(bytes);
  // Statistics and index end a file.
  if (!prefix.has_value() || prefix->type == RecordType::kIndex ||
      prefix->type == RecordType::kStatistics) {
    return false;
  }
  const std::uint64_t left = size - offset_;
  if (prefix->head_bytes > left || prefix->payload_bytes > left - prefix->head_bytes ||
      prefix->payload_bytes > limits::kPackKeysBytesMax) {
    return false;
  }
  // ReadRecordPrefix has bounded the head's size, and it lies in the file.
  record_.resize(prefix->head_bytes);
  if (!Read(offset_, record_)) return false;
  const auto added = CheckRecordHead(identity_, offset_, record_);
  // A run that is resumed verifies payloads, because the last record may have its head on the
  // medium and not its payload. A reader that recovers verifies them when it reads them.
  if (!added.has_value() || (verify_payloads_ && !PayloadIsSound(*prefix))) return false;
  bool taken = true;
  // Records of other types are passed over: a later version may write some.
  if (prefix->type == RecordType::kChunk) taken = TakeChunk(*prefix, *added);
  if (prefix->type == RecordType::kKeys) taken = TakeKeys(*prefix, *added);
  // Records begin at multiples of 8.
  if (taken) offset_ += (prefix->head_bytes + prefix->payload_bytes + 7) / 8 * 8;
  return taken;
}

bool PackWalk::Read(std::uint64_t offset, std::span<std::byte> bytes) {
  const Status read = source_.ReadAt(offset, bytes);
  // A file that is shorter than it was is cut off there, which is no error of the system.
  if (!read.has_value() && read.error().system_errno() != 0) status_ = read;
  return read.has_value();
}

bool PackWalk::PayloadIsSound(const RecordPrefix& prefix) {
  payload_.resize(static_cast<std::size_t>(prefix.payload_bytes));
  return Read(offset_ + prefix.head_bytes, payload_) &&
         PayloadChecksum(identity_, prefix.type, offset_, payload_) == prefix.payload_checksum;
}

bool PackWalk::TakeChunk(const RecordPrefix& prefix, std::span<const std::byte> added) {
  const auto head = ReadChunkHead(schema_, added);
  if (!head.has_value() || prefix.payload_bytes > limits::kChunkBytesMax) return false;
  chunks_.push_back({.field = head->field,
                     .tile = head->tile,
                     .first_sample = head->first_sample,
                     .sample_count = head->sample_count,
                     .head_bytes = prefix.head_bytes,
                     .offset = offset_,
                     .payload_bytes = prefix.payload_bytes,
                     .part_offset = head->part_offset,
                     .sample_bytes = head->sample_bytes,
                     .head_checksum = prefix.head_checksum});
  return true;
}

bool PackWalk::TakeKeys(const RecordPrefix& prefix, std::span<const std::byte> added) {
  ByteReader reader(added);
  const auto first = reader.ReadLe<std::uint64_t>();
  const auto count = reader.ReadLe<std::uint32_t>();
  const std::uint64_t expected =
      keys_.empty() ? 0 : keys_.back().first_sample + keys_.back().sample_count;
  // Key records must follow one another; a gap means that a record before this one was lost.
  if (!reader.ok() || first != expected || count == 0) return false;
  keys_.push_back({.first_sample = first,
                   .sample_count = count,
                   .head_bytes = prefix.head_bytes,
                   .offset = offset_,
                   .payload_bytes = prefix.payload_bytes,
                   .head_checksum = prefix.head_checksum});
  return true;
}

}  // namespace forebay::compress

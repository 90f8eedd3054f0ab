// While a unit is decoded, the checksum of each sample has just been compared with its bytes. This
// class collects these checksums and makes a function of them, with which the scrubber checks the
// unit for damage in memory later. Where single checksums would cost too much memory, or the
// samples do not lie in one piece, one checksum over the whole unit takes their place. Used by the
// thread that decodes; the function runs on the scrubber's thread.
#include "server/fetch/packed/unit_check.h"

#include <algorithm>
#include <utility>

#include "proto/contract/checksum.h"

namespace forebay::fetch {
namespace {

// Samples smaller than this are checked together: 16 bytes for each are no more than 2 % then.
constexpr std::uint64_t kSampleBytesMin = 1024;

}  // namespace

void UnitCheck::Add(const compress::PackContext& pack, const compress::ChunkRecord& record,
                    std::uint64_t offset) {
  const compress::ChunkHead& head = record.head;
  // Once one chunk cannot be checked by samples, the whole unit is checked by one checksum.
  if (is_whole_ || head.raw_bytes / head.sample_count < kSampleBytesMin) {
    is_whole_ = true;
    return;
  }
  Chunk chunk = ChunkOf(pack, head);
  chunk.offset = offset;
  const bool is_variable = pack.schema.fields[head.field].variable();
  // One length stands for all samples, which halves the memory of the check.
  if (!is_variable) chunk.lengths.push_back(head.raw_bytes / head.sample_count);
  for (std::uint32_t i = 0; i < head.sample_count; ++i) {
    if (is_variable) chunk.lengths.push_back(head.LengthOf(i));
    chunk.checksums.push_back(head.ChecksumOf(i));
  }
  chunks_.push_back(std::move(chunk));
}

void UnitCheck::AddHeld(const compress::PackContext& pack, const compress::ChunkRecord& record,
                        std::span<const std::uint32_t> places) {
  const compress::ChunkHead& head = record.head;
  const std::uint64_t sample_bytes = head.raw_bytes / head.sample_count;
  if (sample_bytes < kSampleBytesMin) {
    is_whole_ = true;
    return;
  }
  // A chunk for each run of samples.
  for (std::uint32_t i = 0; i < places.size(); ++i) {
    if (places[i] == DecodedUnit::kNotHeld) continue;
    // Held samples lie one after another in the unit, but their numbers have gaps, and a sample's
    // checksum depends on its number.
    if (i == 0 || places[i - 1] == DecodedUnit::kNotHeld) {
      Chunk chunk = ChunkOf(pack, head);
      chunk.first_sample += i;
      chunk.offset = places[i] * sample_bytes;
      chunk.lengths.push_back(sample_bytes);
      chunks_.push_back(std::move(chunk));
    }
    chunks_.back().checksums.push_back(head.ChecksumOf(i));
  }
}

UnitCheck::Chunk UnitCheck::ChunkOf(const compress::PackContext& pack,
                                    const compress::ChunkHead& head) {
  return {.identity = pack.identity, .offset = 0, .first_sample = head.first_sample,
          .part_offset = head.part_offset, .field = head.field, .tile = head.tile, .lengths = {},
          .checksums = {}};
}

bool UnitCheck::Matches(const Chunk& chunk, std::span<const std::byte> bytes) {
  std::uint64_t at = chunk.offset;
  for (std::size_t i = 0; i < chunk.checksums.size(); ++i) {
    const std::uint64_t length = chunk.lengths[chunk.lengths.size() == 1 ? 0 : i];
    // The lengths lie in the same memory as what they describe, so they may be damaged, too.
    if (at > bytes.size() || length > bytes.size() - at) return false;
    if (compress::SampleChecksum(chunk.identity, chunk.field, chunk.tile, chunk.first_sample + i,
                                 chunk.part_offset, bytes.subspan(at, length)) !=
        chunk.checksums[i]) {
      return false;
    }
    at += length;
  }
  return true;
}

void UnitCheck::GiveTo(DecodedUnit& unit) && {
  if (is_whole_) {
    // Taken now, right after decoding has compared the samples, so this sum vouches for them.
    unit.is_sound = [sum = Checksum(unit.bytes.span())](std::span<const std::byte> bytes) {
      return Checksum(bytes) == sum;
    };
    return;
  }
  // The cache charges this memory to the unit, so that checksums count towards its capacity.
  unit.check_bytes = chunks_.size() * sizeof(Chunk);
  for (const Chunk& chunk : chunks_) {
    unit.check_bytes += (chunk.lengths.size() + chunk.checksums.size()) * sizeof(std::uint64_t);
  }
  unit.is_sound = [chunks = std::move(chunks_)](std::span<const std::byte> bytes) {
    return std::ranges::all_of(chunks,
                               [&](const Chunk& chunk) { return Matches(chunk, bytes); });
  };
}

}  // namespace forebay::fetch

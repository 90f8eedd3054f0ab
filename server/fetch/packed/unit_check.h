// UnitCheck: makes the check by which the scrubber finds damage in a decoded unit while the decoded
// cache keeps it. The check compares samples with the checksums that they had when they came off
// the GFS; decoding has just compared the same.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "compress/decode/pack/chunk_record.h"
#include "server/fetch/decoded_cache.h"

namespace forebay::fetch {

class UnitCheck {
 public:
  // Adds a chunk whose samples lie in the unit one after another, from byte `offset` on.
  void Add(const compress::PackContext& pack, const compress::ChunkRecord& record,
           std::uint64_t offset);
  // Adds a chunk of whose samples the unit holds only a part: those that DecodedUnit::places lists,
  // the first of them at the beginning of the unit.
  void AddHeld(const compress::PackContext& pack, const compress::ChunkRecord& record,
               std::span<const std::uint32_t> places);
  // Adds a chunk whose samples are not contiguous in the unit, because elements of other chunks lie
  // between theirs.
  void AddScattered() { is_whole_ = true; }
  // Gives the check to the unit. If the samples are so small that their checksums would take much
  // memory, or if a chunk is scattered, the check is a checksum of the unit's bytes as they are
  // now.
  void GiveTo(DecodedUnit& unit) &&;

 private:
  struct Chunk {
    std::uint64_t identity = 0, offset = 0, first_sample = 0, part_offset = 0;
    std::uint32_t field = 0, tile = 0;
    std::vector<std::uint64_t> lengths;  // one: of all
    std::vector<std::uint64_t> checksums;
  };
  static Chunk ChunkOf(const compress::PackContext& pack, const compress::ChunkHead& head);
  static bool Matches(const Chunk& chunk, std::span<const std::byte> bytes);

  std::vector<Chunk> chunks_;
  bool is_whole_ = false;
};

}  // namespace forebay::fetch

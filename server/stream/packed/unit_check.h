// UnitCheck: how a decoded unit is checked while it is kept: by the checksums that its samples
// had when they came off the GFS, which decoding has just compared.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "compress/decode/pack/chunk_record.h"
#include "server/fetch/decoded_cache.h"

namespace forebay::stream {

class UnitCheck {
 public:
  // A chunk that was decoded to the unit's bytes from `offset` on, sample after sample.
  void Add(const compress::PackContext& pack, const compress::ChunkRecord& record,
           std::uint64_t offset);
  // The same where the unit holds a part of the chunk's samples: as DecodedUnit::places says, the
  // first of them at its beginning.
  void AddHeld(const compress::PackContext& pack, const compress::ChunkRecord& record,
               std::span<const std::uint32_t> places);
  // A chunk of which this cannot be said, because others' elements lie between its own.
  void AddScattered() { is_whole_ = true; }
  // Takes the unit's bytes as they are now, where its samples are so small that their checksums
  // would take much memory, or one of its chunks was scattered. The check goes to the unit.
  void GiveTo(fetch::DecodedUnit& unit) &&;

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
  std::uint64_t samples_ = 0;
  bool is_whole_ = false;
};

}  // namespace forebay::stream

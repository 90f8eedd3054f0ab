// SamplePieces: finds the pieces of extents that hold a list of samples which are stored
// uncompressed, brings them into memory, and tells where the bytes of each field lie. The gatherer
// of a batch uses it, and LocalRows for requests of other nodes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "proto/contract/result.h"
#include "server/catalog/catalog.h"
#include "server/io/io_backend.h"
#include "server/stage/dataset.h"
#include "server/tier/extent_cache.h"
#include "server/tier/piece_reader.h"

namespace forebay::fetch {

// The part of one sample that lies in one extent.
struct SamplePiece {
  std::uint32_t extent_index = 0;    // in SamplePieces::extents()
  std::uint32_t checksum_index = 0;  // in the extent's checksums of pieces
  std::uint32_t offset = 0;          // within the extent
  std::uint32_t region = 0;          // Place sets this and the members below; see tier::RamArena
  std::uint64_t length = 0;
  std::uint64_t region_offset = 0;
  const std::byte* bytes = nullptr;
};

// Memory for pieces that are read or copied: at least SamplePieces::ScratchBytes, page-aligned.
// `region` and `region_offset` say where it lies for a client that maps it.
struct PieceScratch {
  std::span<std::byte> memory;
  std::uint32_t region = 0;
  std::uint64_t region_offset = 0;
};

// Use for one list of samples at a time: Begin, Add for each sample, then Place. Keeps its buffers
// for the next list. Not thread-safe.
class SamplePieces {
 public:
  enum class SampleOrder : std::uint8_t {
    // The object keeps a table with an entry for each extent of the catalog, of which there may be
    // millions. An object that is used for many lists makes the table only once.
    kAny,
    kAscending,
  };
  // Begins a list of `count` samples of `dataset`, whose catalog is `catalog` and not one of packs;
  // both are borrowed.
  void Begin(const stage::Dataset& dataset, const catalog::Catalog& catalog, std::size_t count,
             SampleOrder order = SampleOrder::kAny);
  // Appends a sample; with `fields`, none of which is a constant, only the pieces of the parts that
  // hold them. kDataLoss: the catalog contradicts itself.
  Status Add(SampleId sample, std::span<const FieldId> fields = {});

  // The extents that hold the samples, each once, in the order in which Add found them.
  std::span<const ExtentId> extents() const { return extents_; }
  std::span<const SamplePiece> pieces() const { return pieces_; }
  // Where a field of a sample lies according to the catalog; `sample` counts from 0 in this list.
  const catalog::FieldLocation& location(std::size_t sample, std::size_t field) const {
    return locations_[sample * field_count_ + field];
  }

  // Bytes of scratch that one piece takes if it is not used where it lies: whole I/O blocks.
  static std::uint64_t ScratchBytes(const SamplePiece& piece);
  // Gives every piece its bytes. `refs` are the extents, in order; pieces of an extent that is null
  // get none. Pieces of extents in RAM for which `in_place` is set are used where they lie; all
  // others come to `scratch`: copied from RAM, or read from SSD or the GFS and verified. kDataLoss
  // with copies in `bad`: as tier::BlameCopies.
  Status Place(std::span<const tier::ExtentRef> refs, const std::vector<bool>& in_place,
               const PieceScratch& scratch, io::IoQueue& queue, std::vector<tier::BadExtent>& bad);

  // After Place: calls visit(piece, offset in piece, length) for each run of bytes of one field of
  // one sample, in order. No call if the sample does not have the field.
  template <typename Visit>
  void ForEachRun(std::size_t sample, std::size_t field, Visit&& visit) const {
    const catalog::FieldLocation& begin = location(sample, field);
    if (!begin.present) return;
    // The field begins in one of the sample's pieces of the same part, found by its extent.
    const std::size_t end = PieceEnd((sample + 1) * part_count_);
    std::size_t i = piece_begin_[sample * part_count_];
    while (i < end && extents_[pieces_[i].extent_index] != begin.range.extent) ++i;
    std::uint64_t left = begin.range.length;
    std::uint64_t offset = begin.range.offset;
    for (; i < end && left > 0; ++i) {
      const SamplePiece& piece = pieces_[i];
      const std::uint64_t lead = offset - piece.offset;
      const std::uint64_t length = std::min(left, piece.length - lead);
      visit(piece, lead, length);
      left -= length;
      offset = 0;
      if (i + 1 < end) offset = pieces_[i + 1].offset;
    }
  }

 private:
  std::uint32_t IndexOf(ExtentId extent, std::uint32_t part);
  std::size_t PieceEnd(std::size_t next) const {
    return next < piece_begin_.size() ? piece_begin_[next] : pieces_.size();
  }

  const stage::Dataset* dataset_ = nullptr;
  const catalog::Catalog* catalog_ = nullptr;
  const catalog::SampleTable* samples_ = nullptr;  // the catalog's
  std::size_t field_count_ = 0;
  std::size_t part_count_ = 1;
  std::vector<catalog::FieldLocation> locations_;  // sample-major, field_count_ each
  std::vector<SamplePiece> pieces_;
  std::vector<std::uint32_t> piece_begin_;  // sample x part -> first piece
  std::vector<ExtentId> extents_;
  SampleOrder order_ = SampleOrder::kAny;
  // By extent of the catalog, or, of ascending samples, by part: the index in extents_ of this
  // extent, or of the part's last one, plus one; 0 where it is not listed, or there is none.
  std::vector<std::uint32_t> listed_;
  std::vector<std::uint32_t> last_of_part_;
  std::vector<bool> wanted_;  // by part, of the sample that is being added
  std::vector<tier::PieceRead> reads_;
  std::vector<std::size_t> read_pieces_;  // reads_[i] fills pieces_[read_pieces_[i]]
  std::vector<tier::PieceFailure> failures_;
};

}  // namespace forebay::fetch

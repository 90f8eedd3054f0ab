// Add turns samples into pieces with the catalog; Place gives each piece its bytes. Pieces in RAM
// are used where they lie if the caller allows it; all others get cells of the scratch memory, and
// those that are not in RAM are read and verified by ReadPieces.
#include "server/fetch/sample_pieces.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "proto/contract/check.h"

namespace forebay::fetch {

void SamplePieces::Begin(const stage::Dataset& dataset, const catalog::Catalog& catalog,
                         std::size_t count, SampleOrder order) {
  dataset_ = &dataset;
  catalog_ = &catalog;
  samples_ = catalog.samples();
  FOREBAY_CHECK(samples_ != nullptr);
  field_count_ = catalog.fields().size();
  part_count_ = catalog.part_count();
  locations_.clear();
  locations_.reserve(count * field_count_);
  pieces_.clear();
  piece_begin_.clear();
  // Only what the list before has set is reset: a catalog may have millions of extents. The table
  // does not shrink, because the next list may be one of a larger catalog again.
  if (order_ == SampleOrder::kAny) {
    for (const ExtentId extent : extents_) listed_[extent.value()] = 0;
  }
  extents_.clear();
  order_ = order;
  if (order == SampleOrder::kAscending) {
    last_of_part_.assign(part_count_, 0);
  } else if (listed_.size() < catalog.extent_count()) {
    listed_.resize(catalog.extent_count());
  }
}

// The index of an extent in extents_; appends the extent if it is new. The extent must be one of
// the catalog. `listed_` is no hash table, because it is looked up for every sample of a batch. The
// extents of ascending samples ascend in each part, so one is new if it is not the part's last one.
std::uint32_t SamplePieces::IndexOf(ExtentId extent, std::uint32_t part) {
  const bool ascends = order_ == SampleOrder::kAscending;
  std::uint32_t& listed = ascends ? last_of_part_[part] : listed_[extent.value()];
  if (listed == 0 || extents_[listed - 1] != extent) {
    extents_.push_back(extent);
    listed = static_cast<std::uint32_t>(extents_.size());
  }
  return listed - 1;
}

// Cuts the sample's range in each part into pieces at the boundaries of extents. A range that
// leaves its part is an error and no assertion, because a catalog is a file that may be damaged.
Status SamplePieces::Add(SampleId sample, std::span<const FieldId> fields) {
  locations_.resize(locations_.size() + field_count_);
  FOREBAY_TRY(samples_->Locate(sample, std::span(locations_).last(field_count_)));
  // A part without a wanted field still gets an entry in `piece_begin_`, so that sample and part
  // give the index by arithmetic.
  wanted_.assign(part_count_, fields.empty());
  for (const FieldId field : fields) wanted_[catalog_->PartOf(field)] = true;
  for (std::uint32_t part = 0; part < part_count_; ++part) {
    piece_begin_.push_back(static_cast<std::uint32_t>(pieces_.size()));
    if (!wanted_[part]) continue;
    FOREBAY_ASSIGN(const catalog::Range range, samples_->SampleRange(sample, part));
    ExtentId extent = range.extent;
    std::uint64_t offset = range.offset;
    std::uint64_t left = range.length;
    for (;;) {
      // The next extent of a chain belongs to the same part and names the same sample first.
      const catalog::ExtentInfo info = catalog_->extent(extent);
      if (info.part != part || offset > info.bytes || sample < info.first_sample) {
        return Error(ErrorCode::kDataLoss,
                     fmt::format("catalog of '{}': sample {} leaves its extents",
                                 dataset_->name(), sample.value()));
      }
      SamplePiece piece;
      piece.extent_index = IndexOf(extent, part);
      piece.offset = static_cast<std::uint32_t>(offset);
      // A sample of no bytes has one piece of length 0, so that its extent is pinned and its fields
      // have a place.
      piece.length = std::min(left, info.bytes - offset);
      piece.checksum_index =
          static_cast<std::uint32_t>(sample.value() - info.first_sample.value());
      pieces_.push_back(piece);
      left -= piece.length;
      if (left == 0) break;
      if (extent.value() + 1 >= catalog_->extent_count()) {
        return Error(ErrorCode::kDataLoss,
                     fmt::format("catalog of '{}': sample {} runs past the last extent",
                                 dataset_->name(), sample.value()));
      }
      extent = ExtentId(extent.value() + 1);
      offset = 0;
    }
  }
  return {};
}

std::uint64_t SamplePieces::ScratchBytes(const SamplePiece& piece) {
  return tier::AlignedBytes({.extent = {}, .offset = piece.offset, .length = piece.length});
}

Status SamplePieces::Place(std::span<const tier::ExtentRef> refs,
                           const std::vector<bool>& in_place, const PieceScratch& scratch,
                           io::IoQueue& queue, std::vector<tier::BadExtent>& bad) {
  reads_.clear();
  read_pieces_.clear();
  // Cells are handed out in the order of pieces, and ReadPieces gets all reads at once, so that
  // they are in flight together.
  std::uint64_t used = 0;
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    SamplePiece& piece = pieces_[i];
    if (!refs[piece.extent_index]) {
      piece.bytes = nullptr;  // another node supplies the rows
      continue;
    }
    const tier::ResidentExtent& extent = *refs[piece.extent_index];
    if (extent.tier == tier::TierKind::kRam && in_place[piece.extent_index]) {
      piece.region = extent.block.region().value();
      piece.region_offset = extent.block.region_offset() + piece.offset;
      piece.bytes = extent.block.bytes().data() + piece.offset;
      continue;
    }
    const catalog::Range range{.extent = extents_[piece.extent_index], .offset = piece.offset,
                               .length = piece.length};
    // Direct reads begin and end on device blocks, so a piece gets a cell of whole blocks. Pieces
    // that are copied from RAM get cells of the same size, so that ScratchBytes need not know their
    // tier.
    const std::uint64_t lead = tier::LeadBytes(range);
    const std::uint64_t cell = tier::AlignedBytes(range);
    // The caller has summed up ScratchBytes of the same pieces; too little memory is its mistake.
    FOREBAY_CHECK(cell <= scratch.memory.size() - used);
    std::byte* memory = scratch.memory.data() + used;
    piece.region = scratch.region;
    piece.region_offset = scratch.region_offset + used + lead;
    piece.bytes = memory + lead;
    if (extent.tier == tier::TierKind::kRam) {
      // The piece is not compared with its checksum here: bytes in RAM were verified when they came
      // there, and the scrubber checks them later.
      std::memcpy(memory + lead, extent.block.bytes().data() + piece.offset, piece.length);
    } else {
      reads_.push_back({.extent = &extent, .piece = range,
                        .checksum = extent.sums().pieces[piece.checksum_index],
                        .memory = {memory, cell}});
      read_pieces_.push_back(i);
    }
    used += cell;
  }
  if (reads_.empty()) return {};
  failures_.clear();
  FOREBAY_TRY(tier::ReadPieces(queue, reads_, failures_));
  // Pieces of other extents are complete, but the batch needs all of them, so it starts again.
  if (failures_.empty()) return {};
  return tier::BlameCopies(
      failures_,
      [&](std::size_t index) -> const tier::ExtentRef& {
        return refs[pieces_[read_pieces_[index]].extent_index];
      },
      bad);
}

}  // namespace forebay::fetch

#include "server/stream/batch_assembler.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/check.h"
#include "server/stream/slot_layout.h"

namespace forebay::stream {

Status BatchAssembler::Plan(const StreamSpec& spec, const Order& order, const BatchName& name,
                            bool all_extents, OpenSlots open) {
  FOREBAY_ASSIGN(const StepSlice slice, SliceOf(spec, name));
  name_ = name;
  first_position_ = slice.first;
  field_count_ = spec.catalog->fields().size();
  part_count_ = spec.catalog->part_count();

  // Positions up to n come from the order in one go; padded ones repeat its beginning.
  const std::uint64_t n = spec.plan.sample_count();
  const std::uint64_t real =
      slice.first >= n ? 0 : std::min<std::uint64_t>(slice.count, n - slice.first);
  padded_count_ = static_cast<std::uint32_t>(slice.count - real);
  indices_.resize(slice.count);
  order.Forward(Position(slice.first), std::span(indices_).first(real));
  for (std::uint64_t i = real; i < slice.count; ++i) {
    indices_[i] = order.Forward(spec.plan.Resolve(slice.first + i).position);
  }
  samples_.resize(slice.count);
  is_packed_ = spec.is_packed();
  if (is_packed_) {
    for (std::uint64_t i = 0; i < slice.count; ++i) {
      samples_[i] = spec.selection->At(indices_[i]).value();
    }
    packed_.Plan(spec, {.samples = samples_, .epoch = name.epoch,
                        .end_position = slice.first + slice.count, .all_extents = all_extents},
                 std::move(open));
    return {};
  }
  locations_.resize(slice.count * field_count_);
  pieces_.clear();
  piece_begin_.clear();
  extents_.clear();
  extent_index_.clear();
  for (std::uint64_t i = 0; i < slice.count; ++i) {
    const SampleId sample = spec.selection->At(indices_[i]);
    samples_[i] = sample.value();
    FOREBAY_TRY(spec.catalog->Locate(
        sample, std::span(locations_).subspan(i * field_count_, field_count_)));
    FOREBAY_TRY(PlanSample(spec, sample));
  }
  piece_begin_.push_back(static_cast<std::uint32_t>(pieces_.size()));
  return {};
}

std::uint32_t BatchAssembler::IndexOf(ExtentId extent) {
  const auto [entry, inserted] =
      extent_index_.try_emplace(extent, static_cast<std::uint32_t>(extents_.size()));
  if (inserted) extents_.push_back(extent);
  return entry->second;
}

// Cuts the sample's range in each part into pieces at extent borders.
Status BatchAssembler::PlanSample(const StreamSpec& spec, SampleId sample) {
  for (std::uint32_t part = 0; part < part_count_; ++part) {
    piece_begin_.push_back(static_cast<std::uint32_t>(pieces_.size()));
    FOREBAY_ASSIGN(const catalog::Range range, spec.catalog->SampleRange(sample, part));
    ExtentId extent = range.extent;
    std::uint64_t offset = range.offset;
    std::uint64_t left = range.length;
    for (;;) {
      const catalog::ExtentInfo info = spec.catalog->extent(extent);
      if (info.part != part || offset > info.bytes || sample < info.first_sample) {
        return Error(ErrorCode::kDataLoss,
                     fmt::format("catalog of '{}': sample {} leaves its extents",
                                 spec.dataset->name(), sample.value()));
      }
      Piece piece;
      piece.extent_index = IndexOf(extent);
      piece.offset = static_cast<std::uint32_t>(offset);
      piece.length = std::min(left, info.bytes - offset);
      piece.checksum_index =
          static_cast<std::uint32_t>(sample.value() - info.first_sample.value());
      pieces_.push_back(piece);
      left -= piece.length;
      if (left == 0) break;
      if (extent.value() + 1 >= spec.catalog->extent_count()) {
        return Error(ErrorCode::kDataLoss,
                     fmt::format("catalog of '{}': sample {} runs past the last extent",
                                 spec.dataset->name(), sample.value()));
      }
      extent = ExtentId(extent.value() + 1);
      offset = 0;
    }
  }
  return {};
}

Result<AssembledBatch> BatchAssembler::Assemble(const StreamSpec& spec,
                                                const AssembleLimits& limits,
                                                std::vector<tier::ExtentRef> refs,
                                                tier::RamArena& slots, io::IoQueue& queue,
                                                std::vector<BadExtent>& bad) {
  FOREBAY_CHECK(refs.size() == extents().size());
  AssembledBatch batch;
  batch.name = name_;
  batch.first_position = first_position_;
  batch.padded_count = padded_count_;
  if (is_packed_) {
    FOREBAY_TRY(packed_.Fill(spec, {.refs = refs, .slots = slots, .queue = queue, .bad = bad},
                             batch));
    batch.sample_ids = samples_;
    return batch;
  }
  FOREBAY_TRY(Materialise(spec, limits, refs, slots, queue, batch, bad));
  batch.fields.resize(field_count_);
  const bool views = spec.delivery == Delivery::kViews && !spec.inline_payload;
  if (views) {
    FOREBAY_TRY(FillViews(spec, batch));
    // Only what a view points into stays pinned; copied samples need their extents no more.
    for (std::size_t i = 0; i < refs.size(); ++i) {
      if (pins_[i]) batch.hold.extents.push_back(std::move(refs[i]));
    }
  } else {
    FOREBAY_TRY(FillContiguous(spec, slots, batch));
  }
  batch.sample_ids = samples_;
  return batch;
}

// Which extents views point into: those in RAM that are pinned anyway, and what else fits.
void BatchAssembler::ChoosePins(const AssembleLimits& limits,
                                std::span<const tier::ExtentRef> refs) {
  pins_.assign(refs.size(), false);
  std::uint64_t pin_left = limits.pin_bytes;
  for (std::size_t i = 0; i < refs.size(); ++i) {
    if (refs[i]->tier != tier::TierKind::kRam) continue;
    if (!limits.pinned_already.empty() && limits.pinned_already[i]) {
      pins_[i] = true;
    } else if (refs[i]->image_bytes <= pin_left) {
      pin_left -= refs[i]->image_bytes;
      pins_[i] = true;
    }
  }
}

// Gives every piece an address: in the arena, or, for what lies on SSD or may not be pinned, in
// slot memory.
Status BatchAssembler::Materialise(const StreamSpec& spec, const AssembleLimits& limits,
                                   std::span<const tier::ExtentRef> refs, tier::RamArena& slots,
                                   io::IoQueue& queue, AssembledBatch& batch,
                                   std::vector<BadExtent>& bad) {
  const bool views = spec.delivery == Delivery::kViews && !spec.inline_payload;
  if (views) {
    ChoosePins(limits, refs);
  } else {
    pins_.assign(refs.size(), true);  // for as long as this call gathers from them
  }
  std::uint64_t scratch_bytes = 0;
  for (const Piece& piece : pieces_) {
    const tier::ResidentExtent& extent = *refs[piece.extent_index];
    const bool in_place = extent.tier == tier::TierKind::kRam && pins_[piece.extent_index];
    if (!in_place) {
      scratch_bytes += fetch::AlignedBytes({.extent = {}, .offset = piece.offset,
                                            .length = piece.length});
    }
    batch.CountSource(extent.tier, 1, piece.length);
    if (!in_place && extent.tier == tier::TierKind::kRam) ++batch.copied_views;
  }
  if (scratch_bytes > 0) {
    // Views stay in it. A contiguous batch gives it back as soon as it is gathered, and takes
    // the slot that its reader holds from the other end.
    const tier::Stay stay = views ? tier::Stay::kLong : tier::Stay::kBrief;
    FOREBAY_ASSIGN(batch.hold.slot, slots.Allocate(scratch_bytes, stay));
  }
  reads_.clear();
  read_pieces_.clear();
  std::uint64_t used = 0;
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    Piece& piece = pieces_[i];
    const tier::ResidentExtent& extent = *refs[piece.extent_index];
    if (extent.tier == tier::TierKind::kRam && pins_[piece.extent_index]) {
      piece.region = extent.block.region().value();
      piece.region_offset = extent.block.region_offset() + piece.offset;
      piece.bytes = extent.block.bytes().data() + piece.offset;
      continue;
    }
    const catalog::Range range{.extent = extent.key.extent, .offset = piece.offset,
                               .length = piece.length};
    const std::uint64_t lead = fetch::LeadBytes(range);
    const std::uint64_t cell = fetch::AlignedBytes(range);
    std::byte* memory = batch.hold.slot.bytes().data() + used;
    piece.region = batch.hold.slot.region().value();
    piece.region_offset = batch.hold.slot.region_offset() + used + lead;
    piece.bytes = memory + lead;
    if (extent.tier == tier::TierKind::kRam) {
      std::memcpy(memory + lead, extent.block.bytes().data() + piece.offset, piece.length);
    } else {
      reads_.push_back({.extent = &extent, .piece = range,
                        .checksum = extent.sums().pieces[piece.checksum_index],
                        .memory = {memory, cell}});
      read_pieces_.push_back(i);
    }
    used += cell;
  }
  return reads_.empty() ? Status() : ReadPieces(refs, queue, bad);
}

Status BatchAssembler::ReadPieces(std::span<const tier::ExtentRef> refs, io::IoQueue& queue,
                                   std::vector<BadExtent>& bad) {
  failures_.clear();
  FOREBAY_TRY(fetch::ReadPieces(queue, reads_, failures_));
  if (failures_.empty()) return {};
  return BlameCopies(
      failures_,
      [&](std::size_t index) -> const tier::ExtentRef& {
        return refs[pieces_[read_pieces_[index]].extent_index];
      },
      bad);
}

// Calls visit(piece, offset in piece, length) for each run of bytes of one field of one sample.
template <typename Visit>
void BatchAssembler::ForEachRun(std::size_t sample, std::size_t field, Visit&& visit) const {
  const catalog::FieldLocation& location = locations_[sample * field_count_ + field];
  if (!location.present) return;
  // The field begins in one of the sample's pieces of the same part, found by its extent.
  const std::size_t begin = piece_begin_[sample * part_count_];
  const std::size_t end = piece_begin_[(sample + 1) * part_count_];
  std::uint64_t left = location.range.length;
  std::uint64_t offset = location.range.offset;
  std::size_t i = begin;
  while (i < end && extents_[pieces_[i].extent_index] != location.range.extent) ++i;
  for (; i < end && left > 0; ++i) {
    const Piece& piece = pieces_[i];
    const std::uint64_t lead = offset - piece.offset;
    const std::uint64_t length = std::min(left, piece.length - lead);
    visit(piece, lead, length);
    left -= length;
    offset = 0;
    if (i + 1 < end) offset = pieces_[i + 1].offset;
  }
}

Status BatchAssembler::FillViews(const StreamSpec& spec, AssembledBatch& batch) const {
  const std::size_t count = samples_.size();
  for (std::size_t field = 0; field < field_count_; ++field) {
    AssembledField& out = batch.fields[field];
    if (spec.catalog->fields()[field].source == FieldSource::kConstant) {
      FillConstants(field, out);
      continue;
    }
    out.spans.reserve(count);
    bool one_each = true;
    std::vector<std::uint32_t> counts(count, 0);
    for (std::size_t i = 0; i < count; ++i) {
      ForEachRun(i, field, [&](const Piece& piece, std::uint64_t lead, std::uint64_t length) {
        out.spans.push_back({.region = piece.region, .reserved = 0,
                             .offset = piece.region_offset + lead, .length = length});
        ++counts[i];
        batch.payload_bytes += length;
      });
      if (counts[i] == 0 && locations_[i * field_count_ + field].present) {
        // A present field of no bytes is still one (empty) span.
        out.spans.push_back({.region = kInlineRegion, .reserved = 0, .offset = 0, .length = 0});
        counts[i] = 1;
      }
      if (counts[i] == 0) {
        out.spans.push_back({.region = kAbsentRegion, .reserved = 0, .offset = 0, .length = 0});
        counts[i] = 1;
      }
      one_each = one_each && counts[i] == 1;
    }
    if (!one_each) out.span_counts = std::move(counts);
  }
  return {};
}

void BatchAssembler::FillConstants(std::size_t field, AssembledField& out) const {
  out.constants.resize(samples_.size());
  for (std::size_t i = 0; i < samples_.size(); ++i) {
    out.constants[i] = static_cast<std::int64_t>(locations_[i * field_count_ + field].constant);
  }
}

// Of each field, what its values take in a slot where they are of variable size.
std::vector<std::uint64_t> BatchAssembler::VariableBytes(const StreamSpec& spec) const {
  const std::span<const FieldSpec> fields = spec.catalog->fields();
  std::vector<std::uint64_t> bytes(field_count_);
  for (std::size_t field = 0; field < field_count_; ++field) {
    if (fields[field].source == FieldSource::kConstant || fields[field].is_fixed()) continue;
    for (std::size_t i = 0; i < samples_.size(); ++i) {
      const catalog::FieldLocation& location = locations_[i * field_count_ + field];
      if (location.present) bytes[field] += AlignUp(location.range.length, kPackAlignment);
    }
  }
  return bytes;
}

// Gathers every field into one slot: rows of fixed-size fields one after another, variable ones
// packed. One copy of every byte.
Status BatchAssembler::FillContiguous(const StreamSpec& spec, tier::RamArena& slots,
                                      AssembledBatch& batch) {
  const std::span<const FieldSpec> fields = spec.catalog->fields();
  FOREBAY_ASSIGN(const SlotLayout layout,
                 LayOutRows(fields, samples_.size(), VariableBytes(spec)));
  tier::ArenaBlock slot;
  if (layout.total_bytes > 0) {
    FOREBAY_ASSIGN(slot, slots.Allocate(layout.total_bytes));
  }
  const std::uint32_t region = spec.inline_payload ? kInlineRegion : slot.region().value();
  const std::uint64_t base = spec.inline_payload ? 0 : slot.region_offset();
  for (std::size_t field = 0; field < field_count_; ++field) {
    AssembledField& out = batch.fields[field];
    if (fields[field].source == FieldSource::kConstant) {
      FillConstants(field, out);
      continue;
    }
    const std::uint64_t row_bytes = layout.row_bytes[field];
    std::uint64_t cursor = layout.begins[field];
    out.is_tensor = fields[field].is_fixed();
    if (out.is_tensor) {
      out.tensor = {.region = region, .reserved = 0, .offset = base + cursor,
                    .length = row_bytes * samples_.size()};
    }
    for (std::size_t i = 0; i < samples_.size(); ++i) {
      const std::uint64_t begin = cursor;
      ForEachRun(i, field, [&](const Piece& piece, std::uint64_t lead, std::uint64_t length) {
        std::memcpy(slot.bytes().data() + cursor, piece.bytes + lead, length);
        cursor += length;
      });
      batch.payload_bytes += cursor - begin;
      if (out.is_tensor && cursor - begin == row_bytes) continue;
      if (out.is_tensor) {
        return Error(ErrorCode::kDataLoss,
                     fmt::format("sample {} has {} bytes of field '{}', which takes {}",
                                 samples_[i], cursor - begin, fields[field].name, row_bytes));
      }
      const bool present = locations_[i * field_count_ + field].present;
      out.spans.push_back({.region = present ? region : kAbsentRegion, .reserved = 0,
                           .offset = present ? base + begin : 0, .length = cursor - begin});
      cursor = begin + AlignUp(cursor - begin, kPackAlignment);
    }
  }
  batch.hold.slot = std::move(slot);  // scratch that SSD pieces came through goes back here
  batch.hold.extents.clear();
  return {};
}

}  // namespace forebay::stream

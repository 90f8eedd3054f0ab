#include "server/stream/raw_gatherer.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/align_up.h"
#include "proto/contract/check.h"
#include "server/stream/row_copy.h"
#include "server/stream/slot_layout.h"

namespace forebay::stream {
namespace {

// A row of a shuffled batch lies where the processor does not expect it, so its beginning is asked
// for while the rows before it are copied. The processor finds the rest of a row by itself: asking
// for all of a row of 4 KiB made the copying slower than asking for nothing.
constexpr std::size_t kRowsAhead = 2;
constexpr std::uint64_t kPrefetchedBytes = 256;
constexpr std::uint64_t kCacheLineBytes = 64;

bool IsViews(const StreamSpec& spec) {
  return spec.delivery == Delivery::kViews && !spec.inline_payload;
}

}  // namespace

Status RawGatherer::Plan(const StreamSpec& spec, const BatchPlan& batch, PackedPlan) {
  samples_ = batch.samples;
  pieces_.Begin(*spec.dataset, *spec.catalog, samples_.size());
  for (const std::uint64_t sample : samples_) FOREBAY_TRY(pieces_.Add(SampleId(sample)));
  return {};
}

Status RawGatherer::Gather(const StreamSpec& spec, const GatherMeans& means,
                           AssembledBatch& batch) {
  FOREBAY_CHECK(means.read.refs.size() == extents().size());
  FindElsewhere(spec, means);
  FOREBAY_TRY(PlacePieces(spec, means, batch));
  batch.fields.resize(spec.catalog->fields().size());
  if (!IsViews(spec)) return FillContiguous(spec, means, batch);
  FillViews(spec, means, batch);
  return {};
}

// Lists the rows that other nodes supply. Without other nodes no reference is null, and there are
// none.
void RawGatherer::FindElsewhere(const StreamSpec& spec, const GatherMeans& means) {
  elsewhere_.clear();
  next_elsewhere_ = 0;
  const auto is_null = [](const tier::ExtentRef& ref) { return ref == nullptr; };
  if (std::ranges::none_of(means.read.refs, is_null)) return;
  const std::span<const FieldSpec> fields = spec.catalog->fields();
  for (std::size_t field = 0; field < fields.size(); ++field) {
    if (fields[field].source == FieldSource::kConstant) continue;
    for (std::size_t i = 0; i < samples_.size(); ++i) {
      // The owner of the first such extent's group is asked for the whole row. If a part of it lies
      // in an extent of another owner, that node copies the extent (stage::ExtentSource).
      std::optional<ExtentId> extent;
      pieces_.ForEachRun(i, field, [&](const fetch::SamplePiece& piece, std::uint64_t,
                                       std::uint64_t) {
        if (!extent && is_null(means.read.refs[piece.extent_index])) {
          extent = extents()[piece.extent_index];
        }
      });
      if (!extent) continue;
      elsewhere_.push_back({.field = field, .sample = i,
                            .group_key = spec.dataset->group_key(*extent),
                            .bytes = pieces_.location(i, field).range.length});
    }
  }
}

// The next row of elsewhere_ if it is this one, else null. To be called in the order of the list.
const RawGatherer::RowElsewhere* RawGatherer::TakeElsewhere(std::size_t field,
                                                            std::size_t sample) {
  if (next_elsewhere_ == elsewhere_.size()) return nullptr;
  const RowElsewhere& next = elsewhere_[next_elsewhere_];
  if (next.field != field || next.sample != sample) return nullptr;
  ++next_elsewhere_;
  return &next;
}

void RawGatherer::RouteRow(const RowElsewhere& row, std::span<std::byte> memory,
                           const GatherMeans& means) const {
  means.rows.push_back({.group_key = row.group_key,
                        .row = {.sample = SampleId(samples_[row.sample]),
                                .field = FieldId(static_cast<std::uint32_t>(row.field)),
                                .memory = memory.first(row.bytes)}});
}

// Gives every piece an address: in the RAM tier, or, for what lies on SSD or may not be pinned, in
// slot memory. Views of rows that other nodes supply get slot memory too.
Status RawGatherer::PlacePieces(const StreamSpec& spec, const GatherMeans& means,
                                AssembledBatch& batch) {
  if (IsViews(spec)) {
    // Copied samples need their extents no longer than this call.
    batch.hold.views = means.pins.Pin(means.read.refs, means.view_use, in_place_);
  } else {
    in_place_.assign(means.read.refs.size(), true);
  }
  std::uint64_t scratch_bytes = 0;
  for (const fetch::SamplePiece& piece : pieces_.pieces()) {
    if (!means.read.refs[piece.extent_index]) continue;
    const tier::TierKind tier = means.read.refs[piece.extent_index]->tier;
    batch.CountSource(tier, 1, piece.length);
    if (tier == tier::TierKind::kRam && in_place_[piece.extent_index]) continue;
    scratch_bytes += fetch::SamplePieces::ScratchBytes(piece);
    if (tier == tier::TierKind::kRam) ++batch.copied_views;
  }
  if (IsViews(spec)) {
    for (RowElsewhere& row : elsewhere_) {
      row.slot_offset = scratch_bytes;
      scratch_bytes += AlignUp(row.bytes, kPackAlignment);
    }
  }
  fetch::PieceScratch scratch;
  if (scratch_bytes > 0) {
    // Views stay in it. A contiguous batch gives it back as soon as it is gathered, and takes
    // the slot that its reader holds from the other end.
    const tier::Stay stay = IsViews(spec) ? tier::Stay::kLong : tier::Stay::kBrief;
    FOREBAY_ASSIGN(batch.hold.slot, means.slots.Allocate(scratch_bytes, stay));
    scratch = {.memory = batch.hold.slot.bytes(),
               .region = batch.hold.slot.region().value(),
               .region_offset = batch.hold.slot.region_offset()};
  }
  return pieces_.Place(means.read.refs, in_place_, scratch, means.read.queue, means.read.bad);
}

void RawGatherer::FillViews(const StreamSpec& spec, const GatherMeans& means,
                            AssembledBatch& batch) {
  const tier::ArenaBlock& slot = batch.hold.slot;
  const std::size_t count = samples_.size();
  for (std::size_t field = 0; field < batch.fields.size(); ++field) {
    AssembledField& out = batch.fields[field];
    if (spec.catalog->fields()[field].source == FieldSource::kConstant) {
      FillConstants(field, out);
      continue;
    }
    out.spans.reserve(count);
    bool one_each = true;
    std::vector<std::uint32_t> counts(count, 0);
    for (std::size_t i = 0; i < count; ++i) {
      if (const RowElsewhere* row = TakeElsewhere(field, i); row != nullptr) {
        RouteRow(*row, slot.bytes().subspan(row->slot_offset), means);
        out.spans.push_back({.region = slot.region().value(), .reserved = 0,
                             .offset = slot.region_offset() + row->slot_offset,
                             .length = row->bytes});
        counts[i] = 1;
        batch.payload_bytes += row->bytes;
        continue;
      }
      pieces_.ForEachRun(i, field, [&](const fetch::SamplePiece& piece, std::uint64_t lead,
                                       std::uint64_t length) {
        out.spans.push_back({.region = piece.region, .reserved = 0,
                             .offset = piece.region_offset + lead, .length = length});
        ++counts[i];
        batch.payload_bytes += length;
      });
      if (counts[i] == 0 && pieces_.location(i, field).present) {
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
}

void RawGatherer::FillConstants(std::size_t field, AssembledField& out) const {
  out.constants.resize(samples_.size());
  for (std::size_t i = 0; i < samples_.size(); ++i) {
    out.constants[i] = static_cast<std::int64_t>(pieces_.location(i, field).constant);
  }
}

// What the values of each field of variable size take in a slot; 0 for other fields.
std::vector<std::uint64_t> RawGatherer::VariableBytes(const StreamSpec& spec) const {
  const std::span<const FieldSpec> fields = spec.catalog->fields();
  std::vector<std::uint64_t> bytes(fields.size());
  for (std::size_t field = 0; field < fields.size(); ++field) {
    if (fields[field].source == FieldSource::kConstant || fields[field].is_fixed()) continue;
    for (std::size_t i = 0; i < samples_.size(); ++i) {
      const catalog::FieldLocation& location = pieces_.location(i, field);
      if (location.present) bytes[field] += AlignUp(location.range.length, kPackAlignment);
    }
  }
  return bytes;
}

// Has no effect on a row that other nodes supply: its pieces have no bytes yet.
void RawGatherer::PrefetchRow(std::size_t field, std::size_t sample) const {
  if (sample >= samples_.size()) return;
  std::uint64_t left = kPrefetchedBytes;
  pieces_.ForEachRun(sample, field, [&left](const fetch::SamplePiece& piece, std::uint64_t lead,
                                            std::uint64_t length) {
    if (piece.bytes == nullptr) return;
    const std::uint64_t bytes = std::min(left, length);
    for (std::uint64_t at = 0; at < bytes; at += kCacheLineBytes) {
      __builtin_prefetch(piece.bytes + lead + at);
    }
    left -= bytes;
  });
}

// Gathers every field into one slot: rows of fixed-size fields one after another, variable ones
// packed. One copy of every byte. Rows that other nodes supply are left out.
Status RawGatherer::FillContiguous(const StreamSpec& spec, const GatherMeans& means,
                                   AssembledBatch& batch) {
  const std::span<const FieldSpec> fields = spec.catalog->fields();
  FOREBAY_ASSIGN(const SlotLayout layout,
                 LayOutRows(fields, samples_.size(), VariableBytes(spec)));
  tier::ArenaBlock slot;
  if (layout.total_bytes > 0) {
    FOREBAY_ASSIGN(slot, means.slots.Allocate(layout.total_bytes));
  }
  const std::uint32_t region = spec.inline_payload ? kInlineRegion : slot.region().value();
  const std::uint64_t base = spec.inline_payload ? 0 : slot.region_offset();
  // Inline rows are copied with plain stores, because this process reads them next, to copy them
  // into messages.
  const RowCopier copier = spec.inline_payload ? RowCopier::Plain() : RowCopier::Best();
  for (std::size_t field = 0; field < fields.size(); ++field) {
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
    for (std::size_t i = 0; i < kRowsAhead; ++i) PrefetchRow(field, i);
    for (std::size_t i = 0; i < samples_.size(); ++i) {
      PrefetchRow(field, i + kRowsAhead);
      const std::uint64_t begin = cursor;
      if (const RowElsewhere* row = TakeElsewhere(field, i); row != nullptr) {
        RouteRow(*row, slot.bytes().subspan(cursor), means);
        cursor += row->bytes;
      } else {
        pieces_.ForEachRun(i, field, [&](const fetch::SamplePiece& piece, std::uint64_t lead,
                                         std::uint64_t length) {
          copier.Copy(slot.bytes().data() + cursor, piece.bytes + lead, length);
          cursor += length;
        });
      }
      batch.payload_bytes += cursor - begin;
      if (out.is_tensor && cursor - begin == row_bytes) continue;
      if (out.is_tensor) {
        return Error(ErrorCode::kDataLoss,
                     fmt::format("sample {} has {} bytes of field '{}', which takes {}",
                                 samples_[i], cursor - begin, fields[field].name, row_bytes));
      }
      const bool present = pieces_.location(i, field).present;
      out.spans.push_back({.region = present ? region : kAbsentRegion, .reserved = 0,
                           .offset = present ? base + begin : 0, .length = cursor - begin});
      cursor = begin + AlignUp(cursor - begin, kPackAlignment);
    }
  }
  copier.Finish();
  batch.hold.slot = std::move(slot);  // scratch that SSD pieces came through goes back here
  return {};
}

}  // namespace forebay::stream

#include "server/stream/packed/packed_gatherer.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/check.h"
#include "proto/contract/limits.h"
#include "server/stream/packed/unit_check.h"
#include "server/stream/slot_layout.h"

namespace forebay::stream {

using compress::ChunkRecord;
using compress::PackContext;
using compress::PackField;
using fetch::DecodedUnit;

namespace {

std::uint64_t NowNs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

}  // namespace

Status PackedGatherer::Plan(const StreamSpec& spec, BatchSamples wanted) {
  open_ = std::move(wanted.open);
  plan_.Make(spec,
             {.samples = wanted.samples,
              .epoch = wanted.epoch,
              .end_position = wanted.end_position,
              .all_extents = wanted.all_extents,
              .slot = open_.own.get()},
             decoded_);
  reader_.Begin(plan_.IsMadeHere());
  return {};
}

void PackedGatherer::Forget() {
  gathered_.is_complete = false;
  if (gathered_.bytes.capacity() > limits::kDecodeReadBytesMax) gathered_.bytes = {};
  plan_.Forget();
  slot_.reset();
  if (open_.own) open_.own->Disown();
  open_ = {};
}

// Fills all fields, in one slot.
Status PackedGatherer::Gather(const StreamSpec& spec, const GatherMeans& gather_means,
                              AssembledBatch& batch) {
  const Means means{.refs = gather_means.refs, .slots = gather_means.slots,
                    .queue = gather_means.queue, .bad = gather_means.bad};
  FOREBAY_CHECK(means.refs.size() == extents().size());
  FOREBAY_TRY(plan_.FindChunks(means));
  FOREBAY_TRY(GatherVariable(means, batch));
  FOREBAY_TRY(TakeSlot(spec, means));
  const auto& fields = plan_.schema().fields;
  for (std::uint32_t field = 0; field < fields.size(); ++field) {
    if (!fields[field].variable()) FOREBAY_TRY(FillField(field, means, batch));
  }
  batch.hold.slot = slot_->Take();
  Describe(spec, batch);
  return {};
}

// Variable values come first: their sizes, and so the slot's, are known once they are decoded.
Status PackedGatherer::GatherVariable(const Means& means, AssembledBatch& batch) {
  const auto& fields = plan_.schema().fields;
  if (gathered_.is_complete) {
    batch.Count(gathered_.counted);
    return {};
  }
  gathered_.values.resize(fields.size());
  gathered_.bytes.clear();
  for (std::uint32_t field = 0; field < fields.size(); ++field) {
    gathered_.values[field].assign(fields[field].variable() ? plan_.row_count() : 0, {});
    if (fields[field].variable()) FOREBAY_TRY(FillField(field, means, batch));
  }
  gathered_.counted = {};
  gathered_.counted.Count(batch);
  gathered_.is_complete = true;
  return {};
}

Status PackedGatherer::TakeSlot(const StreamSpec& spec, const Means& means) {
  slot_ = open_.own;
  if (slot_ == nullptr) {
    std::vector<std::uint64_t> variable_bytes(gathered_.values.size());
    for (std::size_t field = 0; field < gathered_.values.size(); ++field) {
      for (const GatheredValue& value : gathered_.values[field]) {
        variable_bytes[field] += AlignUp(value.length, kPackAlignment);
      }
    }
    FOREBAY_ASSIGN(SlotLayout layout, LayOutRows(spec.catalog->fields(), plan_.row_count(),
                                                 variable_bytes));
    slot_ = std::make_shared<BatchSlot>(std::move(layout), plan_.row_count());
  }
  return slot_->Allocate(means.slots);
}

// All values of one field, unit by unit: fixed ones into the slot, variable ones into
// gathered_.
Status PackedGatherer::FillField(std::uint32_t field, const Means& means, AssembledBatch& batch) {
  const std::span<GatherUnit> units = plan_.UnitsOf(field);
  std::size_t read = 0;
  for (std::size_t i = 0; i < units.size(); ++i) {
    if (i == read) {
      FOREBAY_ASSIGN(const std::size_t ahead, ReadAhead(units.subspan(i), means, batch));
      read += ahead;
    }
    FOREBAY_TRY(FillUnit(units[i], means, batch));
  }
  return {};
}

// Reads what lies on SSD of the first units, as many as fit in kDecodeReadBytesMax. Returns how
// many units that are, but at least one: the chunks of a unit that does not fit alone are read one
// by one when it is decoded.
Result<std::size_t> PackedGatherer::ReadAhead(std::span<const GatherUnit> units, const Means& means,
                                            AssembledBatch& batch) {
  std::vector<PlacedChunk*> ahead;
  std::uint64_t ahead_bytes = 0;
  std::size_t count = 0;
  for (; count < units.size(); ++count) {
    const std::span<PlacedChunk> chunks = plan_.ChunksOf(units[count]);
    const std::uint64_t bytes = ChunkReader::SsdBytes(means, chunks);
    if (ahead_bytes + bytes > limits::kDecodeReadBytesMax) break;
    ahead_bytes += bytes;
    for (PlacedChunk& chunk : chunks) ahead.push_back(&chunk);
  }
  FOREBAY_TRY(reader_.ReadFromSsd(means, ahead, batch));
  return std::max<std::size_t>(count, 1);
}

Status PackedGatherer::FillUnit(GatherUnit& unit, const Means& means, AssembledBatch& batch) {
  const bool is_shared = !plan_.schema().fields[unit.field].variable() &&
                         slot_->IsShared(unit.field);
  if (is_shared && !ClaimRows(unit, batch)) return {};
  const Status filled = FillClaimed(unit, means, batch);
  if (is_shared) EndClaims(unit, filled.has_value());
  return filled;
}

// Those of the unit's rows that no other batch has filled by now; false where none is left.
bool PackedGatherer::ClaimRows(GatherUnit& unit, AssembledBatch& batch) {
  plan_.KeepUsers(unit, [&](const GatherUser& user) {
    return slot_->Claim(unit.field, user.row);
  });
  batch.decode.kept_samples += unit.filled_users;
  batch.ram_samples += unit.filled_users;
  if (unit.user_count > 0) return true;
  ++batch.decode.kept_units;
  unit.decoded.reset();
  return false;
}

void PackedGatherer::EndClaims(const GatherUnit& unit, bool are_filled) {
  for (const GatherUser& user : plan_.UsersOf(unit)) {
    slot_->EndClaim(unit.field, user.row, are_filled);
  }
}

Status PackedGatherer::FillClaimed(GatherUnit& unit, const Means& means, AssembledBatch& batch) {
  const PackField& field = plan_.schema().fields[unit.field];
  if (unit.decoded) {
    ++batch.decode.kept_units;
    batch.decode.kept_samples += unit.user_count;
    batch.ram_samples += unit.user_count;
  } else {
    batch.CountSource(means.refs[plan_.ChunksOf(unit)[0].extent_index]->tier, unit.user_count, 0);
    if (!field.variable()) {
      const std::uint64_t bytes = field.sample_bytes() * unit.samples.count;
      if (bytes > limits::kDecodedUnitBytesMax) return DecodeRows(unit, means, batch);
      unit.is_worth_keeping = decoded_.WouldKeep(unit.samples, bytes);
      if (!unit.is_worth_keeping && plan_.IsRun(unit)) return DecodeRows(unit, means, batch);
    }
    bool is_new = false;
    const auto decode = [&] {
      is_new = true;
      return DecodeUnit(unit, means, batch);
    };
    FOREBAY_ASSIGN(unit.decoded,
                   decoded_.Get(unit.key, unit.samples, decode, plan_.IndicesOf(unit)));
    if (!is_new) {  // another batch has decoded it since this one was planned
      ++batch.decode.kept_units;
      batch.decode.kept_samples += unit.user_count;
    }
  }
  if (field.variable()) {
    FOREBAY_TRY(TakeValues(unit, *unit.decoded));
  } else {
    CopyRows(unit);
  }
  unit.decoded.reset();  // a batch holds no more than one unit that is not kept
  return {};
}

std::span<std::byte> PackedGatherer::RowOf(const GatherUnit& unit, const GatherUser& user) const {
  return slot_->Row(unit.field, user.row);
}

// What the unit does not hold went straight to its place, which is a row.
void PackedGatherer::CopyRows(const GatherUnit& unit) {
  for (const GatherUser& user : plan_.UsersOf(unit)) {
    const bool is_held = unit.decoded->Holds(user.index);
    CopyToRow(unit, user, is_held ? unit.decoded->Sample(user.index) : places_[user.index]);
  }
}

// A sample may stand in several rows, and lie in one of them.
void PackedGatherer::CopyToRow(const GatherUnit& unit, const GatherUser& user,
                             std::span<const std::byte> value) const {
  const std::span<std::byte> row = RowOf(unit, user);
  FOREBAY_CHECK(value.size() == row.size());
  if (row.data() != value.data()) std::memcpy(row.data(), value.data(), row.size());
}

// The samples that the batch, or another one on its way, takes straight into their rows, and
// nothing else anywhere.
Status PackedGatherer::DecodeRows(GatherUnit& unit, const Means& means, AssembledBatch& batch) {
  const std::span<const GatherUser> users = plan_.UsersOf(unit);
  std::vector<RowClaim> claims;
  places_.assign(unit.samples.count, {});
  for (const GatherUser& user : users) places_[user.index] = RowOf(unit, user);
  for (PlacedChunk& chunk : plan_.ChunksOf(unit)) {
    const PackContext pack{.schema = plan_.schema(), .identity = chunk.at.identity};
    FOREBAY_ASSIGN(const ChunkRecord record, reader_.RecordOf(pack, means, chunk, batch));
    if (GoesToPlaces(unit, record)) PlaceAhead(unit, means, claims);
    const std::uint64_t begun_ns = NowNs();
    const Status decoded =
        compress::DecodeSamples(pack, chunk.at.entry, record, places_, ScratchFor(chunk));
    if (!decoded.has_value()) {
      reader_.BlameTier(means, chunk, decoded.error());
      return decoded;
    }
    batch.decode.ns += NowNs() - begun_ns;
  }
  for (RowClaim& claim : claims) claim.Fill();
  for (const GatherUser& user : users) CopyToRow(unit, user, places_[user.index]);
  batch.decode.chunks += unit.chunk_count;
  const auto last = std::ranges::find_if(places_.rbegin(), places_.rend(),
                                         [](std::span<std::byte> place) { return !place.empty(); });
  const auto end = static_cast<std::uint64_t>(places_.rend() - last);
  batch.decode.bytes += end * RowBytes(unit);  // frames before have to be decoded
  return {};
}

// Whether samples of the unit may be decoded each to a place of its own at no cost.
bool PackedGatherer::GoesToPlaces(const GatherUnit& unit, const ChunkRecord& record) const {
  return unit.chunk_count == 1 && slot_->IsShared(unit.field) &&
         compress::DecodesToPlaces(record.head.codec);
}

// Whether one sample of the unit, needed by a batch that ends at `after`, would still be kept when
// it is needed again.
bool PackedGatherer::WouldLast(const GatherUnit& unit, std::uint32_t index,
                             std::uint64_t after) const {
  if (!unit.is_worth_keeping) return false;
  fetch::UnitSamples one = unit.samples;
  one.first += index;
  one.count = 1;
  one.after = after;
  return decoded_.WouldLast(one);
}

// Samples of the unit that other batches on their way want go to their rows: these neither keep
// nor copy them.
void PackedGatherer::PlaceAhead(const GatherUnit& unit, const Means& means,
                              std::vector<RowClaim>& claims) {
  if (open_.board == nullptr) return;
  open_.board->FindRows(*open_.order, unit.samples.first, unit.samples.count, *slot_, ahead_);
  for (WantedRow& wanted : ahead_) {
    std::span<std::byte>& place = places_[wanted.index];
    // What this batch wants, too, must lie where it stays.
    const bool is_own = std::ranges::any_of(plan_.UsersOf(unit), [&](const GatherUser& user) {
      return user.index == wanted.index;
    });
    if (is_own || !place.empty() || WouldLast(unit, wanted.index, wanted.end_position)) continue;
    place = wanted.slot->TryClaim(unit.field, wanted.row, means.slots);
    if (!place.empty()) claims.emplace_back(std::move(wanted.slot), unit.field, wanted.row);
  }
  ahead_.clear();
}

// Makes memory for a unit of samples of one size, and says in places_ where each is decoded to.
// Those that a batch takes go straight to their rows and are left out, unless someone needs them
// again before they would have to make room.
void PackedGatherer::PlaceSamples(const GatherUnit& unit, const ChunkRecord& record,
                                const Means& means, DecodedUnit& decoded,
                                std::vector<RowClaim>& claims) {
  const std::uint64_t bytes = RowBytes(unit);
  places_.assign(decoded.samples, {});
  if (GoesToPlaces(unit, record)) {
    for (const GatherUser& user : plan_.UsersOf(unit)) {
      std::span<std::byte>& place = places_[user.index];
      if (place.empty() && !WouldLast(unit, user.index, unit.samples.after)) {
        place = RowOf(unit, user);
      }
    }
    PlaceAhead(unit, means, claims);
  }
  decoded.left_out = static_cast<std::uint32_t>(
      std::ranges::count_if(places_, [](std::span<std::byte> place) { return !place.empty(); }));
  const std::uint32_t held = decoded.samples - decoded.left_out;
  decoded.bytes = fetch::RawBytes(bytes * held);
  if (decoded.left_out > 0) decoded.places.assign(decoded.samples, DecodedUnit::kNotHeld);
  for (std::uint32_t i = 0, next = 0; i < decoded.samples; ++i) {
    if (!places_[i].empty()) continue;
    if (decoded.left_out > 0) decoded.places[i] = next;
    places_[i] = decoded.bytes.span().subspan(next++ * bytes, bytes);
  }
}

// The same for a unit of a variable field, of which a chunk is the first.
Status PackedGatherer::PlaceValues(const GatherUnit& unit, const compress::ChunkEntry& entry,
                                 const ChunkRecord& record, DecodedUnit& decoded) const {
  const std::uint64_t bytes =
      entry.sample_bytes != 0 ? entry.sample_bytes : record.head.raw_bytes;
  if (bytes > limits::kSlotBytesMax) {
    return Error(ErrorCode::kOutOfRange,
                 fmt::format("sample {} of field '{}' has {} bytes, more than kSlotBytesMax ({})",
                             unit.samples.first, plan_.schema().fields[unit.field].name, bytes,
                             limits::kSlotBytesMax));
  }
  decoded.bytes = fetch::RawBytes(bytes);
  std::uint64_t end = 0;
  for (std::uint32_t s = 0; s < decoded.samples; ++s) {
    end += entry.sample_bytes != 0 ? entry.sample_bytes : record.head.LengthOf(s);
    decoded.ends.push_back(end);
  }
  return {};
}

Result<DecodedUnit> PackedGatherer::DecodeUnit(GatherUnit& unit, const Means& means,
                                             AssembledBatch& batch) {
  const PackField& field = plan_.schema().fields[unit.field];
  DecodedUnit decoded;
  std::vector<RowClaim> claims;
  UnitCheck check;
  decoded.samples = unit.samples.count;
  const std::span<PlacedChunk> chunks = plan_.ChunksOf(unit);
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    PlacedChunk& chunk = chunks[i];
    const compress::ChunkEntry& entry = chunk.at.entry;
    const PackContext pack{.schema = plan_.schema(), .identity = chunk.at.identity};
    FOREBAY_ASSIGN(const ChunkRecord record, reader_.RecordOf(pack, means, chunk, batch));
    if (i == 0 && !field.variable()) PlaceSamples(unit, record, means, decoded, claims);
    if (i == 0 && field.variable()) FOREBAY_TRY(PlaceValues(unit, entry, record, decoded));
    const std::span<std::byte> out = decoded.bytes.span();
    if (field.variable() && (entry.part_offset > out.size() ||
                             record.head.raw_bytes > out.size() - entry.part_offset)) {
      return Error(ErrorCode::kDataLoss, fmt::format("sample {} of field '{}' has parts that do "
                                                     "not belong together",
                                                     unit.samples.first, field.name));
    }
    const std::uint64_t begun_ns = NowNs();
    const std::span<std::byte> scratch = ScratchFor(chunk);
    const Status status =
        field.variable()
            ? compress::DecodeRecord(pack, entry, record,
                                     out.subspan(entry.part_offset, record.head.raw_bytes),
                                     scratch)
            : compress::DecodeSamples(pack, entry, record, places_, scratch);
    if (!status.has_value()) {
      reader_.BlameTier(means, chunk, status.error());
      return status.error();
    }
    if (decoded.left_out > 0) {
      check.AddHeld(pack, record, decoded.places);
    } else if (field.variable() || unit.chunk_count == 1) {
      check.Add(pack, record, field.variable() ? entry.part_offset : 0);
    } else {
      check.AddScattered();  // tiles
    }
    batch.decode.ns += NowNs() - begun_ns;
  }
  for (RowClaim& claim : claims) claim.Fill();
  std::move(check).GiveTo(decoded);
  batch.decode.chunks += unit.chunk_count;
  batch.decode.bytes += field.variable() ? decoded.bytes.size()
                                         : decoded.samples * RowBytes(unit);
  return decoded;
}

// Copies the values of a variable field aside, until all lengths are known.
Status PackedGatherer::TakeValues(const GatherUnit& unit, const DecodedUnit& decoded) {
  for (const GatherUser& user : plan_.UsersOf(unit)) {
    const std::span<const std::byte> value = decoded.Sample(user.index);
    if (value.size() > limits::kSlotBytesMax - gathered_.bytes.size()) {
      return Error(ErrorCode::kOutOfRange,
                   fmt::format("a batch of {} samples exceeds kSlotBytesMax ({} bytes)",
                               plan_.row_count(), limits::kSlotBytesMax));
    }
    gathered_.values[unit.field][user.row] = {.offset = gathered_.bytes.size(),
                                              .length = value.size()};
    gathered_.bytes.insert(gathered_.bytes.end(), value.begin(), value.end());
  }
  return {};
}

std::span<std::byte> PackedGatherer::ScratchFor(const PlacedChunk& chunk) {
  const std::size_t bytes = compress::RecordScratchBytes(plan_.schema(), chunk.at.entry);
  if (scratch_.size() < bytes) {
    scratch_ = fetch::RawBytes();
    scratch_ = fetch::RawBytes(bytes);
  }
  return scratch_.span();
}

// What the reader is told: a tensor per fixed field, a span per sample of the others and, where
// it asked for views, of all.
void PackedGatherer::Describe(const StreamSpec& spec, AssembledBatch& batch) const {
  const bool views = spec.delivery == Delivery::kViews && !spec.inline_payload;
  const tier::ArenaBlock& slot = batch.hold.slot;
  const std::uint32_t region =
      spec.inline_payload || !slot.valid() ? kInlineRegion : slot.region().value();
  const std::uint64_t base = spec.inline_payload || !slot.valid() ? 0 : slot.region_offset();
  const auto& fields = plan_.schema().fields;
  batch.fields.resize(fields.size());
  for (std::size_t field = 0; field < fields.size(); ++field) {
    AssembledField& out = batch.fields[field];
    std::uint64_t cursor = slot_->layout().begins[field];
    if (fields[field].variable()) {
      for (const GatheredValue& value : gathered_.values[field]) {
        if (value.length > 0) {
          std::memcpy(slot.bytes().data() + cursor, gathered_.bytes.data() + value.offset,
                      value.length);
        }
        out.spans.push_back({.region = region, .reserved = 0, .offset = base + cursor,
                             .length = value.length});
        cursor += AlignUp(value.length, kPackAlignment);
        batch.payload_bytes += value.length;
      }
      continue;
    }
    const std::uint64_t row_bytes = slot_->layout().row_bytes[field];
    batch.payload_bytes += row_bytes * plan_.row_count();
    if (!views) {
      out.is_tensor = true;
      out.tensor = {.region = region, .reserved = 0, .offset = base + cursor,
                    .length = row_bytes * plan_.row_count()};
      continue;
    }
    for (std::size_t row = 0; row < plan_.row_count(); ++row) {
      out.spans.push_back({.region = region, .reserved = 0,
                           .offset = base + cursor + row * row_bytes, .length = row_bytes});
    }
  }
}

}  // namespace forebay::stream

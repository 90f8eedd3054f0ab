// A batch is put together field by field: variable fields first, into memory of the gatherer, then
// fixed fields, into the batch's slot. Each field goes unit by unit: its chunks are read, decoded,
// and verified against their checksums. One worker at a time calls this for a batch that it
// assembles, with the extents pinned; other workers may fill rows of the same slot meanwhile, so a
// row of a shared field is written only under a claim.
#include "server/stream/packed/packed_gatherer.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/align_up.h"
#include "proto/contract/check.h"
#include "proto/contract/limits.h"
#include "server/fetch/packed/unit_check.h"
#include "server/stream/slot_layout.h"

namespace forebay::stream {

using compress::ChunkRecord;
using compress::PackContext;
using compress::PackField;
using fetch::DecodedUnit;
using fetch::PlacedChunk;

namespace {

std::uint64_t NowNs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

}  // namespace

Status PackedGatherer::Plan(const StreamSpec& spec, const BatchPlan& batch, PackedPlan packed) {
  plan_.Make(spec, {.batch = batch, .packed = packed}, decoded_);
  open_ = std::move(packed.open);
  reader_.Begin(plan_.IsMadeHere());
  return {};
}

void PackedGatherer::Forget() {
  gathered_.is_complete = false;
  // Idle gatherers wait for the next batch with their buffers. An unusually large buffer is freed,
  // so that one batch of large values does not hold memory for ever.
  if (gathered_.bytes.capacity() > limits::kDecodeReadBytesMax) gathered_.bytes = {};
  plan_.Forget();
  // If the attempt has failed, the slot keeps its memory and its filled rows for the next one. From
  // here on the stream may free them when it closes (BatchSlot::Abandon). An attempt that was
  // parked before it took the slot has no say in it: another thread may run the next one already.
  if (slot_ != nullptr) slot_->Disown();
  slot_.reset();
  open_ = {};
}

// Fills all fields of the batch, which share one slot.
Status PackedGatherer::Gather(const StreamSpec& spec, const GatherMeans& means,
                              AssembledBatch& batch) {
  FOREBAY_CHECK(means.read.refs.size() == extents().size());
  FOREBAY_TRY(plan_.FindChunks(means.read));
  FOREBAY_TRY(GatherVariable(means, batch));
  FOREBAY_TRY(TakeSlot(spec, means));
  const auto& fields = plan_.schema().fields;
  for (std::uint32_t field = 0; field < fields.size(); ++field) {
    if (!fields[field].variable()) FOREBAY_TRY(FillField(field, means, batch));
  }
  RouteRows(means, batch);
  CountSent(batch);
  // Take waits for other batches that still write rows here. After it nobody else has access to the
  // memory.
  batch.hold.slot = slot_->Take();
  Describe(spec, batch);
  return {};
}

// Variable values come first: their sizes, and so the slot's, are known once they are decoded.
Status PackedGatherer::GatherVariable(const GatherMeans& means, AssembledBatch& batch) {
  const auto& fields = plan_.schema().fields;
  // An earlier attempt has decoded the values and then found no memory for a slot (GiveGathered).
  if (gathered_.is_complete) {
    batch.Add(gathered_.counted);
    return {};
  }
  gathered_.values.resize(fields.size());
  gathered_.bytes.clear();
  for (std::uint32_t field = 0; field < fields.size(); ++field) {
    gathered_.values[field].assign(fields[field].variable() ? plan_.row_count() : 0, {});
    if (fields[field].variable()) FOREBAY_TRY(FillField(field, means, batch));
  }
  gathered_.counted = {};
  gathered_.counted.Add(batch);
  // Only a complete set may serve the next attempt. After an error above, that attempt decodes all
  // values again.
  gathered_.is_complete = true;
  return {};
}

Status PackedGatherer::TakeSlot(const StreamSpec& spec, const GatherMeans& means) {
  slot_ = open_.own;
  if (slot_ == nullptr) {
    // The batch has no slot on the board, so no other batch fills it. It makes a slot of its own,
    // now that the sizes of all variable values are known.
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
  // The slot may have memory already, if another batch has filled a row ahead.
  return slot_->Allocate(means.slots);
}

// Fills one field, unit by unit: fixed values go to the slot, variable ones to gathered_.
Status PackedGatherer::FillField(std::uint32_t field, const GatherMeans& means,
                                 AssembledBatch& batch) {
  const std::span<GatherUnit> units = plan_.UnitsOf(field);
  std::size_t read = 0;
  for (std::size_t i = 0; i < units.size(); ++i) {
    // The records of one read-ahead lie in one buffer, which the next read-ahead overwrites. It is
    // due only when all units of the one before are decoded.
    if (i == read) {
      FOREBAY_ASSIGN(const std::size_t ahead, ReadAhead(units.subspan(i), means, batch));
      read += ahead;
    }
    FOREBAY_TRY(FillUnit(units[i], means, batch));
  }
  return {};
}

// Reads the chunks of the first units that lie on SSD, for as many units as fit in
// kDecodeReadBytesMax. Returns the number of these units, but at least one: the chunks of a unit
// that does not fit alone are read one by one when it is decoded.
Result<std::size_t> PackedGatherer::ReadAhead(std::span<const GatherUnit> units,
                                              const GatherMeans& means, AssembledBatch& batch) {
  std::vector<PlacedChunk*> ahead;
  std::uint64_t ahead_bytes = 0;
  std::size_t count = 0;
  for (; count < units.size(); ++count) {
    const std::span<PlacedChunk> chunks = plan_.ChunksOf(units[count]);
    const std::uint64_t bytes = fetch::ChunkReader::SsdBytes(means.read, chunks);
    if (ahead_bytes + bytes > limits::kDecodeReadBytesMax) break;
    ahead_bytes += bytes;
    for (PlacedChunk& chunk : chunks) ahead.push_back(&chunk);
  }
  FOREBAY_TRY(reader_.ReadFromSsd(means.read, ahead, batch));
  return std::max<std::size_t>(count, 1);
}

// Lists the rows that other nodes supply. They are written after Take, when nobody else writes to
// the slot, so they need no claims. If another batch fills such a row before that, the same bytes
// are written twice.
void PackedGatherer::RouteRows(const GatherMeans& means, AssembledBatch& batch) {
  for (const GatherUnit& unit : plan_.units()) {
    if (!unit.is_elsewhere) continue;
    std::uint32_t filled = unit.filled_users;
    for (const GatherUser& user : plan_.UsersOf(unit)) {
      if (slot_->IsFilled(unit.field, user.row)) {
        ++filled;
        continue;
      }
      means.rows.push_back({.group_key = unit.group_key,
                            .row = {.sample = SampleId(unit.samples.first + user.index),
                                    .field = FieldId(unit.field),
                                    .memory = RowOf(unit, user)}});
    }
    batch.decode.kept_samples += filled;
    batch.ram_samples += filled;
  }
}

// Counts samples that were decoded from chunks of other nodes, each once, and without those that
// also have a row to come: RemoteWaits counts these.
void PackedGatherer::CountSent(AssembledBatch& batch) const {
  std::vector<bool> has_chunks(plan_.row_count());
  std::vector<bool> has_rows(plan_.row_count());
  for (const GatherUnit& unit : plan_.units()) {
    if (!unit.is_elsewhere && !unit.is_from_others) continue;
    std::vector<bool>& has = unit.is_elsewhere ? has_rows : has_chunks;
    for (const GatherUser& user : plan_.UsersOf(unit)) has[user.row] = true;
  }
  for (std::size_t row = 0; row < has_chunks.size(); ++row) {
    if (has_chunks[row] && !has_rows[row]) ++batch.other_samples;
  }
}

Status PackedGatherer::FillUnit(GatherUnit& unit, const GatherMeans& means, AssembledBatch& batch) {
  if (unit.is_elsewhere) return {};
  const bool is_shared = !plan_.schema().fields[unit.field].variable() &&
                         slot_->IsShared(unit.field);
  // Rows are claimed before the unit is decoded, so that no other batch decodes for the same rows
  // in the meantime. If decoding fails, the rows become empty again, and a later attempt can claim
  // them again.
  if (is_shared && !ClaimRows(unit, batch)) return {};
  const Status filled = FillClaimed(unit, means, batch);
  if (is_shared) EndClaims(unit, filled.has_value());
  return filled;
}

// Claims the unit's rows that no other batch has filled by now. Returns false if none is left.
bool PackedGatherer::ClaimRows(GatherUnit& unit, AssembledBatch& batch) {
  plan_.KeepUsers(unit, [&](const GatherUser& user) {
    // May wait for another batch that writes the row. That batch never waits for this one
    // (TryClaim), so there is no deadlock.
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

Status PackedGatherer::FillClaimed(GatherUnit& unit, const GatherMeans& means,
                                   AssembledBatch& batch) {
  const PackField& field = plan_.schema().fields[unit.field];
  if (unit.decoded) {
    ++batch.decode.kept_units;
    batch.decode.kept_samples += unit.user_count;
    batch.ram_samples += unit.user_count;
  } else {
    const PlacedChunk& first = plan_.ChunksOf(unit)[0];
    if (!first.is_sent()) {
      batch.CountSource(means.read.refs[first.extent_index]->tier, unit.user_count, 0);
    }
    if (!field.variable()) {
      const std::uint64_t bytes = field.sample_bytes() * unit.samples.count;
      // A unit beyond the limit is never decoded as a whole into memory of its own; the rows of the
      // slot are memory that is accounted for.
      if (bytes > limits::kDecodedUnitBytesMax) return DecodeRows(unit, means, batch);
      unit.is_worth_keeping = decoded_.WouldKeep(unit.samples, bytes);
      // The cache would not keep the unit, and the wanted samples are a run, so they are decoded
      // directly to their rows. All other units go through Get, which lets batches that want a unit
      // at the same moment share one decoding.
      if (!unit.is_worth_keeping && plan_.IsRun(unit)) return DecodeRows(unit, means, batch);
    }
    // Get may return a unit that another thread has decoded; then `decode` has not run.
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
      unit.is_from_others = false;
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

// A sample that the unit does not hold was decoded straight to a row; `places_` still has it.
void PackedGatherer::CopyRows(const GatherUnit& unit) {
  for (const GatherUser& user : plan_.UsersOf(unit)) {
    const bool is_held = unit.decoded->Holds(user.index);
    CopyToRow(unit, user, is_held ? unit.decoded->Sample(user.index) : places_[user.index]);
  }
}

// Copies a value to a row, unless it was decoded there.
void PackedGatherer::CopyToRow(const GatherUnit& unit, const GatherUser& user,
                             std::span<const std::byte> value) const {
  const std::span<std::byte> row = RowOf(unit, user);
  FOREBAY_CHECK(value.size() == row.size());
  if (row.data() != value.data()) std::memcpy(row.data(), value.data(), row.size());
}

// Decodes only samples that this batch, or another one on its way, needs, straight to their rows.
// The cache gets nothing.
Status PackedGatherer::DecodeRows(GatherUnit& unit, const GatherMeans& means,
                                  AssembledBatch& batch) {
  const std::span<const GatherUser> users = plan_.UsersOf(unit);
  std::vector<RowClaim> claims;
  places_.assign(unit.samples.count, {});
  // If a sample stands in several rows, it is decoded to the last of them and copied to the others
  // below.
  for (const GatherUser& user : users) places_[user.index] = RowOf(unit, user);
  for (PlacedChunk& chunk : plan_.ChunksOf(unit)) {
    const PackContext pack{.schema = plan_.schema(), .identity = chunk.at.identity};
    FOREBAY_ASSIGN(const ChunkRecord record, reader_.RecordOf(pack, means.read, chunk, batch));
    if (GoesToPlaces(unit, record)) PlaceAhead(unit, means, claims);
    const std::uint64_t begun_ns = NowNs();
    const Status decoded =
        compress::DecodeSamples(pack, chunk.at.entry, record, places_, ScratchFor(chunk));
    if (!decoded.has_value()) {
      reader_.BlameTier(means.read, chunk, decoded.error());
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

// Whether samples of the unit can be decoded directly to rows of several batches. Other codecs
// decode to scratch memory first; rows of fields that are not shared cannot be claimed.
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

// Finds samples of the unit that other batches on their way need, and directs them to the rows of
// those batches, which then neither decode nor copy them.
void PackedGatherer::PlaceAhead(const GatherUnit& unit, const GatherMeans& means,
                              std::vector<RowClaim>& claims) {
  if (open_.board == nullptr) return;
  open_.board->FindRows(*open_.order, unit.samples.first, unit.samples.count, *slot_, ahead_);
  for (WantedRow& wanted : ahead_) {
    std::span<std::byte>& place = places_[wanted.index];
    // A sample that this batch needs, too, stays in its own row or in the unit: the other batch may
    // end, and free its memory, before this one has copied the sample.
    const bool is_own = std::ranges::any_of(plan_.UsersOf(unit), [&](const GatherUser& user) {
      return user.index == wanted.index;
    });
    if (is_own || !place.empty() || WouldLast(unit, wanted.index, wanted.end_position)) continue;
    place = wanted.slot->TryClaim(unit.field, wanted.row, means.slots);
    // An empty place means that the row is claimed or filled, or that the other batch has ended.
    // The sample is then not decoded for it.
    if (!place.empty()) claims.emplace_back(std::move(wanted.slot), unit.field, wanted.row);
  }
  ahead_.clear();
}

// Makes memory for a unit of samples of one size, and says in places_ where each is decoded to.
// Those that a batch takes go straight to their rows and are left out, unless someone needs them
// again before they would have to make room.
void PackedGatherer::PlaceSamples(const GatherUnit& unit, const ChunkRecord& record,
                                const GatherMeans& means, DecodedUnit& decoded,
                                std::vector<RowClaim>& claims) {
  // A sample goes to a row of this batch, or to a row of another batch, or into the unit.
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
  // The unit's memory has room only for the samples that it holds; `places` maps their indices to
  // it.
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

// Makes memory for a unit of a variable field. `entry` and `record` are its first chunk: a group of
// whole samples, or the first part of one large sample.
Status PackedGatherer::PlaceValues(const GatherUnit& unit, const compress::ChunkEntry& entry,
                                 const ChunkRecord& record, DecodedUnit& decoded) const {
  const std::uint64_t bytes =
      entry.sample_bytes != 0 ? entry.sample_bytes : record.head.raw_bytes;
  // The size comes from a file, so it is limited before memory is allocated. A larger value would
  // fit in no slot anyway.
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

Result<DecodedUnit> PackedGatherer::DecodeUnit(GatherUnit& unit, const GatherMeans& means,
                                             AssembledBatch& batch) {
  const PackField& field = plan_.schema().fields[unit.field];
  DecodedUnit decoded;
  std::vector<RowClaim> claims;
  fetch::UnitCheck check;
  decoded.samples = unit.samples.count;
  const std::span<PlacedChunk> chunks = plan_.ChunksOf(unit);
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    PlacedChunk& chunk = chunks[i];
    const compress::ChunkEntry& entry = chunk.at.entry;
    const PackContext pack{.schema = plan_.schema(), .identity = chunk.at.identity};
    FOREBAY_ASSIGN(const ChunkRecord record, reader_.RecordOf(pack, means.read, chunk, batch));
    // The first record tells the codec or the sizes, which decide where all chunks of the unit go.
    if (i == 0 && !field.variable()) PlaceSamples(unit, record, means, decoded, claims);
    if (i == 0 && field.variable()) FOREBAY_TRY(PlaceValues(unit, entry, record, decoded));
    const std::span<std::byte> out = decoded.bytes.span();
    // Each part names its own offset, which a damaged or forged pack may choose freely.
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
      reader_.BlameTier(means.read, chunk, status.error());
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
  // The scrubber compares the unit with these checksums as long as the cache keeps it.
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
    // The limit holds before the copy: many values of legal size could exhaust memory together.
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
    // The old memory is freed first, so that both never exist together.
    scratch_ = fetch::RawBytes();
    scratch_ = fetch::RawBytes(bytes);
  }
  return scratch_.span();
}

// Describes the batch to the reader: one tensor for each fixed field and one span for each sample
// of the other fields. A reader that asked for views gets spans for all fields.
void PackedGatherer::Describe(const StreamSpec& spec, AssembledBatch& batch) const {
  const bool views = spec.delivery == Delivery::kViews && !spec.inline_payload;
  const tier::ArenaBlock& slot = batch.hold.slot;
  // An inline payload is sent from the slot, so its offsets count from the slot's beginning.
  // Otherwise they count from the beginning of the shared region that the reader has mapped.
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
        // TakeSlot has counted the same padding.
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

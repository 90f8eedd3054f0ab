#include "server/stream/packed_gather.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/check.h"
#include "proto/contract/limits.h"
#include "server/stream/slot_layout.h"
#include "server/stream/unit_check.h"

namespace forebay::stream {

using compress::ChunkRecord;
using compress::PackContext;
using compress::PackField;
using fetch::DecodedUnit;

namespace {

// Samples smaller than this are kept whole units: a copy costs less than to ask about them.
constexpr std::uint64_t kLeftOutBytesMin = 4096;

std::uint64_t NowNs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

}  // namespace

Status PackedGather::Plan(const StreamSpec& spec, const Wanted& wanted) {
  source_ = UnitSource::Of(spec);
  reader_.Begin(source_->IsMadeHere());
  row_count_ = wanted.samples.size();
  PlanUnits(spec, wanted);
  PlanChunks(wanted.all_extents);
  return {};
}

void PackedGather::Forget() {
  gathered_.is_complete = false;
  if (gathered_.bytes.capacity() > limits::kDecodeReadBytesMax) gathered_.bytes = {};
  for (Unit& unit : units_) unit.decoded.reset();
}

// Values in order of field and, within a field, of the unit that was met first.
void PackedGather::PlanUnits(const StreamSpec& spec, const Wanted& wanted) {
  const std::span<const std::uint64_t> samples = wanted.samples;
  units_.clear();
  unsorted_.clear();
  unit_index_.clear();
  field_units_.assign(1, 0);
  const auto fields = static_cast<std::uint32_t>(source_->schema().fields.size());
  for (std::uint32_t field = 0; field < fields; ++field) {
    for (std::uint32_t row = 0; row < samples.size(); ++row) {
      const UnitPlace place = source_->UnitOf(field, SampleId(samples[row]));
      const auto [entry, inserted] = unit_index_.try_emplace(
          place.number, static_cast<std::uint32_t>(units_.size()));
      if (inserted) {
        Unit unit;
        unit.field = field;
        unit.place = place;
        unit.key = {spec.dataset->key(place.extent), place.piece};
        unit.samples = {.dataset = spec.dataset->hash(), .first = place.first_sample,
                        .count = place.sample_count, .epoch = wanted.epoch,
                        .after = wanted.end_position};
        units_.push_back(std::move(unit));
      }
      Unit& unit = units_[entry->second];
      ++unit.user_count;
      unsorted_.push_back({.unit = entry->second, .row = row,
                           .index = static_cast<std::uint32_t>(samples[row] -
                                                               unit.samples.first)});
    }
    field_units_.push_back(static_cast<std::uint32_t>(units_.size()));
  }
  std::uint32_t next = 0;
  for (Unit& unit : units_) {
    unit.first_user = next;
    next += std::exchange(unit.user_count, 0);
  }
  users_.resize(unsorted_.size());
  for (const User& user : unsorted_) {
    Unit& unit = units_[user.unit];
    users_[unit.first_user + unit.user_count++] = user;
  }
}

void PackedGather::PlanChunks(bool all_extents) {
  chunks_.clear();
  extents_.clear();
  extent_index_.clear();
  for (Unit& unit : units_) {
    unit.decoded = decoded_.Find(unit.key, IndicesOf(unit));
    if (unit.decoded && !all_extents) continue;
    unit.first_chunk = static_cast<std::uint32_t>(chunks_.size());
    unit.chunk_count = unit.place.chunk_count;
    for (std::uint32_t i = 0; i < unit.chunk_count; ++i) {
      const ExtentId extent = source_->ExtentOf(unit.place, i);
      const auto [entry, inserted] = extent_index_.try_emplace(
          extent, static_cast<std::uint32_t>(extents_.size()));
      if (inserted) extents_.push_back(extent);
      chunks_.push_back({.at = {}, .extent_index = entry->second});
    }
  }
}

Status PackedGather::FindChunks(const Means& means) {
  std::vector<WantedChunk> wanted;
  wanted.reserve(chunks_.size());
  for (const Unit& unit : units_) {
    for (std::uint32_t i = 0; i < unit.chunk_count; ++i) {
      PlacedChunk& chunk = chunks_[unit.first_chunk + i];
      wanted.push_back({.unit = unit.place, .index = i, .extent_index = chunk.extent_index,
                        .at = &chunk.at});
    }
  }
  return finder_.Find(*source_, means.refs, means.queue, wanted, means.bad);
}

Status PackedGather::Fill(const StreamSpec& spec, const Means& means, AssembledBatch& batch) {
  FOREBAY_CHECK(means.refs.size() == extents_.size());
  FOREBAY_TRY(FindChunks(means));
  FOREBAY_TRY(Gather(means, batch));
  FOREBAY_TRY(LayOut(spec));
  const auto& fields = source_->schema().fields;
  tier::ArenaBlock slot;
  if (total_bytes_ > 0) {
    FOREBAY_ASSIGN(slot, means.slots.Allocate(total_bytes_));
  }
  slot_ = slot.bytes();
  for (std::uint32_t field = 0; field < fields.size(); ++field) {
    if (!fields[field].variable()) FOREBAY_TRY(FillField(field, means, batch));
  }
  batch.hold.slot = std::move(slot);
  Describe(spec, batch);
  return {};
}

// Of variable values nobody knows the size before they are decoded.
Status PackedGather::Gather(const Means& means, AssembledBatch& batch) {
  const auto& fields = source_->schema().fields;
  if (gathered_.is_complete) {
    batch.Count(gathered_.counted);
    return {};
  }
  gathered_.values.resize(fields.size());
  gathered_.bytes.clear();
  for (std::uint32_t field = 0; field < fields.size(); ++field) {
    gathered_.values[field].assign(fields[field].variable() ? row_count_ : 0, {});
    if (fields[field].variable()) FOREBAY_TRY(FillField(field, means, batch));
  }
  gathered_.counted = {};
  gathered_.counted.Count(batch);
  gathered_.is_complete = true;
  return {};
}

Status PackedGather::LayOut(const StreamSpec& spec) {
  const auto& fields = source_->schema().fields;
  begins_.assign(fields.size(), 0);
  row_bytes_.assign(fields.size(), 0);
  total_bytes_ = 0;
  for (std::size_t field = 0; field < fields.size(); ++field) {
    begins_[field] = total_bytes_ = AlignUp(total_bytes_, kRowAlignment);
    if (!fields[field].variable()) {
      FOREBAY_ASSIGN(row_bytes_[field], spec.catalog->fields()[field].BytesPerSample());
      if (row_bytes_[field] > limits::kSlotBytesMax / std::max<std::size_t>(row_count_, 1)) {
        total_bytes_ = limits::kSlotBytesMax + 1;
      } else {
        total_bytes_ += row_bytes_[field] * row_count_;
      }
    } else {
      for (const GatheredValue& value : gathered_.values[field]) {
        total_bytes_ += AlignUp(value.length, kPackAlignment);
      }
    }
    if (total_bytes_ > limits::kSlotBytesMax) {
      return Error(ErrorCode::kOutOfRange,
                   fmt::format("a batch of {} samples exceeds kSlotBytesMax ({} bytes)",
                               row_count_, limits::kSlotBytesMax));
    }
  }
  return {};
}

// All values of one field, unit by unit: fixed ones into the slot, variable ones into
// gathered_.
Status PackedGather::FillField(std::uint32_t field, const Means& means, AssembledBatch& batch) {
  const std::uint32_t end = field_units_[field + 1];
  std::uint32_t read_end = field_units_[field];
  for (std::uint32_t number = field_units_[field]; number < end; ++number) {
    if (number == read_end) FOREBAY_TRY(ReadAhead(number, end, means, batch, read_end));
    FOREBAY_TRY(FillUnit(units_[number], means, batch));
  }
  return {};
}

// Reads what lies on SSD of the units from `unit` on, as many as a wave takes, at least one; sets
// `read_end` behind them. A unit too large for a wave is read chunk by chunk when it is decoded.
Status PackedGather::ReadAhead(std::uint32_t unit, std::uint32_t end, const Means& means,
                               AssembledBatch& batch, std::uint32_t& read_end) {
  std::vector<PlacedChunk*> wave;
  std::uint64_t wave_bytes = 0;
  for (read_end = unit; read_end < end; ++read_end) {
    const Unit& next = units_[read_end];
    const std::span<PlacedChunk> chunks =
        std::span(chunks_).subspan(next.first_chunk, next.chunk_count);
    const std::uint64_t bytes = ChunkReader::SsdBytes(means, chunks);
    if (wave_bytes + bytes > limits::kDecodeReadBytesMax) {
      if (read_end == unit) ++read_end;
      break;
    }
    wave_bytes += bytes;
    for (PlacedChunk& chunk : chunks) wave.push_back(&chunk);
  }
  return reader_.ReadWave(means, wave, batch);
}

Status PackedGather::FillUnit(Unit& unit, const Means& means, AssembledBatch& batch) {
  const PackField& field = source_->schema().fields[unit.field];
  if (unit.decoded) {
    ++batch.decode.kept_units;
    batch.decode.kept_samples += unit.user_count;
    batch.ram_samples += unit.user_count;
  } else {
    const bool from_ssd =
        means.refs[chunks_[unit.first_chunk].extent_index]->tier == tier::TierKind::kSsd;
    (from_ssd ? batch.ssd_samples : batch.ram_samples) += unit.user_count;
    if (!field.variable()) {
      const std::uint64_t bytes = field.sample_bytes() * unit.samples.count;
      if (bytes > limits::kDecodedUnitBytesMax) return DecodeRows(unit, means, batch);
      unit.is_worth_keeping = decoded_.WouldKeep(unit.samples, bytes);
      if (!unit.is_worth_keeping && IsRun(unit)) return DecodeRows(unit, means, batch);
    }
    bool is_new = false;
    const auto decode = [&] {
      is_new = true;
      return DecodeUnit(unit, means, batch);
    };
    FOREBAY_ASSIGN(unit.decoded,
                   decoded_.Get(unit.key, unit.samples, decode, IndicesOf(unit)));
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

std::span<const PackedGather::User> PackedGather::UsersOf(const Unit& unit) const {
  return std::span(users_).subspan(unit.first_user, unit.user_count);
}

// Of the unit's samples that the batch takes.
std::span<const std::uint32_t> PackedGather::IndicesOf(const Unit& unit) {
  indices_.clear();
  for (const User& user : UsersOf(unit)) indices_.push_back(user.index);
  return indices_;
}

// Whether they are consecutive samples in consecutive rows.
bool PackedGather::IsRun(const Unit& unit) const {
  const std::span<const User> users = UsersOf(unit);
  return std::ranges::adjacent_find(users, [](const User& last, const User& next) {
           return next.row != last.row + 1 || next.index != last.index + 1;
         }) == users.end();
}

std::span<std::byte> PackedGather::RowOf(const Unit& unit, const User& user) const {
  const std::uint64_t bytes = row_bytes_[unit.field];
  return slot_.subspan(begins_[unit.field] + user.row * bytes, bytes);
}

// What the unit does not hold went straight to its place, which is a row.
void PackedGather::CopyRows(const Unit& unit) {
  for (const User& user : UsersOf(unit)) {
    const bool is_held = unit.decoded->Holds(user.index);
    CopyToRow(unit, user, is_held ? unit.decoded->Sample(user.index) : places_[user.index]);
  }
}

// A sample may stand in several rows, and lie in one of them.
void PackedGather::CopyToRow(const Unit& unit, const User& user,
                             std::span<const std::byte> value) const {
  const std::span<std::byte> row = RowOf(unit, user);
  FOREBAY_CHECK(value.size() == row.size());
  if (row.data() != value.data()) std::memcpy(row.data(), value.data(), row.size());
}

// The samples that the batch takes straight into their rows, and nothing else anywhere.
Status PackedGather::DecodeRows(Unit& unit, const Means& means, AssembledBatch& batch) {
  const std::span<const User> users = UsersOf(unit);
  places_.assign(unit.samples.count, {});
  std::uint32_t end = 0;
  for (const User& user : users) {
    places_[user.index] = RowOf(unit, user);
    end = std::max(end, user.index + 1);
  }
  for (std::uint32_t i = 0; i < unit.chunk_count; ++i) {
    PlacedChunk& chunk = chunks_[unit.first_chunk + i];
    const PackContext pack{.schema = source_->schema(), .identity = chunk.at.identity};
    FOREBAY_ASSIGN(const ChunkRecord record, reader_.RecordOf(pack, means, chunk, batch));
    const std::uint64_t begun_ns = NowNs();
    const Status decoded =
        compress::DecodeSamples(pack, chunk.at.entry, record, places_, ScratchFor(chunk));
    if (!decoded.has_value()) {
      reader_.BlameTier(means, chunk);
      return decoded;
    }
    batch.decode.ns += NowNs() - begun_ns;
  }
  for (const User& user : users) CopyToRow(unit, user, places_[user.index]);
  batch.decode.chunks += unit.chunk_count;
  batch.decode.bytes += end * row_bytes_[unit.field];  // frames before have to be decoded
  return {};
}

// Makes memory for a unit of samples of one size, and says in places_ where each is decoded to.
// Those that the batch takes go straight to their rows and are left out, unless someone needs them
// again before they would have to make room.
void PackedGather::PlaceSamples(const Unit& unit, const ChunkRecord& record, DecodedUnit& decoded) {
  const std::uint64_t bytes = row_bytes_[unit.field];
  places_.assign(decoded.samples, {});
  if (unit.chunk_count == 1 && bytes >= kLeftOutBytesMin &&
      compress::DecodesToPlaces(record.head.codec)) {
    fetch::UnitSamples one = unit.samples;
    one.count = 1;
    for (const User& user : UsersOf(unit)) {
      one.first = unit.samples.first + user.index;
      if (!places_[user.index].empty()) continue;
      if (unit.is_worth_keeping && decoded_.WouldLast(one)) continue;
      places_[user.index] = RowOf(unit, user);
      ++decoded.left_out;
    }
  }
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
Status PackedGather::PlaceValues(const Unit& unit, const compress::ChunkEntry& entry,
                                 const ChunkRecord& record, DecodedUnit& decoded) const {
  const std::uint64_t bytes =
      entry.sample_bytes != 0 ? entry.sample_bytes : record.head.raw_bytes;
  if (bytes > limits::kSlotBytesMax) {
    return Error(ErrorCode::kOutOfRange,
                 fmt::format("sample {} of field '{}' has {} bytes, more than kSlotBytesMax ({})",
                             unit.samples.first, source_->schema().fields[unit.field].name, bytes,
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

Result<DecodedUnit> PackedGather::DecodeUnit(Unit& unit, const Means& means,
                                             AssembledBatch& batch) {
  const PackField& field = source_->schema().fields[unit.field];
  DecodedUnit decoded;
  UnitCheck check;
  decoded.samples = unit.samples.count;
  for (std::uint32_t i = 0; i < unit.chunk_count; ++i) {
    PlacedChunk& chunk = chunks_[unit.first_chunk + i];
    const compress::ChunkEntry& entry = chunk.at.entry;
    const PackContext pack{.schema = source_->schema(), .identity = chunk.at.identity};
    FOREBAY_ASSIGN(const ChunkRecord record, reader_.RecordOf(pack, means, chunk, batch));
    if (i == 0 && !field.variable()) PlaceSamples(unit, record, decoded);
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
      reader_.BlameTier(means, chunk);
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
  std::move(check).GiveTo(decoded);
  batch.decode.chunks += unit.chunk_count;
  batch.decode.bytes += field.variable() ? decoded.bytes.size()
                                         : decoded.samples * row_bytes_[unit.field];
  return decoded;
}

// Copies the values of a variable field aside, until all lengths are known.
Status PackedGather::TakeValues(const Unit& unit, const DecodedUnit& decoded) {
  for (std::uint32_t i = 0; i < unit.user_count; ++i) {
    const User& user = users_[unit.first_user + i];
    const std::span<const std::byte> value = decoded.Sample(user.index);
    if (value.size() > limits::kSlotBytesMax - gathered_.bytes.size()) {
      return Error(ErrorCode::kOutOfRange,
                   fmt::format("a batch of {} samples exceeds kSlotBytesMax ({} bytes)",
                               row_count_, limits::kSlotBytesMax));
    }
    gathered_.values[unit.field][user.row] = {.offset = gathered_.bytes.size(),
                                              .length = value.size()};
    gathered_.bytes.insert(gathered_.bytes.end(), value.begin(), value.end());
  }
  return {};
}

std::span<std::byte> PackedGather::ScratchFor(const PlacedChunk& chunk) {
  const std::size_t bytes = compress::RecordScratchBytes(source_->schema(), chunk.at.entry);
  if (scratch_.size() < bytes) {
    scratch_ = fetch::RawBytes();
    scratch_ = fetch::RawBytes(bytes);
  }
  return scratch_.span();
}

// What the reader is told: a tensor per fixed field, a span per sample of the others and, where
// it asked for views, of all.
void PackedGather::Describe(const StreamSpec& spec, AssembledBatch& batch) const {
  const bool views = spec.delivery == Delivery::kViews && !spec.inline_payload;
  const tier::ArenaBlock& slot = batch.hold.slot;
  const std::uint32_t region =
      spec.inline_payload || !slot.valid() ? kInlineRegion : slot.region().value();
  const std::uint64_t base = spec.inline_payload || !slot.valid() ? 0 : slot.region_offset();
  const auto& fields = source_->schema().fields;
  batch.fields.resize(fields.size());
  for (std::size_t field = 0; field < fields.size(); ++field) {
    AssembledField& out = batch.fields[field];
    std::uint64_t cursor = begins_[field];
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
    const std::uint64_t row_bytes = row_bytes_[field];
    batch.payload_bytes += row_bytes * row_count_;
    if (!views) {
      out.is_tensor = true;
      out.tensor = {.region = region, .reserved = 0, .offset = base + cursor,
                    .length = row_bytes * row_count_};
      continue;
    }
    for (std::size_t row = 0; row < row_count_; ++row) {
      out.spans.push_back({.region = region, .reserved = 0,
                           .offset = base + cursor + row * row_bytes, .length = row_bytes});
    }
  }
}

}  // namespace forebay::stream

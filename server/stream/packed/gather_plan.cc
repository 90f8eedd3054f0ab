// A plan goes from samples to units, and from units to chunks. PlanUnits asks the source for the
// unit of each value and groups the values by unit, with a counting sort; FindDecoded looks up
// which units are decoded already; FindElsewhere chooses those whose samples come from other nodes
// as rows, or whose chunks do; and PlanChunks lists the chunks and extents of all but those that
// come as rows. Nothing is read before FindChunks. Vectors are cleared and not freed, because a
// plan is made for every batch.
#include "server/stream/packed/gather_plan.h"

#include <algorithm>
#include <utility>

#include "proto/contract/limits.h"
#include "server/stream/stream_spec.h"

namespace forebay::stream {

void GatherPlan::Make(const StreamSpec& spec, const WantedBatch& wanted,
                      fetch::DecodedCache& decoded) {
  // The source borrows the stream's spec, and the plans of one object may be for different streams.
  source_ = fetch::UnitSource::Of(*spec.catalog, spec.form.get());
  row_count_ = wanted.batch.samples.size();
  PlanUnits(spec, wanted);
  FindDecoded(decoded);
  FindElsewhere(spec, wanted, decoded);
  PlanChunks(spec, wanted);
}

void GatherPlan::Forget() {
  // A reference would keep the unit in memory after the cache has evicted it.
  for (GatherUnit& unit : units_) unit.decoded.reset();
}

// Values in order of field and, within a field, of the unit that was met first.
void GatherPlan::PlanUnits(const StreamSpec& spec, const WantedBatch& wanted) {
  const std::span<const std::uint64_t> samples = wanted.batch.samples;
  const BatchSlot* const slot = wanted.packed.open.own.get();  // null: not shared
  units_.clear();
  unsorted_.clear();
  unit_index_.clear();
  field_units_.assign(1, 0);
  const auto fields = static_cast<std::uint32_t>(source_->schema().fields.size());
  for (std::uint32_t field = 0; field < fields; ++field) {
    for (std::uint32_t row = 0; row < samples.size(); ++row) {
      const fetch::UnitPlace place = source_->UnitOf(field, SampleId(samples[row]));
      // In an order of blocks, a batch takes several samples of most of its units.
      const auto [entry, inserted] = unit_index_.try_emplace(
          place.number, static_cast<std::uint32_t>(units_.size()));
      if (inserted) {
        GatherUnit unit;
        unit.field = field;
        unit.place = place;
        unit.key = {spec.dataset->key(place.extent), place.piece, spec.dataset->number()};
        unit.samples = {.dataset = spec.dataset->hash(), .first = place.first_sample,
                        .count = place.sample_count, .epoch = wanted.batch.name.epoch,
                        .after = wanted.batch.end_position()};
        units_.push_back(std::move(unit));
      }
      GatherUnit& unit = units_[entry->second];
      // Another batch has decoded this sample into the row. It is counted, and wants nothing more.
      if (slot != nullptr && slot->IsFilled(field, row)) {
        ++unit.filled_users;
        continue;
      }
      ++unit.user_count;
      unsorted_.push_back({.unit = entry->second, .row = row,
                           .index = static_cast<std::uint32_t>(samples[row] -
                                                               unit.samples.first)});
    }
    field_units_.push_back(static_cast<std::uint32_t>(units_.size()));
  }
  SortUsers();
}

void GatherPlan::SortUsers() {
  std::uint32_t next = 0;
  for (GatherUnit& unit : units_) {
    unit.first_user = next;
    // The counts are reset here and grow again below, as the next free place of each unit.
    next += std::exchange(unit.user_count, 0);
  }
  users_.resize(unsorted_.size());
  for (const GatherUser& user : unsorted_) {
    GatherUnit& unit = units_[user.unit];
    users_[unit.first_user + unit.user_count++] = user;
  }
}

void GatherPlan::FindDecoded(fetch::DecodedCache& decoded) {
  for (GatherUnit& unit : units_) {
    if (unit.user_count == 0) continue;
    // The unit may be kept without some of its samples. It is of use only if it holds all that the
    // batch takes.
    unit.decoded = decoded.Find(unit.key, IndicesOf(unit));
  }
}

// Chooses for each extent of another node whether it is copied here or its samples come as rows or
// in chunks. An extent that must be copied for one unit serves all others.
void GatherPlan::FindElsewhere(const StreamSpec& spec, const WantedBatch& wanted,
                               fetch::DecodedCache& decoded) {
  elsewhere_.clear();
  if (wanted.packed.others.fetcher == nullptr) return;
  const plan::ReadingShape reading = {.order = spec.order.ShapeOf(wanted.batch.name.epoch),
                                      .sample_count = spec.plan.sample_count(),
                                      .ranks = spec.plan.ranks(),
                                      .nodes = wanted.packed.others.fetcher->node_count()};
  std::vector<std::pair<GatherUnit*, ExtentId>> units;
  for (GatherUnit& unit : units_) {
    // A batch that must not depend on what is kept takes these samples, too.
    if (unit.user_count == 0 || (unit.decoded && !wanted.packed.all_extents)) continue;
    const std::optional<ExtentId> extent = ElsewhereOf(spec, wanted.packed.others, unit);
    if (!extent) continue;
    // Several units of a batch may lie in one extent, so they are weighed together: also those
    // whose chunks have come, or the choice for the others would be another one than before.
    Weigh(unit, wanted.packed.others, reading, decoded, *elsewhere_.at(*extent));
    units.emplace_back(&unit, *extent);
  }
  for (auto& [extent, found] : elsewhere_) {
    if (!found || found->is_copied || found->samples == 0) continue;
    found->is_copied = plan::IsCopied(
        {.samples = {.stored = spec.catalog->extent(extent).sample_count,
                     .of_batch = found->samples},
         .stored_bytes = spec.dataset->ExpectedStoredBytes(extent),
         .row_bytes = found->row_bytes,
         .chunk_bytes = found->chunk_bytes,
         .chunks_are_kept = found->chunks_are_kept},
        reading);
  }
  // Decided for all extents first, because a unit may be met before one that has its extent copied.
  for (const auto& [unit, extent] : units) {
    if (elsewhere_.at(extent)->is_copied) {
      unit->has_sent_chunks = false;
    } else if (!unit->has_sent_chunks) {
      unit->is_elsewhere = true;
      unit->group_key = spec.dataset->group_key(extent);
      unit->decoded.reset();
    }
  }
}

// Chooses between the rows of a unit and its chunks, and adds what that costs to the extent.
void GatherPlan::Weigh(GatherUnit& unit, const OtherNodes& others,
                       const plan::ReadingShape& reading, fetch::DecodedCache& decoded,
                       ExtentElsewhere& found) {
  const compress::PackField& field = schema().fields[unit.field];
  // Units are sorted by field. Each field of a sample may lie in a unit of its own.
  found.field_samples = found.field == unit.field ? found.field_samples : 0;
  found.field = unit.field;
  found.field_samples += unit.user_count;
  found.samples = std::max(found.samples, found.field_samples);
  const bool takes_runs = plan::TakesRuns(reading);
  // Chunks that have come are used, whatever would be chosen now.
  const bool has_come = HasCome(others, unit);
  // Where chunks lie in an extent that was compressed at staging, only its directory says. For
  // orders without runs, owners decode what has a fixed size.
  const bool may_send = has_come || (others.are_chunks_asked && !IsMadeHere() &&
                                     (takes_runs || field.variable()));
  const std::uint64_t chunk_bytes = may_send ? BytesToSend(unit) : 0;
  const std::uint64_t row_bytes = field.variable() ? 0 : field.sample_bytes();
  const std::uint64_t decoded_bytes = may_send ? DecodedBytesMax(unit) : 0;
  const bool is_kept = may_send && takes_runs && decoded_bytes <= limits::kDecodedUnitBytesMax &&
                       decoded.WouldKeep(unit.samples, decoded_bytes);
  if (field.variable()) {
    // No row can be asked for, so it is the chunk or the extent.
    unit.has_sent_chunks = may_send;
    found.is_copied = found.is_copied || !may_send;
  } else {
    unit.has_sent_chunks =
        has_come ||
        (may_send && plan::IsSentAsChunk({.samples = {.stored = unit.samples.count,
                                                      .of_batch = unit.user_count},
                                          .row_bytes = row_bytes,
                                          .chunk_bytes = chunk_bytes,
                                          .is_kept = is_kept},
                                         reading));
  }
  if (unit.has_sent_chunks) {
    found.chunk_bytes += chunk_bytes;
    found.chunks_are_kept = found.chunks_are_kept && is_kept;
  } else {
    found.row_bytes += unit.user_count * row_bytes;
  }
}

bool GatherPlan::IsElsewhere(const StreamSpec& spec, const OtherNodes& others, ExtentId extent) {
  const auto [entry, inserted] = elsewhere_.try_emplace(extent);
  if (inserted && others.fetcher->IsElsewhere(*spec.dataset, extent)) entry->second.emplace();
  return entry->second.has_value();
}

// Looks up all extents of the unit. Returns the first that is not on this node: its owner is asked
// for the rows, and copies the others if they are not its own.
std::optional<ExtentId> GatherPlan::ElsewhereOf(const StreamSpec& spec, const OtherNodes& others,
                                                const GatherUnit& unit) {
  std::optional<ExtentId> first;
  for (std::uint32_t i = 0; i < unit.place.chunk_count; ++i) {
    const ExtentId extent = source_->ExtentOf(unit.place, i);
    if (IsElsewhere(spec, others, extent) && !first) first = extent;
  }
  return first;
}

// Whether the extent, which was looked up, is not on this node.
bool GatherPlan::IsAway(ExtentId extent) const {
  const auto found = elsewhere_.find(extent);
  return found != elsewhere_.end() && found->second.has_value();
}

// The bytes of those chunks of the unit that are not on this node.
std::uint64_t GatherPlan::BytesToSend(const GatherUnit& unit) const {
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < unit.place.chunk_count; ++i) {
    if (!IsAway(source_->ExtentOf(unit.place, i))) continue;
    bytes += source_->ChunkOf(unit.place, i)->bytes();  // not null: packs have a table
  }
  return bytes;
}

// How long a value of variable size is says only the head of its chunk, unless it is cut into
// parts. So the longest chunk stands for it: a smaller estimate would count on a cache that does
// not keep it.
std::uint64_t GatherPlan::DecodedBytesMax(const GatherUnit& unit) const {
  const compress::PackField& field = schema().fields[unit.field];
  if (!field.variable()) return field.sample_bytes() * unit.samples.count;
  // ChunkOf is never null here, because chunks travel for packs only, which have a table.
  const std::uint64_t of_parts = source_->ChunkOf(unit.place, 0)->entry.sample_bytes;
  return of_parts > 0 ? of_parts : limits::kChunkBytesMax;
}

// Whether chunk `index` of the unit, which lies in this extent, is asked of another node.
bool GatherPlan::IsSent(const GatherUnit& unit, ExtentId extent) const {
  return unit.has_sent_chunks && IsAway(extent) && !elsewhere_.at(extent)->is_copied;
}

// Returns chunk `index` of the unit if another node has sent it, else null.
fetch::SentChunk GatherPlan::SentOf(const OtherNodes& others, const GatherUnit& unit,
                                    std::uint32_t index) {
  if (others.chunks == nullptr) return nullptr;
  const auto sent = others.chunks->find(unit.place.number + index);
  return sent == others.chunks->end() ? nullptr : sent->second;
}

// Whether other nodes have sent all chunks of the unit that are not on this node.
bool GatherPlan::HasCome(const OtherNodes& others, const GatherUnit& unit) const {
  for (std::uint32_t i = 0; i < unit.place.chunk_count; ++i) {
    const bool is_away = IsAway(source_->ExtentOf(unit.place, i));
    if (is_away && SentOf(others, unit, i) == nullptr) return false;
  }
  return true;
}

void GatherPlan::PlanChunks(const StreamSpec& spec, const WantedBatch& wanted) {
  chunks_.clear();
  extents_.clear();
  extent_index_.clear();
  missing_.clear();
  for (GatherUnit& unit : units_) {
    if (unit.user_count == 0 || unit.is_elsewhere) continue;
    // A decoded unit needs no extent. A batch that has waited once already asks for the extents all
    // the same, because the unit may be evicted while the batch waits again.
    if (unit.decoded && !wanted.packed.all_extents) continue;
    unit.first_chunk = static_cast<std::uint32_t>(chunks_.size());
    unit.chunk_count = unit.place.chunk_count;
    for (std::uint32_t i = 0; i < unit.chunk_count; ++i) {
      PlanChunk(spec, wanted.packed.others, unit, i);
    }
  }
}

// Chunk `index` of the unit has come from another node, is asked of one, or is read from its
// extent.
void GatherPlan::PlanChunk(const StreamSpec& spec, const OtherNodes& others,
                           GatherUnit& unit, std::uint32_t index) {
  const ExtentId extent = source_->ExtentOf(unit.place, index);
  const fetch::SentChunk sent = SentOf(others, unit, index);
  if (sent != nullptr || IsSent(unit, extent)) {
    // Only packs are sent in chunks, and their table answers without a directory.
    const catalog::PackChunk at = *source_->ChunkOf(unit.place, index);
    chunks_.push_back({.at = at, .extent_index = fetch::PlacedChunk::kSent});
    if (sent != nullptr) {
      chunks_.back().record = sent->span();
      unit.is_from_others = unit.is_from_others || (!unit.decoded && !sent->is_own());
      return;
    }
    missing_.push_back({.number = unit.place.number + index,
                        .bytes = at.bytes(),
                        .group_key = spec.dataset->group_key(extent),
                        .row = {.sample = SampleId(unit.samples.first),
                                .field = FieldId(unit.field),
                                .memory = {},
                                .chunk = index + 1}});
    return;
  }
  const auto [entry, inserted] = extent_index_.try_emplace(
      extent, static_cast<std::uint32_t>(extents_.size()));
  // Units share extents; each is listed, and pinned, once.
  if (inserted) extents_.push_back(extent);
  chunks_.push_back({.at = {}, .extent_index = entry->second});
}

Status GatherPlan::FindChunks(const fetch::ReadMeans& means) {
  std::vector<fetch::WantedChunk> wanted;
  wanted.reserve(chunks_.size());
  for (const GatherUnit& unit : units_) {
    for (std::uint32_t i = 0; i < unit.chunk_count; ++i) {
      fetch::PlacedChunk& chunk = chunks_[unit.first_chunk + i];
      if (chunk.is_sent()) continue;
      wanted.push_back({.unit = unit.place, .index = i, .extent_index = chunk.extent_index,
                        .at = &chunk.at});
    }
  }
  return finder_.Find(*source_, means.refs, means.queue, wanted, means.bad);
}

std::span<GatherUnit> GatherPlan::UnitsOf(std::uint32_t field) {
  return std::span(units_).subspan(field_units_[field],
                                   field_units_[field + 1] - field_units_[field]);
}

std::span<fetch::PlacedChunk> GatherPlan::ChunksOf(const GatherUnit& unit) {
  return std::span(chunks_).subspan(unit.first_chunk, unit.chunk_count);
}

std::span<const GatherUser> GatherPlan::UsersOf(const GatherUnit& unit) const {
  return std::span(users_).subspan(unit.first_user, unit.user_count);
}

// Of the unit's samples that the batch takes.
std::span<const std::uint32_t> GatherPlan::IndicesOf(const GatherUnit& unit) {
  indices_.clear();
  for (const GatherUser& user : UsersOf(unit)) indices_.push_back(user.index);
  return indices_;
}

// Whether they are consecutive samples in consecutive rows.
bool GatherPlan::IsRun(const GatherUnit& unit) const {
  const std::span<const GatherUser> users = UsersOf(unit);
  return std::ranges::adjacent_find(users, [](const GatherUser& last, const GatherUser& next) {
           return next.row != last.row + 1 || next.index != last.index + 1;
         }) == users.end();
}

}  // namespace forebay::stream

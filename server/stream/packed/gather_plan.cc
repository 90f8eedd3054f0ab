// A plan goes from samples to units, and from units to chunks. PlanUnits asks the source for the
// unit of each value and groups the values by unit, with a counting sort; FindDecoded looks up
// which units are decoded already; FindElsewhere chooses those whose samples come from other nodes
// as rows; and PlanChunks lists the chunks and extents of the others. Nothing is read before
// FindChunks. Vectors are cleared and not freed, because a plan is made for every batch.
#include "server/stream/packed/gather_plan.h"

#include <algorithm>
#include <utility>

#include "server/plan/row_choice.h"
#include "server/stream/stream_spec.h"

namespace forebay::stream {

void GatherPlan::Make(const StreamSpec& spec, const GatherWanted& wanted,
                      fetch::DecodedCache& decoded) {
  // The source borrows the stream's spec, and the plans of one object may be for different streams.
  source_ = fetch::UnitSource::Of(*spec.catalog, spec.form.get());
  row_count_ = wanted.samples.size();
  PlanUnits(spec, wanted);
  FindDecoded(decoded);
  if (wanted.others != nullptr) FindElsewhere(spec, wanted);
  PlanChunks(wanted.all_extents);
}

void GatherPlan::Forget() {
  // A reference would keep the unit in memory after the cache has evicted it.
  for (GatherUnit& unit : units_) unit.decoded.reset();
}

// Values in order of field and, within a field, of the unit that was met first.
void GatherPlan::PlanUnits(const StreamSpec& spec, const GatherWanted& wanted) {
  const std::span<const std::uint64_t> samples = wanted.samples;
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
                        .count = place.sample_count, .epoch = wanted.epoch,
                        .after = wanted.end_position};
        units_.push_back(std::move(unit));
      }
      GatherUnit& unit = units_[entry->second];
      // Another batch has decoded this sample into the row. It is counted, and wants nothing more.
      if (wanted.slot != nullptr && wanted.slot->IsFilled(field, row)) {
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

// Chooses for each extent of another node whether it is copied here or its samples come as rows. An
// extent that must be copied for one unit serves all others.
void GatherPlan::FindElsewhere(const StreamSpec& spec, const GatherWanted& wanted) {
  elsewhere_.clear();
  std::vector<std::pair<GatherUnit*, ExtentId>> units;
  for (GatherUnit& unit : units_) {
    // A batch that must not depend on what is kept takes these rows, too.
    if (unit.user_count == 0 || (unit.decoded && !wanted.all_extents)) continue;
    const std::optional<ExtentId> extent = ElsewhereOf(spec, *wanted.others, unit);
    if (!extent) continue;
    ExtentElsewhere& found = *elsewhere_.at(*extent);
    // Only a decoder learns how long such a value is, so this node has to decode it.
    if (schema().fields[unit.field].variable()) {
      found.is_copied = true;
      continue;
    }
    // Several units of a batch may lie in one extent, so they are weighed together.
    found.batch_bytes += unit.user_count * schema().fields[unit.field].sample_bytes();
    units.emplace_back(&unit, *extent);
  }
  for (auto& [extent, found] : elsewhere_) {
    if (!found || found->is_copied) continue;
    found->is_copied = IsCopied(spec, *wanted.others, wanted.epoch, extent, found->batch_bytes);
  }
  // Decided for all extents first, because a unit may be met before one that has its extent copied.
  for (const auto& [unit, extent] : units) {
    if (elsewhere_.at(extent)->is_copied) continue;
    unit->is_elsewhere = true;
    unit->group_key = spec.dataset->group_key(extent);
    unit->decoded.reset();
  }
}

// Returns the first extent of the unit that is not on this node. Its owner is asked for the rows,
// and copies the others if they are not its own.
std::optional<ExtentId> GatherPlan::ElsewhereOf(const StreamSpec& spec,
                                                const fetch::Fetcher& others,
                                                const GatherUnit& unit) {
  for (std::uint32_t i = 0; i < unit.place.chunk_count; ++i) {
    const ExtentId extent = source_->ExtentOf(unit.place, i);
    const auto [entry, inserted] = elsewhere_.try_emplace(extent);
    if (inserted && others.IsElsewhere(*spec.dataset, extent)) entry->second.emplace();
    if (entry->second) return extent;
  }
  return std::nullopt;
}

bool GatherPlan::IsCopied(const StreamSpec& spec, const fetch::Fetcher& others, EpochId epoch,
                          ExtentId extent, std::uint64_t batch_bytes) {
  const catalog::ExtentInfo info = spec.catalog->extent(extent);
  std::uint64_t decoded_bytes = info.bytes;
  // The catalog of packs knows the compressed bytes only. An extent is taken to have the ratio of
  // the whole set, of which fields of variable size, whose extents are copied anyway, are no part.
  if (!spec.form) {
    double ratio = 0;
    for (const compress::PackField& field : spec.catalog->packs()->schema().fields) {
      if (!field.variable()) ratio += static_cast<double>(field.sample_bytes());
    }
    ratio *= static_cast<double>(spec.catalog->sample_count()) /
             static_cast<double>(spec.catalog->total_bytes());
    decoded_bytes = static_cast<std::uint64_t>(static_cast<double>(info.bytes) * ratio);
  }
  return !plan::TravelsAsRows({.stored_bytes = spec.dataset->ExpectedStoredBytes(extent),
                               .decoded_bytes = decoded_bytes,
                               .sample_count = info.sample_count,
                               .batch_bytes = batch_bytes},
                              {.order = spec.order.ShapeOf(epoch),
                               .sample_count = spec.plan.sample_count(),
                               .ranks = spec.plan.ranks(),
                               .nodes = others.node_count()});
}

void GatherPlan::PlanChunks(bool all_extents) {
  chunks_.clear();
  extents_.clear();
  extent_index_.clear();
  for (GatherUnit& unit : units_) {
    if (unit.user_count == 0 || unit.is_elsewhere) continue;
    // A decoded unit needs no extent. A batch that has waited once already asks for the extents all
    // the same, because the unit may be evicted while the batch waits again.
    if (unit.decoded && !all_extents) continue;
    unit.first_chunk = static_cast<std::uint32_t>(chunks_.size());
    unit.chunk_count = unit.place.chunk_count;
    for (std::uint32_t i = 0; i < unit.chunk_count; ++i) {
      const ExtentId extent = source_->ExtentOf(unit.place, i);
      const auto [entry, inserted] = extent_index_.try_emplace(
          extent, static_cast<std::uint32_t>(extents_.size()));
      // Units share extents; each is listed, and pinned, once.
      if (inserted) extents_.push_back(extent);
      chunks_.push_back({.at = {}, .extent_index = entry->second});
    }
  }
}

Status GatherPlan::FindChunks(const fetch::ReadMeans& means) {
  std::vector<fetch::WantedChunk> wanted;
  wanted.reserve(chunks_.size());
  for (const GatherUnit& unit : units_) {
    for (std::uint32_t i = 0; i < unit.chunk_count; ++i) {
      fetch::PlacedChunk& chunk = chunks_[unit.first_chunk + i];
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

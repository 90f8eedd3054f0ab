// GatherPlan: which units a batch of a packed data set needs, who takes which sample of them, and
// where the chunks lie that are not decoded yet. In a job of several nodes, also how samples of
// other nodes come here (plan/row_choice.h).
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "compress/format/pack/pack_format.h"
#include "proto/contract/result.h"
#include "server/fetch/decoded_cache.h"
#include "server/fetch/fetcher.h"
#include "server/fetch/packed/chunk_finder.h"
#include "server/fetch/packed/chunk_reader.h"
#include "server/fetch/packed/remote_chunks.h"
#include "server/fetch/packed/unit_source.h"
#include "server/plan/row_choice.h"
#include "server/stream/gatherer.h"
#include "server/stream/packed/slot_board.h"
#include "server/stream/stream_spec.h"

namespace forebay::stream {

// A run of samples of one field: what is decoded at once.
struct GatherUnit {
  std::uint32_t field = 0;
  fetch::UnitPlace place;
  fetch::UnitKey key;
  fetch::UnitSamples samples;  // the data set's numbers
  fetch::UnitRef decoded;      // where it is decoded already
  std::uint32_t first_user = 0, user_count = 0;
  std::uint32_t filled_users = 0;  // beside them, rows that need nothing any more
  std::uint32_t first_chunk = 0, chunk_count = 0;  // unless decoded
  bool is_worth_keeping = false;
  // Another node supplies the rows: the one that is first for the group with this key. The unit has
  // no chunks then.
  bool is_elsewhere = false;
  std::uint64_t group_key = 0;
  // Set if other nodes send the chunks of the unit that are not on this node.
  bool has_sent_chunks = false;
  // Some have come from nodes that had them, and the unit is not decoded yet.
  bool is_from_others = false;
};

// A value of the batch: sample `index` of a unit is row `row`.
struct GatherUser {
  std::uint32_t unit = 0, row = 0, index = 0;
};

// A batch of a packed data set, and how it is planned. Both are borrowed.
struct WantedBatch {
  const BatchPlan& batch;
  const PackedPlan& packed;
};

// Keeps its memory between batches. Not thread-safe.
class GatherPlan {
 public:
  // Finds the units, and takes those that are decoded already; extents() then lists, each once,
  // where the chunks of the others lie, and missing_chunks() those that other nodes have to send.
  void Make(const StreamSpec& spec, const WantedBatch& wanted, fetch::DecodedCache& decoded);
  // Lets go of decoded units.
  void Forget();
  // Where in their extents the chunks lie. kDataLoss, with `bad`, where a directory is wrong.
  Status FindChunks(const fetch::ReadMeans& means);

  const compress::PackSchema& schema() const { return source_->schema(); }
  bool IsMadeHere() const { return source_->IsMadeHere(); }
  std::size_t row_count() const { return row_count_; }
  std::span<const ExtentId> extents() const { return extents_; }
  std::span<const fetch::WantedRemote> missing_chunks() const { return missing_; }

  std::span<const GatherUnit> units() const { return units_; }
  // Of a field: the unit that was met first comes first.
  std::span<GatherUnit> UnitsOf(std::uint32_t field);
  std::span<fetch::PlacedChunk> ChunksOf(const GatherUnit& unit);
  std::span<const GatherUser> UsersOf(const GatherUnit& unit) const;
  // Keeps only users for whom `wants(user)`: the others are filled.
  template <std::predicate<const GatherUser&> Predicate>
  void KeepUsers(GatherUnit& unit, const Predicate& wants) {
    const auto users = std::span(users_).subspan(unit.first_user, unit.user_count);
    const auto end = std::remove_if(users.begin(), users.end(), std::not_fn(wants));
    const auto kept = static_cast<std::uint32_t>(end - users.begin());
    unit.filled_users += unit.user_count - kept;
    unit.user_count = kept;
  }
  // Of the unit's samples that the batch takes; until the next call.
  std::span<const std::uint32_t> IndicesOf(const GatherUnit& unit);
  // Whether the batch takes consecutive samples in consecutive rows.
  bool IsRun(const GatherUnit& unit) const;

 private:
  void PlanUnits(const StreamSpec& spec, const WantedBatch& wanted);
  void SortUsers();
  void FindDecoded(fetch::DecodedCache& decoded);
  void FindElsewhere(const StreamSpec& spec, const WantedBatch& wanted,
                     fetch::DecodedCache& decoded);
  void PlanChunks(const StreamSpec& spec, const WantedBatch& wanted);
  void PlanChunk(const StreamSpec& spec, const OtherNodes& others, GatherUnit& unit,
                 std::uint32_t index);
  // An extent that no tier of this node has, while it is decided how its samples come here.
  struct ExtentElsewhere {
    // Bytes that the batch takes of the extent as rows, and as chunks.
    std::uint64_t row_bytes = 0, chunk_bytes = 0;
    bool chunks_are_kept = true;
    // Its samples, in the field that has most of them, and in the field that was met last.
    std::uint64_t samples = 0, field_samples = 0;
    std::uint32_t field = 0;
    bool is_copied = false;
  };
  bool IsElsewhere(const StreamSpec& spec, const OtherNodes& others, ExtentId extent);
  std::optional<ExtentId> ElsewhereOf(const StreamSpec& spec, const OtherNodes& others,
                                      const GatherUnit& unit);
  void Weigh(GatherUnit& unit, const OtherNodes& others, const plan::ReadingShape& reading,
             fetch::DecodedCache& decoded, ExtentElsewhere& found);
  bool IsAway(ExtentId extent) const;
  std::uint64_t BytesToSend(const GatherUnit& unit) const;
  std::uint64_t DecodedBytesMax(const GatherUnit& unit) const;
  bool IsSent(const GatherUnit& unit, ExtentId extent) const;
  static fetch::SentChunk SentOf(const OtherNodes& others, const GatherUnit& unit,
                                 std::uint32_t index);
  bool HasCome(const OtherNodes& others, const GatherUnit& unit) const;

  std::unique_ptr<fetch::UnitSource> source_;
  fetch::ChunkFinder finder_;
  std::size_t row_count_ = 0;
  std::vector<GatherUnit> units_;           // by field
  std::vector<std::uint32_t> field_units_;  // field -> first unit; one more at the end
  std::vector<GatherUser> users_;           // by unit
  std::vector<GatherUser> unsorted_;
  std::vector<fetch::PlacedChunk> chunks_;
  std::vector<ExtentId> extents_;
  std::vector<fetch::WantedRemote> missing_;
  std::unordered_map<std::uint64_t, std::uint32_t> unit_index_;  // first chunk -> unit
  std::unordered_map<ExtentId, std::uint32_t, IdHash> extent_index_;
  std::vector<std::uint32_t> indices_;
  // The extents of the plan that were looked up. So each is looked up once.
  std::unordered_map<ExtentId, std::optional<ExtentElsewhere>, IdHash> elsewhere_;
};

}  // namespace forebay::stream

// PackedGather: puts a batch of a packed data set together. Chunks are read from where their
// extents lie and decoded: samples that no one will need again soon straight into the slot, others
// to memory that is kept, from where this batch and later ones copy them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compress/decode/chunk_record.h"
#include "proto/contract/result.h"
#include "server/fetch/decoded_cache.h"
#include "server/stream/assembled_batch.h"
#include "server/stream/chunk_reader.h"
#include "server/stream/chunk_finder.h"

namespace forebay::stream {

// Where a row's value of a variable field lies in GatheredValues::bytes.
struct GatheredValue {
  std::uint64_t offset = 0, length = 0;
};

// The variable values of a batch that found no slot: known by then, and not decoded again when it
// is tried again.
struct GatheredValues {
  std::vector<std::vector<GatheredValue>> values;  // [field][row]; of fixed fields empty
  std::vector<std::byte> bytes;
  AssembledBatch counted;     // what they took, and nothing else
  bool is_complete = false;
};

// One batch at a time; keeps its buffers between batches: what one wave of SSD reads takes
// (limits::kDecodeReadBytesMax), twice, one decoder's scratch, and the variable values of a batch.
// Not thread-safe.
class PackedGather {
 public:
  explicit PackedGather(fetch::DecodedCache& decoded) : decoded_(decoded) {}

  // Finds the units that the samples need, and takes those that are decoded already; extents()
  // then lists, each once, where the chunks of the others lie.
  // With `all_extents` that of the decoded ones too, for who must not depend on what is kept.
  struct Wanted {
    std::span<const std::uint64_t> samples;
    EpochId epoch;
    std::uint64_t end_position = 0;  // behind the batch
    bool all_extents = false;
  };
  Status Plan(const StreamSpec& spec, const Wanted& wanted);
  // Lets go of decoded units that the plan took.
  void Forget();
  std::span<const ExtentId> extents() const { return extents_; }

  // What Fill has decoded of variable fields, after it found no slot memory, and what it then
  // takes instead of decoding it, for the batch with the same rows.
  GatheredValues TakeGathered() { return std::exchange(gathered_, {}); }
  void GiveGathered(GatheredValues gathered) { gathered_ = std::move(gathered); }

  using Means = PackedMeans;
  // Fills batch.fields, all in one slot. kResourceExhausted where slot memory is short: worth
  // repeating later. kDataLoss, with `bad`: worth repeating once they were fetched anew.
  Status Fill(const StreamSpec& spec, const Means& means, AssembledBatch& batch);

 private:
  // A run of samples of one field: what is decoded at once.
  struct Unit {
    std::uint32_t field = 0;
    UnitPlace place;
    fetch::UnitKey key;
    fetch::UnitSamples samples;  // the data set's numbers
    fetch::UnitRef decoded;
    std::uint32_t first_user = 0, user_count = 0;   // in users_
    std::uint32_t first_chunk = 0, chunk_count = 0;  // in chunks_, unless decoded
    bool is_worth_keeping = false;
  };
  // A value of the batch: sample `index` of a unit is row `row`.
  struct User {
    std::uint32_t unit = 0, row = 0, index = 0;
  };
  void PlanUnits(const StreamSpec& spec, const Wanted& wanted);
  void PlanChunks(bool all_extents);
  Status FindChunks(const Means& means);
  Status LayOut(const StreamSpec& spec);
  Status Gather(const Means& means, AssembledBatch& batch);
  Status FillField(std::uint32_t field, const Means& means, AssembledBatch& batch);
  Status ReadAhead(std::uint32_t unit, std::uint32_t end, const Means& means,
                   AssembledBatch& batch, std::uint32_t& read_end);
  Status FillUnit(Unit& unit, const Means& means, AssembledBatch& batch);
  std::span<const User> UsersOf(const Unit& unit) const;
  std::span<const std::uint32_t> IndicesOf(const Unit& unit);
  bool IsRun(const Unit& unit) const;
  std::span<std::byte> RowOf(const Unit& unit, const User& user) const;
  void CopyRows(const Unit& unit);
  void CopyToRow(const Unit& unit, const User& user, std::span<const std::byte> value) const;
  Status DecodeRows(Unit& unit, const Means& means, AssembledBatch& batch);
  void PlaceSamples(const Unit& unit, const compress::ChunkRecord& record,
                    fetch::DecodedUnit& decoded);
  Status PlaceValues(const Unit& unit, const compress::ChunkEntry& entry,
                     const compress::ChunkRecord& record, fetch::DecodedUnit& decoded) const;
  Result<fetch::DecodedUnit> DecodeUnit(Unit& unit, const Means& means, AssembledBatch& batch);
  Status TakeValues(const Unit& unit, const fetch::DecodedUnit& decoded);
  std::span<std::byte> ScratchFor(const PlacedChunk& chunk);
  void Describe(const StreamSpec& spec, AssembledBatch& batch) const;

  fetch::DecodedCache& decoded_;
  std::unique_ptr<UnitSource> source_;
  ChunkFinder finder_;
  std::size_t row_count_ = 0;
  std::vector<Unit> units_;                    // by field
  std::vector<std::uint32_t> field_units_;     // field -> first unit; one more at the end
  std::vector<User> users_;                    // by unit
  std::vector<User> unsorted_;
  std::vector<PlacedChunk> chunks_;
  std::vector<ExtentId> extents_;
  std::unordered_map<std::uint64_t, std::uint32_t> unit_index_;  // first chunk -> unit
  std::unordered_map<ExtentId, std::uint32_t, IdHash> extent_index_;

  std::span<std::byte> slot_;                  // of the batch being filled
  std::vector<std::uint64_t> begins_, row_bytes_;  // of fields in the slot; 0 bytes: variable
  GatheredValues gathered_;
  std::uint64_t total_bytes_ = 0;
  std::vector<std::uint32_t> indices_;              // of a unit's samples that are wanted
  std::vector<std::span<std::byte>> places_;        // where a unit's samples are decoded to
  ChunkReader reader_;
  fetch::RawBytes scratch_;
};

}  // namespace forebay::stream

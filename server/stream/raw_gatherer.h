// RawGatherer: gathers batches of data sets that are stored uncompressed. `views`: notes where the
// bytes lie. Otherwise copies every field into one slot, each byte once. Rows that other nodes
// supply get their place in the slot, and are filled later.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "server/fetch/sample_pieces.h"
#include "server/stream/gatherer.h"

namespace forebay::stream {

class RawGatherer final : public Gatherer {
 public:
  Status Plan(const StreamSpec& spec, const BatchPlan& batch, PackedPlan packed) override;
  std::span<const ExtentId> extents() const override { return pieces_.extents(); }
  Status Gather(const StreamSpec& spec, const GatherMeans& means, AssembledBatch& batch) override;

 private:
  // A field of a sample with bytes in an extent of another node.
  struct RowElsewhere {
    std::size_t field = 0, sample = 0;  // `sample` counts from 0 in the batch
    std::uint64_t group_key = 0;  // whose owner is asked for it
    std::uint64_t bytes = 0;
    std::uint64_t slot_offset = 0;  // views: where it lies in the batch's slot
  };

  void FindElsewhere(const StreamSpec& spec, const GatherMeans& means);
  const RowElsewhere* TakeElsewhere(std::size_t field, std::size_t sample);
  void RouteRow(const RowElsewhere& row, std::span<std::byte> memory,
                const GatherMeans& means) const;
  Status PlacePieces(const StreamSpec& spec, const GatherMeans& means, AssembledBatch& batch);
  void FillViews(const StreamSpec& spec, const GatherMeans& means, AssembledBatch& batch);
  void FillConstants(std::size_t field, AssembledField& out) const;
  std::vector<std::uint64_t> VariableBytes(const StreamSpec& spec) const;
  void PrefetchRow(std::size_t field, std::size_t sample) const;
  Status FillContiguous(const StreamSpec& spec, const GatherMeans& means, AssembledBatch& batch);

  std::span<const std::uint64_t> samples_;
  fetch::SamplePieces pieces_;
  std::vector<bool> in_place_;  // by extent: its pieces are used where they lie
  std::vector<RowElsewhere> elsewhere_;  // by field, then sample, as the batch is filled
  std::size_t next_elsewhere_ = 0;       // the first that has no place yet
};

}  // namespace forebay::stream

// RawGatherer: gathers batches of data sets that are stored uncompressed. `views`: notes where the
// bytes lie. Otherwise copies every field into one slot, each byte once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "server/fetch/sample_pieces.h"
#include "server/stream/gatherer.h"

namespace forebay::stream {

class RawGatherer final : public Gatherer {
 public:
  Status Plan(const StreamSpec& spec, BatchSamples wanted) override;
  std::span<const ExtentId> extents() const override { return pieces_.extents(); }
  Status Gather(const StreamSpec& spec, const GatherMeans& means, AssembledBatch& batch) override;

 private:
  void ChooseInPlace(const StreamSpec& spec, const GatherMeans& means);
  Status PlacePieces(const StreamSpec& spec, const GatherMeans& means, AssembledBatch& batch);
  void FillViews(const StreamSpec& spec, AssembledBatch& batch) const;
  void FillConstants(std::size_t field, AssembledField& out) const;
  std::vector<std::uint64_t> VariableBytes(const StreamSpec& spec) const;
  Status FillContiguous(const StreamSpec& spec, tier::RamArena& slots, AssembledBatch& batch);

  std::span<const std::uint64_t> samples_;
  fetch::SamplePieces pieces_;
  std::vector<bool> in_place_;  // by extent: its pieces are used where they lie
};

}  // namespace forebay::stream

// There are two kinds of packed data sets, and one class for each. PackUnits: the objects on the
// GFS are packs, and the catalog has a table of all chunks in memory. StagedUnits: the daemon
// compressed the extents as it staged them, so each extent begins with a directory of its chunks,
// which has to be read before a chunk can be found. One thread at a time uses a source.
#include "server/fetch/packed/unit_source.h"

#include <optional>

#include "proto/contract/check.h"
#include "server/stage/packed/packed_extent.h"

namespace forebay::fetch {
namespace {

class PackUnits final : public UnitSource {
 public:
  explicit PackUnits(const catalog::PackTable& table) : table_(table) {}

  const compress::PackSchema& schema() const override { return table_.schema(); }

  UnitPlace UnitOf(std::uint32_t field, SampleId sample) const override {
    const catalog::ChunkGroup group = table_.GroupOf(field, sample);
    const catalog::PackChunk first = table_.chunk(group.first);
    return {.number = group.first,
            .chunk_count = group.count,
            .extent = first.extent,
            .piece = first.piece,
            .first_sample = first.first_sample(),
            .sample_count = first.entry.sample_count};
  }

  ExtentId ExtentOf(const UnitPlace& unit, std::uint32_t index) const override {
    // The chunks of one unit have consecutive numbers, but may lie in different extents: they are
    // the tiles of a run of samples, or the parts of one long byte string.
    return index == 0 ? unit.extent : table_.chunk(unit.number + index).extent;
  }

  Result<catalog::PackChunk> ChunkOf(const UnitPlace& unit,
                                     std::uint32_t index) const override {
    return table_.chunk(unit.number + index);
  }

 private:
  const catalog::PackTable& table_;
};

class StagedUnits final : public UnitSource {
 public:
  explicit StagedUnits(const stage::PackedForm& form) : form_(form) {}

  const compress::PackSchema& schema() const override { return form_.schema(); }

  UnitPlace UnitOf(std::uint32_t field, SampleId sample) const override {
    const stage::PackedUnit unit = form_.UnitOf(field, sample);
    // Chunks are numbered within their extent, so the extent's number makes the number unique.
    // Piece 0 of the image is the directory; the chunks follow it.
    return {.number = (std::uint64_t{unit.extent.value()} << 32) | unit.first_chunk,
            .chunk_count = unit.chunk_count,
            .extent = unit.extent,
            .piece = unit.first_chunk + 1,
            .first_sample = unit.first_sample,
            .sample_count = unit.sample_count};
  }

  // An extent is compressed by itself, so all chunks of a unit lie in it.
  ExtentId ExtentOf(const UnitPlace& unit, std::uint32_t) const override { return unit.extent; }

  std::uint64_t DirectoryBytes(ExtentId extent) const override {
    return stage::DirectoryBytes(form_.ChunkCount(extent));
  }

  Status OpenDirectory(const tier::ResidentExtent& extent,
                       std::span<const std::byte> bytes) override {
    // If the new directory is damaged, ChunkOf must not answer from the one before.
    directory_.reset();
    FOREBAY_ASSIGN(directory_, stage::PackedDirectory::Open(form_, extent.key,
                                                            extent.image_bytes, bytes));
    return {};
  }

  Result<catalog::PackChunk> ChunkOf(const UnitPlace& unit,
                                     std::uint32_t index) const override {
    FOREBAY_CHECK(directory_.has_value());
    return directory_->ChunkAt(unit.piece - 1 + index);
  }

  bool IsMadeHere() const override { return true; }

 private:
  const stage::PackedForm& form_;
  std::optional<stage::PackedDirectory> directory_;
};

}  // namespace

std::unique_ptr<UnitSource> UnitSource::Of(const catalog::Catalog& catalog,
                                           const stage::PackedForm* form) {
  // A data set that was compressed at staging has a form; its catalog is that of the original
  // files.
  if (form != nullptr) return std::make_unique<StagedUnits>(*form);
  FOREBAY_CHECK(catalog.packs() != nullptr);
  return std::make_unique<PackUnits>(*catalog.packs());
}

}  // namespace forebay::fetch

// ChunkRows: finds chunks of packs for another node, which decodes them itself: their records as
// the pack has them, from wherever the extents lie. The functions below say which chunk a row
// names, and whether bytes that another node has sent are that chunk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "proto/contract/result.h"
#include "server/catalog/catalog.h"
#include "server/catalog/pack/pack_table.h"
#include "server/fetch/found_rows.h"
#include "server/fetch/packed/chunk_reader.h"
#include "server/fetch/row_finder.h"
#include "server/fetch/row_source.h"
#include "server/stage/dataset.h"

namespace forebay::fetch {

// Returns the chunk that the row names (Row::chunk). Nullopt: the data set is not one of packs, or
// has no such chunk.
std::optional<catalog::PackChunk> ChunkNamedBy(const catalog::Catalog& catalog, const Row& row);

// Compares the bytes of such a row with the chunk's checksum, which the catalog has from the index
// of the pack. So this node need not believe the node that has sent them. kDataLoss: they differ.
Status CheckChunk(const catalog::Catalog& catalog, const Row& row);

class ChunkRows final : public RowFinder {
 public:
  // `found` receives the rows, or the errors of those that do not exist or are damaged on the GFS.
  // kResourceExhausted: the rows take more than `bytes_max`, and there are several.
  static Result<std::unique_ptr<RowFinder>> Create(const stage::Dataset& dataset,
                                                   std::vector<Row> rows, std::uint64_t bytes_max,
                                                   std::shared_ptr<FoundRows> found);

  // As if all chunks lay on SSD, because that is not known before their extents are pinned.
  std::uint64_t memory_bytes() const override { return memory_bytes_; }
  void Begin(std::shared_ptr<const void> room) override;
  std::span<const ExtentId> extents() const override { return extents_; }
  // Finds up to limits::kDecodeReadBytesMax of chunks at a time, or one.
  Result<bool> Find(const ReadMeans& means) override;

 private:
  // The memory of chunks on SSD, and the right to it, which is given back after the memory is
  // freed. Each reader has the chunks of one call of Find.
  struct Memory {
    std::shared_ptr<const void> room;
    std::vector<ChunkReader> readers;
  };

  ChunkRows(const stage::Dataset& dataset, std::vector<Row> rows, std::shared_ptr<FoundRows> found)
      : catalog_(dataset.catalog()), rows_(std::move(rows)), found_(std::move(found)) {}
  Status Plan(std::uint64_t bytes_max);
  std::size_t EndOfPart() const;
  Status FindPart(const ReadMeans& means, std::size_t end, ChunkReader& reader);

  const std::shared_ptr<const catalog::Catalog> catalog_;
  const std::vector<Row> rows_;
  const std::shared_ptr<FoundRows> found_;
  std::uint64_t memory_bytes_ = 0;
  std::shared_ptr<Memory> memory_;
  std::vector<PlacedChunk> chunks_;       // of the rows that exist
  std::vector<std::size_t> chunk_rows_;   // the row of each
  std::vector<ExtentId> extents_;
  std::size_t next_ = 0;  // the first chunk that is not found yet
};

}  // namespace forebay::fetch

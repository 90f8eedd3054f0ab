// PackedRows: finds the rows of a packed data set, for another node. Samples that this node has
// decoded already are copied from its cache; the chunks of the others are decoded, each once for
// all rows of the request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/catalog/catalog.h"
#include "server/fetch/decoded_cache.h"
#include "server/fetch/found_rows.h"
#include "server/fetch/packed/chunk_finder.h"
#include "server/fetch/packed/chunk_reader.h"
#include "server/fetch/packed/unit_check.h"
#include "server/fetch/packed/unit_source.h"
#include "server/fetch/row_finder.h"
#include "server/fetch/row_source.h"
#include "server/stage/dataset.h"

namespace forebay::fetch {

// The objects and buffers that decode a request's chunks. They are kept for the next request.
struct DecodeTools {
  ChunkFinder finder;
  ChunkReader reader;
  RawBytes scratch;
};

// Keeps tools that no request uses now. There are as many tools as threads that have decoded at the
// same time. Thread-safe.
class DecodeToolbox {
 public:
  std::unique_ptr<DecodeTools> Take();
  void Give(std::unique_ptr<DecodeTools> tools);

 private:
  Mutex mutex_;
  std::vector<std::unique_ptr<DecodeTools>> idle_ FOREBAY_GUARDED_BY(mutex_);
};

class PackedRows final : public RowFinder {
 public:
  // Everything is borrowed.
  struct Parts {
    const stage::Dataset& dataset;
    DecodedCache& decoded;
    DecodeToolbox& tools;
  };
  // `found` receives the rows, or the errors of those that do not exist, that have no fixed size,
  // or whose chunk is damaged. kResourceExhausted: the rows take more than `bytes_max`, and there
  // are several.
  static Result<std::unique_ptr<RowFinder>> Create(const Parts& parts, std::vector<Row> rows,
                                                   std::uint64_t bytes_max,
                                                   std::shared_ptr<FoundRows> found);

  std::uint64_t memory_bytes() const override { return memory_bytes_; }
  void Begin(std::shared_ptr<const void> room) override;
  std::span<const ExtentId> extents() const override { return extents_; }
  // Decodes up to limits::kDecodeReadBytesMax of chunks at a time, or one unit.
  Result<bool> Find(const ReadMeans& means) override;

 private:
  // The memory of the rows, and the right to it, which is given back after the memory is freed.
  struct Memory {
    std::shared_ptr<const void> room;
    RawBytes bytes;
  };
  // A row: sample `index` of a unit, and where its bytes go.
  struct Wanted {
    std::uint32_t unit = 0;
    std::uint32_t index = 0;
    std::size_t row = 0;        // of the request
    std::uint64_t offset = 0;   // in memory_
  };
  struct Unit {
    std::uint32_t field = 0;
    UnitPlace place;
    UnitKey key;
    UnitSamples samples;
    std::uint32_t first_wanted = 0, wanted_count = 0;
    std::uint32_t first_chunk = 0;
  };

  PackedRows(const Parts& parts, std::vector<Row> rows, std::shared_ptr<FoundRows> found);
  Status Plan(std::uint64_t bytes_max);
  void SortByUnit();
  Status FindChunks(const ReadMeans& means, DecodeTools& tools);
  Status ReadAhead(const ReadMeans& means, DecodeTools& tools, std::size_t& end);
  Result<bool> FindSome(const ReadMeans& means, DecodeTools& tools);
  Status DecodeUnit(const Unit& unit, const ReadMeans& means, DecodeTools& tools);
  Status DecodeTo(const Unit& unit, std::span<const std::span<std::byte>> places,
                  const ReadMeans& means, DecodeTools& tools, UnitCheck* check);
  Result<DecodedUnit> DecodeWhole(const Unit& unit, const ReadMeans& means, DecodeTools& tools);
  void CopyFrom(const Unit& unit, const DecodedUnit& decoded);
  void SetErrors(const Unit& unit, const Error& error);

  std::uint64_t SampleBytes(const Unit& unit) const {
    return source_->schema().fields[unit.field].sample_bytes();
  }
  std::uint64_t DecodedBytes(const Unit& unit) const {
    return SampleBytes(unit) * unit.samples.count;
  }
  std::span<const Wanted> WantedOf(const Unit& unit) const {
    return std::span(wanted_).subspan(unit.first_wanted, unit.wanted_count);
  }
  std::span<PlacedChunk> ChunksOf(const Unit& unit) {
    return std::span(chunks_).subspan(unit.first_chunk, unit.place.chunk_count);
  }
  std::span<std::byte> PlaceOf(const Unit& unit, const Wanted& wanted) {
    return memory_->bytes.span().subspan(wanted.offset, SampleBytes(unit));
  }
  std::vector<std::uint32_t> IndicesOf(const Unit& unit) const;

  const Parts parts_;
  const std::shared_ptr<const catalog::Catalog> catalog_;
  const std::shared_ptr<const stage::PackedForm> form_;
  const std::unique_ptr<UnitSource> source_;
  const std::vector<Row> rows_;
  const std::shared_ptr<FoundRows> found_;
  std::uint64_t memory_bytes_ = 0;
  std::shared_ptr<Memory> memory_;
  std::vector<Unit> units_;           // those of which nothing is found yet begin at next_
  std::vector<Wanted> wanted_;        // by unit
  std::vector<PlacedChunk> chunks_;   // by unit
  std::vector<ExtentId> extents_;
  std::size_t next_ = 0;
  bool knows_chunks_ = false;  // where they lie in the pinned extents
};

}  // namespace forebay::fetch

// Reads a pack file (docs/pack.md): whole samples, single fields, regions.
//
//   // The sum of the pixels of each image in a pack.
//   forebay::Result<std::vector<std::uint64_t>> SumsOfImages(const std::string& path) {
//     FOREBAY_ASSIGN(const auto source, forebay::compress::OpenByteSource(path));
//     FOREBAY_ASSIGN(const auto pack, forebay::compress::PackFile::Open(*source));
//     FOREBAY_ASSIGN(const std::uint32_t field, pack.FindField("image"));
//     std::vector<std::byte> pixels(pack.schema().fields[field].sample_bytes());
//     std::vector<std::byte> scratch(pack.ScratchBytes());   // reading allocates nothing
//     std::vector<std::uint64_t> sums;
//     for (std::uint64_t sample = 0; sample < pack.samples(); ++sample) {
//       FOREBAY_TRY(pack.ReadSamples(field, sample, 1, pixels, scratch));
//       std::uint64_t& sum = sums.emplace_back();
//       for (const std::byte pixel : pixels) sum += std::to_integer<std::uint64_t>(pixel);
//     }
//     return sums;
//   }
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "compress/decode/pack/byte_source.h"
#include "compress/decode/pack/chunk_record.h"
#include "compress/format/pack/field_statistics.h"
#include "compress/format/pack/field_sums.h"
#include "compress/format/pack/pack_format.h"
#include "proto/contract/limits.h"
#include "proto/contract/result.h"

namespace forebay::compress {

// For PackReadOptions::scratch_bytes_max of programs that show or convert packs: no pack that an
// earlier version wrote takes as much.
inline constexpr std::uint64_t kConvertScratchBytesMax = std::uint64_t{1} << 30;

struct PackReadOptions {
  PredictorBudget budget;            // of any one learned predictor
  PredictorFinder find_predictor;    // those that a pack names and does not hold
  // Memory to decode one chunk in. Packs of earlier versions may need more than this default: a
  // program that shows or converts them has one reader and can raise it.
  std::uint64_t scratch_bytes_max = limits::kChunkScratchBytesMax;
};

// An open pack; holds its index. Borrows the source, which outlives it. Reading is const and
// thread-safe, with scratch memory of the caller's, and allocates only for errors and keys.
//
// Every chunk is checked against its checksum before it is decoded, every sample after. A
// damaged chunk costs its own samples: the error (kDataLoss) names field, samples and byte.
class PackFile {
 public:
  // Reads header, schema, footer and index. Errors: kInvalidArgument (not a pack),
  // kUnimplemented (a newer one), kDataLoss (damaged or incomplete; Recover may help);
  // kResourceExhausted for a learned predictor beyond the budget and for a schema whose chunks may
  // take more than scratch_bytes_max, kFailedPrecondition for a predictor that the pack names and
  // the options do not bring.
  static Result<PackFile> Open(const ByteSource& source, const PackReadOptions& options = {});

  // As Open, without footer and index: walks over the records as far as their heads are sound
  // and keeps the samples that are complete in all fields. Payloads are verified when read.
  static Result<PackFile> Recover(const ByteSource& source,
                                  const PackReadOptions& options = {});

  const PackSchema& schema() const { return schema_; }
  std::uint64_t samples() const { return index_.samples; }
  std::uint64_t identity() const { return identity_; }
  // Version and id.
  const PackHeader& header() const { return header_; }
  // What a set of packs knows a file by: SchemaFingerprint, and the word at 8 of the index
  // record, which covers the words at 8 of all chunks and keys and so all that the pack holds (0
  // after Recover).
  std::uint64_t schema_fingerprint() const { return schema_fingerprint_; }
  std::uint64_t root() const { return root_; }
  const PackIndex& index() const { return index_; }
  bool has_keys() const { return schema_.keyed; }

  // The number of a field. kNotFound names those there are.
  Result<std::uint32_t> FindField(std::string_view name) const;

  // The chunks of a field that hold any of the samples, in order.
  std::span<const ChunkEntry> Chunks(std::uint32_t field, std::uint64_t first_sample,
                                     std::uint64_t count) const;

  // The samples that begin sequences, ascending: those that a writer named, and the first. Read
  // from the heads of chunks, of the first field of two axes or more, whose chunks end where
  // sequences do; without such a field only the first sample is known. Errors: kDataLoss.
  Result<std::vector<std::uint64_t>> SequenceStarts() const;

  // Scratch memory that any call below needs.
  std::size_t ScratchBytes() const { return scratch_bytes_; }

  PackRegion WholeRegion(std::uint32_t field) const {
    return PackRegion::Whole(schema_.fields[field]);
  }

  // Elements of a fixed field: element (s, i0 .. i3) of the samples and the region lies at byte
  // s * sample_stride + sum of i * axis_stride of `out`.
  Status Read(std::uint32_t field, std::uint64_t first_sample, std::uint64_t count,
              const PackRegion& region, const StridedOutput& out,
              std::span<std::byte> scratch) const;

  // Whole samples of a fixed field, dense.
  Status ReadSamples(std::uint32_t field, std::uint64_t first_sample, std::uint64_t count,
                     std::span<std::byte> out, std::span<std::byte> scratch) const;

  // The length of a variable field's sample, and its bytes.
  Result<std::uint64_t> SampleBytes(std::uint32_t field, std::uint64_t sample,
                                    std::span<std::byte> scratch) const;
  Status ReadBytes(std::uint32_t field, std::uint64_t sample, std::span<std::byte> out,
                   std::span<std::byte> scratch) const;

  // Of the fields, in the schema's order; none where the file has none, or after Recover. Errors:
  // kDataLoss.
  Result<std::vector<FieldStatistics>> Statistics() const;
  // What a pack of version 1 has in their place, from which they follow; none of later ones.
  Result<std::vector<FieldSums>> Sums() const;

  // Keys of samples; empty strings where the pack has none.
  Result<std::vector<std::string>> Keys(std::uint64_t first_sample, std::uint64_t count) const;

  // Reads a chunk's head and payload, both verified, into `scratch`.
  struct LoadedChunk {
    ChunkRecord record;
    std::span<std::byte> rest;  // of the scratch memory
  };
  Result<LoadedChunk> Load(const ChunkEntry& entry, std::span<std::byte> scratch) const;

  // Decodes a whole chunk of either kind into scratch memory and verifies its samples.
  struct DecodedChunk {
    ChunkHead head;
    std::span<const std::byte> bytes;
  };
  Result<DecodedChunk> DecodeWhole(const ChunkEntry& entry, std::span<std::byte> scratch) const;

 private:
  explicit PackFile(const ByteSource& source) : source_(&source) {}

  Status ReadStart(const PackReadOptions& options);
  Status ReadIndex();
  void SizeScratch();
  Result<std::vector<std::byte>> ReadRecord(std::uint64_t offset, std::uint64_t bytes_max,
                                            RecordType type,
                                            const std::uint64_t* head_checksum) const;
  Result<std::vector<std::byte>> StatisticsPayload() const;
  PackContext context() const { return {.schema = schema_, .identity = identity_}; }

  const ByteSource* source_;
  PackHeader header_;
  std::uint64_t identity_ = 0;
  std::uint64_t start_bytes_ = 0;
  std::uint64_t schema_fingerprint_ = 0, root_ = 0;
  std::uint64_t statistics_offset_ = 0, statistics_bytes_ = 0;
  PackSchema schema_;
  PackIndex index_;
  std::vector<std::size_t> field_begins_;  // in index_.chunks; one more than fields
  std::size_t scratch_bytes_ = 0;
};

}  // namespace forebay::compress

// Reads a pack file (docs/pack.md): whole samples, single fields, or regions of samples. Use it to
// read one file; a set of packs is read with pack_set.h, and training reads packs through the
// daemon.
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

// A value of PackReadOptions::scratch_bytes_max for programs that show or convert packs. No pack
// that an earlier version wrote needs as much.
inline constexpr std::uint64_t kConvertScratchBytesMax = std::uint64_t{1} << 30;

struct PackReadOptions {
  PredictorBudget budget;          // limits of each learned predictor
  PredictorFinder find_predictor;  // finds predictors that a pack names and does not hold
  // The most scratch memory that decoding one chunk may need. Packs of earlier versions may need
  // more than the default; a program with a single reader can raise it.
  std::uint64_t scratch_bytes_max = limits::kChunkScratchBytesMax;
};

// An open pack. Holds the schema and the index in memory.
//
// Lifetime: borrows the source, which must outlive it. Threads: reading is const and thread-safe;
// each thread brings scratch memory of its own. Reading allocates memory only for errors and keys.
// Damage: every chunk is compared with its checksum before it is decoded, every sample afterwards.
// A damaged chunk costs its own samples only; the error, kDataLoss, names field, samples and
// offset.
class PackFile {
 public:
  // Reads header, schema, footer and index. Errors: kInvalidArgument (not a pack), kUnimplemented
  // (written by a newer version), kDataLoss (damaged or incomplete; Recover may help),
  // kResourceExhausted (a learned predictor exceeds the budget, or a chunk of the schema may need
  // more than scratch_bytes_max), kFailedPrecondition (the pack names a predictor that
  // find_predictor does not find).
  static Result<PackFile> Open(const ByteSource& source, const PackReadOptions& options = {});

  // Opens a pack whose footer or index is missing or damaged: walks over the records as far as
  // their heads are sound, and keeps the samples that are complete in all fields. Payloads are
  // verified when they are read. Errors: those of Open.
  static Result<PackFile> Recover(const ByteSource& source,
                                  const PackReadOptions& options = {});

  const PackSchema& schema() const { return schema_; }
  std::uint64_t samples() const { return index_.samples; }
  std::uint64_t identity() const { return identity_; }
  // The version and the id of the pack.
  const PackHeader& header() const { return header_; }
  // By these two words a set of packs recognises a file: SchemaFingerprint, and the checksum of the
  // index record's head (0 after Recover). The latter covers the header and the schema, and through
  // the checksums in the index all samples and keys. It does not cover the statistics, which are
  // verified by checksums of their own.
  std::uint64_t schema_fingerprint() const { return schema_fingerprint_; }
  std::uint64_t root() const { return root_; }
  const PackIndex& index() const { return index_; }
  bool has_keys() const { return schema_.keyed; }

  // The number of the field called `name`. Errors: kNotFound, which lists the names of all fields.
  Result<std::uint32_t> FindField(std::string_view name) const;

  // The chunks of a field that hold any of the samples, in order.
  std::span<const ChunkEntry> Chunks(std::uint32_t field, std::uint64_t first_sample,
                                     std::uint64_t count) const;

  // The samples that begin sequences, ascending: sample 0 and those for which the writer called
  // BeginSequence. They are read from chunk heads of the first field with two axes or more, because
  // its chunks end where sequences end; without such a field only sample 0 is known. Errors:
  // kDataLoss.
  Result<std::vector<std::uint64_t>> SequenceStarts() const;

  // Bytes of scratch memory that are enough for every call below.
  std::size_t ScratchBytes() const { return scratch_bytes_; }

  PackRegion WholeRegion(std::uint32_t field) const {
    return PackRegion::Whole(schema_.fields[field]);
  }

  // Reads a region of `count` samples of a fixed field. Element (s, i0 .. i3), counted from the
  // first sample and the region's origin, is written to byte s * sample_stride + sum of
  // i * axis_stride of `out`; nothing else is written. Errors: kOutOfRange, kInvalidArgument (the
  // field is variable, or the output or scratch memory is too small), kDataLoss.
  Status Read(std::uint32_t field, std::uint64_t first_sample, std::uint64_t count,
              const PackRegion& region, const StridedOutput& out,
              std::span<std::byte> scratch) const;

  // Reads whole samples of a fixed field, one after the other. Errors: those of Read.
  Status ReadSamples(std::uint32_t field, std::uint64_t first_sample, std::uint64_t count,
                     std::span<std::byte> out, std::span<std::byte> scratch) const;

  // The number of bytes of one sample of a field, and the bytes of a variable field's sample, for
  // which `out` must have exactly that length. Errors: those of Read.
  Result<std::uint64_t> SampleBytes(std::uint32_t field, std::uint64_t sample,
                                    std::span<std::byte> scratch) const;
  Status ReadBytes(std::uint32_t field, std::uint64_t sample, std::span<std::byte> out,
                   std::span<std::byte> scratch) const;

  // Statistics of all fields, in the order of the schema; empty if the file has none, and after
  // Recover. Errors: kDataLoss.
  Result<std::vector<FieldStatistics>> Statistics() const;
  // The sums from which the statistics of a pack of version 1 follow; empty for later versions.
  Result<std::vector<FieldSums>> Sums() const;

  // Keys of samples; empty strings if the pack has no keys.
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

// The container's structures and how they become bytes (docs/pack.md). A pack file is a header, a
// schema, records, an index record and a footer; records describe themselves, so that a file
// without its end can be read by walking over them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compress/format/chunk/chunk_shape.h"
#include "compress/format/pack/pack_id.h"
#include "compress/format/plane/predictor.h"
#include "proto/contract/result.h"
#include "proto/contract/tensor.h"

namespace forebay::compress {

inline constexpr std::uint64_t kPackMagic = 0x314B'4150'5942'4546;    // "FEBYPAK1"
inline constexpr std::uint64_t kFooterMagic = 0x3150'4E45'5942'4546;  // "FEBYENP1"
inline constexpr std::uint32_t kRecordMagic = 0x4345'5246;            // "FREC"
inline constexpr std::uint16_t kPackMajor = 2, kPackMinor = 0;  // the version that is written
inline constexpr std::uint16_t kPackMajorOldest = 1;            // the oldest that is read
inline constexpr std::size_t kPackHeaderBytes = 64, kFooterBytes = 64;
inline constexpr std::size_t kPackIdOffset = 40;  // in the header
inline constexpr std::size_t kRecordPrefixBytes = 40;  // the part that all record types share
inline constexpr std::size_t kRecordCoveredOffset = 16;  // here the bytes of its checksum begin
// Features that a reader must understand.
inline constexpr std::uint64_t kFeaturePredictors = 2;  // sections of the schema hold or name some
inline constexpr std::uint64_t kKnownFeatures = kFeaturePredictors;
// Sections of the schema.
inline constexpr std::uint64_t kSectionPredictor = 1;       // its bytes
inline constexpr std::uint64_t kSectionPredictorName = 2;   // its SHA-256

// Persisted by number. Readers skip records of unknown types; what they must understand has a bit
// in the header's features.
enum class RecordType : std::uint16_t { kChunk = 1, kKeys = 2, kModel = 3, kIndex = 4,
                                        kStatistics = 5 };

// Persisted by number; never renumber.
enum class FieldKind : std::uint8_t { kImage = 0, kLabel = 1, kMask = 2, kMetadata = 3, kRaw = 4 };

// Declared error bound of a field; mode 0 is lossless (encode/error_bound.h has the modes).
struct DeclaredBound {
  std::uint8_t mode = 0;
  double absolute = 0, relative = 0;
};

// A field of every sample. Fixed fields have up to 4 axes; a variable one is kBytes with rank 0:
// byte strings of any length.
struct PackField {
  std::string name;
  FieldKind kind = FieldKind::kRaw;
  Dtype dtype = Dtype::kBytes;
  std::uint8_t rank = 0;
  std::array<std::uint32_t, kChunkRankMax> extent = {1, 1, 1, 1};
  std::int8_t channel_axis = -1;
  std::uint8_t valid_bits = 0;  // 0: all of the element's
  std::optional<std::uint64_t> fill_bits = std::nullopt;
  DeclaredBound bound;
  std::uint32_t samples_per_chunk = 8;
  std::array<std::uint32_t, kChunkRankMax> tile = {1, 1, 1, 1};  // extents of a chunk's tile

  bool variable() const { return dtype == Dtype::kBytes && rank == 0; }
  std::uint64_t sample_bytes() const;  // of one sample of a fixed field
  std::uint32_t tiles() const;         // into which a sample is cut
  // Origin and extent of tile `number`, in row-major order of tiles.
  std::array<std::uint32_t, kChunkRankMax> TileOrigin(std::uint32_t number) const;
  std::array<std::uint32_t, kChunkRankMax> TileExtent(std::uint32_t number) const;
  // The shape of a chunk of `samples` samples of a tile.
  ChunkShape Shape(std::uint32_t number, std::uint32_t samples) const;
};

// The shape under which the byte strings of a variable field's chunk are coded. `bytes` > 0.
ChunkShape BytesShape(std::uint64_t bytes);

struct PackSchema {
  std::vector<PackField> fields;
  std::vector<std::pair<std::string, std::string>> provenance;  // "source", "writer", ...
  bool aligned = false;  // payloads of chunks begin at multiples of 4096
  bool keyed = false;    // every sample has a key; otherwise none has
  // Learned predictors that chunks may need, at most limits::kPackModelsMax. A predictor whose id
  // is in `named_predictors` is not stored in the file: the reader must supply it.
  std::vector<std::shared_ptr<const Predictor>> predictors;
  std::vector<Sha256Digest> named_predictors;
};

// The key under which the provenance has the name of a field's class: "class.label.3".
std::string ClassKey(std::string_view field, std::size_t number);
// The names of the classes of `field`, from 0 up to the first that the provenance does not have.
std::vector<std::string_view> ClassNames(const PackSchema& schema, std::string_view field);

// Supplies a predictor that a pack names: returns the one with this SHA-256, or an error.
using PredictorFinder =
    std::function<Result<std::shared_ptr<const Predictor>>(const Sha256Digest&)>;

// Adds the predictors that the schema names and does not hold. Errors, with the SHA-256: the
// finder's; kFailedPrecondition if there is no finder, or if it supplies another predictor.
Status FindPredictors(const PredictorFinder& finder, PackSchema& schema);

// Checks a schema. Errors: kInvalidArgument for no or too many fields, repeated names, and shapes
// or tiles out of bounds.
Status CheckSchema(const PackSchema& schema);

// Checks that a pack may be written with the bound that `field` declares. Errors: kInvalidArgument
// for a bound on a field of dtype `bytes`, which holds text, files or hashes and not numbers.
// Readers do not call it, because the declared bound does not change how a chunk is decoded.
Status CheckWritableBound(const PackField& field);

// Writes the beginning of a pack file: header and schema, with their checksums.
std::vector<std::byte> WritePackStart(const PackSchema& schema, const PackId& id);

// Writes a schema that belongs to no pack and so has no id: a header of version 1, then the schema.
// Catalogs store schemas in this form.
std::vector<std::byte> WriteSchema(const PackSchema& schema);

struct PackHeader {
  std::uint16_t major = 0, minor = 0;
  bool aligned = false;
  std::uint64_t features = 0;  // that a reader must understand
  std::uint64_t schema_bytes = 0, schema_checksum = 0;
  std::optional<PackId> id = std::nullopt;  // version 1 has none
};

// Reads the header from the first kPackHeaderBytes of a file. Errors: kInvalidArgument (not a
// pack), kUnimplemented (a newer version or feature), kDataLoss.
Result<PackHeader> ReadPackHeader(std::span<const std::byte> header);

// The size of header and schema together. Errors as of ReadPackHeader.
Result<std::uint64_t> PackStartBytes(std::span<const std::byte> header);

// Reads the schema of a pack, and the predictors that it holds, from the first PackStartBytes() of
// the file. Errors: those of ReadPackHeader; kResourceExhausted for a predictor beyond the budget.
Result<PackSchema> ReadPackStart(std::span<const std::byte> start,
                                 const PredictorBudget& budget = {});

// The hash of the schema up to the end of the last field. `start` is the first PackStartBytes() of
// a pack. What follows the fields (provenance, sections) may differ between packs of one set.
// Errors: kDataLoss.
Result<std::uint64_t> SchemaFingerprint(std::span<const std::byte> start);

// The hash of header and schema without version and id. Packs that were written with the same
// schema, provenance included, and the same options have the same fingerprint.
std::uint64_t WriterFingerprint(const PackHeader& header);

// The identity of a pack: the hash of its header, which holds the id. All checksums of records
// depend on it, so that a record of another pack is refused. Packs of version 1 have no id: two of
// them with the same schema and provenance have the same identity.
std::uint64_t PackIdentity(std::span<const std::byte> header);

// A chunk of a field: a run of samples of one tile. A chunk of a variable field holds whole
// samples, or one part of a sample that is longer than a chunk.
struct ChunkHead {
  std::uint32_t field = 0;
  std::uint32_t tile = 0;
  std::uint64_t first_sample = 0;
  std::uint32_t sample_count = 0;
  ChunkCodec codec = ChunkCodec::kStore;
  bool begins_sequence = false;  // the first sample begins a sequence
  std::uint64_t raw_bytes = 0;   // the size of all elements, or of all byte strings
  // If the chunk is a part of a sample: the part's offset in it, and the sample's size. Otherwise
  // 0.
  std::uint64_t part_offset = 0, sample_bytes = 0;
  // Borrowed, little-endian: for each sample a u64, the checksum of its decoded bytes, and in a
  // variable field a u32, its length.
  std::span<const std::byte> checksums = {}, lengths = {};

  std::uint64_t ChecksumOf(std::uint32_t index) const;
  std::uint32_t LengthOf(std::uint32_t index) const;
};

// The beginning of a record, which all types share.
struct RecordPrefix {
  RecordType type = RecordType::kChunk;
  std::uint32_t head_bytes = 0;  // prefix and what the type adds, padding included
  std::uint64_t payload_bytes = 0, payload_checksum = 0;
  std::uint64_t head_checksum = 0;
};

// Writes the head of a record at `offset` in the file: the prefix, `added`, which is what the type
// adds, and padding up to the payload.
std::vector<std::byte> WriteRecordHead(std::uint64_t identity, std::uint64_t offset,
                                       RecordType type, std::span<const std::byte> added,
                                       std::span<const std::byte> payload, bool aligned);

// Reads a prefix from the first kRecordPrefixBytes of a record. Errors: kDataLoss.
Result<RecordPrefix> ReadRecordPrefix(std::span<const std::byte> bytes);

// Compares a whole head with its checksum, and returns the part that the type adds. Errors:
// kDataLoss.
Result<std::span<const std::byte>> CheckRecordHead(std::uint64_t identity, std::uint64_t offset,
                                                   std::span<const std::byte> head);

std::uint64_t PayloadChecksum(std::uint64_t identity, RecordType type, std::uint64_t offset,
                              std::span<const std::byte> payload);

// The checksum of a sample's decoded bytes in a chunk.
std::uint64_t SampleChecksum(std::uint64_t identity, std::uint32_t field, std::uint32_t tile,
                             std::uint64_t sample, std::uint64_t part_offset,
                             std::span<const std::byte> bytes);

// What a chunk adds to its record's head. Reading checks tile, counts and sizes against the schema
// and borrows `added`. Errors: kDataLoss, kUnimplemented.
std::vector<std::byte> WriteChunkHead(const ChunkHead& head);
Result<ChunkHead> ReadChunkHead(const PackSchema& schema, std::span<const std::byte> added);

// The place of a chunk, as the index has it. Entries are sorted by field, first sample, tile and
// part.
struct ChunkEntry {
  std::uint32_t field = 0, tile = 0;
  std::uint64_t first_sample = 0;
  std::uint32_t sample_count = 0;
  std::uint32_t head_bytes = 0;
  std::uint64_t offset = 0;         // of the record
  std::uint64_t payload_bytes = 0;
  std::uint64_t part_offset = 0, sample_bytes = 0;
  std::uint64_t head_checksum = 0;  // ties the index to the record
};

struct KeyEntry {
  std::uint64_t first_sample = 0;
  std::uint32_t sample_count = 0;
  std::uint32_t head_bytes = 0;
  std::uint64_t offset = 0, payload_bytes = 0;
  std::uint64_t head_checksum = 0;
};

struct PackIndex {
  std::uint64_t samples = 0;
  std::vector<ChunkEntry> chunks;
  std::vector<KeyEntry> keys;
};

// The payload of the index record. Reading checks that entries are sorted and that each field's
// chunks cover all samples without gaps or overlaps. Errors: kDataLoss.
std::vector<std::byte> WritePackIndex(const PackIndex& index);
Result<PackIndex> ReadPackIndex(const PackSchema& schema, std::span<const std::byte> payload);
// The same check for an index in memory. Errors: kDataLoss.
Status CheckPackIndex(const PackSchema& schema, const PackIndex& index);

struct PackFooter {
  std::uint64_t index_offset = 0;  // of the index record
  std::uint64_t index_bytes = 0;   // of the whole record
  std::uint64_t samples = 0;
  std::uint64_t statistics_offset = 0, statistics_bytes = 0;  // of the record; 0: none
};

std::vector<std::byte> WritePackFooter(std::uint64_t identity, const PackFooter& footer);
Result<PackFooter> ReadPackFooter(std::uint64_t identity, std::span<const std::byte> bytes);

}  // namespace forebay::compress

// Writes a pack file (docs/pack.md) as samples come, with memory that the schema bounds.
//
//   #include <array>
//
//   // Packs grey images of 28 x 28 pixels.
//   forebay::Result<forebay::compress::PackSummary> PackImages(
//       const std::string& path, std::span<const std::array<std::byte, 784>> images) {
//     forebay::compress::PackField image;
//     image.name = "image";
//     image.kind = forebay::compress::FieldKind::kImage;
//     image.dtype = forebay::Dtype::kU8;
//     image.rank = 2;
//     image.extent = image.tile = {28, 28, 1, 1};   // one tile: an image is decoded whole
//     forebay::compress::PackSchema schema;
//     schema.fields = {image};
//     FOREBAY_ASSIGN(const auto writer, forebay::compress::PackWriter::Create(path, schema, {}));
//     for (const std::array<std::byte, 784>& pixels : images) {
//       FOREBAY_TRY(writer->Add(std::array{std::span<const std::byte>(pixels)}, /*key=*/""));
//     }
//     return writer->Finish();   // only now there is a file at `path`, and it is complete
//   }
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compress/encode/plane_encoder.h"
#include "compress/format/pack/field_statistics.h"
#include "compress/format/pack/pack_format.h"
#include "proto/contract/byte_cursor.h"
#include "proto/contract/result.h"
#include "proto/contract/unique_fd.h"

namespace forebay::compress {

struct PackWriterOptions {
  Profile profile = Profile::kBalanced;
  // Threads that encode; the file is the same for any number. 1: the caller's.
  unsigned threads = 1;
  // Statistics of every field at the end of the file.
  bool statistics = false;
  // A file at PATH is replaced when the new one is finished. Without this it is refused, and one
  // that comes to be meanwhile is not touched.
  bool replace = false;
  // Of the pack, or of the whole set where one is written. Absent: drawn at random. The same
  // samples with the same options and id are the same bytes.
  std::optional<PackId> id = std::nullopt;
  // Of profile learned: corrects where that pays, and lies in the file unless it is only to be
  // named. Its own bytes are not weighed against what it saves.
  std::shared_ptr<const Predictor> predictor = nullptr;
  bool embed_predictor = true;
};

// The schema that a pack written with these options has: `wanted`, and the profile's name in its
// provenance.
PackSchema SchemaAsWritten(PackSchema wanted, const PackWriterOptions& options);

// What Create and Resume ask of a schema. Errors: kInvalidArgument, as of CheckSchema and
// CheckWritableBound; kResourceExhausted, as of CheckScratch.
Status CheckWritable(const PackSchema& schema);

// Bytes of samples, as they were added, that a writer holds at most: samples_per_chunk whole
// samples of each fixed field, 4 MiB of a variable one, 3 MiB of keys, and the chunks under encode.
// Tiles do not make it less: all tiles of a run of samples fill together. Encoding takes more: in
// each thread 8 to 45 times a chunk's bytes, least of wide elements. `schema` is a sound one
// (CheckSchema).
std::uint64_t BufferedBytesMax(const PackSchema& schema, unsigned threads);

struct PackSummary {
  std::uint64_t samples = 0;
  std::uint64_t raw_bytes = 0;   // of the samples' fields
  std::uint64_t file_bytes = 0;
  std::uint64_t chunks = 0;
};

class PackWalk;
class RecordQueue;

// Writes PATH.part, which becomes PATH when it is finished and on the disk. Holds the samples of
// each field that wait for their chunks to be full, and at most 2 * threads + 2 chunks under encode
// (BufferedBytesMax). After an error every call returns it and PATH.part stays, for Resume. Not
// thread-safe; Add waits for the slowest encoder.
class PackWriter {
 public:
  // The profile's name is added to the provenance.
  // Errors: kInvalidArgument (schema), kAlreadyExists (PATH or PATH.part), a system's, also where
  // it has no random numbers for the id.
  static Result<std::unique_ptr<PackWriter>> Create(const std::string& path,
                                                    const PackSchema& schema,
                                                    const PackWriterOptions& options);

  // Goes on with PATH.part, whose damaged or torn end is cut off; it keeps its id. The caller adds
  // samples from next_sample() on, the same as in the first run, sequences included; the finished
  // file is then the same as that of an uninterrupted run. Errors: kNotFound, kFailedPrecondition
  // (another schema, another id than the one given, an earlier version), kAlreadyExists (PATH).
  // Where PATH and PATH.part are one file, a finished one, it begins a new one as Create does.
  static Result<std::unique_ptr<PackWriter>> Resume(const std::string& path,
                                                    const PackSchema& schema,
                                                    const PackWriterOptions& options);

  ~PackWriter();
  PackWriter(const PackWriter&) = delete;
  PackWriter& operator=(const PackWriter&) = delete;

  // The number of the sample that Add takes next.
  std::uint64_t next_sample() const { return next_; }

  // The next sample begins a sequence: nothing is predicted across. Chunks of fields with two
  // axes or more end here.
  Status BeginSequence();

  // Takes a sample: the bytes of its fields in the schema's order, elements little-endian and
  // row-major; a key where the schema is keyed, else an empty one. Errors: kInvalidArgument for
  // other sizes.
  Status Add(std::span<const std::span<const std::byte>> fields, std::string_view key);

  // Writes what is left, the index and the footer; publishes the file. Errors:
  // kFailedPrecondition (a resumed file has more samples than were added), kAlreadyExists (PATH
  // came to be since Create; PATH.part is whole).
  Result<PackSummary> Finish();

 private:
  // A field's samples that wait for their chunks to be full.
  struct FieldBuffer {
    std::uint64_t first_sample = 0;
    std::uint64_t begin = 0;  // samples before this one are in the file already
    std::uint32_t samples = 0;
    bool begins_sequence = true;
    std::vector<std::vector<std::byte>> tiles;  // the raw bytes of each tile's chunk
    std::vector<std::uint32_t> lengths;
  };

  PackWriter(std::string path, const PackSchema& schema);
  void Start(const PackWriterOptions& options, std::uint64_t identity, UniqueFd file,
             std::uint64_t offset);
  void SetPresent(const PackWalk& walk, std::vector<FieldStatistics> statistics);
  Status Remember(Status status);
  Status CheckAllAdded() const;
  Status CheckSample(std::span<const std::span<const std::byte>> fields, std::string_view key);
  Status AddField(std::uint32_t number, std::span<const std::byte> bytes);
  Status AddString(std::uint32_t number, std::span<const std::byte> bytes);
  Status AddParts(std::uint32_t number, std::span<const std::byte> bytes);
  Status Flush(std::uint32_t number);
  Status FlushKeys();

  const std::string path_;
  const PackSchema schema_;
  bool replace_ = false;
  std::unique_ptr<RecordQueue> queue_;
  std::vector<FieldBuffer> buffers_;  // one for each field of the schema
  KeyEntry keys_;                     // those that wait in key_bytes_
  ByteWriter key_bytes_;
  std::uint64_t next_ = 0;
  std::uint64_t raw_bytes_ = 0;
  Status failure_;  // the first error, which every later call returns
};

}  // namespace forebay::compress

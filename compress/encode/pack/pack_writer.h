// Writes a pack file (docs/pack.md) sample by sample, in memory that is bounded by the schema. Use
// it to turn a data set into one file; pack_set_writer.h writes several, and adds to a set.
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
  // Threads that encode. The file is the same for any number. With 1, the caller's thread encodes.
  unsigned threads = 1;
  // Write statistics of every field at the end of the file.
  bool statistics = false;
  // Replace a file at PATH when the new one is finished. Without this, Create refuses if there is a
  // file, and Finish if one has appeared meanwhile; that file is not touched.
  bool replace = false;
  // The id of the pack, or of the whole set if one is written. Absent: random. The same samples,
  // options and id give the same bytes.
  std::optional<PackId> id = std::nullopt;
  // For profile `learned`: the predictor that corrects blocks where that saves bytes. It is stored
  // in the file, or only named there if embed_predictor is false. Its own size is not weighed
  // against what it saves.
  std::shared_ptr<const Predictor> predictor = nullptr;
  bool embed_predictor = true;
};

// The schema of a pack that is written with these options: `wanted`, with the profile's name in its
// provenance, and the predictor if there is one.
PackSchema SchemaAsWritten(PackSchema wanted, const PackWriterOptions& options);

// The checks that Create and Resume make on a schema. Errors: kInvalidArgument (CheckSchema,
// CheckWritableBound), kResourceExhausted (CheckScratch).
Status CheckWritable(const PackSchema& schema);

// The most bytes of samples that a writer holds at one time: samples_per_chunk whole samples of
// each fixed field, 4 MiB of each variable one, 3 MiB of keys, and the chunks that are being
// encoded. Tiles do not lower it, because all tiles of a run of samples fill together. Encoding
// needs more: in each thread 8 to 45 times a chunk's bytes, least for wide elements. `schema` must
// be valid (CheckSchema).
std::uint64_t BufferedBytesMax(const PackSchema& schema, unsigned threads);

struct PackSummary {
  std::uint64_t samples = 0;
  std::uint64_t raw_bytes = 0;   // of the samples' fields
  std::uint64_t file_bytes = 0;
  std::uint64_t chunks = 0;
};

class PackWalk;
class RecordQueue;

// Writes PATH.part, which is renamed to PATH when it is complete and on the disk. Meanwhile it is
// locked (flock): Create, Resume and Discard of another writer of PATH fail.
//
// Memory: the samples of chunks that are not full, and at most 2 * threads + 2 chunks that are
// being encoded (BufferedBytesMax). Errors: after an error, every later call returns the same
// error, and PATH.part stays for Resume. Threads: not thread-safe. Blocks: Add waits if the queue
// of chunks is full.
class PackWriter {
 public:
  // Begins a new pack. Adds the profile's name to the provenance. Errors: kInvalidArgument
  // (schema), kAlreadyExists (PATH or PATH.part), those of system calls, which also give a random
  // id.
  static Result<std::unique_ptr<PackWriter>> Create(const std::string& path,
                                                    const PackSchema& schema,
                                                    const PackWriterOptions& options);

  // Continues PATH.part, of which a damaged or incomplete end is cut off. The pack keeps its id.
  // The caller adds the samples from next_sample() on, with the same sequences as in the first run;
  // the file is then the same as that of an uninterrupted run. If PATH and PATH.part are two names
  // of one finished file, begins a new pack as Create does. Errors: kNotFound, kFailedPrecondition
  // (another schema, another id than the given one, an earlier version; another process is writing
  // PATH.part), kAlreadyExists (PATH).
  static Result<std::unique_ptr<PackWriter>> Resume(const std::string& path,
                                                    const PackSchema& schema,
                                                    const PackWriterOptions& options);

  // Removes PATH.part, if there is one. Errors: kFailedPrecondition (another process is writing
  // it), those of system calls.
  static Status Discard(const std::string& path);

  ~PackWriter();
  PackWriter(const PackWriter&) = delete;
  PackWriter& operator=(const PackWriter&) = delete;

  // The number of the sample that Add takes next.
  std::uint64_t next_sample() const { return next_; }

  // Says that the next sample begins a sequence. Chunks of fields with two axes or more end here,
  // so that nothing is predicted from one sequence to the next.
  Status BeginSequence();

  // Adds a sample: the bytes of its fields in the order of the schema, elements little-endian and
  // row-major, and its key, which is empty unless the schema is keyed. Errors: kInvalidArgument
  // (wrong number or size of fields, or a wrong key), and those of earlier chunks.
  Status Add(std::span<const std::span<const std::byte>> fields, std::string_view key);

  // Writes the remaining chunks, the index and the footer, syncs, and renames the file. Errors:
  // kFailedPrecondition (a resumed file has more samples than were added; PATH.part is another file
  // by now), kAlreadyExists (a file has appeared at PATH since Create; PATH.part is complete).
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

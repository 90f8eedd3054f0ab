// Writes a set of packs, or adds to one (docs/pack.md).
//
//   #include <array>
//
//   // Adds texts to a set, which is begun where there is none. A shard has 1 GiB of them at most.
//   forebay::Status AddTexts(const std::string& path, std::span<const std::string> texts) {
//     forebay::compress::PackSchema schema;
//     schema.fields.resize(1);   // a new field is a byte string of any length
//     schema.fields[0].name = "text";
//     forebay::compress::PackSetWriterOptions options;
//     options.append = true;
//     options.shard_raw_bytes = std::uint64_t{1} << 30;
//     FOREBAY_ASSIGN(const auto writer,
//                    forebay::compress::PackSetWriter::Open(path, schema, options));
//     for (const std::string& text : texts) {
//       FOREBAY_TRY(writer->Add(std::array{std::as_bytes(std::span(text))}, /*key=*/""));
//     }
//     FOREBAY_TRY(writer->Finish());   // readers see the new samples from now on
//     return {};
//   }
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "compress/encode/pack/pack_writer.h"
#include "compress/format/pack/pack_format.h"
#include "compress/format/pack/pack_manifest.h"
#include "proto/contract/result.h"

namespace forebay::compress {

struct PackSetWriterOptions {
  PackWriterOptions pack = {};
  // A shard ends before the sample with which it would hold more raw bytes than this; 0: all
  // samples of a run make one shard.
  std::uint64_t shard_raw_bytes = 0;
  bool append = false;  // to a set that may exist already
  bool resume = false;  // a run that was killed, with the same options and samples
};

struct PackSetSummary {
  std::uint64_t samples = 0, shards = 0, generation = 0;  // of the whole set
  std::uint64_t samples_added = 0, shards_added = 0;
  std::uint64_t file_bytes_added = 0;  // of these shards
};

// Writes shards beside the manifest at PATH: STEM-gGENERATION-NUMBER.fbp, where STEM is PATH
// without ".fbset". Readers see the set as it was until Finish has replaced the manifest, by
// rename, with the next generation; a run that was killed leaves its shards for `resume`. One
// writer at a time: PATH.lock is locked meanwhile. Not thread-safe.
class PackSetWriter {
 public:
  // Errors: kInvalidArgument (schema), kAlreadyExists (the set, without `append`; shards that a
  // killed run left, without `resume`), kFailedPrecondition (a set of another schema, or another
  // writer), those of PackWriter, a system's.
  static Result<std::unique_ptr<PackSetWriter>> Open(const std::string& path,
                                                     const PackSchema& schema,
                                                     const PackSetWriterOptions& options);

  ~PackSetWriter();
  PackSetWriter(const PackSetWriter&) = delete;
  PackSetWriter& operator=(const PackSetWriter&) = delete;

  // The number, among those of this run, of the sample that Add takes next: not 0 where shards of
  // a killed run are gone on with.
  std::uint64_t next_sample() const { return first_ + in_shard_; }

  // As of PackWriter. A shard begins a sequence.
  Status BeginSequence();
  Status Add(std::span<const std::span<const std::byte>> fields, std::string_view key);

  // Finishes the last shard and publishes the manifest. Without any sample a new set gets a shard
  // of none, an old one stays as it is.
  Result<PackSetSummary> Finish();

 private:
  class Lock;

  PackSetWriter(std::string path, PackSchema schema, PackSetWriterOptions options,
                std::unique_ptr<Lock> lock);
  Status Start();
  Status Remember(Status status);
  std::string ShardName() const;
  std::string ShardPath() const;
  std::optional<PackId> ShardIdGiven() const;
  Status List(const std::string& name);
  Status AdoptFinished();
  Status OpenShard(bool resume);
  Status CloseShard();

  const std::string path_;
  const PackSchema schema_;
  const PackSetWriterOptions options_;
  const std::unique_ptr<Lock> lock_;
  PackManifest manifest_;
  std::uint64_t writer_fingerprint_ = 0;
  std::size_t shards_before_ = 0;  // shards that the set had when it was opened
  std::uint64_t first_ = 0;        // samples of this run in finished shards
  std::uint64_t in_shard_ = 0;     // samples taken since
  std::uint64_t raw_bytes_ = 0;    // their bytes
  std::unique_ptr<PackWriter> shard_;
  Status failure_;  // the first error, which every later call returns
};

}  // namespace forebay::compress

// Writes a set of packs, or adds samples to one (docs/pack.md). Use it if a data set grows, or is
// too large for one file.
//
//   #include <array>
//
//   // Adds texts to a set, and begins the set if it does not exist. A shard has at most 1 GiB.
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
  // A shard ends before the sample that would take it beyond so many raw bytes. 0: one shard for
  // all samples of a run.
  std::uint64_t shard_raw_bytes = 0;
  bool append = false;  // add to the set if it exists
  bool resume = false;  // continue a run that was killed, with the same options and samples
};

struct PackSetSummary {
  std::uint64_t samples = 0, shards = 0, generation = 0;  // of the whole set
  std::uint64_t samples_added = 0, shards_added = 0;
  std::uint64_t file_bytes_added = 0;  // of these shards
};

// Writes shards beside the manifest at PATH, called STEM-gGENERATION-NUMBER.fbp, where STEM is PATH
// without ".fbset". Readers see the old set until Finish replaces the manifest, by rename, with the
// next generation. A run that was killed leaves its shards, which `resume` continues. Only one
// writer at a time: it holds a lock on PATH.lock. Not thread-safe.
class PackSetWriter {
 public:
  // Begins a set, or opens one. Errors: kInvalidArgument (schema), kAlreadyExists (the set exists
  // and `append` is false, or a killed run left shards and `resume` is false), kFailedPrecondition
  // (the set has another schema, or another writer is active), those of PackWriter and of system
  // calls.
  static Result<std::unique_ptr<PackSetWriter>> Open(const std::string& path,
                                                     const PackSchema& schema,
                                                     const PackSetWriterOptions& options);

  ~PackSetWriter();
  PackSetWriter(const PackSetWriter&) = delete;
  PackSetWriter& operator=(const PackSetWriter&) = delete;

  // The number of the sample that Add takes next, counted in this run. It is not 0 at first if
  // shards of a killed run are continued.
  std::uint64_t next_sample() const { return first_ + in_shard_; }

  // As those of PackWriter. Every shard begins a sequence.
  Status BeginSequence();
  Status Add(std::span<const std::span<const std::byte>> fields, std::string_view key);

  // Finishes the last shard and replaces the manifest. If no sample was added, a new set gets one
  // empty shard, and an existing set stays as it is.
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

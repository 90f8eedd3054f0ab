// Reads a set of packs: shards that look like one sequence of samples (docs/pack.md).
//
//   // A sample of a set whose first field is a byte string of any length.
//   forebay::Result<std::string> ReadText(const std::string& manifest_path, std::uint64_t sample) {
//     FOREBAY_ASSIGN(const auto set, forebay::compress::PackSet::Open(manifest_path));
//     FOREBAY_ASSIGN(const std::size_t scratch_bytes, set->ScratchBytes(sample, 1));
//     std::vector<std::byte> scratch(scratch_bytes);
//     FOREBAY_ASSIGN(const std::uint64_t text_bytes, set->SampleBytes(0, sample, scratch));
//     std::string text(text_bytes, ' ');
//     FOREBAY_TRY(
//         set->ReadBytes(0, sample, std::as_writable_bytes(std::span(text)), scratch));
//     return text;
//   }
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "compress/decode/pack/byte_source.h"
#include "compress/decode/pack/pack_file.h"
#include "compress/format/pack/pack_manifest.h"
#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"

namespace forebay::compress {

// An open shard.
struct PackShard {
  std::unique_ptr<ByteSource> source;
  PackFile file;
};

// An open set. Shards are opened when they are first needed, and the one unused longest is closed
// where more than `shards_open_max` would be open; whoever holds one keeps it open. Thread-safe;
// two threads that want the same closed shard may both read its index.
class PackSet {
 public:
  // Reads the manifest alone. Shards are opened as `read` says; where it has no finder, learned
  // predictors that they name are looked for beside the manifest (PredictorsBeside).
  // Errors: kInvalidArgument (not a manifest), kUnimplemented (a newer
  // one), kDataLoss, a system's; they name the file.
  static Result<std::unique_ptr<PackSet>> Open(const std::string& path,
                                               std::size_t shards_open_max = 64,
                                               PackReadOptions read = {});
  // The same for a manifest that was read elsewhere, whose shards lie in `folder` ("" for the
  // current one). Errors: kInvalidArgument (CheckManifest).
  static Result<std::unique_ptr<PackSet>> Open(PackManifest manifest, std::string folder,
                                               std::size_t shards_open_max = 64);

  const PackManifest& manifest() const { return manifest_; }
  std::uint64_t samples() const { return first_samples_.back(); }

  // Where a sample lies. kOutOfRange beyond the last.
  struct Place {
    std::size_t shard = 0;
    std::uint64_t sample = 0;  // in the shard
  };
  Result<Place> Find(std::uint64_t sample) const;
  // The number, in the set, of a shard's first sample.
  std::uint64_t FirstSample(std::size_t shard) const { return first_samples_[shard]; }

  // An open shard, found to be the file that the manifest names. Errors name the shard: kNotFound
  // (missing), kFailedPrecondition (another schema), kDataLoss (changed or damaged), those of
  // PackFile::Open.
  Result<std::shared_ptr<const PackShard>> Shard(std::size_t number) const;

  // The first shard's; that of every other but for its provenance. Opens the shard.
  Result<PackSchema> Schema() const;

  // Scratch memory for the calls below on these samples. Opens their shards.
  Result<std::size_t> ScratchBytes(std::uint64_t first_sample, std::uint64_t count) const;

  // As of PackFile, with samples numbered through the set. They allocate where a shard has to be
  // opened and for errors.
  Status Read(std::uint32_t field, std::uint64_t first_sample, std::uint64_t count,
              const PackRegion& region, const StridedOutput& out,
              std::span<std::byte> scratch) const;
  Status ReadSamples(std::uint32_t field, std::uint64_t first_sample, std::uint64_t count,
                     std::span<std::byte> out, std::span<std::byte> scratch) const;
  Result<std::uint64_t> SampleBytes(std::uint32_t field, std::uint64_t sample,
                                    std::span<std::byte> scratch) const;
  Status ReadBytes(std::uint32_t field, std::uint64_t sample, std::span<std::byte> out,
                   std::span<std::byte> scratch) const;
  Result<std::vector<std::string>> Keys(std::uint64_t first_sample, std::uint64_t count) const;

 private:
  using ShardPointer = std::shared_ptr<const PackShard>;

  PackSet(PackManifest manifest, std::string folder, std::size_t shards_open_max);
  Result<ShardPointer> OpenShard(std::size_t number) const;
  ShardPointer FindOpen(std::size_t number) const FOREBAY_EXCLUDES(mutex_);
  ShardPointer Keep(std::size_t number, ShardPointer shard) const FOREBAY_EXCLUDES(mutex_);
  // Calls visit(shard, first sample in the shard, count, samples of the run before these) for
  // each shard that has any of the samples.
  template <typename Visit>
  Status ForShards(std::uint64_t first_sample, std::uint64_t count, Visit visit) const;

  const PackManifest manifest_;
  const std::string folder_;  // empty, or with a final '/'
  const std::size_t shards_open_max_;
  PackReadOptions read_;  // not changed once it is open
  std::vector<std::uint64_t> first_samples_;  // one more than shards
  mutable Mutex mutex_;
  // Numbers and shards; the shard that was used last is the last.
  mutable std::vector<std::pair<std::size_t, ShardPointer>> open_ FOREBAY_GUARDED_BY(mutex_);
};

// A manifest file's content. Errors name the path.
Result<PackManifest> ReadManifestFile(const std::string& path);

// Whether a file begins as a manifest does. Errors: a system's, naming the path.
Result<bool> IsManifestFile(const std::string& path);

// The part of a path before its last '/', that included; empty where there is none.
std::string FolderOf(const std::string& path);

}  // namespace forebay::compress

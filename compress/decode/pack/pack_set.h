// Reads a set of packs: several pack files ("shards") that look like one sequence of samples
// (docs/pack.md). Use it for a manifest, NAME.fbset; a single pack is read with pack_file.h.
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

// An open set. A shard is opened when it is first needed. If more than `shards_open_max` would be
// open, the one that was unused longest is closed; a shard that a caller still holds stays open.
// Thread-safe; two threads that need the same closed shard may both read its index.
class PackSet {
 public:
  // Reads the manifest and opens no shard. Shards are later opened with the options `read`; if they
  // have no find_predictor, learned predictors are looked for beside the manifest
  // (PredictorsBeside). Errors: kInvalidArgument (not a manifest), kUnimplemented (written by a
  // newer version), kDataLoss, and those of system calls; all name the file.
  static Result<std::unique_ptr<PackSet>> Open(const std::string& path,
                                               std::size_t shards_open_max = 64,
                                               PackReadOptions read = {});
  // The same for a manifest that was read elsewhere, whose shards lie in `folder` ("" for the
  // current one). Errors: kInvalidArgument (CheckManifest).
  static Result<std::unique_ptr<PackSet>> Open(PackManifest manifest, std::string folder,
                                               std::size_t shards_open_max = 64);

  const PackManifest& manifest() const { return manifest_; }
  std::uint64_t samples() const { return first_samples_.back(); }

  // The shard in which a sample lies, and its number there. Errors: kOutOfRange.
  struct Place {
    std::size_t shard = 0;
    std::uint64_t sample = 0;  // in the shard
  };
  Result<Place> Find(std::uint64_t sample) const;
  // The number, in the set, of a shard's first sample.
  std::uint64_t FirstSample(std::size_t shard) const { return first_samples_[shard]; }

  // Opens a shard, unless it is open, and checks that it is the file that the manifest names.
  // Errors: kNotFound, kFailedPrecondition (another schema than the set's), kDataLoss (changed or
  // damaged), and those of PackFile::Open; all name the shard.
  Result<std::shared_ptr<const PackShard>> Shard(std::size_t number) const;

  // The schema of the first shard. Those of the other shards are the same, except that their
  // provenance may differ. Opens the shard.
  Result<PackSchema> Schema() const;

  // Bytes of scratch memory for the calls below on these samples. Opens their shards.
  Result<std::size_t> ScratchBytes(std::uint64_t first_sample, std::uint64_t count) const;

  // The calls of PackFile, with samples numbered through the whole set. They allocate memory only
  // for errors, for keys, and if a shard has to be opened.
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

// Reads and checks a manifest file. Errors name the path.
Result<PackManifest> ReadManifestFile(const std::string& path);

// Whether a file begins with the magic number of a manifest. Errors: those of system calls, with
// the path.
Result<bool> IsManifestFile(const std::string& path);

// The part of a path up to and including its last '/'; empty if there is none.
std::string FolderOf(const std::string& path);

}  // namespace forebay::compress

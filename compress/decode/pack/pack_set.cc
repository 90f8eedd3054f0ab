// Reads a set of packs: finds the shard of a sample by binary search over the shards' first
// samples, keeps the shards used last open, and splits calls at the borders of shards. A shard is
// opened without the lock, so two threads may open the same one; the first one to finish keeps it.
#include "compress/decode/pack/pack_set.h"

#include <algorithm>
#include <array>

#include "compress/decode/pack/predictor_file.h"
#include "proto/contract/limits.h"

namespace forebay::compress {
std::string FolderOf(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash + 1);
}

Result<PackManifest> ReadManifestFile(const std::string& path) {
  FOREBAY_ASSIGN(const std::unique_ptr<ByteSource> source, OpenByteSource(path));
  std::array<std::byte, kManifestHeaderBytes> header;
  // A file that is too short is passed on as it is: the parser says what is wrong with it.
  const auto at_most = std::min<std::uint64_t>(header.size(), source->size());
  const auto begin = std::span(header).first(static_cast<std::size_t>(at_most));
  FOREBAY_TRY(source->ReadAt(0, begin));
  const auto size = PackManifestBytes(begin);
  if (!size.has_value()) return size.error().WithContext(path);
  // The header alone decides how much is read: at most kPackManifestBytesMax, and no more than
  // the file has.
  // One byte more than the header says, if there is one: the parser refuses a file that goes on.
  std::vector<std::byte> bytes(
      static_cast<std::size_t>(std::min(*size + 1, source->size())));
  FOREBAY_TRY(source->ReadAt(0, bytes));
  auto manifest = ReadPackManifest(bytes);
  if (!manifest.has_value()) return manifest.error().WithContext(path);
  return manifest;
}

Result<bool> IsManifestFile(const std::string& path) {
  FOREBAY_ASSIGN(const std::unique_ptr<ByteSource> source, OpenByteSource(path));
  std::array<std::byte, 8> magic = {};
  // An error would be wrong here: a short file is no manifest, and it may be something else.
  if (source->size() < magic.size()) return false;
  FOREBAY_TRY(source->ReadAt(0, magic));
  return IsManifest(magic);
}

PackSet::PackSet(PackManifest manifest, std::string folder, std::size_t shards_open_max)
    : manifest_(std::move(manifest)),
      folder_(folder.empty() || folder.back() == '/' ? std::move(folder) : folder + '/'),
      // With 0 the shard that a call needs could never be kept.
      shards_open_max_(std::max<std::size_t>(1, shards_open_max)),
      first_samples_(1, 0) {
  for (const ShardEntry& shard : manifest_.shards) {
    first_samples_.push_back(first_samples_.back() + shard.samples);
  }
}

Result<std::unique_ptr<PackSet>> PackSet::Open(const std::string& path,
                                               std::size_t shards_open_max,
                                               PackReadOptions read) {
  FOREBAY_ASSIGN(PackManifest manifest, ReadManifestFile(path));
  FOREBAY_ASSIGN(std::unique_ptr<PackSet> set,
                 Open(std::move(manifest), FolderOf(path), shards_open_max));
  // Shards name predictors by their hash; the files lie beside the manifest.
  if (!read.find_predictor) read.find_predictor = PredictorsBeside(path);
  // No other thread has the set yet, so this needs no lock.
  set->read_ = std::move(read);
  return set;
}

Result<std::unique_ptr<PackSet>> PackSet::Open(PackManifest manifest, std::string folder,
                                               std::size_t shards_open_max) {
  FOREBAY_TRY(CheckManifest(manifest));
  return std::unique_ptr<PackSet>(
      new PackSet(std::move(manifest), std::move(folder), shards_open_max));
}

Result<PackSet::Place> PackSet::Find(std::uint64_t sample) const {
  if (sample >= samples()) {
    return Error(ErrorCode::kOutOfRange,
                 "set of packs: it has " + std::to_string(samples()) + " samples");
  }
  // The last shard that begins at or before the sample; empty ones begin where the next does.
  const auto next = std::ranges::upper_bound(first_samples_, sample);
  const auto shard = static_cast<std::size_t>(next - first_samples_.begin()) - 1;
  return Place{.shard = shard, .sample = sample - first_samples_[shard]};
}

// Looks for an open shard and makes it the one used last.
PackSet::ShardPointer PackSet::FindOpen(std::size_t number) const {
  const MutexLock lock(mutex_);
  const auto found =
      std::ranges::find(open_, number, &std::pair<std::size_t, ShardPointer>::first);
  if (found == open_.end()) return nullptr;
  // The list is short, so moving its entries costs less than a linked list would.
  std::rotate(found, found + 1, open_.end());
  return open_.back().second;
}

// Adds an open shard to the list, and drops the one that was unused longest. Whoever still holds
// that one keeps it open.
PackSet::ShardPointer PackSet::Keep(std::size_t number, ShardPointer shard) const {
  // Closing a file may take long on a network file system. `closed` is declared before the lock, so
  // it is destroyed after it.
  ShardPointer closed;  // outside the lock
  const MutexLock lock(mutex_);
  const auto found =
      std::ranges::find(open_, number, &std::pair<std::size_t, ShardPointer>::first);
  // Another thread has opened the same shard meanwhile. Its copy stays, and this one is dropped.
  if (found != open_.end()) return found->second;
  if (open_.size() == shards_open_max_) {
    closed = std::move(open_.front().second);
    open_.erase(open_.begin());
  }
  open_.emplace_back(number, shard);
  return shard;
}

Result<PackSet::ShardPointer> PackSet::OpenShard(std::size_t number) const {
  const ShardEntry& entry = manifest_.shards[number];
  // IsShardName has refused names that lead out of the folder.
  FOREBAY_ASSIGN(std::unique_ptr<ByteSource> source, OpenByteSource(folder_ + entry.name));
  const auto changed = [](const std::string& what) {
    return Error(ErrorCode::kDataLoss, "not the file that the manifest names: " + what);
  };
  // A shard that was replaced or cut off is found by its size or its index's checksum (the root),
  // without reading its data.
  if (source->size() != entry.file_bytes) {
    return changed("it has " + std::to_string(source->size()) + " bytes, wanted are " +
                   std::to_string(entry.file_bytes));
  }
  FOREBAY_ASSIGN(PackFile file, PackFile::Open(*source, read_));
  // Everything that was planned for the set's fields would be wrong for this file.
  if (file.schema_fingerprint() != manifest_.schema_fingerprint) {
    return Error(ErrorCode::kFailedPrecondition, "its schema is not the set's");
  }
  if (file.samples() != entry.samples || file.root() != entry.root) {
    return changed("its index is another one");
  }
  return std::make_shared<const PackShard>(
      PackShard{.source = std::move(source), .file = std::move(file)});
}

Result<PackSet::ShardPointer> PackSet::Shard(std::size_t number) const {
  if (number >= manifest_.shards.size()) {
    return Error(ErrorCode::kOutOfRange, "set of packs: it has " +
                                             std::to_string(manifest_.shards.size()) + " shards");
  }
  // Opening reads a footer and an index, so it is done without the lock; other threads go on
  // meanwhile.
  if (ShardPointer open = FindOpen(number)) return open;
  auto shard = OpenShard(number);
  if (!shard.has_value()) {
    return shard.error().WithContext("shard " + manifest_.shards[number].name);
  }
  return Keep(number, std::move(*shard));
}

Result<PackSchema> PackSet::Schema() const {
  FOREBAY_ASSIGN(const ShardPointer first, Shard(0));
  return first->file.schema();
}

// Calls `visit` with the pack, the first sample within it, the number of samples there, and how
// many samples came before, for each shard that [first_sample, first_sample + count) reaches. A
// shard's pointer is held during the call, so that it stays open.
template <typename Visit>
Status PackSet::ForShards(std::uint64_t first_sample, std::uint64_t count, Visit visit) const {
  if (first_sample > samples() || count > samples() - first_sample) {
    return Error(ErrorCode::kOutOfRange,
                 "set of packs: it has " + std::to_string(samples()) + " samples");
  }
  std::uint64_t done = 0;
  while (done < count) {
    FOREBAY_ASSIGN(const Place place, Find(first_sample + done));
    FOREBAY_ASSIGN(const ShardPointer shard, Shard(place.shard));
    // At least 1, because Find skips empty shards: the loop ends.
    const std::uint64_t here =
        std::min(count - done, manifest_.shards[place.shard].samples - place.sample);
    const Status visited = visit(shard->file, place.sample, here, done);
    if (!visited.has_value()) {
      return visited.error().WithContext("shard " + manifest_.shards[place.shard].name);
    }
    done += here;
  }
  return {};
}

Result<std::size_t> PackSet::ScratchBytes(std::uint64_t first_sample,
                                          std::uint64_t count) const {
  std::size_t bytes = 0;
  FOREBAY_TRY(ForShards(first_sample, count,
                        [&](const PackFile& file, std::uint64_t, std::uint64_t,
                            std::uint64_t) -> Status {
                          bytes = std::max(bytes, file.ScratchBytes());
                          return {};
                        }));
  return bytes;
}

Status PackSet::Read(std::uint32_t field, std::uint64_t first_sample, std::uint64_t count,
                     const PackRegion& region, const StridedOutput& out,
                     std::span<std::byte> scratch) const {
  return ForShards(first_sample, count,
                   [&](const PackFile& file, std::uint64_t first, std::uint64_t here,
                       std::uint64_t done) -> Status {
                     // A product that wraps would pass the check of the size.
                     if (out.sample_stride != 0 && done > out.memory.size() / out.sample_stride) {
                       return Error(ErrorCode::kInvalidArgument, "the output is too small");
                     }
                     StridedOutput part = out;
                     part.memory = out.memory.subspan(
                         static_cast<std::size_t>(done) * out.sample_stride);
                     return file.Read(field, first, here, region, part, scratch);
                   });
}

Status PackSet::ReadSamples(std::uint32_t field, std::uint64_t first_sample, std::uint64_t count,
                            std::span<std::byte> out, std::span<std::byte> scratch) const {
  return ForShards(first_sample, count,
                   [&](const PackFile& file, std::uint64_t first, std::uint64_t here,
                       std::uint64_t done) -> Status {
                     if (field >= file.schema().fields.size()) {
                       return Error(ErrorCode::kInvalidArgument, "pack: no such field");
                     }
                     const std::uint64_t bytes = file.schema().fields[field].sample_bytes();
                     // The number means nothing for a variable field, which PackFile refuses.
                     if (bytes == 0 || done > out.size() / bytes) {
                       return Error(ErrorCode::kInvalidArgument, "the output is too small");
                     }
                     return file.ReadSamples(
                         field, first, here,
                         out.subspan(static_cast<std::size_t>(done * bytes)), scratch);
                   });
}

Result<std::uint64_t> PackSet::SampleBytes(std::uint32_t field, std::uint64_t sample,
                                           std::span<std::byte> scratch) const {
  FOREBAY_ASSIGN(const Place place, Find(sample));
  FOREBAY_ASSIGN(const ShardPointer shard, Shard(place.shard));
  const auto bytes = shard->file.SampleBytes(field, place.sample, scratch);
  if (bytes.has_value()) return bytes;
  return bytes.error().WithContext("shard " + manifest_.shards[place.shard].name);
}

Status PackSet::ReadBytes(std::uint32_t field, std::uint64_t sample, std::span<std::byte> out,
                          std::span<std::byte> scratch) const {
  // A sample lies in one shard, so this visits one file.
  return ForShards(sample, 1,
                   [&](const PackFile& file, std::uint64_t first, std::uint64_t, std::uint64_t) {
                     return file.ReadBytes(field, first, out, scratch);
                   });
}

Result<std::vector<std::string>> PackSet::Keys(std::uint64_t first_sample,
                                               std::uint64_t count) const {
  std::vector<std::string> keys;
  FOREBAY_TRY(ForShards(first_sample, count,
                        [&](const PackFile& file, std::uint64_t first, std::uint64_t here,
                            std::uint64_t) -> Status {
                          FOREBAY_ASSIGN(std::vector<std::string> some, file.Keys(first, here));
                          keys.insert(keys.end(), std::make_move_iterator(some.begin()),
                                      std::make_move_iterator(some.end()));
                          return {};
                        }));
  return keys;
}

}  // namespace forebay::compress

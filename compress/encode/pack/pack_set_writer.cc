// Writes a set of packs: one PackWriter at a time, and a manifest that is replaced by rename at the
// end. A shard's name has the set's generation and its number, so shards of a killed run are
// recognised: finished ones are adopted, an unfinished one is resumed. An flock on PATH.lock keeps
// a second writer out.
#include "compress/encode/pack/pack_set_writer.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "compress/decode/pack/pack_set.h"
#include "compress/encode/pack/publish_file.h"
#include "proto/contract/limits.h"
#include "proto/contract/unique_fd.h"

namespace forebay::compress {
namespace {

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

// Neither overwritten nor adopted unasked: the file may be all that is left of hours of work.
Error LeftOver(const std::string& path) {
  return Error(ErrorCode::kAlreadyExists,
               path + ": left by a run that did not end; resume it or remove the file");
}

}  // namespace

// Holds an exclusive flock on PATH.lock while a set is written, and removes the file at the end.
class PackSetWriter::Lock {
 public:
  static Result<std::unique_ptr<Lock>> Take(const std::string& path) {
    auto lock = std::make_unique<Lock>();
    lock->path_ = path + ".lock";
    lock->file_ = UniqueFd(open(lock->path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    if (!lock->file_.valid()) return Error::FromErrno(errno, lock->path_ + ": creating");
    const bool taken = flock(lock->file_.get(), LOCK_EX | LOCK_NB) == 0;
    if (!taken && errno != EWOULDBLOCK) return Error::FromErrno(errno, lock->path_ + ": locking");
    // The previous writer may have removed the file between our open and flock: then we hold the
    // lock of a file that has no name any more.
    struct stat mine = {}, there = {};
    if (!taken || fstat(lock->file_.get(), &mine) != 0 || stat(lock->path_.c_str(), &there) != 0 ||
        mine.st_ino != there.st_ino) {
      lock->file_.Reset();
      return Error(ErrorCode::kFailedPrecondition,
                   path + ": another process writes to this set; try again later");
    }
    return lock;
  }

  Lock() = default;
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  ~Lock() {
    // Removed while the lock is still held: the file descriptor is closed after this.
    if (file_.valid()) unlink(path_.c_str());
  }

 private:
  std::string path_;
  UniqueFd file_;
};

PackSetWriter::PackSetWriter(std::string path, PackSchema schema, PackSetWriterOptions options,
                             std::unique_ptr<Lock> lock)
    : path_(std::move(path)),
      schema_(std::move(schema)),
      options_(options),
      lock_(std::move(lock)) {}

// Reads the manifest, if there is one, and takes over the shards that a killed run left.
Status PackSetWriter::Start() {
  // The fingerprints are those of the schema as the shards will have it, with the profile in its
  // provenance.
  const auto start = WriteSchema(SchemaAsWritten(schema_, options_.pack));
  FOREBAY_ASSIGN(const PackHeader header, ReadPackHeader(start));
  writer_fingerprint_ = WriterFingerprint(header);
  FOREBAY_ASSIGN(const std::uint64_t fingerprint, SchemaFingerprint(start));
  if (Exists(path_)) {
    if (!options_.append) {
      return Error(ErrorCode::kAlreadyExists,
                   path_ + ": exists already; append to it or remove it first");
    }
    FOREBAY_ASSIGN(manifest_, ReadManifestFile(path_));
    if (manifest_.schema_fingerprint != fingerprint) {
      return Error(ErrorCode::kFailedPrecondition,
                   path_ +
                       ": a set of another schema: fields, shapes, bounds and samples per "
                       "chunk are to be the same");
    }
    // The new shards' names have the new generation, so they cannot meet the names of shards that
    // the manifest already lists.
    ++manifest_.generation;
  }
  manifest_.schema_fingerprint = fingerprint;
  shards_before_ = manifest_.shards.size();
  // Finished shards first, because the unfinished one has the number behind theirs.
  FOREBAY_TRY(AdoptFinished());
  if (!Exists(ShardPath() + ".part")) return {};
  if (!options_.resume) return LeftOver(ShardPath() + ".part");
  return OpenShard(true);
}

Status PackSetWriter::BeginSequence() {
  FOREBAY_TRY(failure_);
  // A new shard begins a sequence anyway, and the part that a killed run wrote has its sequences
  // already.
  if (shard_ == nullptr || in_shard_ < shard_->next_sample()) return {};
  return Remember(shard_->BeginSequence());
}

Status PackSetWriter::Add(std::span<const std::span<const std::byte>> fields,
                          std::string_view key) {
  FOREBAY_TRY(failure_);
  std::uint64_t bytes = 0;
  for (const auto field : fields) bytes += field.size();
  // The sizes of the samples alone decide where a shard ends, so a resumed run cuts at the same
  // places. A shard has at least one sample, however large that is.
  if (options_.shard_raw_bytes > 0 && in_shard_ > 0 &&
      (raw_bytes_ >= options_.shard_raw_bytes || bytes > options_.shard_raw_bytes - raw_bytes_)) {
    FOREBAY_TRY(Remember(CloseShard()));
  }
  if (shard_ == nullptr) FOREBAY_TRY(Remember(OpenShard(false)));
  // Samples that a killed run has written are counted and not added again: their sizes tell where
  // the shard ends.
  if (in_shard_ >= shard_->next_sample()) FOREBAY_TRY(Remember(shard_->Add(fields, key)));
  ++in_shard_;
  raw_bytes_ += bytes;
  return {};
}

Result<PackSetSummary> PackSetWriter::Finish() {
  FOREBAY_TRY(failure_);
  // A set of no samples still gets one shard: a manifest without shards is not valid.
  if (shard_ == nullptr && manifest_.shards.empty()) FOREBAY_TRY(Remember(OpenShard(false)));
  if (shard_ != nullptr) FOREBAY_TRY(Remember(CloseShard()));
  const std::uint64_t added = manifest_.shards.size() - shards_before_;
  if (added > 0) {
    FOREBAY_TRY(Remember(ReplaceFile(path_, WritePackManifest(manifest_))));
  } else {
    // No shard was added, so the set is what it was.
    --manifest_.generation;
  }
  failure_ = Error(ErrorCode::kFailedPrecondition, path_ + ": finished already");
  PackSetSummary summary{
      .shards = manifest_.shards.size(), .generation = manifest_.generation, .shards_added = added};
  for (std::size_t i = 0; i < manifest_.shards.size(); ++i) {
    summary.samples += manifest_.shards[i].samples;
    if (i < shards_before_) continue;
    summary.samples_added += manifest_.shards[i].samples;
    summary.file_bytes_added += manifest_.shards[i].file_bytes;
  }
  return summary;
}

Status PackSetWriter::Remember(Status status) {
  if (!status.has_value()) failure_ = status;
  return status;
}

// The name of the shard that comes next, beneath the manifest's folder.
std::string PackSetWriter::ShardName() const {
  std::string stem = path_.substr(FolderOf(path_).size());
  if (stem.ends_with(".fbset")) stem.resize(stem.size() - 6);
  char numbers[64];
  std::snprintf(numbers, sizeof(numbers), "-g%04llu-%05llu.fbp",
                static_cast<unsigned long long>(manifest_.generation),
                static_cast<unsigned long long>(manifest_.shards.size() - shards_before_));
  return stem + numbers;
}
std::string PackSetWriter::ShardPath() const {
  return FolderOf(path_) + ShardName();
}

// The id of the shard that comes next; absent where none was given for the set.
std::optional<PackId> PackSetWriter::ShardIdGiven() const {
  if (!options_.pack.id.has_value()) return std::nullopt;
  return ShardId(*options_.pack.id, manifest_.generation, manifest_.shards.size() - shards_before_);
}

// Notes a finished shard file in the manifest.
Status PackSetWriter::List(const std::string& name) {
  FOREBAY_ASSIGN(const std::unique_ptr<ByteSource> source, OpenByteSource(FolderOf(path_) + name));
  // A shard that names its predictor is opened with the one it was just written with; no file is
  // looked for.
  const auto own = [this](const Sha256Digest&) -> Result<std::shared_ptr<const Predictor>> {
    return options_.pack.predictor;
  };
  const auto file = PackFile::Open(*source, {.budget = {}, .find_predictor = own});
  if (!file.has_value()) return file.error().WithContext(FolderOf(path_) + name);
  const std::optional<PackId> id = ShardIdGiven();
  if (WriterFingerprint(file->header()) != writer_fingerprint_ ||
      (id.has_value() && file->header().id != id)) {
    return Error(
        ErrorCode::kFailedPrecondition,
        FolderOf(path_) + name + ": of another schema or other options; remove it to begin anew");
  }
  manifest_.shards.push_back({.name = name,
                              .file_bytes = source->size(),
                              .samples = file->samples(),
                              .root = file->root()});
  first_ += file->samples();
  return CheckManifest(manifest_);
}

Status PackSetWriter::AdoptFinished() {
  // List() adds the shard to the manifest, so ShardPath() names the next one afterwards.
  while (Exists(ShardPath())) {
    if (!options_.resume) return LeftOver(ShardPath());
    FOREBAY_TRY(List(ShardName()));
  }
  return {};
}

Status PackSetWriter::OpenShard(bool resume) {
  PackWriterOptions options = options_.pack;
  options.id = ShardIdGiven();
  if (resume) {
    FOREBAY_ASSIGN(shard_, PackWriter::Resume(ShardPath(), schema_, options));
  } else {
    FOREBAY_ASSIGN(shard_, PackWriter::Create(ShardPath(), schema_, options));
  }
  in_shard_ = raw_bytes_ = 0;
  return {};
}

Status PackSetWriter::CloseShard() {
  // Fewer samples than a killed run wrote would leave its rest in the file.
  if (in_shard_ < shard_->next_sample()) {
    return Error(ErrorCode::kFailedPrecondition,
                 ShardPath() + ".part: has " + std::to_string(shard_->next_sample()) +
                     " samples, more than were added; remove it to begin anew");
  }
  const auto written = shard_->Finish();
  if (!written.has_value()) return written.error();
  shard_.reset();
  in_shard_ = raw_bytes_ = 0;
  return List(ShardName());
}

PackSetWriter::~PackSetWriter() = default;

Result<std::unique_ptr<PackSetWriter>> PackSetWriter::Open(const std::string& path,
                                                           const PackSchema& schema,
                                                           const PackSetWriterOptions& options) {
  FOREBAY_TRY(CheckWritable(schema));
  if (!IsShardName(path.substr(FolderOf(path).size()))) {
    return Error(ErrorCode::kInvalidArgument, path + ": names no file");
  }
  FOREBAY_ASSIGN(std::unique_ptr<Lock> lock, Lock::Take(path));
  std::unique_ptr<PackSetWriter> writer(new PackSetWriter(path, schema, options, std::move(lock)));
  FOREBAY_TRY(writer->Start());
  return writer;
}

}  // namespace forebay::compress

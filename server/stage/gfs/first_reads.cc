// The file is a header and records of 40 bytes (docs/first_reads.md), each with its own checksum.
// Loading stops at the first damaged record and cuts the file there. Appends are not synced: a
// record that is lost in a crash only means that the next read of its extent counts as the first.
#include "server/stage/gfs/first_reads.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "proto/contract/byte_cursor.h"
#include "proto/contract/checksum.h"
#include "proto/contract/limits.h"
#include "server/io/log.h"

namespace forebay::stage {
namespace {

constexpr std::uint64_t kMagic = 0x3153444145524246;  // "FBREADS1"
constexpr std::size_t kHeaderBytes = 16;
constexpr std::size_t kRecordBytes = 40;
constexpr std::uint64_t kFileBytesMax = 1ULL << 32;  // 100 million extents
constexpr std::uint64_t kReadBytes = 8 * limits::kMiB;

std::vector<std::byte> Header() {
  ByteWriter writer;
  writer.Le<std::uint64_t>(kMagic);
  writer.Le<std::uint64_t>(kRecordBytes);
  return {writer.bytes().begin(), writer.bytes().end()};
}

// Appends a record to `records`.
void AddRecord(const FirstRead& read, bool is_of_other, std::vector<std::byte>& records) {
  ByteWriter writer;
  writer.Le<std::uint64_t>(read.key.dataset);
  writer.Le<std::uint32_t>(read.key.extent.value());
  writer.Le<std::uint32_t>(is_of_other ? 1 : 0);
  writer.Le<std::uint64_t>(read.key.identity);
  writer.Le<std::uint64_t>(read.checksum);
  writer.Le<std::uint64_t>(Checksum(writer.bytes()));
  records.insert(records.end(), writer.bytes().begin(), writer.bytes().end());
}

}  // namespace

Status FirstReads::Open(io::IoBackend& backend, io::Directory& directory, std::string name,
                        bool forget) {
  bool is_new = false;
  {
    const MutexLock lock(mutex_);
    FOREBAY_ASSIGN(is_new, OpenLocked(backend, directory, std::move(name), forget));
  }
  // So that the name of a new file survives a crash. Without the lock: a disk may take seconds for
  // it, and other nodes wait for an answer of KeepOfOther.
  return is_new ? directory.Sync("") : Status();
}

// Returns whether the file is a new one.
Result<bool> FirstReads::OpenLocked(io::IoBackend& backend, io::Directory& directory,
                                    std::string name, bool forget) {
  was_opened_ = true;
  if (forget) {
    // Cleared and closed before the file is removed. If that fails, neither this daemon compares
    // with an old checksum, nor does it append a record behind an old one of the same extent, which
    // the next daemon would take for the first read.
    known_.clear();
    file_.reset();
    const Status removed = directory.Unlink(name);
    if (!removed.has_value() && removed.error().code() != ErrorCode::kNotFound) {
      return removed.error();
    }
  }
  if (file_ != nullptr) return false;  // cataloguing runs again, after a failure
  backend_ = &backend;
  directory_ = &directory;
  name_ = std::move(name);
  // A queue belongs to one thread, so every call that uses the file brings its own.
  FOREBAY_ASSIGN(const auto queue, backend.CreateQueue({.depth = 1}));
  return Load(*queue);
}

// Reads the records up to the first damaged one, and truncates the file there. Returns whether the
// file is a new one.
Result<bool> FirstReads::Load(io::IoQueue& queue) {
  std::vector<std::byte> bytes;
  auto found = directory_->Open(name_, io::OpenMode::kRead);
  if (found.has_value()) {
    FOREBAY_ASSIGN(const io::FileInfo info, (*found)->Info());
    bytes.resize(std::min(info.bytes, kFileBytesMax));  // the size comes from outside
    for (std::uint64_t at = 0; at < bytes.size(); at += kReadBytes) {
      const std::uint64_t length = std::min<std::uint64_t>(kReadBytes, bytes.size() - at);
      FOREBAY_TRY(io::ReadFully(queue, **found, at, std::span(bytes).subspan(at, length)));
    }
  } else if (found.error().code() != ErrorCode::kNotFound) {
    return found.error();
  }
  const std::vector<std::byte> header = Header();
  // Without a valid header no record can be trusted: the whole file is dropped, as if it were new.
  const bool has_header = bytes.size() >= kHeaderBytes &&
                          std::equal(header.begin(), header.end(), bytes.begin());
  std::size_t good = has_header ? kHeaderBytes : 0;
  while (has_header && bytes.size() - good >= kRecordBytes) {
    const auto record = std::span<const std::byte>(bytes).subspan(good, kRecordBytes);
    ByteReader reader(record);
    tier::ExtentKey key;
    key.dataset = reader.ReadLe<std::uint64_t>();
    key.extent = ExtentId(reader.ReadLe<std::uint32_t>());
    const bool is_of_other = reader.ReadLe<std::uint32_t>() != 0;
    key.identity = reader.ReadLe<std::uint64_t>();
    const auto image_checksum = reader.ReadLe<std::uint64_t>();
    if (reader.ReadLe<std::uint64_t>() != Checksum(record.first(kRecordBytes - 8))) break;
    // If a key occurs twice, the first record is the first read.
    known_.try_emplace(key, Known{.checksum = image_checksum, .is_of_other = is_of_other});
    good += kRecordBytes;
  }
  if (good < bytes.size()) {
    log::Warn("'{}' in daemon.state_dir: the last {} bytes are damaged and dropped; the extents "
              "that they describe are not compared until they are read again",
              name_, bytes.size() - good);
  }
  // Truncated, because a reader stops at the damage and would not see records that follow it.
  FOREBAY_ASSIGN(std::unique_ptr<io::File> file, directory_->Open(name_, io::OpenMode::kAppend));
  if (good < bytes.size()) FOREBAY_TRY(file->Truncate(good));
  // A new file and a dropped one begin with a header.
  const bool is_new = good == 0;
  if (is_new) FOREBAY_TRY(io::WriteFully(queue, *file, 0, header));
  // Only now: records are appended where the next reader of the file finds them, or not at all.
  file_ = std::move(file);
  file_bytes_ = is_new ? header.size() : good;
  return is_new;
}

bool FirstReads::was_opened() const {
  const MutexLock lock(mutex_);
  return was_opened_;
}

void FirstReads::Forget() {
  const MutexLock lock(mutex_);
  known_.clear();
}

Status FirstReads::Append(std::span<const std::byte> records) {
  // Any thread may append, and a queue belongs to one thread. An extent is appended once, so making
  // a queue each time costs little.
  FOREBAY_ASSIGN(const auto queue, backend_->CreateQueue({.depth = 1}));
  FOREBAY_TRY(io::WriteFully(*queue, *file_, file_bytes_, records));
  file_bytes_ += records.size();
  return {};
}

void FirstReads::Save(std::span<const std::byte> records) {
  if (file_ == nullptr || records.empty()) return;
  const Status appended = Append(records);
  if (appended.has_value()) return;
  // The last record may be incomplete. A reader of the file stops there, so later records would be
  // lost anyway; nothing more is written.
  log::Warn("'{}' in daemon.state_dir: checksums of first reads are no longer saved until the "
            "daemon is restarted; free space there: {}",
            name_, appended.error().ToString());
  file_.reset();
}

FirstReads::Outcome FirstReads::Compare(const tier::ExtentKey& key,
                                        std::uint64_t image_checksum) {
  const MutexLock lock(mutex_);
  // Lookup and record in one step under the lock: of two concurrent reads only one is the first.
  const auto [known, is_first] = known_.try_emplace(key, Known{.checksum = image_checksum});
  if (!is_first) {
    if (known->second.checksum == image_checksum) return Outcome::kSame;
    ++mismatches_;
    return Outcome::kChanged;
  }
  std::vector<std::byte> record;
  AddRecord({.key = key, .checksum = image_checksum}, /*is_of_other=*/false, record);
  Save(record);
  return Outcome::kFirst;
}

std::vector<std::uint32_t> FirstReads::KeepOfOther(std::span<const FirstRead> reads) {
  std::vector<std::uint32_t> differing;
  std::vector<std::byte> records;  // one write for all
  const MutexLock lock(mutex_);
  for (std::size_t i = 0; i < reads.size(); ++i) {
    const auto [known, is_first] = known_.try_emplace(
        reads[i].key, Known{.checksum = reads[i].checksum, .is_of_other = true});
    if (is_first) AddRecord(reads[i], /*is_of_other=*/true, records);
    if (known->second.checksum == reads[i].checksum) continue;
    ++mismatches_;
    differing.push_back(static_cast<std::uint32_t>(i));
  }
  Save(records);
  return differing;
}

std::optional<std::uint64_t> FirstReads::Find(const tier::ExtentKey& key) const {
  const MutexLock lock(mutex_);
  const auto known = known_.find(key);
  return known == known_.end() ? std::nullopt : std::optional(known->second.checksum);
}

bool FirstReads::IsOfOther(const tier::ExtentKey& key) const {
  const MutexLock lock(mutex_);
  const auto known = known_.find(key);
  return known != known_.end() && known->second.is_of_other;
}

std::size_t FirstReads::count() const {
  const MutexLock lock(mutex_);
  return known_.size();
}

void FirstReads::CountMismatch() {
  const MutexLock lock(mutex_);
  ++mismatches_;
}

bool FirstReads::Differs(const tier::ExtentKey& key, std::uint64_t image_checksum) const {
  const MutexLock lock(mutex_);
  // Unlike Compare, this records nothing: an extent that was never read does not differ.
  const auto known = known_.find(key);
  return known != known_.end() && known->second.checksum != image_checksum;
}

std::uint64_t FirstReads::mismatches() const {
  const MutexLock lock(mutex_);
  return mismatches_;
}

}  // namespace forebay::stage

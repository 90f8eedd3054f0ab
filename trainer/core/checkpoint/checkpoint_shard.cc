// Files of a checkpoint, by plain system calls, because success has to mean that the bytes are on
// the disk: every write ends in fsync. The hash of a shard is computed while it is written, from
// the same bytes, and compared when it is read back.
#include "trainer/core/checkpoint/checkpoint_shard.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include <cerrno>
#include <vector>

#include "proto/contract/checksum.h"
#include "proto/contract/unique_fd.h"
#include "trainer/core/weights/safetensors.h"

namespace forebay::train {
namespace {

namespace fs = std::filesystem;

// At a time, when a shard is verified: it may be larger than the memory.
constexpr std::size_t kReadBytes = 1U << 20;

Result<UniqueFd> Open(const fs::path& path, int flags) {
  // O_CLOEXEC: a program that the process starts must not hold files of a checkpoint open.
  UniqueFd fd(::open(path.c_str(), flags | O_CLOEXEC, 0644));
  if (!fd.valid()) return Error::FromErrno(errno, path.string() + ": open");
  return fd;
}

// A checkpoint folder may hold anything: opening a pipe would wait for a writer without O_NONBLOCK,
// and a device has no size.
Result<UniqueFd> OpenRegular(const fs::path& path, std::uint64_t& bytes) {
  FOREBAY_ASSIGN(UniqueFd fd, Open(path, O_RDONLY | O_NONBLOCK));
  struct stat status = {};
  if (::fstat(fd.get(), &status) != 0) return Error::FromErrno(errno, path.string() + ": stat");
  if (!S_ISREG(status.st_mode)) {
    return Error(ErrorCode::kInvalidArgument, path.string() + ": not a regular file");
  }
  bytes = static_cast<std::uint64_t>(status.st_size);
  return fd;
}

// Bytes read, fewer than asked for at the end of the file only.
Result<std::size_t> ReadSome(int fd, std::span<std::byte> bytes, const fs::path& path) {
  std::size_t at = 0;
  while (at < bytes.size()) {
    const ssize_t got = ::read(fd, bytes.data() + at, bytes.size() - at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Error::FromErrno(errno, path.string() + ": read");
    if (got == 0) break;
    at += static_cast<std::size_t>(got);
  }
  return at;
}

// A disk may report a failed write here only, so the result counts. A sync that failed is not
// repeated, because the kernel may have dropped the pages.
Status Sync(int fd, const fs::path& path) {
  if (::fsync(fd) != 0) return Error::FromErrno(errno, path.string() + ": fsync");
  return {};
}

// The safetensors header of the tensors in their order.
std::vector<std::byte> HeaderOf(std::span<const CheckpointTensor> tensors) {
  std::vector<TensorEntry> entries;
  std::uint64_t offset = 0;
  for (const CheckpointTensor& tensor : tensors) {
    // Tensors lie one after the other without gaps, in their order.
    const std::uint64_t end = offset + tensor.bytes.size();
    entries.push_back({.name = tensor.name,
                       .dtype = tensor.dtype,
                       .shape = tensor.shape,
                       .begin = offset,
                       .end = end});
    offset = end;
  }
  // Programs that read weights of PyTorch ask for this.
  return EncodeSafetensorsHeader({{"format", "pt"}}, entries);
}

}  // namespace

// write may take a part only, for example shortly before the disk is full; the next call then has
// the error.
Status WriteAll(int fd, std::span<const std::byte> bytes, const fs::path& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Error::FromErrno(errno, path.string() + ": write");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return {};
}

// Hashes the bytes while they are written, so that they are read from memory once.
Result<ShardFacts> WriteShard(const fs::path& path, std::span<const CheckpointTensor> tensors) {
  FOREBAY_ASSIGN(const UniqueFd fd, Open(path, O_WRONLY | O_CREAT | O_TRUNC));
  ShardFacts facts;
  ChecksumStream hash;
  const auto append = [&](std::span<const std::byte> bytes) {
    hash.Update(bytes);
    facts.bytes += bytes.size();
    return WriteAll(fd.get(), bytes, path);
  };
  FOREBAY_TRY(append(HeaderOf(tensors)));
  for (const CheckpointTensor& tensor : tensors) FOREBAY_TRY(append(tensor.bytes));
  // Before the size and the hash are told to rank 0, which publishes a checkpoint with these
  // shards.
  FOREBAY_TRY(Sync(fd.get(), path));
  facts.hash = hash.Finish();
  return facts;
}

// Size first, which costs nothing, then every byte.
Status VerifyShard(const fs::path& path, const ShardFacts& facts) {
  std::uint64_t bytes = 0;
  FOREBAY_ASSIGN(const UniqueFd fd, OpenRegular(path, bytes));
  if (bytes != facts.bytes) {
    return Error(ErrorCode::kDataLoss, fmt::format("{}: has {} bytes, the manifest says {}",
                                                   path.string(), bytes, facts.bytes));
  }
  ChecksumStream hash;
  std::vector<std::byte> piece(kReadBytes);
  for (std::uint64_t at = 0; at < bytes;) {
    FOREBAY_ASSIGN(const std::size_t got, ReadSome(fd.get(), piece, path));
    // Its size was right when it was opened.
    if (got == 0) return Error(ErrorCode::kDataLoss, path.string() + ": shrank while read");
    hash.Update(std::span(piece).first(got));
    at += got;
  }
  if (hash.Finish() == facts.hash) return {};
  return Error(ErrorCode::kDataLoss, path.string() + ": is damaged: checksum mismatch");
}

Status WriteSynced(const fs::path& path, std::string_view text) {
  FOREBAY_ASSIGN(const UniqueFd fd, Open(path, O_WRONLY | O_CREAT | O_TRUNC));
  FOREBAY_TRY(WriteAll(fd.get(), std::as_bytes(std::span(text.data(), text.size())), path));
  return Sync(fd.get(), path);
}

Status SyncFolder(const fs::path& folder) {
  // A rename is durable once the folder that has the names is synced.
  FOREBAY_ASSIGN(const UniqueFd fd, Open(folder, O_RDONLY | O_DIRECTORY));
  return Sync(fd.get(), folder);
}

Result<std::string> ReadText(const fs::path& path, std::uint64_t bytes_max) {
  std::uint64_t bytes = 0;
  FOREBAY_ASSIGN(const UniqueFd fd, OpenRegular(path, bytes));
  if (bytes > bytes_max) {
    return Error(ErrorCode::kResourceExhausted,
                 fmt::format("{}: has {} bytes, {} are read", path.string(), bytes, bytes_max));
  }
  // The size is bounded before memory is taken for it. A file that shrinks meanwhile gives a
  // shorter text, whose checksum is then wrong.
  std::string text(static_cast<std::size_t>(bytes), '\0');
  FOREBAY_ASSIGN(const std::size_t got,
                 ReadSome(fd.get(), std::as_writable_bytes(std::span(text)), path));
  text.resize(got);
  return text;
}

}  // namespace forebay::train

// The two byte sources of the library: a file read with pread, and memory. Every range is checked
// against the size at opening; a file that shrinks afterwards gives kDataLoss. O_NONBLOCK keeps a
// FIFO at the path from blocking the open.
#include "compress/decode/pack/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "proto/contract/unique_fd.h"

namespace forebay::compress {
namespace {

// The end of what was wanted is not named: offset + count may be more than 64 bits hold.
Error BeyondEnd(const std::string& name, std::uint64_t offset, std::uint64_t count,
                std::uint64_t size) {
  return Error(ErrorCode::kDataLoss, name + ": wanted " + std::to_string(count) +
                                         " bytes from byte " + std::to_string(offset) +
                                         " of a file of " + std::to_string(size));
}

class FileSource : public ByteSource {
 public:
  FileSource(std::string path, UniqueFd fd, std::uint64_t size)
      : path_(std::move(path)), fd_(std::move(fd)), size_(size) {}

  std::uint64_t size() const override { return size_; }

  Status ReadAt(std::uint64_t offset, std::span<std::byte> bytes) const override {
    // Compared in two steps, because the sum of both could overflow.
    if (offset > size_ || bytes.size() > size_ - offset) {
      return BeyondEnd(path_, offset, bytes.size(), size_);
    }
    while (!bytes.empty()) {
      const ssize_t got =
          pread(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
      // A signal is no failure. Nothing was read, so the same read is tried again.
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return Error::FromErrno(errno, path_ + ": reading");
      // The file has become shorter since it was opened.
      if (got == 0) return BeyondEnd(path_, offset, bytes.size(), offset);
      // pread may return less than it was asked for, so the rest is read again.
      bytes = bytes.subspan(static_cast<std::size_t>(got));
      offset += static_cast<std::uint64_t>(got);
    }
    return {};
  }

 private:
  std::string path_;
  UniqueFd fd_;
  std::uint64_t size_;
};

class SpanSource : public ByteSource {
 public:
  explicit SpanSource(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::uint64_t size() const override { return bytes_.size(); }

  Status ReadAt(std::uint64_t offset, std::span<std::byte> bytes) const override {
    // Compared in two steps, because the sum of both could overflow.
    if (offset > bytes_.size() || bytes.size() > bytes_.size() - offset) {
      return BeyondEnd("memory", offset, bytes.size(), bytes_.size());
    }
    // memcpy must not get a null pointer, and an empty span may have one.
    if (bytes.empty()) return {};
    std::memcpy(bytes.data(), bytes_.data() + offset, bytes.size());
    return {};
  }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace

Result<std::unique_ptr<ByteSource>> OpenByteSource(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) return Error::FromErrno(errno, path + ": opening");
  struct stat status = {};
  if (fstat(fd.get(), &status) != 0) return Error::FromErrno(errno, path + ": looking at it");
  // A folder or a device has no size that could bound what is read from it.
  if (!S_ISREG(status.st_mode)) {
    return Error(ErrorCode::kInvalidArgument, path + ": not a regular file");
  }
  return std::make_unique<FileSource>(path, std::move(fd),
                                      static_cast<std::uint64_t>(status.st_size));
}

std::unique_ptr<ByteSource> MemorySource(std::span<const std::byte> bytes) {
  return std::make_unique<SpanSource>(bytes);
}

}  // namespace forebay::compress

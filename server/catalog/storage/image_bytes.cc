// Owns the bytes of an image or maps them. A file is read where it is small enough to stay
// resident, because a mapping depends on the file for as long as it exists: where the disk fails or
// somebody truncates the file, an access to the mapping ends the process (SIGBUS). A mapping bounds
// what it keeps resident: look-ups count the windows that they touch, and after 256 MiB worth of
// them all pages are dropped. Later look-ups fault their pages in again from the page cache.
#include "server/catalog/storage/image_bytes.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "proto/contract/limits.h"
#include "proto/contract/unique_fd.h"

namespace forebay::catalog {
namespace {

Result<std::vector<std::byte>> ReadWhole(int fd, std::uint64_t bytes) {
  std::vector<std::byte> whole(bytes);
  std::uint64_t done = 0;
  while (done < bytes) {
    const ssize_t count = ::read(fd, whole.data() + done, bytes - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Error::FromErrno(errno, "read catalog");
    // The file has become shorter; the checks of the image say where it ends.
    if (count == 0) break;
    done += static_cast<std::uint64_t>(count);
  }
  whole.resize(done);
  return whole;
}

}  // namespace

ImageBytes::ImageBytes(std::vector<std::byte> owned) : owned_(std::move(owned)) {}

ImageBytes::ImageBytes(ImageBytes&& other) noexcept
    : owned_(std::move(other.owned_)),
      mapping_(std::exchange(other.mapping_, nullptr)),
      mapping_bytes_(std::exchange(other.mapping_bytes_, 0)) {}

ImageBytes::~ImageBytes() {
  if (mapping_ != nullptr) ::munmap(mapping_, mapping_bytes_);
}

Result<ImageBytes> ImageBytes::FromFile(const std::string& absolute_path) {
  // The size is taken from the open descriptor and not from the path, so both belong to the same
  // file even if another is renamed over it meanwhile.
  // O_NONBLOCK, so that opening a FIFO does not block for ever; the check below refuses it.
  const UniqueFd fd(::open(absolute_path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return Error::FromErrno(errno, "open catalog '" + absolute_path + "'");
  struct stat info = {};
  if (::fstat(fd.get(), &info) != 0) {
    return Error::FromErrno(errno, "stat catalog '" + absolute_path + "'");
  }
  if (!S_ISREG(info.st_mode)) {
    return Error(ErrorCode::kInvalidArgument,
                 "catalog '" + absolute_path + "' is not a regular file");
  }
  const auto bytes = static_cast<std::uint64_t>(info.st_size);
  if (bytes > limits::kCatalogFileBytesMax) {
    return Error(ErrorCode::kResourceExhausted,
                 "catalog '" + absolute_path + "' exceeds " +
                     std::to_string(limits::kCatalogFileBytesMax) +
                     " bytes (kCatalogFileBytesMax)");
  }
  if (bytes <= kResidentBytesMax) {
    Result<std::vector<std::byte>> whole = ReadWhole(fd.get(), bytes);
    if (!whole.has_value()) return whole.error().WithContext("'" + absolute_path + "'");
    return ImageBytes(std::move(*whole));
  }
  Result<ImageBytes> mapped = MapFd(fd.get(), bytes);
  if (!mapped.has_value()) return mapped.error().WithContext("'" + absolute_path + "'");
  return mapped;
}

Result<ImageBytes> ImageBytes::MapFd(int fd, std::uint64_t bytes) {
  // mmap refuses an empty file. Empty owned bytes fail the header check, whose error says more.
  if (bytes == 0) return ImageBytes(std::vector<std::byte>());
  void* mapping = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (mapping == MAP_FAILED) return Error::FromErrno(errno, "map catalog");
  return ImageBytes(mapping, bytes);
}

std::span<const std::byte> ImageBytes::bytes() const {
  if (mapping_ == nullptr) return owned_;
  return {static_cast<const std::byte*>(mapping_), mapping_bytes_};
}

void ImageBytes::DropResidentPages() const {
  // On a shared mapping of a file this only unmaps: the bytes stay in the page cache, so another
  // thread that reads at the same time faults its page in again. madvise is a hint: if it fails,
  // the pages stay resident and nothing else changes.
  if (mapping_ != nullptr) ::madvise(mapping_, mapping_bytes_, MADV_DONTNEED);
}

void ImageBytes::NoteTouched(std::uint64_t windows) const {
  if (mapping_bytes_ <= kResidentBytesMax) return;
  constexpr std::uint64_t kBetweenDrops = kResidentBytesMax / kFaultAroundBytes;
  // Relaxed, because the counter orders nothing: a thread that still reads a dropped page faults it
  // in again.
  const std::uint64_t before = touched_.fetch_add(windows, std::memory_order_relaxed);
  // Exactly one thread sees the counter cross a multiple, so exactly one drops the pages.
  if (before / kBetweenDrops != (before + windows) / kBetweenDrops) DropResidentPages();
}

}  // namespace forebay::catalog

// The order of the steps matters: create the memfd, set its size, map it, and only then seal it,
// because F_SEAL_FUTURE_WRITE spares mappings that exist already and forbids all later ones.
#include "server/tier/ram/shared_region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <string>
#include <utility>

#include "proto/contract/limits.h"

namespace forebay::tier {
namespace {

constexpr std::uint64_t kHugePageBytes = 2 * limits::kMiB;
constexpr auto kRegionBytesMax =
    static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) / 2;

Error RegionError(int system_errno, const char* step, std::uint64_t bytes) {
  const Error error = Error::FromErrno(
      system_errno, std::string(step) + " of a shared region of " + std::to_string(bytes) +
                        " bytes");
  // Callers treat every failure alike: the system has not provided the memory. The errno is kept.
  return Error(ErrorCode::kResourceExhausted, error.message(), system_errno);
}

}  // namespace

SharedRegion::SharedRegion(UniqueFd fd, std::span<std::byte> bytes)
    : fd_(std::move(fd)), bytes_(bytes) {}

SharedRegion::SharedRegion(SharedRegion&& other) noexcept
    : fd_(std::move(other.fd_)), bytes_(std::exchange(other.bytes_, {})) {}

SharedRegion& SharedRegion::operator=(SharedRegion&& other) noexcept {
  if (this != &other) {
    if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
    fd_ = std::move(other.fd_);
    bytes_ = std::exchange(other.bytes_, {});
  }
  return *this;
}

SharedRegion::~SharedRegion() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

Result<SharedRegion> SharedRegion::Create(const char* debug_name, std::uint64_t bytes) {
  if (bytes == 0 || bytes > kRegionBytesMax) {
    return Error(ErrorCode::kInvalidArgument,
                 "a shared region cannot have " + std::to_string(bytes) + " bytes");
  }
  const std::uint64_t size = (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  UniqueFd fd(::memfd_create(debug_name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return RegionError(errno, "memfd_create", size);
  if (::ftruncate(fd.get(), static_cast<off_t>(size)) != 0) {
    return RegionError(errno, "ftruncate", size);
  }
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return RegionError(errno, "mmap", size);
  SharedRegion region(std::move(fd), {static_cast<std::byte*>(memory), size});
  // F_SEAL_WRITE would fail while this writable mapping exists; F_SEAL_FUTURE_WRITE spares it.
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
  if (::fcntl(region.fd(), F_ADD_SEALS, kSeals) != 0) return RegionError(errno, "seal", size);
  // Best effort: without huge pages the region works, but with more TLB misses.
  static_cast<void>(::madvise(memory, size, MADV_HUGEPAGE));
  return region;
}

}  // namespace forebay::tier

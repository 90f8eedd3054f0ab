// The order of the steps matters: create the memfd, set its size, map it, allocate reserved pages,
// and only then seal it, because F_SEAL_FUTURE_WRITE spares mappings that exist already and forbids
// all later ones.
#include "server/tier/ram/shared_region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <string>
#include <utility>

#include "proto/contract/align_up.h"
#include "proto/contract/shared_mapping.h"

namespace forebay::tier {
namespace {

// MFD_HUGE_2MB, which some C libraries' headers lack: the logarithm of the size, shifted. Without
// it the pages have the size that is the system's default, which may be 1 GiB.
constexpr unsigned kHugePagesOf2MiB = 21U << 26U;
constexpr auto kRegionBytesMax =
    static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) / 2;

Error RegionError(int system_errno, const char* step, std::uint64_t bytes) {
  const Error error = Error::FromErrno(
      system_errno, std::string(step) + " of a shared region of " + std::to_string(bytes) +
                        " bytes");
  // Callers treat every failure alike: the system has not provided the memory. The errno is kept.
  return Error(ErrorCode::kResourceExhausted, error.message(), system_errno);
}

bool Allocate(const SharedRegion& region) {
  int result = 0;
  do {
    result = ::fallocate(region.fd(), 0, 0, static_cast<off_t>(region.bytes().size()));
  } while (result != 0 && errno == EINTR);
  return result == 0;
}

}  // namespace

SharedRegion::SharedRegion(UniqueFd fd, std::span<std::byte> bytes, bool is_reserved)
    : fd_(std::move(fd)), bytes_(bytes), is_reserved_(is_reserved) {}

SharedRegion::SharedRegion(SharedRegion&& other) noexcept
    : fd_(std::move(other.fd_)),
      bytes_(std::exchange(other.bytes_, {})),
      is_reserved_(other.is_reserved_) {}

SharedRegion& SharedRegion::operator=(SharedRegion&& other) noexcept {
  if (this != &other) {
    if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
    fd_ = std::move(other.fd_);
    bytes_ = std::exchange(other.bytes_, {});
    is_reserved_ = other.is_reserved_;
  }
  return *this;
}

SharedRegion::~SharedRegion() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

Result<SharedRegion> SharedRegion::Create(const char* debug_name, std::uint64_t bytes,
                                          HugePageUse use) {
  if (bytes == 0 || bytes > kRegionBytesMax) {
    return Error(ErrorCode::kInvalidArgument,
                 "a shared region cannot have " + std::to_string(bytes) + " bytes");
  }
  const std::uint64_t size = AlignUp(bytes, kHugePageBytes);
  if (use == HugePageUse::kAuto) {
    Result<SharedRegion> reserved = Make(debug_name, size, true);
    // Most systems have no reserved pages, so a failure is no reason to stop. RamArena counts the
    // regions that got none, and the daemon says so.
    if (reserved.has_value()) return reserved;
  }
  FOREBAY_ASSIGN(SharedRegion region, Make(debug_name, size, false));
  // Best effort: without huge pages the region works, but with more TLB misses.
  static_cast<void>(
      ::madvise(region.bytes().data(), size,
                use == HugePageUse::kOff ? MADV_NOHUGEPAGE : MADV_HUGEPAGE));
  return region;
}

// `size` is a multiple of kHugePageBytes.
Result<SharedRegion> SharedRegion::Make(const char* debug_name, std::uint64_t size,
                                        bool is_reserved) {
  const unsigned pages = is_reserved ? MFD_HUGETLB | kHugePagesOf2MiB : 0;
  UniqueFd fd(::memfd_create(debug_name, MFD_CLOEXEC | MFD_ALLOW_SEALING | pages));
  if (!fd.valid()) return RegionError(errno, "memfd_create", size);
  if (::ftruncate(fd.get(), static_cast<off_t>(size)) != 0) {
    return RegionError(errno, "ftruncate", size);
  }
  // For reserved pages, this fails where the system has too few that nobody else was promised.
  const auto mapped = MapShared(fd.get(), size, PROT_READ | PROT_WRITE);
  if (!mapped.has_value()) return RegionError(mapped.error().system_errno(), "mmap", size);
  SharedRegion region(std::move(fd), *mapped, is_reserved);
  // That promise is worth nothing where a cgroup limits huge pages, or a cpuset the memory nodes:
  // the touch of a page that is missing then ends the process, daemon or client, with SIGBUS. So
  // all pages are allocated now, when a page that is missing is an error that can be handled.
  if (is_reserved && !Allocate(region)) return RegionError(errno, "fallocate", size);
  // F_SEAL_WRITE would fail while this writable mapping exists; F_SEAL_FUTURE_WRITE spares it.
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
  if (::fcntl(region.fd(), F_ADD_SEALS, kSeals) != 0) return RegionError(errno, "seal", size);
  return region;
}

}  // namespace forebay::tier

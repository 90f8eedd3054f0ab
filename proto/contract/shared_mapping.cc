// Finds a free range of addresses that is one huge page longer than the region, and proposes the
// first suitable address in it to mmap.
#include "proto/contract/shared_mapping.h"

#include <sys/mman.h>

#include <cerrno>
#include <string>

namespace forebay {
namespace {

// A multiple of kHugePageBytes behind which `bytes` of the address space are free, or null. The
// addresses are not kept: if another thread takes them before the caller does, mmap chooses others,
// and the region works with small pages. MAP_FIXED would not be safe: if it fails, it may leave a
// hole in the range that was reserved, and another thread may have mapped something there.
void* ProposeAddress(std::uint64_t bytes) {
  const std::uint64_t reserved = bytes + kHugePageBytes;
  if (reserved < bytes) return nullptr;
  void* const range = ::mmap(nullptr, reserved, PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) return nullptr;
  ::munmap(range, reserved);
  const std::uint64_t lead = reinterpret_cast<std::uintptr_t>(range) % kHugePageBytes;
  return static_cast<std::byte*>(range) + (lead == 0 ? 0 : kHugePageBytes - lead);
}

}  // namespace

Result<std::span<std::byte>> MapShared(int fd, std::uint64_t bytes, int protection) {
  void* const memory =
      ::mmap(ProposeAddress(bytes), bytes, protection, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) {
    return Error::FromErrno(errno, "mmap of " + std::to_string(bytes) + " bytes");
  }
  return std::span(static_cast<std::byte*>(memory), bytes);
}

}  // namespace forebay

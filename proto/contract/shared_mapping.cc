// Finds a free range of addresses that is one huge page longer than the region, and proposes the
// first suitable address in it to mmap.
#include "proto/contract/shared_mapping.h"

#include <sys/mman.h>

#include <cerrno>
#include <string>

namespace forebay {
namespace {

// Another thread may take the proposed addresses before they are mapped; then others are proposed.
constexpr int kProposalsMax = 4;

// A multiple of kHugePageBytes behind which `bytes` of the address space are free, or null. The
// addresses are not kept.
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
  void* memory = MAP_FAILED;
  for (int proposals = 0; memory == MAP_FAILED && proposals < kProposalsMax; ++proposals) {
    void* const proposed = ProposeAddress(bytes);
    if (proposed == nullptr) break;
    // Replaces no other mapping: it fails with EEXIST, or, before Linux 4.17, chooses another
    // address. The region works there, too, but with small pages.
    memory = ::mmap(proposed, bytes, protection, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0);
    if (memory == MAP_FAILED && errno != EEXIST) break;
  }
  if (memory == MAP_FAILED) memory = ::mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) {
    return Error::FromErrno(errno, "mmap of " + std::to_string(bytes) + " bytes");
  }
  return std::span(static_cast<std::byte*>(memory), bytes);
}

bool Advise(std::span<const std::byte> pages, int advice) {
  // madvise takes a pointer to memory that is not const, and none of these advices writes to it.
  auto* const begin = const_cast<std::byte*>(pages.data());
  int result = 0;
  do {
    result = ::madvise(begin, pages.size(), advice);
  } while (result != 0 && errno == EINTR);
  return result == 0;
}

}  // namespace forebay

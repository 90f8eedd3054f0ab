// MapShared: maps a region of shared memory, in the daemon as well as in its clients. The kernel
// can use a huge page for a mapping only where the mapping begins at a multiple of the huge page's
// size, and by itself it chooses such an address only on some systems, so MapShared proposes one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "proto/contract/result.h"

namespace forebay {

// The size of the huge pages that are used. Regions of shared memory have a multiple of this size.
inline constexpr std::uint64_t kHugePageBytes = std::uint64_t{2} << 20;

// Maps the first `bytes` (above 0) of the memfd `fd` with MAP_SHARED and `protection` (PROT_READ,
// PROT_WRITE). The caller unmaps it with munmap. The error of a failure has the errno of mmap.
Result<std::span<std::byte>> MapShared(int fd, std::uint64_t bytes, int protection);

// Advice to the kernel that some C libraries' headers lack.
inline constexpr int kPopulateRead = 22;   // MADV_POPULATE_READ, Linux 5.14
inline constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, Linux 5.14
inline constexpr int kCollapse = 25;       // MADV_COLLAPSE, Linux 6.1
// Calls madvise until no signal interrupts it. False: the kernel refused; errno says why.
bool Advise(std::span<const std::byte> pages, int advice);

}  // namespace forebay

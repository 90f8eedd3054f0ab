// SharedRegion: memory that the daemon writes and clients map read-only. A memfd without a
// name, sealed against shrinking, growing and every future write once the daemon's own mapping
// exists (an unsealed "read-only" memfd can be reopened writable).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "proto/contract/result.h"
#include "proto/contract/unique_fd.h"

namespace forebay::tier {

// Move-only. The mapping lives as long as the object; clients' mappings live on after it.
class SharedRegion {
 public:
  // Memory comes in these where the system has huge pages for it: the first touch of a byte may
  // make all of the aligned ones around it.
  static constexpr std::uint64_t kHugePageBytes = std::uint64_t{2} << 20;

  // `bytes` is rounded up to whole huge pages; memory is taken on first touch. Transparent
  // huge pages are asked for by madvise. kResourceExhausted where the system refuses.
  static Result<SharedRegion> Create(const char* debug_name, std::uint64_t bytes);
  SharedRegion(SharedRegion&& other) noexcept;
  SharedRegion& operator=(SharedRegion&& other) noexcept;
  ~SharedRegion();

  // The first byte of [begin, end) for which memory has been made, by any process: the kernel's
  // word; `end` where there is none. Where the kernel does not say, `begin`. O(log pages).
  std::uint64_t FirstMade(std::uint64_t begin, std::uint64_t end) const;

  std::span<std::byte> bytes() const { return bytes_; }
  int fd() const { return fd_.get(); }  // sealed; to be passed to clients

 private:
  SharedRegion(UniqueFd fd, std::span<std::byte> bytes);
  UniqueFd fd_;
  std::span<std::byte> bytes_;
};

}  // namespace forebay::tier

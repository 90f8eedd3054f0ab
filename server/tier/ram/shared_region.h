// SharedRegion: memory that the daemon writes and clients map read-only. A memfd without a
// name, sealed against shrinking, growing and every future write once the daemon's own mapping
// exists (an unsealed "read-only" memfd can be reopened writable).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "proto/contract/result.h"
#include "proto/contract/unique_fd.h"

namespace forebay::tier {

// Move-only. The mapping lives as long as the object; clients' mappings live on after it.
class SharedRegion {
 public:
  // `bytes` is rounded up to whole huge pages; memory is taken on first touch. Transparent
  // huge pages are asked for by madvise. kResourceExhausted where the system refuses.
  static Result<SharedRegion> Create(const char* debug_name, std::uint64_t bytes);
  SharedRegion(SharedRegion&& other) noexcept;
  SharedRegion& operator=(SharedRegion&& other) noexcept;
  ~SharedRegion();

  std::span<std::byte> bytes() const { return bytes_; }
  int fd() const { return fd_.get(); }  // sealed; to be passed to clients

 private:
  SharedRegion(UniqueFd fd, std::span<std::byte> bytes);
  UniqueFd fd_;
  std::span<std::byte> bytes_;
};

}  // namespace forebay::tier

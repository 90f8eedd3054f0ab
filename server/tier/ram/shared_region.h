// SharedRegion: memory that the daemon writes and clients map read-only. It is a memfd. Once the
// daemon has mapped it, it is sealed against a change of its size and against new writable
// mappings: without the seal, a client could reopen its read-only descriptor for writing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "proto/contract/result.h"
#include "proto/contract/unique_fd.h"

namespace forebay::tier {

// Move-only. The daemon's mapping ends with the object; clients' mappings do not.
class SharedRegion {
 public:
  // Rounds `bytes` up to whole huge pages (2 MiB). The kernel provides a page when it is first
  // touched. Requests transparent huge pages (madvise). kResourceExhausted: the system refuses.
  static Result<SharedRegion> Create(const char* debug_name, std::uint64_t bytes);
  SharedRegion(SharedRegion&& other) noexcept;
  SharedRegion& operator=(SharedRegion&& other) noexcept;
  ~SharedRegion();

  std::span<std::byte> bytes() const { return bytes_; }
  int fd() const { return fd_.get(); }  // sealed, so it may be passed to clients

 private:
  SharedRegion(UniqueFd fd, std::span<std::byte> bytes);
  UniqueFd fd_;
  std::span<std::byte> bytes_;
};

}  // namespace forebay::tier

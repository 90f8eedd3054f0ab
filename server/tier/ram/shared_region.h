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

// Which pages of 2 MiB may be used.
enum class HugePageUse : std::uint8_t {
  kOff,          // none
  kTransparent,  // those that the kernel makes from free memory when asked to
  kAuto,         // those that the site has reserved (vm.nr_hugepages); if too few are free,
                 // transparent ones
};

// Move-only. The daemon's mapping ends with the object; clients' mappings do not.
class SharedRegion {
 public:
  // Rounds `bytes` up to whole huge pages (2 MiB). The kernel provides a page when it is first
  // touched; reserved pages it provides at once, which takes about 0.1 s per GiB.
  // kResourceExhausted: the system refuses.
  static Result<SharedRegion> Create(const char* debug_name, std::uint64_t bytes,
                                     HugePageUse use = HugePageUse::kTransparent);
  SharedRegion(SharedRegion&& other) noexcept;
  SharedRegion& operator=(SharedRegion&& other) noexcept;
  ~SharedRegion();

  std::span<std::byte> bytes() const { return bytes_; }
  int fd() const { return fd_.get(); }  // sealed, so it may be passed to clients
  // True: the region lies in huge pages that the site has reserved, all of them allocated.
  bool is_reserved() const { return is_reserved_; }

 private:
  SharedRegion(UniqueFd fd, std::span<std::byte> bytes, bool is_reserved);
  static Result<SharedRegion> Make(const char* debug_name, std::uint64_t size, bool is_reserved);
  UniqueFd fd_;
  std::span<std::byte> bytes_;
  bool is_reserved_ = false;
};

}  // namespace forebay::tier

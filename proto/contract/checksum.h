// Checksums that cover identity as well as bytes (design 7.1): swapped, misdirected or stale
// bytes fail as surely as flipped ones. XXH3-64, seeded by the hash of the identity.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace forebay {

// What a checksummed range *is*. `dataset` is the catalog fingerprint's dataset part (a hash
// of name and format), `object` the object the range comes from (for a run of whole small
// objects: the first of the run), `offset` and `length` in bytes within the extent image's
// own address space as the caller defines it.
struct ChecksumIdentity {
  std::uint64_t dataset = 0;
  std::uint64_t object = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

// Checksum of `bytes` under `identity`. `identity.length` must equal bytes.size().
std::uint64_t Checksum(const ChecksumIdentity& identity, std::span<const std::byte> bytes);

// XXH3-64 of plain bytes, without identity: for self-describing records that carry their own.
std::uint64_t Checksum(std::span<const std::byte> bytes);

// Incremental form over the same definition: Checksum(identity, a ++ b) ==
// Update(a), Update(b), Finish(), and so without an identity. Not thread-safe. Reusable after
// Reset.
class ChecksumStream {
 public:
  ChecksumStream();  // of plain bytes
  explicit ChecksumStream(const ChecksumIdentity& identity);
  ~ChecksumStream();
  ChecksumStream(const ChecksumStream&) = delete;
  ChecksumStream& operator=(const ChecksumStream&) = delete;

  void Reset(const ChecksumIdentity& identity);
  void Update(std::span<const std::byte> bytes);
  std::uint64_t Finish() const;

 private:
  void* state_;
};

}  // namespace forebay

// Checksums that cover identity as well as bytes (docs/design.md, 7.1): swapped, misdirected or
// stale bytes fail as surely as flipped bits. XXH3-64, seeded by the hash of the identity.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace forebay {

// The identity of a range of bytes. `dataset` is a hash that names the data set; `object` is the
// object that the range comes from (in an extent of several whole objects, the first of them);
// `offset` and `length` are in bytes, counted as the caller defines. Writer and reader of a range
// must fill all four alike.
struct ChecksumIdentity {
  std::uint64_t dataset = 0;
  std::uint64_t object = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

// Checksum of `bytes` under `identity`. `identity.length` must equal bytes.size().
std::uint64_t Checksum(const ChecksumIdentity& identity, std::span<const std::byte> bytes);

// XXH3-64 of plain bytes, without identity: for records that contain their identity.
std::uint64_t Checksum(std::span<const std::byte> bytes);

// The incremental form: Update(a), Update(b), Finish() gives Checksum(identity, a ++ b), or
// Checksum(a ++ b) without an identity. Not thread-safe. Reusable after Reset. Construction
// allocates about 600 bytes.
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

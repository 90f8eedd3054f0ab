// XXH3-64 by the xxHash library, with the hash of the identity as the seed. Two ranges with equal
// bytes have different checksums unless they have the same identity.
#include "proto/contract/checksum.h"

#include <array>
#include <bit>

#include "proto/contract/check.h"
#include "proto/contract/xxh3.h"

namespace forebay {

static_assert(std::endian::native == std::endian::little,
              "the identity is hashed in its little-endian form");

namespace {

// An array of words has no padding, so the hash does not depend on the compiler.
std::uint64_t SeedOf(const ChecksumIdentity& identity) {
  const std::array<std::uint64_t, 4> words = {identity.dataset, identity.object, identity.offset,
                                              identity.length};
  return XXH3_64bits(words.data(), sizeof(words));
}

}  // namespace

std::uint64_t Checksum(const ChecksumIdentity& identity, std::span<const std::byte> bytes) {
  // A caller that hashes fewer bytes than it names would never notice damage in the rest.
  FOREBAY_CHECK(identity.length == bytes.size());
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), SeedOf(identity));
}

std::uint64_t Checksum(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

ChecksumStream::ChecksumStream() : state_(XXH3_createState()) {
  FOREBAY_CHECK(state_ != nullptr);
  XXH3_64bits_reset(static_cast<XXH3_state_t*>(state_));
}

ChecksumStream::ChecksumStream(const ChecksumIdentity& identity) : state_(XXH3_createState()) {
  FOREBAY_CHECK(state_ != nullptr);
  Reset(identity);
}

ChecksumStream::~ChecksumStream() { XXH3_freeState(static_cast<XXH3_state_t*>(state_)); }

void ChecksumStream::Reset(const ChecksumIdentity& identity) {
  XXH3_64bits_reset_withSeed(static_cast<XXH3_state_t*>(state_), SeedOf(identity));
}

void ChecksumStream::Update(std::span<const std::byte> bytes) {
  XXH3_64bits_update(static_cast<XXH3_state_t*>(state_), bytes.data(), bytes.size());
}

std::uint64_t ChecksumStream::Finish() const {
  return XXH3_64bits_digest(static_cast<XXH3_state_t*>(state_));
}

}  // namespace forebay

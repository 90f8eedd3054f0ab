// DeliveryDigest: proof that every sample came exactly once, with the right bytes.
#pragma once

#include <xxhash.h>

#include <cstdint>

#include "bench/peers/byte_sum.h"
#include "proto/contract/order_mix.h"

namespace forebay::bench {

// Multiset hashes over (sample id, content), modulo 2^64: equal for two deliveries, in whatever
// order, exactly where both hold the same samples equally often (up to hash collisions).
//   sums:    each sample's content stands as its ByteSum; cheap enough for the timed epochs
//   content: as its XXH3-64; taken in the untimed epoch before them
//   places:  as content, with the sample's position in the order of the epoch. Sums of parts of an
//            epoch, whoever read them, are equal to that of the whole epoch exactly where each
//            position had the same bytes. Only forebay_consume knows positions.
// peers/digest.py says the same in Python. Not thread-safe; Merge joins those of threads.
struct DeliveryDigest {
  std::uint64_t samples = 0;
  std::uint64_t bytes = 0;
  std::uint64_t byte_sum = 0;
  std::uint64_t sums = 0;
  std::uint64_t content = 0;
  std::uint64_t places = 0;

  static std::uint64_t Element(std::uint64_t sample, std::uint64_t hash) {
    return Mix64(Mix64(sample + kGolden64) ^ hash);
  }
  void AddSum(std::uint64_t sample, std::uint64_t sample_bytes, std::uint64_t sum) {
    ++samples;
    bytes += sample_bytes;
    byte_sum += sum;
    sums += Element(sample, sum);
  }
  void AddContent(std::uint64_t sample, std::uint64_t xxh3) { content += Element(sample, xxh3); }
  void AddPlace(std::uint64_t position, std::uint64_t sample, std::uint64_t xxh3) {
    places += Element(position, Element(sample, xxh3));
  }

  void Merge(const DeliveryDigest& other) {
    samples += other.samples;
    bytes += other.bytes;
    byte_sum += other.byte_sum;
    sums += other.sums;
    content += other.content;
    places += other.places;
  }
};

}  // namespace forebay::bench

// What the codec suite measures: something that encodes an array and decodes it again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "bench/codec/codec_array.h"
#include "proto/contract/result.h"

namespace forebay::bench {

// Decodes one encoded array. One per thread; holds contexts and scratch, so that timed calls
// allocate no more than the library behind them does.
class ArrayDecoder {
 public:
  ArrayDecoder() = default;
  virtual ~ArrayDecoder() = default;
  ArrayDecoder(const ArrayDecoder&) = delete;
  ArrayDecoder& operator=(const ArrayDecoder&) = delete;

  // Decodes parts [first, first + count) into their places in `array`, which has the size of
  // the whole array, and verifies their checksums. DATA_LOSS where one differs.
  virtual Status Decode(std::size_t first, std::size_t count, std::span<std::byte> array) = 0;

  // Decodes frame `frame` alone, with no more work than the format asks for.
  virtual Status DecodeFrame(std::uint32_t frame, std::span<std::byte> out) = 0;
};

// An array as a codec stores it. Immutable; decoders refer to it.
class EncodedArray {
 public:
  EncodedArray() = default;
  virtual ~EncodedArray() = default;
  EncodedArray(const EncodedArray&) = delete;
  EncodedArray& operator=(const EncodedArray&) = delete;

  virtual std::size_t coded_bytes() const = 0;  // everything a reader needs
  virtual std::size_t parts() const = 0;        // that can be decoded by themselves
  virtual Result<std::unique_ptr<ArrayDecoder>> MakeDecoder() const = 0;
};

class Peer {
 public:
  Peer() = default;
  virtual ~Peer() = default;
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  virtual std::string name() const = 0;
  virtual std::string settings() const = 0;
  // UNIMPLEMENTED, with the reason, where this codec has no form for such an array.
  virtual Status Accepts(const ArrayInfo& info) const = 0;
  // Lossy codecs answer false: what they decode is checked against the bound, by another program.
  virtual bool lossless() const { return true; }
  virtual Result<std::unique_ptr<EncodedArray>> Encode(const CodecArray& array) const = 0;
};

}  // namespace forebay::bench

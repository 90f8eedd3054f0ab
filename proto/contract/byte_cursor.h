// Bounded little-endian readers and writers: the only way Forebay parses or builds a binary
// header. A reader never reads past its span and never wraps; after the first failure every
// further read fails too, so a parser may read a whole header and check once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace forebay {

// Reads from a borrowed span, which must outlive the reader. Not thread-safe.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  bool ok() const { return ok_; }
  std::size_t offset() const { return offset_; }
  std::size_t remaining() const { return bytes_.size() - offset_; }

  // The next sizeof(T) bytes as an unsigned little-endian integer; 0 after a failure.
  template <typename T>
  T ReadLe() {
    static_assert(std::is_unsigned_v<T>);
    std::span<const std::byte> raw = Take(sizeof(T));
    T value = 0;
    for (std::size_t i = 0; i < raw.size(); ++i) {
      value = static_cast<T>(value | (static_cast<T>(std::to_integer<std::uint8_t>(raw[i]))
                                      << (8 * i)));
    }
    return value;
  }

  // LEB128, at most 10 bytes; fails on a longer or overflowing encoding.
  std::uint64_t ReadVarint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = ReadLe<std::uint8_t>();
      if (!ok_) return 0;
      if (shift == 63 && byte > 1) break;
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if ((byte & 0x80) == 0) return value;
    }
    ok_ = false;
    return 0;
  }

  // The next `count` bytes, borrowed; an empty span after a failure.
  std::span<const std::byte> Take(std::size_t count) {
    if (!ok_ || count > remaining()) {
      ok_ = false;
      return {};
    }
    std::span<const std::byte> taken = bytes_.subspan(offset_, count);
    offset_ += count;
    return taken;
  }

  // A string written by ByteWriter::String, of at most `bytes_max` bytes.
  std::string_view ReadString(std::size_t bytes_max) {
    const std::uint64_t length = ReadVarint();
    if (length > bytes_max) ok_ = false;
    std::span<const std::byte> raw = ok_ ? Take(static_cast<std::size_t>(length))
                                         : std::span<const std::byte>();
    return {reinterpret_cast<const char*>(raw.data()), raw.size()};
  }

 private:
  std::span<const std::byte> bytes_;
  std::size_t offset_ = 0;
  bool ok_ = true;
};

// Appends to an owned, growing buffer. Not thread-safe.
class ByteWriter {
 public:
  template <typename T>
  void Le(T value) {
    static_assert(std::is_unsigned_v<T>);
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      bytes_.push_back(static_cast<std::byte>((value >> (8 * i)) & 0xFF));
    }
  }

  void Varint(std::uint64_t value) {
    while (value >= 0x80) {
      bytes_.push_back(static_cast<std::byte>(value | 0x80));
      value >>= 7;
    }
    bytes_.push_back(static_cast<std::byte>(value));
  }

  void Bytes(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }

  void String(std::string_view text) {
    Varint(text.size());
    Bytes(std::as_bytes(std::span(text.data(), text.size())));
  }

  // Pads with zero bytes up to a multiple of `alignment`, a power of two.
  void AlignTo(std::size_t alignment) {
    bytes_.resize((bytes_.size() + alignment - 1) & ~(alignment - 1));
  }

  std::size_t size() const { return bytes_.size(); }
  std::span<const std::byte> bytes() const { return bytes_; }
  std::vector<std::byte> Release() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace forebay

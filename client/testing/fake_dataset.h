// FakeDataset: samples made by arithmetic, laid out in a sealed memfd as an arena would be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "proto/contract/unique_fd.h"
#include "proto/contract/wire_layout.h"

namespace google::protobuf {
template <typename Element>
class RepeatedPtrField;
}

namespace forebay::v1 {
class Field;
}

namespace forebay::testing {

// A memfd mapped writable, as the daemon has it.
class FakeRegion {
 public:
  FakeRegion(std::uint32_t id, std::uint64_t bytes, bool sealed = true);
  FakeRegion(const FakeRegion&) = delete;
  FakeRegion& operator=(const FakeRegion&) = delete;
  ~FakeRegion();

  std::uint32_t id() const { return id_; }
  int fd() const { return fd_.get(); }
  std::span<std::byte> bytes() { return {data_, bytes_}; }

 private:
  std::uint32_t id_;
  std::uint64_t bytes_;
  UniqueFd fd_;
  std::byte* data_ = nullptr;
};

// Four fields: "image" (u8, image_bytes), "weight" (f32 scalar), "text" (variable: i % 7 * 3
// bytes, in two pieces where i % 3 == 0, absent where i % 5 == 4), "label" (constant i % 10).
class FakeDataset {
 public:
  static constexpr std::uint32_t kArenaRegion = 0;
  FakeDataset(std::uint64_t samples, std::uint64_t image_bytes);

  static std::byte ImageByte(std::uint64_t sample, std::uint64_t offset) {
    return static_cast<std::byte>((sample * 131 + offset * 7 + (offset >> 8)) & 0xFF);
  }
  static float Weight(std::uint64_t sample) { return static_cast<float>(sample) * 0.5F; }
  static std::string Text(std::uint64_t sample);
  static bool HasText(std::uint64_t sample) { return sample % 5 != 4; }
  static std::int64_t Label(std::uint64_t sample) {
    return static_cast<std::int64_t>(sample % 10);
  }

  std::uint64_t samples() const { return samples_; }
  std::uint64_t image_bytes() const { return image_bytes_; }
  std::uint64_t fingerprint() const { return fingerprint_; }
  void set_fingerprint(std::uint64_t fingerprint) { fingerprint_ = fingerprint; }
  FakeRegion& arena() { return arena_; }

  void Describe(google::protobuf::RepeatedPtrField<v1::Field>& fields) const;
  WireSpan ImageSpan(std::uint64_t sample) const;
  WireSpan WeightSpan(std::uint64_t sample) const;
  std::vector<WireSpan> TextSpans(std::uint64_t sample) const;

 private:
  std::uint64_t RowOffset(std::uint64_t sample) const { return sample * row_bytes_; }

  std::uint64_t samples_;
  std::uint64_t image_bytes_;
  std::uint64_t row_bytes_;
  std::uint64_t fingerprint_ = 0xFEED'F00D;
  FakeRegion arena_;
};

}  // namespace forebay::testing

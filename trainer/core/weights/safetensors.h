// The safetensors format: the length of a header (8 bytes, little-endian), the header as JSON,
// which names tensors, and the tensors' bytes. It is used for checkpoints and for weights of other
// programs. The bytes are untrusted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/contract/result.h"
#include "proto/contract/unique_fd.h"

namespace forebay::train {

inline constexpr std::size_t kSafetensorsLengthBytes = 8;
// Room for some 100,000 tensors.
inline constexpr std::uint64_t kSafetensorsHeaderBytesMax = 16ULL << 20;
inline constexpr std::uint64_t kSafetensorsBytesMax = 1ULL << 40;
inline constexpr std::size_t kSafetensorsAxesMax = 16;

struct TensorEntry {
  std::string name;
  std::string dtype;  // the format's spelling: F32, BF16, I64, U8 ...
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0;  // bytes within the data, which follows the header
  std::uint64_t end = 0;
};

struct SafetensorsHeader {
  std::map<std::string, std::string, std::less<>> metadata;
  std::vector<TensorEntry> tensors;  // by place: they cover the data, without overlap or hole
  std::uint64_t data_begin = 0;      // bytes from the start of the file

  // nullptr where there is none of that name.
  const TensorEntry* Find(std::string_view name) const;
};

// Returns the length of the header of a file of `file_bytes` that starts with `bytes`.
// kInvalidArgument if it is longer than the file or than kSafetensorsHeaderBytesMax.
Result<std::uint64_t> ReadHeaderLength(std::span<const std::byte> bytes, std::uint64_t file_bytes);

// Reads the header of a file of `file_bytes`, of which `bytes` are the first ones, at least the
// whole header. kInvalidArgument for anything that is not exactly a safetensors file: a name that
// is used twice, a shape that does not match its length, tensors that overlap, leave a gap or end
// beyond the file.
Result<SafetensorsHeader> ParseSafetensors(std::span<const std::byte> bytes,
                                           std::uint64_t file_bytes);

// Returns length and header, padded so that the data begin at a multiple of eight. The tensors'
// places are those in `tensors`.
std::vector<std::byte> EncodeSafetensorsHeader(
    const std::map<std::string, std::string, std::less<>>& metadata,
    std::span<const TensorEntry> tensors);

// Converts elements of type F32, F16 or BF16 to floats. kUnimplemented for another type,
// kInvalidArgument if `bytes` is not a whole number of elements.
Result<std::vector<float>> FloatsOf(std::string_view dtype, std::span<const std::byte> bytes);

// A safetensors file that is open for reading. Movable. Several threads may read at the same time.
class SafetensorsFile {
 public:
  // Errors are ParseSafetensors' and the system's; the message names the file.
  static Result<SafetensorsFile> Open(const std::filesystem::path& path);

  const SafetensorsHeader& header() const { return header_; }
  std::uint64_t bytes() const { return file_bytes_; }  // of the file
  // Reads the bytes of `entry`, which is an entry of header(), into as many. kDataLoss if the file
  // has shrunk.
  Status ReadBytes(const TensorEntry& entry, std::span<std::byte> bytes) const;
  // Reads the elements of `entry`, which is an entry of header(). kDataLoss if the file has shrunk.
  Result<std::vector<float>> ReadFloats(const TensorEntry& entry) const;

 private:
  SafetensorsFile() = default;

  std::string path_;
  UniqueFd fd_;
  std::uint64_t file_bytes_ = 0;
  SafetensorsHeader header_;
};

}  // namespace forebay::train

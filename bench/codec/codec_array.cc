// Reads an array that prepare_sets.py has made: a description in JSON and the raw bytes. The whole
// array is in memory before anything is timed, because the suite compares codecs and not disks.
#include "bench/codec/codec_array.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

namespace forebay::bench {
namespace {

// Bounds what a wrong description can allocate. Contenders hold the array, its coded form and two
// buffers of its size.
constexpr std::uint64_t kArrayBytesMax = std::uint64_t{1} << 31;

std::size_t ItemBytes(const std::string& dtype) {
  if (dtype == "u8") return 1;
  if (dtype == "u16" || dtype == "i16") return 2;
  if (dtype == "i32" || dtype == "f32") return 4;
  return 0;
}

Result<ArrayInfo> ReadInfo(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) {
    return Error(ErrorCode::kNotFound, path.string() + ": make it with prepare_sets.py");
  }
  // No exception for a syntax error: the next access to a member then fails, and names the file.
  const nlohmann::json text = nlohmann::json::parse(file, nullptr, false);
  ArrayInfo info;
  try {
    info.name = text.at("name");
    info.dtype = text.at("dtype");
    info.shape = text.at("shape").get<std::vector<std::uint32_t>>();
    if (text.contains("fill")) info.fill = text["fill"].get<double>();
    if (text.contains("sequence")) info.sequence = text["sequence"].get<std::uint32_t>();
  } catch (const nlohmann::json::exception& error) {
    return Error(ErrorCode::kInvalidArgument, path.string() + ": " + error.what());
  }
  info.item_bytes = ItemBytes(info.dtype);
  std::uint64_t bytes = info.item_bytes;
  for (const std::uint32_t extent : info.shape) {
    // Division first, because the product of the axes could wrap. 0 stays 0 and is refused below.
    if (extent == 0 || bytes > kArrayBytesMax / extent) bytes = 0;
    bytes *= extent;
  }
  if (info.shape.empty() || bytes == 0) {
    return Error(ErrorCode::kInvalidArgument, path.string() + ": dtype or shape out of range");
  }
  return info;
}

}  // namespace

std::uint32_t ArrayInfo::rows() const {
  std::uint32_t rows = 1;
  // Axes between the first and the last are folded into rows, so that codecs of images see every
  // array as planes.
  for (std::size_t axis = 1; axis + 1 < shape.size(); ++axis) rows *= shape[axis];
  return rows;
}

std::size_t ArrayInfo::frame_bytes() const {
  return item_bytes * rows() * columns();
}

Result<CodecArray> LoadArray(const std::filesystem::path& folder, const std::string& name,
                             std::uint32_t frames) {
  CodecArray array;
  FOREBAY_ASSIGN(array.info, ReadInfo(folder / (name + ".json")));
  // Fewer frames are the first ones, so the bytes at the start of the file are enough.
  if (frames != 0) array.info.shape.front() = std::min(frames, array.info.frames());
  const std::filesystem::path path = folder / (name + ".raw");
  std::ifstream file(path, std::ios::binary);
  array.bytes.resize(array.info.bytes());
  if (!file.read(reinterpret_cast<char*>(array.bytes.data()),
                 static_cast<std::streamsize>(array.bytes.size()))) {
    return Error(ErrorCode::kDataLoss, path.string() + ": shorter than its description");
  }
  return array;
}

}  // namespace forebay::bench

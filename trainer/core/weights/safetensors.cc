// A safetensors file is the length of a header (8 bytes, little-endian), the header as JSON, and
// the bytes of the tensors. The reader trusts none of it: the header's length is bounded before
// memory is taken for it, and the tensors must cover the rest of the file exactly, each as large as
// its type and shape say.
#include "trainer/core/weights/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "proto/contract/byte_cursor.h"
#include "proto/contract/check.h"

namespace forebay::train {
namespace {

using JsonTree = nlohmann::json;

static_assert(std::endian::native == std::endian::little, "elements are copied as they are");

constexpr std::string_view kMetadataName = "__metadata__";

Error BadHeader(std::string_view what) {
  return Error(ErrorCode::kInvalidArgument, fmt::format("not a safetensors file: {}", what));
}

// All types of the format, also those that the trainer does not read: their tensors are skipped by
// size.
std::optional<std::uint64_t> ElementBytes(std::string_view dtype) {
  struct Size {
    std::string_view dtype;
    std::uint64_t bytes;
  };
  constexpr Size kSizes[] = {{"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1},
                             {"U16", 2},  {"I16", 2}, {"F16", 2}, {"BF16", 2},    {"U32", 4},
                             {"I32", 4},  {"F32", 4}, {"U64", 8}, {"I64", 8},     {"F64", 8}};
  const auto* const found = std::ranges::find(kSizes, dtype, &Size::dtype);
  if (found == std::end(kSizes)) return std::nullopt;
  return found->bytes;
}

// A list of whole numbers. Its length is bounded: no tensor has more axes.
Result<std::vector<std::uint64_t>> Unsigneds(const JsonTree& node, std::string_view what) {
  // A loop below multiplies over the list, so its length is work that the file's author chooses.
  if (!node.is_array() || node.size() > kSafetensorsAxesMax) return BadHeader(what);
  std::vector<std::uint64_t> numbers;
  for (const JsonTree& number : node) {
    if (!number.is_number_unsigned()) return BadHeader(what);
    numbers.push_back(number.get<std::uint64_t>());
  }
  return numbers;
}

// Reads one tensor's description, and checks that the bytes which it names exist and fit its
// shape. `data_bytes` is the size of the file without its header.
Result<TensorEntry> ReadEntry(const std::string& name, const JsonTree& node,
                              std::uint64_t data_bytes) {
  if (!node.is_object() || !node.contains("dtype") || !node["dtype"].is_string() ||
      !node.contains("shape") || !node.contains("data_offsets")) {
    return BadHeader(fmt::format("tensor {} is not described", name));
  }
  TensorEntry entry;
  entry.name = name;
  entry.dtype = node["dtype"].get<std::string>();
  FOREBAY_ASSIGN(entry.shape, Unsigneds(node["shape"], "a shape"));
  FOREBAY_ASSIGN(const auto offsets, Unsigneds(node["data_offsets"], "data offsets"));
  // Before any difference of the offsets is formed.
  if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > data_bytes) {
    return BadHeader(fmt::format("tensor {} lies outside the file", name));
  }
  entry.begin = offsets[0];
  entry.end = offsets[1];
  const std::optional<std::uint64_t> element_bytes = ElementBytes(entry.dtype);
  if (!element_bytes) return BadHeader(fmt::format("tensor {} has an unknown dtype", name));
  std::uint64_t bytes = *element_bytes;
  for (const std::uint64_t extent : entry.shape) {
    // Divided and not multiplied: the product could wrap around.
    if (extent != 0 && bytes > data_bytes / extent) {
      return BadHeader(fmt::format("tensor {} is larger than the file", name));
    }
    bytes *= extent;
  }
  // Readers take as many bytes as the shape says, so the two must agree before anybody reads.
  if (bytes != entry.end - entry.begin) {
    return BadHeader(fmt::format("tensor {}: shape and length disagree", name));
  }
  return entry;
}

// The header as JSON. Depth is bounded and names are there once, which the JSON library alone
// would not ask for.
Result<JsonTree> ParseHeaderText(std::span<const std::byte> text) {
  constexpr int kDepthMax = 3;  // header, tensor, shape
  bool too_deep = false;
  bool twice = false;
  std::set<std::string, std::less<>> names;
  const auto watch = [&](int depth, JsonTree::parse_event_t event, JsonTree& parsed) {
    const bool opens = event == JsonTree::parse_event_t::object_start ||
                       event == JsonTree::parse_event_t::array_start;
    // The library recurses, so that a deep document could exhaust the stack.
    if (opens && depth >= kDepthMax) too_deep = true;
    if (event == JsonTree::parse_event_t::key && depth == 1) {
      twice = !names.insert(parsed.get<std::string>()).second || twice;
    }
    return !too_deep && !twice;
  };
  const char* const begin = reinterpret_cast<const char*>(text.data());
  // The watch sees every name, while the library keeps the last of two equal ones without a word.
  JsonTree header = JsonTree::parse(begin, begin + text.size(), watch, /*allow_exceptions=*/false);
  if (too_deep) return BadHeader("the header is nested too deep");
  if (twice) return BadHeader("a name is there twice");
  if (!header.is_object()) return BadHeader("the header is not a JSON object");
  return header;
}

// Half precision has 1 sign bit, 5 bits of exponent and 10 of fraction.
float HalfToFloat(std::uint16_t half) {
  const bool negative = (half & 0x8000U) != 0;
  const std::uint32_t exponent = (half >> 10U) & 0x1FU;
  const std::uint32_t fraction = half & 0x3FFU;
  if (exponent == 0) {  // zero, or subnormal: a multiple of 2^-24
    // Exact: a float has room for ten bits at any such exponent.
    const float value = std::ldexp(static_cast<float>(fraction), -24);
    return negative ? -value : value;
  }
  // Exponents of half precision begin at -15, those of floats at -127; infinities and NaN keep all
  // ones.
  const std::uint32_t rebiased = exponent == 0x1FU ? 0xFFU : exponent + 112U;
  return std::bit_cast<float>((negative ? 0x8000'0000U : 0U) | (rebiased << 23U) |
                              (fraction << 13U));
}

// pread has no position that two reads of one file would share.
Status ReadAt(int fd, std::uint64_t offset, std::span<std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t got = ::pread(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Error::FromErrno(errno, path + ": read");
    if (got == 0) return Error(ErrorCode::kDataLoss, path + ": shrank while read");
    offset += static_cast<std::uint64_t>(got);
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
  return {};
}

}  // namespace

const TensorEntry* SafetensorsHeader::Find(std::string_view name) const {
  const auto found = std::ranges::find(tensors, name, &TensorEntry::name);
  return found == tensors.end() ? nullptr : &*found;
}

// A hostile length is refused here, before anything is allocated or subtracted.
Result<std::uint64_t> ReadHeaderLength(std::span<const std::byte> bytes,
                                       std::uint64_t file_bytes) {
  ByteReader reader(bytes);
  const std::uint64_t length = reader.ReadLe<std::uint64_t>();
  if (!reader.ok() || file_bytes < kSafetensorsLengthBytes) return BadHeader("too short");
  if (length > kSafetensorsHeaderBytesMax || length > file_bytes - kSafetensorsLengthBytes) {
    return BadHeader(fmt::format("a header of {} bytes, which is beyond the file or the {} that "
                                 "are read",
                                 length, kSafetensorsHeaderBytesMax));
  }
  return length;
}

Result<SafetensorsHeader> ParseSafetensors(std::span<const std::byte> bytes,
                                           std::uint64_t file_bytes) {
  FOREBAY_ASSIGN(const std::uint64_t length, ReadHeaderLength(bytes, file_bytes));
  ByteReader reader(bytes.subspan(kSafetensorsLengthBytes));
  const std::span<const std::byte> text = reader.Take(static_cast<std::size_t>(length));
  // The caller may have read fewer bytes than the length says.
  if (!reader.ok()) return BadHeader("the header is cut off");
  FOREBAY_ASSIGN(const JsonTree json, ParseHeaderText(text));

  SafetensorsHeader header;
  header.data_begin = kSafetensorsLengthBytes + length;
  const std::uint64_t data_bytes = file_bytes - header.data_begin;
  for (const auto& [name, node] : json.items()) {
    if (name != kMetadataName) {
      FOREBAY_ASSIGN(TensorEntry entry, ReadEntry(name, node, data_bytes));
      header.tensors.push_back(std::move(entry));
      continue;
    }
    if (!node.is_object()) return BadHeader("metadata that is no object");
    for (const auto& [key, value] : node.items()) {
      if (!value.is_string()) return BadHeader("metadata that is not text");
      // The metadata is not interpreted, because other programs write what they like here.
      header.metadata.emplace(key, value.get<std::string>());
    }
  }
  // JSON sorts by name; the file's order is by offset.
  std::ranges::sort(header.tensors, [](const TensorEntry& a, const TensorEntry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  // In the order of offsets every tensor begins where the one before it ends.
  std::uint64_t expected = 0;
  for (const TensorEntry& entry : header.tensors) {
    if (entry.begin != expected) {
      return BadHeader(fmt::format("tensor {} overlaps another or leaves a hole", entry.name));
    }
    expected = entry.end;
  }
  // The format forbids holes, so that a file cannot carry bytes which no reader sees.
  if (expected != data_bytes) return BadHeader("bytes that belong to no tensor");
  return header;
}

// The caller writes the tensors behind it, at the offsets that the entries have.
std::vector<std::byte> EncodeSafetensorsHeader(
    const std::map<std::string, std::string, std::less<>>& metadata,
    std::span<const TensorEntry> tensors) {
  JsonTree header = JsonTree::object();
  if (!metadata.empty()) header[std::string(kMetadataName)] = metadata;
  for (const TensorEntry& tensor : tensors) {
    // The JSON library sorts by name, so the same tensors give the same bytes.
    header[tensor.name] = {{"dtype", tensor.dtype},
                           {"shape", tensor.shape},
                           {"data_offsets", {tensor.begin, tensor.end}}};
  }
  std::string text = header.dump();
  // Spaces, which JSON ignores, so that the tensors begin at a multiple of 8.
  text.resize((text.size() + 7) / 8 * 8, ' ');
  ByteWriter writer;
  writer.Le(static_cast<std::uint64_t>(text.size()));
  writer.Bytes(std::as_bytes(std::span(text.data(), text.size())));
  return writer.Release();
}

Result<std::vector<float>> FloatsOf(std::string_view dtype, std::span<const std::byte> bytes) {
  if (dtype != "F32" && dtype != "F16" && dtype != "BF16") {
    return Error(ErrorCode::kUnimplemented,
                 fmt::format("elements of {}; F32, F16 and BF16 can be read", dtype));
  }
  const std::size_t element_bytes = dtype == "F32" ? 4 : 2;
  if (bytes.size() % element_bytes != 0) return BadHeader("a part of an element");
  std::vector<float> floats(bytes.size() / element_bytes);
  if (dtype == "F32") {
    if (!floats.empty()) std::memcpy(floats.data(), bytes.data(), bytes.size());
    return floats;
  }
  for (std::size_t at = 0; at < floats.size(); ++at) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, bytes.data() + 2 * at, sizeof(bits));
    // BF16 is the upper half of a float.
    floats[at] = dtype == "F16" ? HalfToFloat(bits)
                                : std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
  }
  return floats;
}

Result<SafetensorsFile> SafetensorsFile::Open(const std::filesystem::path& path) {
  SafetensorsFile file;
  file.path_ = path.string();
  // O_NONBLOCK: opening a pipe would wait for a writer. For regular files it changes nothing.
  file.fd_ = UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.fd_.valid()) return Error::FromErrno(errno, file.path_ + ": open");
  struct stat status = {};
  if (::fstat(file.fd_.get(), &status) != 0) {
    return Error::FromErrno(errno, file.path_ + ": stat");
  }
  // A pipe or a device has no size that offsets could be compared with.
  if (!S_ISREG(status.st_mode)) {
    return Error(ErrorCode::kInvalidArgument, file.path_ + ": not a regular file");
  }
  const auto file_bytes = static_cast<std::uint64_t>(status.st_size);
  if (file_bytes > kSafetensorsBytesMax) {
    return Error(ErrorCode::kResourceExhausted,
                 file.path_ + ": larger than kSafetensorsBytesMax");
  }
  // The length first: only then is memory for the header taken.
  std::vector<std::byte> bytes(std::min<std::uint64_t>(file_bytes, kSafetensorsLengthBytes));
  FOREBAY_TRY(ReadAt(file.fd_.get(), 0, bytes, file.path_));
  const Result<std::uint64_t> length = ReadHeaderLength(bytes, file_bytes);
  if (!length.has_value()) return length.error().WithContext(file.path_);
  // The length was checked against the size of the file and a fixed limit.
  bytes.resize(kSafetensorsLengthBytes + static_cast<std::size_t>(*length));
  FOREBAY_TRY(ReadAt(file.fd_.get(), 0, bytes, file.path_));
  Result<SafetensorsHeader> header = ParseSafetensors(bytes, file_bytes);
  if (!header.has_value()) return header.error().WithContext(file.path_);
  file.header_ = *std::move(header);
  file.file_bytes_ = file_bytes;
  return file;
}

// The entry was checked against the size of the file when the header was read.
Status SafetensorsFile::ReadBytes(const TensorEntry& entry, std::span<std::byte> bytes) const {
  FOREBAY_CHECK(entry.begin <= entry.end && bytes.size() == entry.end - entry.begin);
  return ReadAt(fd_.get(), header_.data_begin + entry.begin, bytes, path_);
}

Result<std::vector<float>> SafetensorsFile::ReadFloats(const TensorEntry& entry) const {
  FOREBAY_CHECK(entry.begin <= entry.end);
  std::vector<std::byte> bytes(static_cast<std::size_t>(entry.end - entry.begin));
  FOREBAY_TRY(ReadBytes(entry, bytes));
  Result<std::vector<float>> floats = FloatsOf(entry.dtype, bytes);
  if (!floats.has_value()) return floats.error().WithContext(path_ + ": tensor " + entry.name);
  return floats;
}

}  // namespace forebay::train

#include "trainer/core/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>

#include "proto/contract/byte_cursor.h"
#include "proto/contract/checksum.h"

namespace forebay::train {
namespace {

using Json = nlohmann::json;
using Metadata = std::map<std::string, std::string, std::less<>>;

constexpr std::string_view kChecksumName = "forebay.checksum";
constexpr std::size_t kChecksumBytes = 8;
constexpr std::size_t kLengthBytes = 8;

Error Malformed(std::string_view what) {
  return Error(ErrorCode::kInvalidArgument, fmt::format("not a checkpoint: {}", what));
}

std::optional<std::uint64_t> ElementBytes(std::string_view dtype) {
  if (dtype == "U8") return 1;
  if (dtype == "F32") return 4;
  if (dtype == "F64" || dtype == "I64") return 8;
  return std::nullopt;
}

std::string ToHex(std::span<const std::byte> bytes) {
  std::string hex;
  for (const std::byte byte : bytes) hex += fmt::format("{:02x}", std::to_integer<int>(byte));
  return hex;
}

std::optional<std::vector<std::byte>> FromHex(std::string_view hex) {
  if (hex.size() % 2 != 0) return std::nullopt;
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    unsigned value = 0;
    const char* const end = hex.data() + i + 2;
    const auto [parsed, error] = std::from_chars(hex.data() + i, end, value, 16);
    if (error != std::errc() || parsed != end) return std::nullopt;
    bytes.push_back(static_cast<std::byte>(value));
  }
  return bytes;
}

std::string HeaderText(const Checkpoint& checkpoint) {
  std::string states;
  for (const std::string& state : checkpoint.optimiser_states) {
    states += (states.empty() ? "" : ",") + state;
  }
  Json header = Json::object();
  header["__metadata__"] = {
      {"format", std::string(kCheckpointFormat)},
      {"model", checkpoint.model},
      {"optimiser", checkpoint.optimiser},
      {"optimiser_states", states},
      {"global_step", std::to_string(checkpoint.global_step)},
      {"epoch", std::to_string(checkpoint.epoch)},
      {"step", std::to_string(checkpoint.step)},
      {"seed", std::to_string(checkpoint.seed)},
      {"global_batch", std::to_string(checkpoint.global_batch)},
      {"evaluation_pending", checkpoint.evaluation_pending ? "1" : "0"},
      {"identity", checkpoint.identity},
      {"position_token", ToHex(checkpoint.position_token)},
  };
  std::uint64_t offset = 0;
  for (const CheckpointTensor& tensor : checkpoint.tensors) {
    const std::uint64_t end = offset + tensor.bytes.size();
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  header[std::string(kChecksumName)] = {
      {"dtype", "U8"}, {"shape", {kChecksumBytes}}, {"data_offsets", {offset, offset + 8}}};
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // tensors start at a multiple of eight
  return text;
}

// Metadata values are strings, as safetensors wants them.
Result<std::string> Text(const Metadata& metadata, std::string_view name) {
  const auto found = metadata.find(name);
  if (found == metadata.end()) return Malformed(fmt::format("no metadata {}", name));
  return found->second;
}

Result<std::uint64_t> Number(const Metadata& metadata, std::string_view name,
                             std::uint64_t maximum) {
  FOREBAY_ASSIGN(const std::string text, Text(metadata, name));
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value > maximum) {
    return Malformed(fmt::format("metadata {} is not a number up to {}", name, maximum));
  }
  return value;
}

Status ReadMetadata(const Json& header, Checkpoint& checkpoint) {
  const auto node = header.find("__metadata__");
  if (node == header.end() || !node->is_object()) return Malformed("no metadata");
  Metadata metadata;
  for (const auto& [name, value] : node->items()) {
    if (!value.is_string()) return Malformed("metadata that is not text");
    metadata.emplace(name, value.get<std::string>());
  }
  FOREBAY_ASSIGN(const std::string format, Text(metadata, "format"));
  if (format != kCheckpointFormat) {
    return Error(ErrorCode::kFailedPrecondition,
                 fmt::format("format {}, this program reads {}", format, kCheckpointFormat));
  }
  FOREBAY_ASSIGN(checkpoint.model, Text(metadata, "model"));
  FOREBAY_ASSIGN(checkpoint.optimiser, Text(metadata, "optimiser"));
  FOREBAY_ASSIGN(const std::string states, Text(metadata, "optimiser_states"));
  for (std::size_t at = 0; at < states.size();) {
    const std::size_t comma = std::min(states.find(',', at), states.size());
    checkpoint.optimiser_states.push_back(states.substr(at, comma - at));
    at = comma + 1;
  }
  FOREBAY_ASSIGN(checkpoint.global_step, Number(metadata, "global_step", 1ULL << 62));
  FOREBAY_ASSIGN(const std::uint64_t epoch, Number(metadata, "epoch", UINT32_MAX));
  FOREBAY_ASSIGN(checkpoint.step, Number(metadata, "step", 1ULL << 62));
  FOREBAY_ASSIGN(checkpoint.seed, Number(metadata, "seed", UINT64_MAX));
  FOREBAY_ASSIGN(const std::uint64_t batch, Number(metadata, "global_batch", UINT32_MAX));
  FOREBAY_ASSIGN(const std::uint64_t pending, Number(metadata, "evaluation_pending", 1));
  checkpoint.epoch = static_cast<std::uint32_t>(epoch);
  checkpoint.global_batch = static_cast<std::uint32_t>(batch);
  checkpoint.evaluation_pending = pending == 1;
  // Files of before it was recorded have none.
  if (metadata.contains("identity")) {
    FOREBAY_ASSIGN(checkpoint.identity, Text(metadata, "identity"));
  }
  FOREBAY_ASSIGN(const std::string token, Text(metadata, "position_token"));
  std::optional<std::vector<std::byte>> token_bytes = FromHex(token);
  if (!token_bytes) return Malformed("metadata position_token is not hexadecimal");
  checkpoint.position_token = *std::move(token_bytes);
  return {};
}

// One header entry with its place in the data, checked against nothing yet.
struct Entry {
  CheckpointTensor tensor;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

Result<std::vector<std::uint64_t>> Unsigneds(const Json& node, std::string_view what) {
  if (!node.is_array() || node.size() > 16) return Malformed(what);
  std::vector<std::uint64_t> numbers;
  for (const Json& number : node) {
    if (!number.is_number_unsigned()) return Malformed(what);
    numbers.push_back(number.get<std::uint64_t>());
  }
  return numbers;
}

Result<Entry> ReadEntry(const std::string& name, const Json& node, std::uint64_t data_bytes) {
  if (!node.is_object() || !node.contains("dtype") || !node["dtype"].is_string() ||
      !node.contains("shape") || !node.contains("data_offsets")) {
    return Malformed(fmt::format("tensor {} is not described", name));
  }
  Entry entry;
  entry.tensor.name = name;
  entry.tensor.dtype = node["dtype"].get<std::string>();
  FOREBAY_ASSIGN(entry.tensor.shape, Unsigneds(node["shape"], "a shape"));
  FOREBAY_ASSIGN(const auto offsets, Unsigneds(node["data_offsets"], "data offsets"));
  if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > data_bytes) {
    return Malformed(fmt::format("tensor {} lies outside the file", name));
  }
  entry.begin = offsets[0];
  entry.end = offsets[1];
  const std::optional<std::uint64_t> element_bytes = ElementBytes(entry.tensor.dtype);
  if (!element_bytes) return Malformed(fmt::format("tensor {} has an unknown dtype", name));
  std::uint64_t bytes = *element_bytes;
  for (const std::uint64_t extent : entry.tensor.shape) {
    if (extent != 0 && bytes > data_bytes / extent) {
      return Malformed(fmt::format("tensor {} is larger than the file", name));
    }
    bytes *= extent;
  }
  if (bytes != entry.end - entry.begin) {
    return Malformed(fmt::format("tensor {}: shape and length disagree", name));
  }
  return entry;
}

std::uint64_t WholeChecksum(std::span<const std::byte> covered) { return Checksum(covered); }

}  // namespace

const CheckpointTensor* Checkpoint::Find(std::string_view name) const {
  const auto found = std::ranges::find(tensors, name, &CheckpointTensor::name);
  return found == tensors.end() ? nullptr : &*found;
}

std::vector<std::byte> EncodeCheckpoint(const Checkpoint& checkpoint) {
  const std::string header = HeaderText(checkpoint);
  std::size_t total = kLengthBytes + header.size() + kChecksumBytes;
  for (const CheckpointTensor& tensor : checkpoint.tensors) total += tensor.bytes.size();
  std::vector<std::byte> bytes(total);
  std::size_t at = 0;
  const auto append = [&bytes, &at](const void* data, std::size_t size) {
    if (size != 0) std::memcpy(bytes.data() + at, data, size);
    at += size;
  };
  ByteWriter length;
  length.Le(static_cast<std::uint64_t>(header.size()));
  append(length.bytes().data(), length.size());
  append(header.data(), header.size());
  for (const CheckpointTensor& tensor : checkpoint.tensors) {
    append(tensor.bytes.data(), tensor.bytes.size());
  }
  ByteWriter checksum;
  checksum.Le(WholeChecksum(std::span(bytes).first(at)));
  append(checksum.bytes().data(), checksum.size());
  return bytes;
}

Result<Checkpoint> DecodeCheckpoint(std::span<const std::byte> bytes) {
  if (bytes.size() < kLengthBytes + kChecksumBytes) return Malformed("too short");
  const std::size_t covered = bytes.size() - kChecksumBytes;
  ByteReader trailer(bytes.subspan(covered));
  if (trailer.ReadLe<std::uint64_t>() != WholeChecksum(bytes.first(covered))) {
    return Error(ErrorCode::kDataLoss, "checkpoint is torn or damaged: checksum mismatch");
  }
  ByteReader reader(bytes);
  const std::uint64_t header_bytes = reader.ReadLe<std::uint64_t>();
  if (header_bytes > kCheckpointHeaderBytesMax || header_bytes > covered - kLengthBytes) {
    return Malformed("header beyond the file or kCheckpointHeaderBytesMax");
  }
  const std::span<const std::byte> text = reader.Take(static_cast<std::size_t>(header_bytes));
  const std::span<const std::byte> data = bytes.subspan(reader.offset());
  const char* const begin = reinterpret_cast<const char*>(text.data());
  const Json header = Json::parse(begin, begin + text.size(), nullptr, false);
  if (!header.is_object()) return Malformed("header is not a JSON object");

  Checkpoint checkpoint;
  FOREBAY_TRY(ReadMetadata(header, checkpoint));
  std::vector<Entry> entries;
  for (const auto& [name, node] : header.items()) {
    if (name == "__metadata__") continue;
    FOREBAY_ASSIGN(Entry entry, ReadEntry(name, node, data.size()));
    entries.push_back(std::move(entry));
  }
  // JSON sorts by name; the file's order is by offset.
  std::ranges::sort(entries, [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::uint64_t expected = 0;
  for (Entry& entry : entries) {
    if (entry.begin != expected) return Malformed("tensors overlap or leave a hole");
    expected = entry.end;
    if (entry.tensor.name == kChecksumName) continue;
    const auto raw = data.subspan(entry.begin, entry.end - entry.begin);
    entry.tensor.bytes.assign(raw.begin(), raw.end());
    checkpoint.tensors.push_back(std::move(entry.tensor));
  }
  if (expected != data.size() || entries.empty() ||
      entries.back().tensor.name != kChecksumName) {
    return Malformed("bytes that belong to no tensor");
  }
  return checkpoint;
}

}  // namespace forebay::train

#include "trainer/core/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "proto/contract/byte_cursor.h"
#include "proto/contract/checksum.h"
#include "trainer/core/safetensors.h"

namespace forebay::train {
namespace {

using Metadata = std::map<std::string, std::string, std::less<>>;

constexpr std::string_view kChecksumName = "forebay.checksum";
constexpr std::size_t kChecksumBytes = 8;

Error Malformed(std::string_view what) {
  return Error(ErrorCode::kInvalidArgument, fmt::format("not a checkpoint: {}", what));
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

std::uint64_t DataBytes(const Checkpoint& checkpoint) {
  std::uint64_t bytes = kChecksumBytes;
  for (const CheckpointTensor& tensor : checkpoint.tensors) bytes += tensor.bytes.size();
  return bytes;
}

std::vector<std::byte> HeaderBytes(const Checkpoint& checkpoint) {
  std::string states;
  for (const std::string& state : checkpoint.optimiser_states) {
    states += (states.empty() ? "" : ",") + state;
  }
  const Metadata metadata = {
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
  std::vector<TensorEntry> entries;
  std::uint64_t offset = 0;
  for (const CheckpointTensor& tensor : checkpoint.tensors) {
    const std::uint64_t end = offset + tensor.bytes.size();
    entries.push_back({.name = tensor.name,
                       .dtype = tensor.dtype,
                       .shape = tensor.shape,
                       .begin = offset,
                       .end = end});
    offset = end;
  }
  entries.push_back({.name = std::string(kChecksumName),
                     .dtype = "U8",
                     .shape = {kChecksumBytes},
                     .begin = offset,
                     .end = offset + kChecksumBytes});
  return EncodeSafetensorsHeader(metadata, entries);
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

Status ReadMetadata(const Metadata& metadata, Checkpoint& checkpoint) {
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

std::uint64_t WholeChecksum(std::span<const std::byte> covered) { return Checksum(covered); }

}  // namespace

const CheckpointTensor* Checkpoint::Find(std::string_view name) const {
  const auto found = std::ranges::find(tensors, name, &CheckpointTensor::name);
  return found == tensors.end() ? nullptr : &*found;
}

std::vector<std::byte> EncodeCheckpoint(const Checkpoint& checkpoint) {
  std::vector<std::byte> bytes = HeaderBytes(checkpoint);
  bytes.reserve(bytes.size() + DataBytes(checkpoint));
  for (const CheckpointTensor& tensor : checkpoint.tensors) {
    bytes.insert(bytes.end(), tensor.bytes.begin(), tensor.bytes.end());
  }
  ByteWriter checksum;
  checksum.Le(WholeChecksum(bytes));
  bytes.insert(bytes.end(), checksum.bytes().begin(), checksum.bytes().end());
  return bytes;
}

Result<Checkpoint> DecodeCheckpoint(std::span<const std::byte> bytes) {
  if (bytes.size() < kSafetensorsLengthBytes + kChecksumBytes) return Malformed("too short");
  const std::size_t covered = bytes.size() - kChecksumBytes;
  ByteReader trailer(bytes.subspan(covered));
  if (trailer.ReadLe<std::uint64_t>() != WholeChecksum(bytes.first(covered))) {
    return Error(ErrorCode::kDataLoss, "checkpoint is torn or damaged: checksum mismatch");
  }
  FOREBAY_ASSIGN(SafetensorsHeader header, ParseSafetensors(bytes, bytes.size()));
  if (header.tensors.empty() || header.tensors.back().name != kChecksumName ||
      header.tensors.back().end - header.tensors.back().begin != kChecksumBytes) {
    return Malformed("its last tensor is no checksum");
  }
  header.tensors.pop_back();

  Checkpoint checkpoint;
  FOREBAY_TRY(ReadMetadata(header.metadata, checkpoint));
  const std::span<const std::byte> data = bytes.subspan(header.data_begin);
  for (TensorEntry& entry : header.tensors) {
    const auto raw = data.subspan(entry.begin, entry.end - entry.begin);
    checkpoint.tensors.push_back({.name = std::move(entry.name),
                                  .dtype = std::move(entry.dtype),
                                  .shape = std::move(entry.shape),
                                  .bytes = {raw.begin(), raw.end()}});
  }
  return checkpoint;
}

}  // namespace forebay::train

#include "compress/encode/mask_encoder.h"

#include "proto/contract/byte_cursor.h"

namespace forebay::compress {
namespace {

std::vector<std::byte> RunsOf(std::span<const std::uint8_t> mask, std::size_t period) {
  ByteWriter writer;
  std::uint8_t value = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < mask.size(); ++i) {
    const std::uint8_t before = period > 0 && i >= period ? mask[i - period] : 0;
    if ((mask[i] ^ before) == value) continue;
    writer.Varint(i - begin);
    begin = i;
    value ^= 1;
  }
  writer.Varint(mask.size() - begin);
  return writer.Release();
}

}  // namespace

EncodedRuns EncodeRuns(std::span<const std::uint8_t> mask, std::size_t period) {
  EncodedRuns runs = {.bytes = RunsOf(mask, 0)};
  if (period == 0 || period >= mask.size()) return runs;
  std::vector<std::byte> temporal = RunsOf(mask, period);
  if (temporal.size() < runs.bytes.size()) runs = {.bytes = std::move(temporal), .temporal = true};
  return runs;
}

std::vector<std::byte> EncodePlaces(std::span<const std::uint8_t> flags) {
  ByteWriter writer;
  std::size_t next = 0;
  for (std::size_t i = 0; i < flags.size(); ++i) {
    if (flags[i] == 0) continue;
    writer.Varint(i - next);
    next = i + 1;
  }
  return writer.Release();
}

}  // namespace forebay::compress

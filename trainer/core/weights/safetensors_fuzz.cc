// Fuzz target: safetensors. The tensors of what parses cover the data, and what is written from
// them reads the same.
#include <cstdint>
#include <span>

#include "trainer/core/weights/safetensors.h"

namespace forebay::train {
namespace {

void CheckTensors(const SafetensorsHeader& header, std::span<const std::byte> data) {
  std::uint64_t expected = 0;
  for (const TensorEntry& entry : header.tensors) {
    if (entry.begin != expected || entry.end > data.size()) __builtin_trap();
    expected = entry.end;
    const auto bytes = data.subspan(entry.begin, entry.end - entry.begin);
    const auto floats = FloatsOf(entry.dtype, bytes);
    // The tensor has a type that is not read, which is no fault.
    if (!floats.has_value()) continue;
    std::uint64_t elements = 1;
    for (const std::uint64_t extent : entry.shape) elements *= extent;
    // The importer copies this many floats into a parameter of that shape.
    if (floats->size() != elements) __builtin_trap();
  }
  // Otherwise the file could carry bytes that no reader sees.
  if (expected != data.size()) __builtin_trap();
}

}  // namespace
}  // namespace forebay::train

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace forebay::train;
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto header = ParseSafetensors(bytes, size);
  if (!header.has_value()) return 0;
  if (header->data_begin > size) __builtin_trap();
  CheckTensors(*header, bytes.subspan(header->data_begin));
  const auto written = EncodeSafetensorsHeader(header->metadata, header->tensors);
  const auto again =
      ParseSafetensors(written, written.size() + (size - header->data_begin));
  // A file that was read can be written and read again; `export` relies on this.
  if (!again.has_value() || again->metadata != header->metadata ||
      again->tensors.size() != header->tensors.size()) {
    __builtin_trap();
  }
  return 0;
}

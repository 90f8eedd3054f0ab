// Fuzz target: a learned body and its predictor. The first four bytes give the shape (frames, rows,
// columns, bits), then comes a predictor's record, which says how long it is, then the body behind
// kind and id; plane_body_fuzz.h says what must hold.
#include <cstdint>
#include <memory>

#include "compress/decode/plane_body_fuzz.h"
#include "compress/decode/wavefront/wavefront_decoder.h"
#include "compress/format/plane/predictor.h"
#include "proto/contract/byte_cursor.h"

namespace forebay::compress {
namespace {

constexpr std::size_t kShapeBytes = 4;
constexpr std::size_t kRecordLengthOffset = 8;  // of the u32 behind the record's magic

void Check(const PlaneShape& shape, std::span<const std::byte> rest) {
  if (rest.size() < kRecordLengthOffset + 4) return;
  const auto length = ByteReader(rest.subspan(kRecordLengthOffset)).ReadLe<std::uint32_t>();
  // A record must have exactly the length that its header says, so it is cut off there.
  if (length > rest.size()) return;
  const auto predictor = Predictor::Parse(rest.first(length));
  if (!predictor.has_value()) return;
  // CheckPlaneBody knows decoders without a predictor; this one binds it.
  const auto decode = [&](const auto&... arguments) {
    return DecodeWavefront(arguments..., predictor->get());
  };
  CheckPlaneBody({.scratch_bytes = WavefrontScratchBytes, .decode = decode}, shape,
                 rest.subspan(length));
}

}  // namespace
}  // namespace forebay::compress

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace forebay::compress;
  if (size < kShapeBytes) return 0;
  const PlaneShape shape{.frames = 1U + data[0] % 3,
                         .rows = 8U + data[1] % 72,
                         .columns = 24U + data[2] % 144,
                         .bits = static_cast<std::uint8_t>(1 + data[3] % 8)};
  Check(shape, std::as_bytes(std::span(data + kShapeBytes, size - kShapeBytes)));
  return 0;
}

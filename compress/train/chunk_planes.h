// Collects the planes of chunks as the plane codec gets them, behind all stages: the data on which
// a predictor is trained.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "compress/format/chunk/chunk_shape.h"
#include "compress/format/plane/plane_shape.h"
#include "compress/format/plane/predictor.h"
#include "proto/contract/result.h"

namespace forebay::compress {

// A stack of planes of up to 8 bits, dense.
struct PlaneStack {
  PlaneShape shape;
  std::vector<std::byte> samples;
};

// The planes of a coded chunk that a predictor could correct: of up to 8 bits, not constant, of a
// shape that the plane codec takes. Errors: kDataLoss.
Result<std::vector<PlaneStack>> PlanesOfChunk(const ChunkShape& shape,
                                              std::span<const std::byte> payload,
                                              PredictorList predictors);

// Those of a pack's chunks, in the order of the file's index. `field` empty: of all fields. Learned
// predictors that the pack names and does not hold lie in its folder (predictor_file.h). Errors
// of reading; kNotFound for an unknown field. Holds all planes in memory: at most `bytes_max`.
Result<std::vector<PlaneStack>> PlanesOfPack(const std::string& path, const std::string& field,
                                             std::size_t bytes_max);

// Those of an array of u8 frames in a file without a header, in chunks of `chunk_frames`.
struct RawFrames {
  std::string path;
  std::uint32_t frames = 0, rows = 0, columns = 0;
  std::uint32_t chunk_frames = 8;
};
Result<std::vector<PlaneStack>> PlanesOfRaw(const RawFrames& raw, std::size_t bytes_max);

}  // namespace forebay::compress

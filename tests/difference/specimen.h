// What the differential test reads: payloads of chunks that encoders wrote, between them of every
// stage, coder and kind of planes, and such payloads damaged on purpose.
#pragma once

#include <cstddef>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "compress/format/chunk/chunk_shape.h"
#include "compress/format/plane/predictor.h"

namespace forebay::compress {

struct Specimen {
  std::string name;
  ChunkShape shape;
  ChunkCodec codec = ChunkCodec::kCoded;
  std::vector<std::byte> payload;
  std::vector<std::shared_ptr<const Predictor>> predictors;
};

// Sound ones, always the same.
std::vector<Specimen> MakeSpecimens();

// `from` with one to three changes of its bytes, or of the head that they are: then what is damaged
// lies behind a table of streams that adds up, and behind no zstd. `others` lend their bytes.
Specimen Mutate(const Specimen& from, const std::vector<Specimen>& others, std::mt19937& random);

}  // namespace forebay::compress

// SampleIndex: where each sample of a made data set lies, for contenders without a catalog.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/contract/result.h"

namespace forebay::bench {

// A text file, one line "PATH<tab>OFFSET<tab>BYTES" per sample, in the order of sample ids,
// paths beneath the data set's folder. Beside the data set, never inside.
struct SampleIndex {
  struct Place {
    std::uint32_t object = 0;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
  };
  std::vector<std::string> objects;
  std::vector<Place> samples;

  // kNotFound, or kInvalidArgument with the line.
  static Result<SampleIndex> Load(const std::string& path);
};

// An order file: little-endian 64-bit sample ids, epoch after epoch.
Result<std::vector<std::uint64_t>> LoadOrder(const std::string& path);

}  // namespace forebay::bench

// First weights of a model from a safetensors file, matched by name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "proto/contract/result.h"
#include "trainer/core/weights/safetensors.h"
#include "trainer/models/name_table.h"

namespace forebay::train {

struct Model;

// A parameter or running statistic of a model.
struct WantedTensor {
  std::string name;  // "part.layer.weight"
  std::vector<std::uint64_t> shape;
};

struct ImportOptions {
  std::span<const NameRule> names;  // of the model's family
  // Prefixes of names of weights that keep the values they are made with, whatever the file has;
  // for example a head for other classes.
  std::vector<std::string> fresh = {};
};

// Where a wanted tensor lies in the file.
struct WeightMatch {
  std::string name;             // of the wanted tensor
  const TensorEntry* entry;     // of the header
};

// Finds every wanted tensor in the file, under its foreign name or its own. kFailedPrecondition if
// tensors are missing, have another shape or elements that cannot be read, or if the file has
// others; the message lists the first ten of each kind.
Result<std::vector<WeightMatch>> MatchWeights(const SafetensorsHeader& header,
                                              std::span<const WantedTensor> wanted,
                                              const ImportOptions& options);

// Returns `model` with parts that start from the weights in `path`, on whichever rank they are
// made. The floats stay in memory as long as the model. Errors are those of MatchWeights and of the
// file.
Result<Model> WithWeights(Model model, const std::filesystem::path& path,
                          const ImportOptions& options);

}  // namespace forebay::train

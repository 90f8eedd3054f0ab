// A request for a model by name, and the sizes that it resolves to, without LibTorch. Only a caller
// of MakeModel needs trainer/exec/model.h.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "proto/contract/result.h"
#include "trainer/models/families/model_family.h"

namespace forebay::train {

struct Model;

struct ModelRequest {
  std::string name;                      // one of ModelNames()
  std::vector<std::int64_t> shape = {};  // of a sample: {C, H, W} or {C, D, H, W}; empty: its own
  std::int64_t outputs = 0;              // classes, or numbers to predict; 0: the model's own
  std::map<std::string, double> settings = {};  // in place of the model's own, by name
  std::string loss = {};                        // one of its family's; empty: the model's own
};

// The names of all presets, family by family. Names that end in -micro are for tests.
std::vector<std::string_view> ModelNames();

// kInvalidArgument for a name, shape or setting that is not possible; the message says what is.
Result<ModelSizes> ResolveModel(const ModelRequest& request);

// The loss of a request that has been resolved.
const LossKind& LossOf(const ModelSizes& sizes);

// Makes the model that is requested. Errors are those of ResolveModel. Parts are made, and memory
// is taken, only when the trainer asks for them.
Result<Model> MakeModel(const ModelRequest& request);

}  // namespace forebay::train

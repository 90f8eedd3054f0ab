// ModelFamily: everything that is known of a family of models, in one place. A family is one file
// (lenet.cc, unet3d.cc, ...) that defines a ModelFamily, and its name in model_registry.cc. The
// registry, the checks of requests, `--list-models`, the import of weights and the trainer read
// this descriptor; none of them names a family. The header does not include LibTorch, so that code
// that only lists models compiles fast.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/contract/result.h"
#include "trainer/core/loop/metric.h"
#include "trainer/models/name_table.h"

namespace forebay::train {

class Loss;
struct ModelFamily;
struct ModelPart;

// A number that models of a family have, and its bounds.
struct ModelSetting {
  std::string_view name;
  double usual;
  double minimum;
  double maximum;
  bool is_whole;
  bool shapes_parameters;  // their number or their shapes depend on it
  std::string_view help;
};

// For families that can be trained by cross-entropy.
inline constexpr ModelSetting kLabelSmoothing = {"label_smoothing", 0,    0, 0.99, false, false,
                                                 "of cross-entropy"};

// A request with every number filled in and checked (ResolveModel).
struct ModelSizes {
  const ModelFamily* family = nullptr;
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t outputs = 0;
  std::map<std::string, double> settings;  // all of the family's
  std::string loss;

  double Number(std::string_view setting) const;
  std::int64_t Whole(std::string_view setting) const;
  // Name and sizes: "resnet50 3x224x224 to 1000, width 64 ...". Models of one title have the same
  // parameters.
  std::string Title() const;
  std::string ShapeText() const;  // "3x224x224"
};

// A loss by name: how it is made, which target it takes, and which metric it reports.
struct LossKind {
  std::string_view name;
  std::shared_ptr<Loss> (*make)(const ModelSizes& sizes);
  // The shape of one sample's target; empty for a class index.
  std::vector<std::int64_t> (*target_shape)(const ModelSizes& sizes);
  Metric metric = {};  // what its Evaluate adds up
};

// A model by name: the numbers that differ from the family's usual ones. Unused places are empty.
struct ModelPreset {
  struct Setting {
    std::string_view name;
    double value;
  };
  std::string_view name;  // one that ends in -micro is for tests
  std::int64_t shape[4];  // of a sample, the axes of the family
  std::int64_t outputs;
  Setting settings[7] = {};
};

struct ModelFamily {
  std::string_view name;                     // for people: "ResNet"
  std::size_t axes;                          // of a sample: 3 for {C, H, W}, 4 for {C, D, H, W}
  std::span<const ModelPreset> presets;      // in the order in which they are listed
  std::span<const ModelSetting> settings;
  std::span<const LossKind* const> losses;   // that it can be trained by; the first is its own
  // How torchvision or timm name its parameters; empty where nobody else has them.
  std::span<const NameRule> foreign_names;
  // Checks conditions between shape, outputs and settings, each of which is within its bounds.
  // Returns an error made by RefusedModel. Null if there are no such conditions.
  Status (*check)(const ModelSizes& sizes);
  std::vector<ModelPart> (*parts)(const ModelSizes& sizes);
};

// Makes a kInvalidArgument that names the model.
Error RefusedModel(std::string_view model, std::string_view reason);

// All families that are registered (model_registry.cc).
std::span<const ModelFamily* const> ModelFamilies();

}  // namespace forebay::train

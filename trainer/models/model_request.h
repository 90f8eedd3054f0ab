// The registry of models by name, without LibTorch: what can be asked for, and what a request
// comes to. MakeModel alone needs trainer/exec/model.h where it is called.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/contract/result.h"

namespace forebay::train {

struct Model;

struct ModelRequest {
  std::string name;                      // one of ModelNames()
  std::vector<std::int64_t> shape = {};  // of a sample: {C, H, W} or {C, D, H, W}; empty: its own
  std::int64_t outputs = 0;              // classes, or numbers to predict; 0: the model's own
  std::map<std::string, double> settings = {};  // in place of the model's own, by name
  std::string loss = {};                        // one of LossNames(); empty: the model's own
};

enum class ModelFamily : std::uint8_t {
  kLeNet,
  kResNet,
  kVisionTransformer,
  kUNet3d,
  kCosmoFlow,
};

// One number that a family of models has, and its bounds.
struct ModelSetting {
  std::string_view name;
  double usual;
  double minimum;
  double maximum;
  bool is_whole;
  bool shapes_parameters;  // their number or their shapes depend on it
  std::string_view help;
};

// A request with every number filled in and checked.
struct ModelSizes {
  ModelFamily family = ModelFamily::kLeNet;
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
};

// In the order of the table; names that end in -micro are for tests.
std::vector<std::string_view> ModelNames();
std::vector<std::string_view> LossNames();
std::string_view FamilyName(ModelFamily family);  // "ResNet"
std::span<const ModelSetting> SettingsOf(ModelFamily family);
// The first is the one of its own.
std::vector<std::string_view> LossesOf(ModelFamily family);

// kInvalidArgument for a name, shape or setting that is not possible: the message names what is.
Result<ModelSizes> ResolveModel(const ModelRequest& request);

// The model that the request comes to; errors are ResolveModel's. Parts are made, and memory is
// taken, only when the trainer asks for them.
Result<Model> MakeModel(const ModelRequest& request);

}  // namespace forebay::train

// Turns section [model] of the configuration and the data set's facts into a model.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "proto/contract/result.h"
#include "trainer/core/config/train_config.h"
#include "trainer/core/feed/feed.h"
#include "trainer/models/model_request.h"

namespace forebay::train {

struct ModelTask;

// The model that the section describes, for samples of one shape.
struct ConfiguredModel {
  ModelRequest request;
  bool channels_last = false;            // how samples are stored
  std::vector<std::string> fresh = {};   // of model.fresh

  // For people: title, loss, how samples are read.
  std::string Text() const;
};

// Settings, shape and classes that the configuration leaves open come from the data set, then from
// the model itself. kInvalidArgument names the key, its value and what is possible.
Result<ConfiguredModel> ConfigureModel(const TrainConfig& config, const SampleFacts& facts);

// The model itself, with first weights from model.weights if that is set, and how the feed's bytes
// become its tensors. Every run's model is made here. Errors as ConfigureModel, MakeModel and
// WithWeights.
Result<std::shared_ptr<const ModelTask>> MakeModelTask(const TrainConfig& config,
                                                       const SampleFacts& facts);

// For --list-models: families with their settings, bounds and losses, and the names of each.
std::string ModelList();

}  // namespace forebay::train

// From the configuration's [model] section and the data set to a model.
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

// What the section comes to for samples of one shape.
struct ConfiguredModel {
  ModelRequest request;
  bool channels_last = false;            // how samples are stored
  std::vector<std::string> fresh = {};   // of model.fresh

  // For people: title, loss, how samples are read.
  std::string Text() const;
};

// Settings, shape and classes that the configuration leaves open are the data set's, then the
// model's own. kInvalidArgument names the key, what it is and what is possible.
Result<ConfiguredModel> ConfigureModel(const TrainConfig& config, const SampleFacts& facts);

// The model itself, with first weights from model.weights where that is set, and how the feed's
// bytes become its tensors. The one place where a run's model is made. Errors as ConfigureModel,
// MakeModel and WithWeights.
Result<std::shared_ptr<const ModelTask>> MakeModelTask(const TrainConfig& config,
                                                       const SampleFacts& facts);

// For --list-models: families with their settings, bounds and losses, and the names of each.
std::string ModelList();

}  // namespace forebay::train

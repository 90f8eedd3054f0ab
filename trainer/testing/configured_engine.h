// MakeEngine: an engine over the model that a configuration names, for sets of SampleSet. For
// tests that link forebay::trainer_models.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "proto/contract/result.h"
#include "trainer/comm/communicator.h"
#include "trainer/core/config/train_config.h"
#include "trainer/core/loop/engine.h"
#include "trainer/exec/torch_engine.h"
#include "trainer/models/model_config.h"

namespace forebay::train::testing {

inline Result<std::unique_ptr<Engine>> MakeEngine(
    const TrainConfig& config, Communicator& communicator,
    const std::function<void(const std::string&)>& print = {}) {
  const SampleFacts facts{.input_shape = {28, 28}};
  FOREBAY_ASSIGN(std::shared_ptr<const ModelTask> task, MakeModelTask(config, facts));
  return MakeTorchEngine(config, std::move(task), communicator, print);
}

}  // namespace forebay::train::testing

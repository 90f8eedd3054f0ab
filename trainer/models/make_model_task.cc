#include "trainer/exec/model_task.h"

#include <memory>
#include <utility>

#include "trainer/models/model_config.h"
#include "trainer/models/weight_import.h"

namespace forebay::train {
Result<std::shared_ptr<const ModelTask>> MakeModelTask(const TrainConfig& config,
                                                       const SampleFacts& facts) {
  FOREBAY_ASSIGN(const ConfiguredModel configured, ConfigureModel(config, facts));
  FOREBAY_ASSIGN(const ModelSizes sizes, ResolveModel(configured.request));
  auto task = std::make_shared<ModelTask>();
  FOREBAY_ASSIGN(task->model, MakeModel(configured.request));
  if (!config.model.weights.empty()) {
    FOREBAY_ASSIGN(task->model, WithWeights(std::move(task->model), config.model.weights,
                                            {.names = sizes.family->foreign_names,
                                             .fresh = configured.fresh}));
  }
  task->description = configured.Text();
  task->input_shape = sizes.shape;
  task->channels_last = configured.channels_last;
  task->target_shape = LossOf(sizes).target_shape(sizes);
  // Inputs that the augmentation normalises come as they are to be.
  if (config.augmentation.channel_means.empty()) {
    task->input_mean = config.model.input_mean;
    task->input_stddev = config.model.input_stddev;
  }
  task->metric = LossOf(sizes).metric;
  return std::shared_ptr<const ModelTask>(std::move(task));
}

}  // namespace forebay::train

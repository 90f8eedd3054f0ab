// A request becomes a model: its family makes the parts, its loss the loss. First weights from a
// file do not change the model; they wrap the makers of its parts, so that whichever rank makes a
// part copies that part's weights into it. The file is read once, and all makers share its
// contents.
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <exception>
#include <map>
#include <memory>
#include <utility>

#include "proto/contract/check.h"
#include "trainer/exec/model.h"
#include "trainer/exec/model_task.h"
#include "trainer/models/model_config.h"
#include "trainer/models/model_request.h"
#include "trainer/models/weight_import.h"

namespace forebay::train {
namespace {

// Parameters and buffers of a part, in torch's order, by full name.
std::vector<std::pair<std::string, torch::Tensor>> TensorsOf(const Part& part,
                                                             const std::string& name) {
  std::vector<std::pair<std::string, torch::Tensor>> tensors;
  for (const auto& item : part.named_parameters()) {
    tensors.emplace_back(name + "." + item.key(), item.value());
  }
  for (const auto& item : part.named_buffers()) {
    tensors.emplace_back(name + "." + item.key(), item.value());
  }
  return tensors;
}

using Weights = std::map<std::string, std::vector<float>>;

// Copies what the file has for a part over the first weights that the part has drawn.
void Overwrite(Part& part, const std::string& name, const Weights& weights) {
  const torch::NoGradGuard no_grad;
  for (auto& [full_name, tensor] : TensorsOf(part, name)) {
    const auto found = weights.find(full_name);
    if (found == weights.end()) continue;
    // MatchWeights has compared the shapes.
    FOREBAY_CHECK(found->second.size() == static_cast<std::size_t>(tensor.numel()));
    tensor.copy_(torch::from_blob(const_cast<float*>(found->second.data()), tensor.sizes(),
                                  torch::kFloat32));
  }
}

// Names and shapes of all tensors of the model. Every part is made once for this and thrown away:
// only a part knows what it registers.
Result<std::vector<WantedTensor>> WantedTensors(const Model& model) {
  std::vector<WantedTensor> wanted;
  try {
    for (const ModelPart& spec : model.parts) {
      for (const auto& [name, tensor] : TensorsOf(*spec.make(), spec.name)) {
        wanted.push_back({.name = name, .shape = {tensor.sizes().begin(), tensor.sizes().end()}});
      }
    }
  } catch (const std::exception& error) {
    return Error(ErrorCode::kInternal,
                 fmt::format("model {} cannot be made: {}", model.name, error.what()));
  }
  return wanted;
}

}  // namespace

// The name is the title with the sizes, which checkpoints compare.
Result<Model> MakeModel(const ModelRequest& request) {
  FOREBAY_ASSIGN(const ModelSizes sizes, ResolveModel(request));
  Model model;
  model.name = sizes.Title();
  model.parts = sizes.family->parts(sizes);
  model.loss = LossOf(sizes).make(sizes);
  FOREBAY_TRY(CheckModel(model));
  return model;
}

// Nothing is copied into parts here: their makers do that when a rank makes them.
Result<Model> WithWeights(Model model, const std::filesystem::path& path,
                          const ImportOptions& options) {
  FOREBAY_TRY(CheckModel(model));
  FOREBAY_ASSIGN(const SafetensorsFile file, SafetensorsFile::Open(path));
  // Needs every part once, to ask for the names and shapes of its tensors.
  FOREBAY_ASSIGN(const std::vector<WantedTensor> wanted, WantedTensors(model));
  const Result<std::vector<WeightMatch>> matches = MatchWeights(file.header(), wanted, options);
  if (!matches.has_value()) return matches.error().WithContext(path.string());
  const auto weights = std::make_shared<Weights>();
  for (const WeightMatch& match : *matches) {
    FOREBAY_ASSIGN((*weights)[match.name], file.ReadFloats(*match.entry));
  }
  for (ModelPart& spec : model.parts) {
    spec.make = [make = spec.make, name = spec.name,
                 kept = std::shared_ptr<const Weights>(weights)] {
      std::shared_ptr<Part> part = make();
      Overwrite(*part, name, *kept);
      return part;
    };
  }
  return model;
}

// The task factory that forebay-train passes to RunTrainer.
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

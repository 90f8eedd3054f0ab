// The table of all keys. Everything else derives from it: the TOML reader, --set, flags, --help,
// --print-config and the manual page. A key is a name, a pointer to its value, a help text, and
// bounds or choices. Values are stored only after they passed the checks of their key.
#include "trainer/core/config/train_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>
#include <span>
#include <toml++/toml.h>

#include "proto/contract/limits.h"
#include "trainer/core/config/number_list.h"
#include "trainer/core/loop/learning_rate.h"
#include "trainer/numerics/optimiser.h"
#include "trainer/schedule/pipeline_schedule.h"

namespace forebay::train {
namespace {

// Bounds are doubles for all kinds of numbers, so that the table needs one type of row.
constexpr double kUnbounded = 9e15;  // below 2^53, so that integers stay exact
// Of a list. Lists are of channels of a sample.
constexpr std::size_t kListValuesMax = 64;

// Every refusal names the key, the value and what is allowed.
Error BadValue(const ConfigKey& key, std::string_view value, std::string_view allowed) {
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("{} = {}: must be {}", key.name, value, allowed));
}

// The negation also refuses NaN.
Status CheckRange(const ConfigKey& key, double value, std::string_view text, const char* what) {
  if (value >= key.minimum && value <= key.maximum) return {};
  return BadValue(key, text, fmt::format("{} from {} to {}", what, key.minimum, key.maximum));
}

// A number for an integer key, a floating-point key, or a list of one.
Status SetNumber(const ConfigKey& key, double value, std::string_view text) {
  const bool integral = std::holds_alternative<std::int64_t*>(key.slot);
  FOREBAY_TRY(CheckRange(key, value, text, integral ? "an integer" : "a number"));
  if (integral) {
    // 1e3 is accepted for an integer key, 0.5 is not.
    if (value != std::floor(value)) return BadValue(key, text, "an integer");
    *std::get<std::int64_t*>(key.slot) = static_cast<std::int64_t>(value);
  // One number stands for a list of one: "model.input_mean = 0.5" needs no brackets.
  } else if (auto* const* list = std::get_if<std::vector<double>*>(&key.slot)) {
    **list = {value};
  } else {
    *std::get<double*>(key.slot) = value;
  }
  return {};
}

// Bounds are those of each number.
Status SetList(const ConfigKey& key, const std::vector<double>& values, std::string_view text) {
  if (values.empty() || values.size() > kListValuesMax) {
    return BadValue(key, text, fmt::format("1 to {} numbers", kListValuesMax));
  }
  for (const double value : values) FOREBAY_TRY(CheckRange(key, value, text, "numbers"));
  *std::get<std::vector<double>*>(key.slot) = values;
  return {};
}

// A long value is not repeated in the message.
Status SetString(const ConfigKey& key, std::string_view text) {
  // Most strings are paths or names, so one limit serves all of them.
  if (text.size() > limits::kPathBytesMax) {
    return BadValue(key, "<text>", fmt::format("at most {} bytes", limits::kPathBytesMax));
  }
  // A key without choices is checked by who reads it, who knows its syntax.
  if (!key.choices.empty() && std::ranges::find(key.choices, text) == key.choices.end()) {
    return BadValue(key, fmt::format("\"{}\"", text),
                    fmt::format("one of {}", fmt::join(key.choices, ", ")));
  }
  *std::get<std::string*>(key.slot) = std::string(text);
  return {};
}

Result<double> NumberOf(const ConfigKey& key, std::string_view text) {
  // ParseNumber takes the whole text or nothing, so "10k" is refused and not read as 10.
  if (const std::optional<double> value = ParseNumber<double>(text)) return *value;
  return BadValue(key, fmt::format("\"{}\"", text), "a number");
}

// From --set and flags, where everything is text.
Status SetText(const ConfigKey& key, std::string_view text) {
  if (std::holds_alternative<std::string*>(key.slot)) return SetString(key, text);
  // Only these two words: "yes" and "1" would need an agreement about case and more words.
  if (auto* const* flag = std::get_if<bool*>(&key.slot)) {
    if (text != "true" && text != "false") return BadValue(key, text, "true or false");
    **flag = text == "true";
    return {};
  }
  if (std::holds_alternative<std::vector<double>*>(key.slot)) {
    std::vector<double> values;
    for (const std::string_view part : SplitText(text, ',')) {
      FOREBAY_ASSIGN(const double value, NumberOf(key, part));
      values.push_back(value);
    }
    return SetList(key, values, text);
  }
  FOREBAY_ASSIGN(const double value, NumberOf(key, text));
  return SetNumber(key, value, text);
}

Status SetArray(const ConfigKey& key, const toml::array& array) {
  std::vector<double> values;
  for (const toml::node& element : array) {
    const auto value = element.value<double>();
    if (!value) return BadValue(key, "<value>", "a list of numbers");
    values.push_back(*value);
  }
  return SetList(key, values, "<list>");
}

// From a TOML document, whose values have types.
Status SetNode(const ConfigKey& key, const toml::node& node) {
  if (std::holds_alternative<std::string*>(key.slot)) {
    // No conversion between types: `epochs = "3"` is refused, because a quoted number is more often
    // a mistake than meant.
    if (const auto* text = node.as_string()) return SetString(key, text->get());
    return BadValue(key, "<value>", "a string");
  }
  if (auto* const* flag = std::get_if<bool*>(&key.slot)) {
    if (const auto* value = node.as_boolean()) {
      **flag = value->get();
      return {};
    }
    return BadValue(key, "<value>", "true or false");
  }
  if (const auto* array = node.as_array();
      array != nullptr && std::holds_alternative<std::vector<double>*>(key.slot)) {
    return SetArray(key, *array);
  }
  if (const auto* value = node.as_integer()) {
    return SetNumber(key, static_cast<double>(value->get()), fmt::format("{}", value->get()));
  }
  if (const auto* value = node.as_floating_point()) {
    return SetNumber(key, value->get(), fmt::format("{}", value->get()));
  }
  return BadValue(key, "<value>", "a number");
}

Status ApplyTable(TrainConfig& config, const toml::table& document) {
  // The rows point into `config`, so that setting a key is a store through its row.
  const std::vector<ConfigKey> keys = ConfigKeys(config);
  for (const auto& [section, node] : document) {
    const toml::table* table = node.as_table();
    // A key outside of all sections.
    if (table == nullptr) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("{}: keys belong in a section", section.str()));
    }
    for (const auto& [leaf, value] : *table) {
      const std::string name = fmt::format("{}.{}", section.str(), leaf.str());
      // Linear: there are about a hundred keys.
      const auto key = std::ranges::find(keys, name, &ConfigKey::name);
      if (key == keys.end()) {
        // A key that nobody knows is an error and not a warning: a misspelt one would train with
        // the default.
        return Error(ErrorCode::kInvalidArgument, fmt::format("{}: no such key", name));
      }
      FOREBAY_TRY(SetNode(*key, value));
    }
  }
  return {};
}

// The value as TOML that reads back the same.
std::string ValueText(const ConfigKey& key) {
  if (auto* const* text = std::get_if<std::string*>(&key.slot)) {
    std::string quoted = "\"";
    for (const char c : **text) {
      const auto byte = static_cast<unsigned char>(c);
      // A path may have control characters, which TOML allows in a string as escapes only.
      if (byte < 0x20 || byte == 0x7F) {
        quoted += fmt::format("\\u{:04X}", byte);
        continue;
      }
      if (c == '"' || c == '\\') quoted += '\\';
      quoted += c;
    }
    return quoted + "\"";
  }
  if (auto* const* number = std::get_if<std::int64_t*>(&key.slot)) {
    return fmt::format("{}", **number);
  }
  if (auto* const* number = std::get_if<double*>(&key.slot)) return fmt::format("{}", **number);
  if (auto* const* list = std::get_if<std::vector<double>*>(&key.slot)) {
    return fmt::format("[{}]", fmt::join(**list, ", "));
  }
  return *std::get<bool*>(key.slot) ? "true" : "false";
}

// The limit of the order's specification, so that no batch is accepted here and refused by the
// daemon.
constexpr double kBatchMax = limits::kGlobalBatchMax;

// The names of all that is registered, which are the choices of a key.
template <typename Descriptor>
std::vector<std::string> NamesOf(std::span<const Descriptor> registered) {
  std::vector<std::string> names;
  for (const Descriptor& one : registered) names.emplace_back(one.name);
  return names;
}

// The rows below are: name, value, help, minimum, maximum, choices. A string has no bounds, and a
// number no choices.
std::vector<ConfigKey> InputKeys(TrainConfig& config) {
  auto& data = config.data;
  auto& model = config.model;
  return {
      {"data.address", &data.address,
       "address of the daemon, unix:/path; empty: $FOREBAY_ADDRESS, else a private daemon is "
       "started", 0, 0, {}},
      {"data.embedded_config", &data.embedded_config,
       "configuration file of the private daemon", 0, 0, {}},
      {"data.train_dataset", &data.train_dataset, "data set to train on", 0, 0, {}},
      {"data.train_selection", &data.train_selection,
       "which samples of it are trained on", 0, 0, {}},
      {"data.validation_dataset", &data.validation_dataset, "data set to evaluate on", 0, 0, {}},
      {"data.validation_selection", &data.validation_selection,
       "which samples of it are evaluated", 0, 0, {}},
      {"data.input_field", &data.input_field, "field that is the network's input", 0, 0, {}},
      {"data.target_field", &data.target_field,
       "field that is the target, such as a label", 0, 0, {}},
      {"data.order_mode", &data.order_mode,
       "order of the training samples", 0, 0, {"global", "block", "sequential", "partial"}},
      {"data.block_samples", &data.block_samples,
       "samples in a run of consecutive samples; order_mode block and partial only", 1,
       kUnbounded, {}},
      {"data.window_runs", &data.window_runs,
       "runs that are shuffled together; order_mode block only", 1, kUnbounded, {}},
      {"data.canonical_nodes", &data.canonical_nodes,
       "number of fixed shares of the data set, a divisor of the global batch; order_mode partial "
       "only, where it must be given", 0, limits::kGlobalBatchMax, {}},
      {"data.exchange_fraction", &data.exchange_fraction,
       "part of each share that is exchanged for samples of other shares in each epoch; "
       "order_mode partial only", 0, 1, {}},
      // One credit less than a stream can have: the batch in use needs one, too.
      {"data.prefetch_depth", &data.prefetch_depth,
       "batches requested ahead", 1, limits::kCreditsMax - 1, {}},
      {"data.delivery_log", &data.delivery_log,
       "file that lists the batches that were consumed, one for each rank", 0, 0, {}},
      // No choices: a program with a model of its own has other names.
      {"model.architecture", &model.architecture, "network; --list-models prints them", 0, 0, {}},
      {"model.settings", &model.settings,
       "settings of the network, such as patch=4,depth=6", 0, 0, {}},
      {"model.shape", &model.shape,
       "shape in which the network takes a sample, such as 3x224x224; empty: that of the data set",
       0, 0, {}},
      {"model.channel_axis", &model.channel_axis,
       "axis of the channels in the stored samples; auto: the last one if it has 1 to 4 entries "
       "and the first has more", 0, 0, {"auto", "first", "last"}},
      {"model.classes", &model.classes,
       "number of classes, or of numbers to predict; 0: what the data set names, else the "
       "network's own", 0, 1e6, {}},
      {"model.loss", &model.loss,
       "loss, one of those that --list-models prints for the network; empty: its first one",
       0, 0, {}},
      {"model.weights", &model.weights,
       "safetensors file with the first weights, under our names, torchvision's or timm's",
       0, 0, {}},
      {"model.fresh", &model.fresh,
       "prefixes of names, such as head., of weights that do not come from model.weights",
       0, 0, {}},
      {"model.input_mean", &model.input_mean,
       "mean of the inputs, where bytes are scaled to 0 to 1; one number, or one for each channel",
       -1e6, 1e6, {}},
      // Inputs are divided by it, so it cannot be 0.
      {"model.input_stddev", &model.input_stddev,
       "standard deviation of the inputs, as model.input_mean", 1e-6, 1e6, {}},
  };
}

std::vector<ConfigKey> AugmentationKeys(AugmentationConfig& augmentation) {
  return {
      {"augmentation.crop", &augmentation.crop,
       "HxW or DxHxW that is cut out of each input, at random in training and from the middle in "
       "evaluations; targets of the same size are cut alike; empty: no cropping", 0, 0, {}},
      {"augmentation.padding", &augmentation.padding,
       "zeros that are added on every side before cropping", 0, 65'536, {}},
      {"augmentation.flip", &augmentation.flip,
       "axes that are mirrored at random, such as w, hw or dhw", 0, 0, {}},
      {"augmentation.channel_means", &augmentation.channel_means,
       "mean of each input channel, where bytes are scaled to 0 to 1; in place of "
       "model.input_mean", 0, 0, {}},
      {"augmentation.channel_stddevs", &augmentation.channel_stddevs,
       "standard deviation of each input channel, as channel_means", 0, 0, {}},
      {"augmentation.augmentation_threads", &augmentation.threads,
       "threads for cropping and flipping, in addition to run.threads", 1, 256, {}},
  };
}

// Choices that a registry has (optimisers, schedules) come from there: what is added to it needs
// no change here.
std::vector<ConfigKey> TrainKeys(RecipeConfig& train) {
  return {
      {"train.epochs", &train.epochs, "passes over the training set", 1, 1e6, {}},
      {"train.global_batch", &train.global_batch,
       "samples of a step, over all ranks", 1, kBatchMax, {}},
      {"train.seed", &train.seed,
       "seed of the first weights, the order and the augmentation", 0, kUnbounded, {}},
      {"train.learning_rate", &train.learning_rate, "peak learning rate", 0, 1e3, {}},
      {"train.schedule", &train.schedule,
       "how the learning rate changes after the warm-up",
       0, 0, NamesOf(LearningRateShapes())},
      {"train.warmup_steps", &train.warmup_steps, "steps of linear warm-up", 0, kUnbounded, {}},
      {"train.final_learning_rate", &train.final_learning_rate,
       "learning rate at the end of schedules cosine and polynomial", 0, 1e3, {}},
      {"train.polynomial_power", &train.polynomial_power,
       "exponent of schedule polynomial", 0.1, 10, {}},
      {"train.decay_epochs", &train.decay_epochs,
       "schedule step: epochs after which the rate falls, such as 30,60,80", 0, 0, {}},
      {"train.decay_factor", &train.decay_factor,
       "schedule step: factor by which the rate is multiplied", 1e-6, 1, {}},
      {"train.optimiser", &train.optimiser, "optimiser", 0, 0, NamesOf(Optimisers())},
      {"train.momentum", &train.momentum, "momentum of SGD", 0, 1, {}},
      // Below 1: the correction of the first steps divides by 1 - beta^step.
      {"train.beta1", &train.beta1, "decay of AdamW's first moment", 0, 0.999999, {}},
      {"train.beta2", &train.beta2, "decay of AdamW's second moment", 0, 0.999999, {}},
      // Above 0, because the second moment of a weight that never had a gradient is 0.
      {"train.epsilon", &train.epsilon, "term that AdamW adds to the denominator", 1e-16, 1, {}},
      {"train.weight_decay", &train.weight_decay,
       "weight decay of weights, not of biases and normalisation; with sgd it is added to the "
       "gradient", 0, 1, {}},
      {"train.clip_norm", &train.clip_norm,
       "limit of the norm of the whole gradient, which is scaled down to it; 0: no limit",
       0, 1e9, {}},
      {"train.label_smoothing", &train.label_smoothing,
       "label smoothing of the cross entropy", 0, 0.999, {}},
      {"train.nan_policy", &train.nan_policy,
       "what happens at a step whose loss or gradient is not finite: stop ends the run, skip "
       "leaves the step out; 100 such steps in a row end the run in any case",
       0, 0, {"stop", "skip"}},
      {"train.exactness", &train.exactness,
       "exact: gradients are summed in a tree, with the same result under every layout; fast: "
       "left to right", 0, 0, {"exact", "fast"}},
      {"train.precision", &train.precision,
       "fp32; or bf16: products and convolutions compute in bfloat16, while weights, sums and "
       "optimiser state stay fp32", 0, 0, {}},
      {"train.normalisation", &train.normalisation,
       "canonical: running statistics follow all micro-batches of a step; per_worker: those of "
       "the first replica, as in data-parallel trainers, so that results depend on the layout",
       0, 0, {"canonical", "per_worker"}},
  };
}

std::vector<ConfigKey> LayoutKeys(LayoutConfig& layout) {
  return {
      {"layout.replicas", &layout.replicas,
       "replicas that train on parts of each batch; 0: ranks / stages", 0, 65536, {}},
      {"layout.stages", &layout.stages, "pipeline stages of a replica", 1, 65536, {}},
      {"layout.pipeline_schedule", &layout.pipeline_schedule,
       "order of forward and backward passes", 0, 0, NamesOf(PipelineSchedules())},
      // What is legal here depends on the model, which is not known yet; MakeLayoutPlan and the
      // engine check.
      {"layout.split", &layout.split,
       "first part of each stage, such as 0,2; auto: balanced by a measurement, within "
       "memory.budget", 0, 0, {}},
      {"layout.micro_batch", &layout.micro_batch,
       "samples of a canonical micro-batch, the unit of arithmetic: runs with one size end in the "
       "same weights under every layout; 0: the smallest share of a replica", 0, kBatchMax, {}},
      {"layout.micro_batches", &layout.micro_batches,
       "canonical: the same under every layout; per_layout: micro_batch samples in a pipeline, "
       "and without stages a replica's share at once, as in most trainers, so that results depend "
       "on the layout", 0, 0, {"canonical", "per_layout"}},
      {"layout.switch", &layout.switches,
       "layouts to change to, as replicas x stages, after so many steps or epochs of the run: "
       "\"step 500: 1x2; epoch 2: 2x1\"", 0, 0, {}},
  };
}

std::vector<ConfigKey> MemoryKeys(MemoryConfig& memory) {
  return {
      // Texts and not numbers, because of their units; ParseBytes reads them.
      {"memory.budget", &memory.budget,
       "limit of the memory of a rank's tensors, such as 8GiB or 200MB: weights, gradients, "
       "optimiser state, buffers of reductions, and values saved for the backward pass, of which "
       "as many as necessary are swapped or recomputed; 0: no limit", 0, 0, {}},
      {"memory.policy", &memory.policy,
       "what is done with saved values: swap them to the host, recompute them, or (auto) "
       "whichever costs least time; without a budget, swap and recompute apply to all of them",
       0, 0, {"auto", "keep", "swap", "recompute"}},
      {"memory.host_bytes", &memory.host_bytes,
       "limit of what a rank may have swapped to the host at once", 0, 0, {}},
  };
}

std::vector<ConfigKey> CheckpointKeys(TrainConfig& config) {
  auto& evaluation = config.evaluation;
  auto& checkpoint = config.checkpoint;
  return {
      {"evaluation.evaluate_every_epochs", &evaluation.evaluate_every_epochs,
       "epochs between evaluations; 0: no evaluations", 0, 1e6, {}},
      {"evaluation.evaluation_batch", &evaluation.evaluation_batch,
       "samples of an evaluation step over all ranks; they are computed in micro-batches no "
       "larger than those of training; 0: train.global_batch", 0, kBatchMax, {}},
      {"evaluation.target", &evaluation.target,
       "value of the metric (accuracy, Dice or mean absolute error, as the loss has it) at which "
       "the run ends; 0: none", 0, 1e9, {}},
      {"checkpoint.checkpoint_dir", &checkpoint.checkpoint_dir,
       "folder for checkpoints; empty: no checkpoints", 0, 0, {}},
      {"checkpoint.checkpoint_every_steps", &checkpoint.checkpoint_every_steps,
       "steps between checkpoints; they are also written at the end and after a stop signal; 0: "
       "not by steps", 0, kUnbounded, {}},
      {"checkpoint.checkpoint_every_minutes", &checkpoint.checkpoint_every_minutes,
       "minutes between checkpoints; may be combined with checkpoint_every_steps; 0: not by the "
       "clock", 0, 1e6, {}},
      {"checkpoint.checkpoints_kept", &checkpoint.checkpoints_kept,
       "checkpoints that are kept; older ones are removed", 1, 1e6, {}},
      {"checkpoint.keep_best", &checkpoint.keep_best,
       "also keep the checkpoint of the best evaluation, in checkpoint_dir/best", 0, 0, {}},
      {"checkpoint.resume", &checkpoint.resume,
       "checkpoint to continue from, or a folder of checkpoints; auto: the newest intact one of "
       "checkpoint_dir", 0, 0, {}},
      {"checkpoint.new_run", &checkpoint.new_run,
       "start another run in a folder that holds checkpoints, which are moved to "
       "checkpoint_dir/aside-<run>-<number>; without this key such a folder is refused. Do not "
       "set it in jobs that are requeued", 0, 0, {}},
      {"checkpoint.force_identity", &checkpoint.force_identity,
       "resume although threads, micro-batch, precision, LibTorch or vector instructions differ, "
       "which changes the weights that the run ends in", 0, 0, {}},
  };
}

std::vector<ConfigKey> RunKeys(RunConfig& run) {
  return {
      {"run.communicator", &run.communicator,
       "how ranks find each other; auto: by MPI if mpirun started them, and an error if several "
       "processes would each train alone; single: this process trains alone",
       0, 0, {"auto", "single", "mpi"}},
      {"run.device", &run.device,
       "where ranks compute: cpu; cuda: the GPU whose number is the rank on the node, modulo the "
       "node's GPUs; auto: a GPU if there is one", 0, 0, {"auto", "cpu", "cuda"}},
      {"run.communication_timeout_s", &run.communication_timeout_s,
       "seconds of waiting for another rank after which the job ends", 1, 604'800, {}},
      {"run.watchdog_s", &run.watchdog_s,
       "seconds after which a process that is stopped or unreachable ends the job; 0: no watchdog",
       0, 3600, {}},
      {"run.bucket_kib", &run.bucket_kib,
       "KiB of a piece in which gradients are reduced; 0: the size that a probe at the start "
       "finds best", 0, 1 << 20, {}},
      {"run.wall_minutes", &run.wall_minutes,
       "time limit of the job: wall_margin_s before it, the run writes a checkpoint and asks for "
       "a requeue; 0: $SLURM_JOB_END_TIME, if that is set", 0, 1e6, {}},
      {"run.wall_margin_s", &run.wall_margin_s,
       "seconds reserved for a last step and checkpoint before the time limit", 0, 86'400, {}},
      {"run.threads", &run.threads,
       "threads of LibTorch; 0: allowed cores / ranks on the node", 0, 1024, {}},
      {"run.wait_policy", &run.wait_policy,
       "whether idle OpenMP threads sleep or spin, unless $OMP_WAIT_POLICY is set; the daemon "
       "shares the cores", 0, 0, {"passive", "active"}},
      {"run.force_slow_blas", &run.force_slow_blas,
       "train even on reference BLAS, which is slow", 0, 0, {}},
      {"run.log_every_steps", &run.log_every_steps, "steps between progress lines", 1, 1e9, {}},
      {"run.metrics_file", &run.metrics_file,
       "file of JSON lines for loss curve and evaluations", 0, 0, {}},
      {"run.summary_json", &run.summary_json, "file for the closing figures, as JSON", 0, 0, {}},
      {"run.metrics_dir", &run.metrics_dir,
       "folder for what each rank did in each step, as JSON lines, and for loss curve and summary "
       "unless these have files of their own; input of forebay-train report", 0, 0, {}},
      {"run.trace_file", &run.trace_file,
       "file for a chrome trace of what every rank did in trace_steps, beside what was predicted",
       0, 0, {}},
      {"run.trace_steps", &run.trace_steps,
       "steps of the run that are traced, from 0 on, such as 10-12", 0, 0, {}},
  };
}

}  // namespace

std::string ConfigKey::Flag() const {
  // The section is left out, so names of keys are unique over all sections.
  std::string flag = "--" + name.substr(name.find('.') + 1);
  std::ranges::replace(flag, '_', '-');
  return flag;
}

std::vector<ConfigKey> ConfigKeys(TrainConfig& config) {
  // The order is that of --help and of --print-config.
  std::vector<ConfigKey> keys = InputKeys(config);
  for (const std::vector<ConfigKey>& more :
       {AugmentationKeys(config.augmentation), TrainKeys(config.train),
        LayoutKeys(config.layout), MemoryKeys(config.memory), CheckpointKeys(config),
        RunKeys(config.run)}) {
    keys.insert(keys.end(), more.begin(), more.end());
  }
  return keys;
}

Status SetConfigValue(TrainConfig& config, std::string_view name, std::string_view text) {
  // Making the table for one key is cheap beside what a start of the trainer does.
  for (const ConfigKey& key : ConfigKeys(config)) {
    if (key.name == name) return SetText(key, text);
  }
  return Error(ErrorCode::kInvalidArgument, fmt::format("{}: no such key", name));
}

// toml++ throws for a document that it cannot parse, and only then.
Status ApplyToml(TrainConfig& config, std::string_view document, std::string_view origin) {
  try {
    const toml::table table = toml::parse(document, origin);
    Status applied = ApplyTable(config, table);
    // Keys before the wrong one are set already. That does no harm: the caller gives the whole
    // configuration up.
    if (!applied.has_value()) return applied.error().WithContext(origin);
    return {};
  } catch (const toml::parse_error& error) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{}: line {}: {}", origin, error.source().begin.line,
                             error.description()));
  }
}

Status ApplyTomlFile(TrainConfig& config, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Error(ErrorCode::kNotFound, path + ": cannot be opened");
  // One byte more than is allowed, to notice a file that is larger.
  std::string document(static_cast<std::size_t>(limits::kConfigFileBytesMax) + 1, '\0');
  file.read(document.data(), static_cast<std::streamsize>(document.size()));
  document.resize(static_cast<std::size_t>(file.gcount()));
  if (file.bad()) return Error(ErrorCode::kDataLoss, path + ": cannot be read");
  if (document.size() > limits::kConfigFileBytesMax) {
    return Error(ErrorCode::kResourceExhausted,
                 fmt::format("{}: larger than {} bytes (kConfigFileBytesMax)", path,
                             limits::kConfigFileBytesMax));
  }
  return ApplyToml(config, document, path);
}

// By value, because the rows of the table hold pointers through which values can be changed.
std::string ToToml(TrainConfig config) {
  std::string text;
  std::string section;
  for (const ConfigKey& key : ConfigKeys(config)) {
    const std::size_t dot = key.name.find('.');
    // Keys of a section are neighbours in the table.
    if (key.name.substr(0, dot) != section) {
      section = key.name.substr(0, dot);
      text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", section);
    }
    text += fmt::format("# {}\n{} = {}\n", key.help, key.name.substr(dot + 1), ValueText(key));
  }
  return text;
}

}  // namespace forebay::train

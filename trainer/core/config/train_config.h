// Configuration of forebay-train: one TOML file, every key of which is also a flag.
//
// Precedence: defaults < file (--config) < --set key=value < the key's own flag. A key
// `train.learning_rate` has the flag --learning-rate; leaf names are unique over all sections.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "proto/contract/result.h"

namespace forebay::train {

struct DataConfig {
  std::string address;  // "unix:/path"; empty: $FOREBAY_ADDRESS, then an embedded daemon
  std::string embedded_config;
  std::string train_dataset = "fashion-mnist-train";
  std::string train_selection = "all";
  std::string validation_dataset = "fashion-mnist-test";
  std::string validation_selection = "all";
  std::string input_field = "images";
  std::string target_field = "labels";
  std::string order_mode = "global";
  std::int64_t block_samples = 1024;
  std::int64_t window_runs = 16;
  std::int64_t canonical_nodes = 0;  // order_mode partial: must be given
  double exchange_fraction = 0.1;
  std::int64_t prefetch_depth = 4;
  std::string delivery_log;  // of the training stream; the rank's number is appended
};

struct ModelConfig {
  std::string architecture = "lenet";
  std::string settings;  // "patch=4,depth=6"
  std::string shape;     // "1x28x28"; empty: the data set's
  std::string channel_axis = "auto";
  std::int64_t classes = 0;  // or numbers to predict; 0: the data set's, else the model's own
  std::string loss;          // empty: the model's own
  std::string weights;       // safetensors file to start from
  std::string fresh;         // prefixes of what does not start from it: "head."
  // Inputs are scaled to [0, 1], then standardised, by channel or all alike: the defaults are
  // Fashion-MNIST's.
  std::vector<double> input_mean = {0.2860};
  std::vector<double> input_stddev = {0.3530};
};

struct AugmentationConfig {
  std::string crop;  // "24x24" or "96x96x96": what is cut out of a sample; empty: all of it
  std::int64_t padding = 0;  // zeros on every side, before the cut
  std::string flip;          // axes that are mirrored at random: "w", "hw", "dhw"
  std::string channel_means;    // "0.485,0.456,0.406"; in place of model.input_mean
  std::string channel_stddevs;
  std::int64_t threads = 1;     // of the client, beside those of the arithmetic
};

// Section [train], the training recipe: for how long, with which batches, and how weights follow
// gradients.
struct RecipeConfig {
  std::int64_t epochs = 3;
  std::int64_t global_batch = 64;
  std::int64_t seed = 1;
  double learning_rate = 0.05;  // the peak
  std::string schedule = "cosine";
  std::int64_t warmup_steps = 200;
  double final_learning_rate = 0.0;  // where cosine and polynomial end
  double polynomial_power = 1.0;
  std::string decay_epochs;  // of schedule step: "30,60,80"
  double decay_factor = 0.1;
  std::string optimiser = "sgd";
  double momentum = 0.9;  // of SGD
  double beta1 = 0.9;     // of AdamW, as the two below
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 5e-4;
  double clip_norm = 0.0;        // of the gradient over the whole model; 0: none
  double label_smoothing = 0.0;
  std::string nan_policy = "stop";
  std::string exactness = "exact";
  std::string precision = "fp32";
  std::string normalisation = "canonical";
};

struct LayoutConfig {
  std::int64_t replicas = 0;  // 0: ranks / stages
  std::int64_t stages = 1;
  std::string pipeline_schedule = "1f1b";
  std::string split = "auto";
  std::int64_t micro_batch = 0;  // samples; 0: the smallest share of a replica
  std::string micro_batches = "canonical";
  std::string switches;          // "step 500: 1x2; epoch 2: 2x1"
};

struct MemoryConfig {
  std::string budget = "0";         // bytes of a rank's tensors; 0: none
  std::string policy = "auto";
  std::string host_bytes = "1GiB";  // of a rank, for what is swapped
};

struct EvaluationConfig {
  std::int64_t evaluate_every_epochs = 1;  // 0: never
  std::int64_t evaluation_batch = 0;       // global, over all ranks; 0: train.global_batch
  double target = 0;                       // of the metric; 0: none
};

struct CheckpointConfig {
  std::string checkpoint_dir;               // empty: no checkpoints
  // Besides the end and stop signals; 0: not by steps, not by the clock.
  std::int64_t checkpoint_every_steps = 0;
  double checkpoint_every_minutes = 10;
  std::int64_t checkpoints_kept = 3;
  bool keep_best = false;
  std::string resume;  // empty: start afresh; "auto": the newest intact one; or a path
  bool new_run = false;  // may begin where another has checkpoints, which are moved aside
  bool force_identity = false;
};

struct RunConfig {
  std::string communicator = "auto";
  std::string device = "cpu";
  std::int64_t communication_timeout_s = 1800;
  std::int64_t watchdog_s = 3;  // 0: no watchdog
  std::int64_t bucket_kib = 0;  // 0: the probe at the start chooses
  double wall_minutes = 0;      // since the start of the process; 0: any
  double wall_margin_s = 120;
  std::int64_t threads = 0;  // 0: allowed cores / ranks on this node
  std::string wait_policy = "passive";
  bool force_slow_blas = false;
  std::int64_t log_every_steps = 100;
  std::string metrics_file;  // JSON lines; appended to on --resume
  std::string metrics_dir;   // of JSON lines by rank, the loss curve and the summary
  std::string trace_file;
  std::string trace_steps = "10-12";
  std::string summary_json;
};

struct TrainConfig {
  DataConfig data;
  AugmentationConfig augmentation;
  ModelConfig model;
  RecipeConfig train;
  LayoutConfig layout;
  MemoryConfig memory;
  EvaluationConfig evaluation;
  CheckpointConfig checkpoint;
  RunConfig run;
};

// One key: where its value lives and which values it takes.
struct ConfigKey {
  using Slot = std::variant<std::string*, std::int64_t*, double*, bool*, std::vector<double>*>;
  std::string name;  // "section.leaf"
  Slot slot;
  std::string help;
  double minimum = 0;                // numbers only; of a list, of each
  double maximum = 0;                // numbers only
  std::vector<std::string> choices;  // strings only; empty: any

  std::string Flag() const;  // "--learning-rate"
};

// The table of all keys, bound to `config`, which must outlive it.
std::vector<ConfigKey> ConfigKeys(TrainConfig& config);

// Sets one key from text. kInvalidArgument names the key, the value and what is allowed.
Status SetConfigValue(TrainConfig& config, std::string_view name, std::string_view text);

// Reads a TOML document over `config`. Unknown sections and keys, wrong types and values out of
// range are kInvalidArgument and name the key. `origin`, a path, stands in front of every message.
Status ApplyToml(TrainConfig& config, std::string_view document, std::string_view origin);
Status ApplyTomlFile(TrainConfig& config, const std::string& path);

// The configuration as a TOML document, each key below its help text.
std::string ToToml(TrainConfig config);

// What the command line asks for.
struct CommandLine {
  TrainConfig config;
  std::string text;  // not empty: print this (help, version, configuration) and exit
  bool lists_models = false;  // print the models there are and exit
};

// Parses argv (argv[0] is the program) over `base`. Errors are kInvalidArgument and name flag or
// key.
Result<CommandLine> ParseCommandLine(int argc, const char* const* argv, TrainConfig base = {});

}  // namespace forebay::train

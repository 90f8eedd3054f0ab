// Checkpoint: the state with which a run continues in the middle of an epoch, on any layout.
//
// On disk it is a folder. Safetensors shards (weights/safetensors.h, so that other tools can read
// the weights) hold the tensors under canonical names, which do not depend on the layout.
// `manifest.json` holds the run's state and the XXH3-64 of every shard. The manifest's own XXH3-64
// is in its first line, so that a torn or damaged manifest never loads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/contract/result.h"

namespace forebay::train {

inline constexpr std::string_view kCheckpointFormat = "forebay-checkpoint-2";
inline constexpr std::string_view kManifestName = "manifest.json";
inline constexpr std::uint64_t kManifestBytesMax = 8ULL << 20;
inline constexpr std::size_t kShardsMax = 65'536;

struct CheckpointTensor {
  std::string name;
  std::string dtype = "F32";  // safetensors' spelling: F32, F64, I64, U8
  std::vector<std::uint64_t> shape;
  std::vector<std::byte> bytes;
  friend bool operator==(const CheckpointTensor&, const CheckpointTensor&) = default;
};

// The best evaluation of a run so far.
struct BestMark {
  std::string metric;
  double value = 0;
  std::uint32_t epoch = 0;
  friend bool operator==(const BestMark&, const BestMark&) = default;
};

// The checkpoint that a run was resumed from.
struct CheckpointOrigin {
  std::string run;
  std::uint64_t step = 0;
  friend bool operator==(const CheckpointOrigin&, const CheckpointOrigin&) = default;
};

struct Checkpoint {
  // The name of the run: 16 hexadecimal digits, drawn when a run starts afresh and kept when it is
  // resumed. Empty in checkpoints from before runs had names.
  std::string run;
  std::optional<CheckpointOrigin> resumed_from = {};
  std::string model;                          // architecture and sizes, compared on load
  std::string optimiser;
  std::vector<std::string> optimiser_states;  // state s of weight w is tensor "w/s"
  std::uint64_t global_step = 0;              // steps done since the start of the run
  std::uint32_t epoch = 0;                    // of the next step
  std::uint64_t step = 0;                     // the next step within that epoch
  std::uint64_t seed = 0;
  std::uint32_t global_batch = 0;
  bool evaluation_pending = false;  // stopped after an epoch's last step, before evaluating
  std::string identity;             // NumericIdentity as text; empty: not recorded
  std::string layout;               // it was made under, for people: it decides nothing
  std::string configuration;        // of the run, TOML
  std::optional<BestMark> best = {};
  std::vector<std::byte> position_token;      // opaque: given back to the feed
  std::vector<CheckpointTensor> tensors;      // those that this rank writes

  // Returns nullptr if there is no tensor of that name.
  const CheckpointTensor* Find(std::string_view name) const;
  friend bool operator==(const Checkpoint&, const Checkpoint&) = default;
};

// kFailedPrecondition if a floating-point tensor holds an infinity or NaN, because training that
// continues from it is lost. The message names tensor, place and value.
Status CheckFinite(const Checkpoint& checkpoint);

struct ShardFacts {
  std::uint64_t bytes = 0;
  std::uint64_t hash = 0;  // XXH3-64 of the file
  friend bool operator==(const ShardFacts&, const ShardFacts&) = default;
};

struct Manifest {
  Checkpoint state;                // without tensors
  std::vector<ShardFacts> shards;  // shard i is the file ShardName(i)
};

// "shard-00003.safetensors".
std::string ShardName(std::size_t index);

std::string EncodeManifest(const Manifest& manifest);
// The bytes are untrusted. kDataLoss for a torn or damaged manifest, kInvalidArgument for a text
// that is not a manifest, kFailedPrecondition for another version of the format; the message names
// both.
Result<Manifest> DecodeManifest(std::string_view text);

}  // namespace forebay::train

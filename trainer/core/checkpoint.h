// Checkpoint: one file that holds everything a run needs to continue mid-epoch.
//
// Layout: the safetensors format (safetensors.h), so that other tools read the weights. The run's
// state lies in `__metadata__`, and the last tensor, `forebay.checksum`, holds the XXH3-64 of every
// byte before its own eight: a torn or damaged file never loads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/contract/result.h"

namespace forebay::train {

inline constexpr std::string_view kCheckpointFormat = "forebay-checkpoint-1";
inline constexpr std::uint64_t kCheckpointBytesMax = 1ULL << 40;

struct CheckpointTensor {
  std::string name;
  std::string dtype = "F32";  // safetensors' spelling: F32, F64, I64, U8
  std::vector<std::uint64_t> shape;
  std::vector<std::byte> bytes;
};

struct Checkpoint {
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
  std::vector<std::byte> position_token;      // opaque: given back to the feed
  std::vector<CheckpointTensor> tensors;

  // nullptr where there is none of that name.
  const CheckpointTensor* Find(std::string_view name) const;
};

// Writes a temporary file beside `path`, syncs it, renames it over `path` and syncs the folder:
// after success the checkpoint survives a crash, after failure `path` is what it was before.
Status WriteCheckpoint(const std::filesystem::path& path, const Checkpoint& checkpoint);

// kDataLoss for a torn or damaged file, kInvalidArgument for one that is no checkpoint,
// kFailedPrecondition for another format version; the message names the file.
Result<Checkpoint> ReadCheckpoint(const std::filesystem::path& path);

// Encoding and decoding alone, for tests and fuzzing. Bytes are untrusted.
std::vector<std::byte> EncodeCheckpoint(const Checkpoint& checkpoint);
Result<Checkpoint> DecodeCheckpoint(std::span<const std::byte> bytes);

}  // namespace forebay::train

// CheckpointReader: reads single tensors of a stored checkpoint.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/contract/result.h"
#include "trainer/core/checkpoint/checkpoint.h"
#include "trainer/core/weights/safetensors.h"

namespace forebay::train {

// Reads the manifest in `folder`. Errors are those of DecodeManifest and of the system; messages
// name the file.
Result<Manifest> ReadManifest(const std::filesystem::path& folder);

// Checks the manifest and every byte of every shard. kDataLoss for what is torn or damaged.
Status VerifyCheckpoint(const std::filesystem::path& folder);

// Movable. Several threads may read at the same time.
class CheckpointReader {
 public:
  // Reads the manifest and the headers of the shards, not their data (VerifyCheckpoint does that).
  // kDataLoss if a shard is missing or has another size, or if a tensor is in two shards.
  static Result<CheckpointReader> Open(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  const Checkpoint& state() const { return state_; }  // without tensors
  std::vector<std::string> Names() const;             // ascending

  // Returns nullptr if there is no tensor of that name.
  const TensorEntry* Find(std::string_view name) const;
  // Reads the bytes of a tensor that Find knows; `bytes` has exactly their size.
  Status Read(std::string_view name, std::span<std::byte> bytes) const;

 private:
  struct Place {
    std::size_t shard = 0;
    const TensorEntry* entry = nullptr;
  };
  CheckpointReader() = default;

  std::filesystem::path folder_;
  Checkpoint state_;
  std::vector<SafetensorsFile> shards_;
  std::map<std::string, Place, std::less<>> places_;
};

}  // namespace forebay::train

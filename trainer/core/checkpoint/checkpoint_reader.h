// CheckpointReader: a stored checkpoint, open for reading single tensors.
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

// The manifest in `folder`. DecodeManifest's errors and the system's; messages name the file.
Result<Manifest> ReadManifest(const std::filesystem::path& folder);

// ReadManifest, and every byte of every shard is checked. kDataLoss for what is torn or damaged.
Status VerifyCheckpoint(const std::filesystem::path& folder);

// Movable; reads from several threads are fine.
class CheckpointReader {
 public:
  // Reads the manifest and the shards' headers; not their data, which VerifyCheckpoint is for.
  // kDataLoss where a shard is missing or of another size, or a tensor is there twice.
  static Result<CheckpointReader> Open(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  const Checkpoint& state() const { return state_; }  // without tensors
  std::vector<std::string> Names() const;             // ascending

  // nullptr where there is none of that name.
  const TensorEntry* Find(std::string_view name) const;
  // The bytes of a tensor that Find knows; `bytes` has room for exactly them.
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

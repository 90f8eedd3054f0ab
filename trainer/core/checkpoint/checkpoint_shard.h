// Files of a checkpoint, written so that they survive a crash.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "proto/contract/result.h"
#include "trainer/core/checkpoint/checkpoint.h"

namespace forebay::train {

// Writes `tensors` in their order as a safetensors file and syncs it. No second copy of them is
// made. Errors name the file, which is then incomplete.
Result<ShardFacts> WriteShard(const std::filesystem::path& path,
                              std::span<const CheckpointTensor> tensors);

// Reads the whole file in pieces. kDataLoss where size or hash are not `facts`.
Status VerifyShard(const std::filesystem::path& path, const ShardFacts& facts);

Status WriteSynced(const std::filesystem::path& path, std::string_view text);
Status SyncFolder(const std::filesystem::path& folder);

// The whole file. kResourceExhausted where it is larger than `bytes_max`, kInvalidArgument where
// it is no regular file.
Result<std::string> ReadText(const std::filesystem::path& path, std::uint64_t bytes_max);

}  // namespace forebay::train

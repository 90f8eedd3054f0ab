// Writes and verifies the files of a checkpoint. What is written survives a crash of the machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "proto/contract/result.h"
#include "trainer/core/checkpoint/checkpoint.h"

namespace forebay::train {

// Writes `tensors` in their order as a safetensors file and syncs it, without a second copy of
// them. Errors name the file, which is then incomplete.
Result<ShardFacts> WriteShard(const std::filesystem::path& path,
                              std::span<const CheckpointTensor> tensors);

// Reads the whole file in pieces. kDataLoss if size or hash differ from `facts`.
Status VerifyShard(const std::filesystem::path& path, const ShardFacts& facts);

// Writes all bytes, in as many calls as the system needs. Errors name `path`.
Status WriteAll(int fd, std::span<const std::byte> bytes, const std::filesystem::path& path);
// Replaces what `path` has by `text` and syncs it.
Status WriteSynced(const std::filesystem::path& path, std::string_view text);
Status SyncFolder(const std::filesystem::path& folder);

// Reads a whole file. kResourceExhausted if it is larger than `bytes_max`, kInvalidArgument if it
// is not a regular file.
Result<std::string> ReadText(const std::filesystem::path& path, std::uint64_t bytes_max);

}  // namespace forebay::train

// The golden packs: what packs of this version look like, and what broken ones are refused with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compress/decode/pack/pack_file.h"
#include "proto/contract/result.h"

namespace forebay::compress {

// A pack that is read, with the hash of all that it holds (HashPack).
struct GoodPack {
  std::string name;
  std::vector<std::byte> bytes;
};

// A pack that is refused, by Open or when it is read: the first error's code and a part of its
// message.
struct BadPack {
  std::string name;
  std::vector<std::byte> bytes;
  ErrorCode code = ErrorCode::kDataLoss;
  std::string message;
};

// Of the version that is written: names end in _v2. Written anew from arithmetic, with the same
// bytes with the same zstd and lz4. Packs of earlier versions are files alone.
std::vector<GoodPack> MakeGoodPacks();
// The predictor that one of them names; its file lies beside them.
std::shared_ptr<const Predictor> GoldenPredictor();
std::vector<BadPack> MakeBadPacks();

// Opens `bytes` and reads all keys and all fields of all samples; their hash, or the first
// error. `scratch` grows to what is needed and is not cleared.
Result<std::uint64_t> HashPack(std::span<const std::byte> bytes, std::vector<std::byte>& scratch,
                               const PackReadOptions& options = {});

}  // namespace forebay::compress

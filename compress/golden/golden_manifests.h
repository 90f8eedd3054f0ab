// The golden manifests of sets of packs: one that is read, and broken ones.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "compress/format/pack/pack_manifest.h"
#include "proto/contract/result.h"

namespace forebay::compress {

struct BadManifest {
  std::string name;
  std::vector<std::byte> bytes;
  ErrorCode code = ErrorCode::kDataLoss;
  std::string message;  // a part of it
};

// Of the golden packs "balanced", "dense" and "fast", whose fields are the same, at generation 3.
std::vector<std::byte> MakeGoodManifest();

// Each has one fault; what else it says of itself is right.
std::vector<BadManifest> MakeBadManifests();

}  // namespace forebay::compress

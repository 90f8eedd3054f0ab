// Catalogs of data sets that are too large to exist here: written by the code that writes those of
// real data sets, from sizes alone, and saved as a daemon saves them.
#pragma once

#include <cstdint>
#include <string>

#include "proto/contract/limits.h"
#include "proto/contract/result.h"
#include "server/io/io_backend.h"

namespace forebay::bench {

// How the samples are stored.
enum class DataForm : std::uint8_t {
  kPack,     // packs of 1 GiB; chunks as large as they may be
  kRecords,  // one file of records of a fixed size (format raw)
  kShards,   // shards of about 1 GiB without an index, such as TFRecord files or tars
};

struct DataSize {
  DataForm form = DataForm::kPack;
  std::uint64_t sample_count = 10'000'000'000;
  std::uint32_t sample_bytes = 2048;
  std::uint64_t extent_bytes = limits::kExtentBytesMax;
};

// The number of shards of a data set that is stored in shards.
std::uint64_t ShardCount(const DataSize& data);

// Saves the catalog of the data set `scale` beneath `folder`, an absolute path, and returns the
// file's path. kInvalidArgument for kShards: the catalog of a format without an index stores some
// bytes for each sample, and has no more than limits::kCatalogFileBytesMax.
Result<std::string> SaveCatalogOf(const DataSize& data, io::IoBackend& backend,
                                  const std::string& folder);

// The most samples of a data set without an index, if its catalog stores so many bytes for each.
constexpr std::uint64_t SamplesWithoutIndexMax(std::uint64_t catalog_bytes_per_sample) {
  return limits::kCatalogFileBytesMax / catalog_bytes_per_sample;
}

}  // namespace forebay::bench

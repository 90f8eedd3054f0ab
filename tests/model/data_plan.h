// DataPlan: the data set of a sequence, drawn from its seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "server/catalog/catalog.h"
#include "server/catalog/dataset_source.h"
#include "tests/model/gfs_model.h"
#include "tests/model/model_random.h"

namespace forebay::model {

// Small extents, so that a few hundred kilobytes behave as many gigabytes do.
struct DataPlan {
  catalog::Format format = catalog::Format::kRaw;  // or kImageFolder, kTar
  std::uint64_t extent_bytes = 0;
  std::vector<std::string> paths;  // of the objects

  std::uint64_t sample_bytes_max = 0;  // kRaw: all have as many; else they are drawn up to this

  // kRaw
  std::uint64_t record_bytes = 0;
  std::uint64_t records = 0;
  // kImageFolder, kTar
  std::uint64_t samples_per_object = 0;

  catalog::DatasetSource Source() const;
  // What a new object of that path holds; other bytes with every draw. The sizes of records and
  // their number stay.
  ObjectText DrawObject(const std::string& path, ModelRandom& random) const;
};

DataPlan DrawData(ModelRandom& random);

}  // namespace forebay::model

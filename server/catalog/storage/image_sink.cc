// The sink in memory, for catalogs that are small whatever the number of samples (fixed-size
// records) and for tests.
#include "server/catalog/storage/image_sink.h"

#include <algorithm>

#include "proto/contract/check.h"

namespace forebay::catalog {

Status MemorySink::Append(std::span<const std::byte> bytes) {
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  return {};
}

Status MemorySink::ReplaceStart(std::span<const std::byte> bytes) {
  FOREBAY_CHECK(bytes.size() <= bytes_.size());
  std::copy(bytes.begin(), bytes.end(), bytes_.begin());
  return {};
}

}  // namespace forebay::catalog

// ScanBuilder: makes a catalog in one sequential pass over the bytes of a data set, for formats
// whose samples are known only after such a pass (archives without an index, lines of text).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "proto/contract/result.h"
#include "server/catalog/catalog.h"

namespace forebay::catalog {

// Builds a catalog in the same pass that stages the data set. The stager feeds every object's bytes
// in order. The builder cuts extents at sample boundaries and returns each extent when its last
// byte has been fed, so that the stager can publish it. Memory: the extent table, the samples of
// one extent, and what BuildScratch allows. Not thread-safe. Keeps failing after an error.
class ScanBuilder {
 public:
  virtual ~ScanBuilder() = default;

  struct PlannedObject {
    std::string path;
    std::uint64_t bytes = 0;
    std::int64_t mtime_ns = 0;
  };
  // The objects to feed, in this order.
  virtual const std::vector<PlannedObject>& objects() const = 0;

  // An extent whose last byte has been fed: its range of the current object, and the pieces of its
  // samples (offset and length within the extent).
  struct CutExtent {
    ExtentId extent;
    ExtentInfo info;
    std::vector<Range> pieces;
  };
  // Feeds the next bytes of the current object, and appends the extents that they complete to
  // `cut`. Errors about malformed input name object, offset and reason.
  virtual Status Feed(std::span<const std::byte> bytes, std::vector<CutExtent>& cut) = 0;
  // The first byte of the current object that an extent may still need. The caller may drop all
  // bytes before it. It lies at most two extents and limits::kExtentBytesMax behind the end of what
  // was fed, even if a long run of bytes belongs to no sample.
  virtual std::uint64_t NeededFrom() const = 0;
  // Ends the current object; the next Feed is for the next object. kDataLoss if the object ended
  // within a sample, or before its planned size.
  virtual Status EndObject(std::vector<CutExtent>& cut) = 0;
  // Makes the catalog. To be called after the last object has ended.
  virtual Result<std::shared_ptr<const Catalog>> Finish() = 0;
};

}  // namespace forebay::catalog

// ScanBuilder: makes a catalog from the bytes of a data set as they pass by, for formats whose
// samples are only known afterwards (archives without an index, lines of text).
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

// Builds a catalog in the same sequential pass that stages. The stager feeds every object's bytes
// in order; the builder cuts extents at sample boundaries as they pass by and says so, so that the
// stager can publish each as soon as its last byte has come. Memory: the extent table, the samples
// of one extent, and what BuildScratch says. Not thread-safe.
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

  // An extent whose last byte has been fed: its range of the current object, and the pieces
  // (offset, length within the extent) of its samples.
  struct CutExtent {
    ExtentId extent;
    ExtentInfo info;
    std::vector<Range> pieces;
  };
  // Feeds the next bytes of the current object; extents completed by them are appended to
  // `cut`. Malformed input: object, offset and reason.
  virtual Status Feed(std::span<const std::byte> bytes, std::vector<CutExtent>& cut) = 0;
  // No extent that is still to be cut has a byte of the current object before this offset: what
  // was fed of it may be dropped. At most two extents and limits::kExtentBytesMax behind the
  // end of what was fed, however many bytes pass by that belong to no sample.
  virtual std::uint64_t NeededFrom() const = 0;
  // The current object has ended: kDataLoss where it ended within a sample or short of its
  // size. The next Feed is for the next object.
  virtual Status EndObject(std::vector<CutExtent>& cut) = 0;
  // After the last object.
  virtual Result<std::shared_ptr<const Catalog>> Finish() = 0;
};

}  // namespace forebay::catalog

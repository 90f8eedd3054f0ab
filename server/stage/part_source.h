// PartSource: interface that supplies the catalog part of an object that another node of the job
// scans (catalog/catalog_part.h). A transport of `peer` carries the request, and LocalExtents
// answers it on the node that is asked. Cataloguer asks: the object's owner, then its substitutes,
// as for extents (ExtentSource); it scans the object itself if none of them answers.
#pragma once

#include <cstdint>
#include <optional>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "server/catalog/catalog_part.h"
#include "server/catalog/storage/table_spool.h"
#include "server/stage/dataset.h"

namespace forebay::stage {

struct PartRequest {
  NodeRank node;  // the node that is asked
  const Dataset& dataset;
  ObjectId object;
  const catalog::PlannedObject& planned;  // as this node has listed it
};

// Why the node has no part, and will have none: its cataloguing has failed (CatalogFailure).
struct PartFailure {
  Error error;               // as for other nodes (ErrorForOthers)
  std::int64_t age_ns = 0;   // since the failure was found
  bool is_reported = false;  // the node that answers has heard of it from another one
};

struct PartAnswer {
  bool is_there = false;  // the part was appended to the sink
  // Only if the part is not there. Without a failure, the object is not scanned yet.
  std::optional<PartFailure> failure;
};

// Thread-safe.
class PartSource {
 public:
  virtual ~PartSource() = default;
  // Appends the encoded part to `part`, if the node has it. If the node has not scanned the object
  // yet, it is to be asked again later. Blocks until the answer is there, or until a deadline of
  // the source, but never for the scan. After an error, IsNoAnswer says whether the next node is to
  // be asked, and IsTooBusy whether this one is to be asked again later; kOutOfRange: the node has
  // listed another object under this number, or none. The bytes are not verified
  // (catalog::DecodePart).
  virtual Result<PartAnswer> ReadPart(const PartRequest& request, catalog::TableSpool& part) = 0;
};

}  // namespace forebay::stage

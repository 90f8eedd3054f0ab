// PieceSource: the interface that reads pieces of extents that are on no tier of this node. It is
// declared here because ResidentExtent refers to it; stage/gfs/gfs_pieces.cc implements it.
#pragma once

#include <cstdint>
#include <span>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "server/io/io_backend.h"

namespace forebay::tier {

// A range of an extent's image, and the memory to read it into, which gives its length.
struct SourceRead {
  ExtentId extent;  // in the catalog
  std::uint64_t offset = 0;
  std::span<std::byte> memory;
};

// Thread-safe; each caller brings its own queue, which is idle before and after the call.
class PieceSource {
 public:
  virtual ~PieceSource() = default;
  // Fills the memory of all `reads`, many at a time. The bytes are not verified. On an error the
  // memory's contents are undefined.
  virtual Status Read(io::IoQueue& queue, std::span<const SourceRead> reads) const = 0;
};

}  // namespace forebay::tier

// RowFinder: finds the rows of one request of another node in the extents of this one. There are
// three: RawRows for data sets that are stored uncompressed, PackedRows for those whose samples
// have to be decoded, and ChunkRows for chunks that the other node decodes. LocalRows pins the
// extents and calls them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "server/fetch/read_means.h"

namespace forebay::fetch {

// One thread at a time uses it.
class RowFinder {
 public:
  virtual ~RowFinder() = default;

  // Returns how many bytes of memory decoded rows, or chunks, take; 0 if there are none.
  virtual std::uint64_t memory_bytes() const { return 0; }
  // Call once, before extents(), on a thread that may copy for a while. `room`: the right to take
  // that memory, which is given back after the rows are gone.
  virtual void Begin(std::shared_ptr<const void> room) { static_cast<void>(room); }
  // The extents that are needed, each once.
  virtual std::span<const ExtentId> extents() const = 0;
  // Finds some of the rows. True: all are found. False: there are more; call it again, when other
  // work has had its turn. kDataLoss with copies in means.bad: report them and begin again. After
  // an error the rows that were found before it stay found.
  virtual Result<bool> Find(const ReadMeans& means) = 0;
};

}  // namespace forebay::fetch

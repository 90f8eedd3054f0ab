// ChunkBuffers: memory for chunks that short rows are copied into. It is used again and again,
// because fresh memory costs more than the copy: the kernel clears each page at its first use.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "proto/contract/thread_annotations.h"

namespace forebay::peer {

// Thread-safe.
class ChunkBuffers : public std::enable_shared_from_this<ChunkBuffers> {
 public:
  // A buffer of limits::kPeerChunkBytes. It comes back when the last reference has gone.
  using Buffer = std::shared_ptr<std::vector<std::byte>>;
  Buffer Take();

 private:
  Mutex mutex_;
  std::vector<std::unique_ptr<std::vector<std::byte>>> free_ FOREBAY_GUARDED_BY(mutex_);
};

}  // namespace forebay::peer

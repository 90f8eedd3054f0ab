// A buffer's deleter puts it back. Beyond a few, buffers are freed.
#include "server/peer/chunk_buffers.h"

#include <utility>

#include "proto/contract/limits.h"

namespace forebay::peer {
namespace {

// About as many as there are answers under way on a busy node.
constexpr std::size_t kKeptMax = 16;

}  // namespace

ChunkBuffers::Buffer ChunkBuffers::Take() {
  std::unique_ptr<std::vector<std::byte>> buffer;
  {
    const MutexLock lock(mutex_);
    if (!free_.empty()) {
      buffer = std::move(free_.back());
      free_.pop_back();
    }
  }
  // Made without the lock: the first use of its pages takes long.
  if (buffer == nullptr) {
    buffer = std::make_unique<std::vector<std::byte>>(limits::kPeerChunkBytes);
  }
  return Buffer(buffer.release(), [self = shared_from_this()](std::vector<std::byte>* used) {
    std::unique_ptr<std::vector<std::byte>> back(used);  // freed after the lock if it is not kept
    const MutexLock lock(self->mutex_);
    if (self->free_.size() < kKeptMax) self->free_.push_back(std::move(back));
  });
}

}  // namespace forebay::peer

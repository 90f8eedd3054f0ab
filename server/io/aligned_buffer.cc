// aligned_alloc with a bound and zeroed memory. A failed allocation is an Error, because a daemon
// that is short of memory should refuse one request and serve the others.
#include "server/io/aligned_buffer.h"

#include <cstdlib>
#include <cstring>
#include <string>

#include "proto/contract/align_up.h"
#include "proto/contract/limits.h"

namespace forebay::io {

Result<AlignedBuffer> AlignedBuffer::Create(std::size_t bytes) {
  // The bound keeps a size that was computed from untrusted numbers from taking the machine's
  // memory.
  if (bytes == 0 || bytes > limits::kSlotBytesMax) {
    return Error(ErrorCode::kInvalidArgument,
                 "aligned buffer of " + std::to_string(bytes) +
                     " bytes: must be 1 to kSlotBytesMax=" +
                     std::to_string(limits::kSlotBytesMax));
  }
  constexpr std::size_t kAlignment = limits::kIoAlignmentBytes;
  const std::size_t size = AlignUp(bytes, kAlignment);
  // aligned_alloc requires that the size is a multiple of the alignment.
  void* memory = std::aligned_alloc(kAlignment, size);
  if (memory == nullptr) {
    return Error(ErrorCode::kResourceExhausted,
                 "no memory for an aligned buffer of " + std::to_string(size) + " bytes");
  }
  // Callers write whole blocks and fill only the first bytes of the last one. The rest of that
  // block must be zeros and not old contents of the heap.
  std::memset(memory, 0, size);
  AlignedBuffer buffer;
  buffer.data_ = static_cast<std::byte*>(memory);
  buffer.size_ = size;
  return buffer;
}

void AlignedBuffer::Reset() {
  std::free(data_);
  data_ = nullptr;
  size_ = 0;
}

}  // namespace forebay::io

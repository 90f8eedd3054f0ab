// glibc gives the free end of a heap back when it is longer than the trim threshold, and makes
// mappings of their own for allocations beyond the mmap threshold. Measured with bench/micro's
// peer_bench: a bare gRPC stream needs half the CPU time with these settings.
#include "server/peer/message_memory.h"

#include <malloc.h>

#include "proto/contract/limits.h"

namespace forebay::peer {

void KeepMessageMemory() {
  // Failures are ignored: then messages are slower, and nothing else changes.
  mallopt(M_TRIM_THRESHOLD, static_cast<int>(4 * limits::kPeerBytesInFlightMax));
  mallopt(M_TOP_PAD, static_cast<int>(limits::kPeerCallBytesMax));
  // The largest value that glibc accepts.
  mallopt(M_MMAP_THRESHOLD, static_cast<int>(32 * limits::kMiB));
}

}  // namespace forebay::peer

// KeepMessageMemory: keeps the memory of messages in this process when they have been read.
#pragma once

namespace forebay::peer {

// Tells malloc to keep freed memory for the next messages instead of giving it back to the kernel,
// for the whole process. gRPC allocates the memory of each message that it receives; if that memory
// is returned and taken again, the kernel clears every page of it, which costs more than moving the
// bytes. What is kept is what messages need at most at a time, which the limits bound.
void KeepMessageMemory();

}  // namespace forebay::peer

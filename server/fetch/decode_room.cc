// The room is a count of bytes and a queue. A request that fits is still queued behind others that
// wait, so that small requests do not keep a large one waiting for ever. `ready` is called without
// the mutex, because it may give its share back within the call.
#include "server/fetch/decode_room.h"

#include <utility>

namespace forebay::fetch {

bool DecodeRoom::FitsLocked(std::uint64_t bytes) const {
  // Compared without a sum, which might wrap around: `bytes` follow from what another node asks.
  // An empty room takes anything, or a single large row could never be sent.
  return used_bytes_ == 0 ||
         (bytes <= capacity_bytes_ && used_bytes_ <= capacity_bytes_ - bytes);
}

bool DecodeRoom::WouldWait(std::uint64_t bytes) const {
  const MutexLock lock(mutex_);
  return !waiting_.empty() || !FitsLocked(bytes);
}

void DecodeRoom::Take(std::uint64_t bytes, std::function<void(Share)> ready) {
  {
    const MutexLock lock(mutex_);
    if (is_closed_) return;
    waiting_.push_back({.bytes = bytes, .ready = std::move(ready)});
  }
  Serve();
}

// Gives room to those who wait, the first one first, as long as it lasts.
void DecodeRoom::Serve() {
  for (;;) {
    Waiting next;
    {
      const MutexLock lock(mutex_);
      if (waiting_.empty() || !FitsLocked(waiting_.front().bytes)) return;
      next = std::move(waiting_.front());
      waiting_.pop_front();
      used_bytes_ += next.bytes;
      ++calls_;
    }
    // The share owns the room, because it is given back when the last slice of a message has gone,
    // perhaps after the daemon's other rooms.
    next.ready({static_cast<const void*>(this),
                [room = shared_from_this(), bytes = next.bytes](const void*) {
                  room->Return(bytes);
                }});
    const MutexLock lock(mutex_);
    if (--calls_ == 0) call_ended_.NotifyAll();
  }
}

// Called by whoever destroys the last reference to a share, for example a thread of gRPC.
void DecodeRoom::Return(std::uint64_t bytes) {
  {
    const MutexLock lock(mutex_);
    used_bytes_ -= bytes;
  }
  Serve();
}

void DecodeRoom::Close() {
  std::deque<Waiting> forgotten;  // destroyed without the mutex
  const MutexLock lock(mutex_);
  is_closed_ = true;
  forgotten.swap(waiting_);
  while (calls_ > 0) call_ended_.Wait(mutex_);
}

std::uint64_t DecodeRoom::used_bytes() const {
  const MutexLock lock(mutex_);
  return used_bytes_;
}

}  // namespace forebay::fetch

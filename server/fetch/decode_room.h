// DecodeRoom: limits the memory of rows that were decoded for other nodes, and of chunks that were
// read for them, until they are sent. Requests that find no room wait for it without a thread, the
// first one first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

#include "proto/contract/thread_annotations.h"

namespace forebay::fetch {

// Thread-safe. Shares of the room may outlive its user, which calls Close.
class DecodeRoom : public std::enable_shared_from_this<DecodeRoom> {
 public:
  explicit DecodeRoom(std::uint64_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}

  // Stands for bytes of the room. They are free again when the last reference is gone.
  using Share = std::shared_ptr<const void>;
  // Calls `ready` once with the share, when there is room: within this call, or on the thread that
  // gives a share back, so that it must only post a task. More than the capacity is given to one
  // request alone.
  void Take(std::uint64_t bytes, std::function<void(Share)> ready);
  // Whether Take would have to wait for so many bytes now.
  bool WouldWait(std::uint64_t bytes) const;
  // Forgets whoever waits. When it returns, no `ready` is running, and none will be called.
  void Close();

  std::uint64_t used_bytes() const;

 private:
  struct Waiting {
    std::uint64_t bytes = 0;
    std::function<void(Share)> ready;
  };
  bool FitsLocked(std::uint64_t bytes) const FOREBAY_REQUIRES(mutex_);
  void Serve();
  void Return(std::uint64_t bytes);

  const std::uint64_t capacity_bytes_;
  mutable Mutex mutex_;
  std::uint64_t used_bytes_ FOREBAY_GUARDED_BY(mutex_) = 0;
  std::deque<Waiting> waiting_ FOREBAY_GUARDED_BY(mutex_);
  std::size_t calls_ FOREBAY_GUARDED_BY(mutex_) = 0;  // of `ready` that are running
  CondVar call_ended_;
  bool is_closed_ FOREBAY_GUARDED_BY(mutex_) = false;
};

}  // namespace forebay::fetch

// OpenChannels: bounds how many links of a node (PeerLink) have a channel of gRPC at the same time.
// A link makes its channel at its first call. This class has links that are not in use give theirs
// up, so that a daemon of a job of many thousand nodes has memory and files for those that it asks.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <unordered_set>

#include "proto/contract/thread_annotations.h"
#include "server/io/clock.h"

namespace forebay::peer {

class PeerLink;

// Thread-safe. All links must live as long as any of them may make a channel.
class OpenChannels {
 public:
  // `channels_max`: at least 1. The clock is borrowed.
  OpenChannels(std::size_t channels_max, io::Clock& clock);

  // Call it without a lock when the link has made a channel, and for each of its calls while
  // is_crowded(). If more links than `channels_max` have a channel, those that were not used for
  // the longest time give theirs up, until a sixteenth of the places is free. If these are very
  // many, one call closes only some of them. A link with a call, also one that waits, keeps its
  // channel, and so does a link that still connects. So no call waits or fails because of the
  // bound, and there are more channels than allowed while that many links have calls. Now and then,
  // links that had no call for limits::kPeerIdleMs give their channels up, too.
  void Used(PeerLink& link);
  // Returns whether more links than allowed had a channel when this class looked at them last.
  bool is_crowded() const { return is_crowded_; }

  // Returns how many links have a channel, as far as this class knows: those whose channel Redirect
  // has closed count until this class looks at them again.
  std::size_t count() const;

 private:
  bool MustLookLocked(std::int64_t now_ns) const FOREBAY_REQUIRES(mutex_);

  const std::size_t channels_max_;
  io::Clock& clock_;
  // Taken before the mutex of a link, and never while that is held.
  mutable Mutex mutex_;
  std::unordered_set<PeerLink*> links_ FOREBAY_GUARDED_BY(mutex_);
  std::int64_t looked_ns_ FOREBAY_GUARDED_BY(mutex_);  // the time of the last look at all links
  std::atomic<bool> is_crowded_ = false;
};

}  // namespace forebay::peer

#include "bench/gfs_emu/stream_tracker.h"

#include <algorithm>

namespace forebay::bench {
namespace {

bool Adjoins(std::uint64_t end, std::uint64_t offset) {
  const std::uint64_t distance = end > offset ? end - offset : offset - end;
  return distance <= StreamTracker::kSlackBytes;
}

}  // namespace

void StreamTracker::OnOpen() {
  ++tick_;
  for (Stream& stream : streams_) {
    if (stream.end == 0) {
      stream.used_at = tick_;
      return;
    }
  }
  Add({.begin = 0, .end = 0, .charged = false, .used_at = tick_});
}

StreamTracker::Verdict StreamTracker::OnRead(std::uint64_t offset, std::uint64_t bytes) {
  ++tick_;
  Verdict verdict;
  const std::uint64_t end = offset + bytes;
  auto front = std::ranges::find_if(
      streams_, [&](const Stream& stream) { return Adjoins(stream.end, offset); });
  if (front == streams_.end()) {
    verdict.seek = true;
    front = Add({.begin = offset, .end = end, .charged = true, .used_at = tick_});
  } else {
    front->end = end;
    front->used_at = tick_;
  }
  for (auto later = streams_.begin(); later != streams_.end(); ++later) {
    if (later == front || !later->charged || !Adjoins(end, later->begin)) continue;
    front->end = later->end;
    streams_.erase(later);
    verdict.refund = true;
    break;
  }
  return verdict;
}

std::vector<StreamTracker::Stream>::iterator StreamTracker::Add(const Stream& stream) {
  if (streams_.size() < kStreamsMax) return streams_.insert(streams_.end(), stream);
  const auto oldest = std::ranges::min_element(streams_, {}, &Stream::used_at);
  *oldest = stream;
  return oldest;
}

}  // namespace forebay::bench

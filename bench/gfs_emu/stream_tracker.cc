// An object's streams are a short list that is searched from its start for each read. A read
// continues the stream whose end it adjoins, else it costs a seek and begins one. If the seek was
// charged only because a piece overtook its predecessor, the gap closes later and the seek is
// refunded: so the charge depends on which bytes are read and not on the order in which threads of
// the kernel deliver the requests.
#include "bench/gfs_emu/stream_tracker.h"

#include <algorithm>

namespace forebay::bench {
namespace {

bool Adjoins(std::uint64_t end, std::uint64_t offset) {
  // Both directions count: O_DIRECT rounds a read down to pages, so it may begin before the end of
  // the one before it.
  const std::uint64_t distance = end > offset ? end - offset : offset - end;
  return distance <= StreamTracker::kSlackBytes;
}

}  // namespace

void StreamTracker::OnOpen() {
  ++tick_;
  // Opening an object twice without reading it begins one stream and not two, so that repeated
  // opens do not push out streams that are in use.
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
      // Only the end is compared. A read of the middle of a stream is a seek: a disk has to move
      // its head, whatever was read before.
      streams_, [&](const Stream& stream) { return Adjoins(stream.end, offset); });
  if (front == streams_.end()) {
    verdict.seek = true;
    front = Add({.begin = offset, .end = end, .charged = true, .used_at = tick_});
  } else {
    front->end = end;
    front->used_at = tick_;
  }
  // One gap at most closes with one read, so the first match is enough. A stream that was not
  // charged (begun by an open) has nothing to give back.
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
  // The bound is what makes random reads expensive: with endless streams every offset would become
  // the end of one after a while. The stream that was idle longest is forgotten.
  if (streams_.size() < kStreamsMax) return streams_.insert(streams_.end(), stream);
  const auto oldest = std::ranges::min_element(streams_, {}, &Stream::used_at);
  *oldest = stream;
  return oldest;
}

}  // namespace forebay::bench

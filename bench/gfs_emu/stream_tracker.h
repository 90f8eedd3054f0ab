// StreamTracker: tells sequential reads of one object from seeks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace forebay::bench {

// Remembers the last few sequential streams of an object. A read that continues one of them is
// free of a seek; every other read costs one and begins a stream. An open begins a stream at
// offset 0: finding an object's first byte is part of the cost of the open. Where requests of
// one stream arrive out of order (the kernel splits large reads, servers have threads), the
// seek charged to the piece that came early is refunded when the gap before it closes.
// Not thread-safe.
class StreamTracker {
 public:
  static constexpr std::size_t kStreamsMax = 16;
  // A gap or an overlap of up to a page continues a stream (O_DIRECT rounds to pages).
  static constexpr std::uint64_t kSlackBytes = 4096;

  struct Verdict {
    bool seek = false;    // this read costs a seek
    bool refund = false;  // an earlier read's seek is given back
  };

  void OnOpen();
  Verdict OnRead(std::uint64_t offset, std::uint64_t bytes);
  void Reset() { streams_.clear(); }

 private:
  struct Stream {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    bool charged = false;  // a seek was charged for `begin`
    std::uint64_t used_at = 0;
  };

  std::vector<Stream>::iterator Add(const Stream& stream);

  std::vector<Stream> streams_;
  std::uint64_t tick_ = 0;
};

}  // namespace forebay::bench

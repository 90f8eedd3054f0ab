// Each request in flight has its own part of one buffer. A request is started whenever one has
// ended, so the number in flight stays the same until the ranges or the time end.
#include "server/daemon/doctor/measured_transfer.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "server/io/aligned_buffer.h"

namespace forebay::daemon {
namespace {

void FillRandomly(std::span<std::byte> memory) {
  // Any bytes that do not compress will do, the same in every run.
  std::mt19937_64 random(1);
  for (std::size_t at = 0; at + sizeof(std::uint64_t) <= memory.size();
       at += sizeof(std::uint64_t)) {
    const std::uint64_t word = random();
    std::memcpy(&memory[at], &word, sizeof(word));
  }
}

// Hands out the requests of all ranges, one after the other.
class RequestList {
 public:
  RequestList(std::span<const FileRange> ranges, std::uint64_t request_bytes)
      : ranges_(ranges), request_bytes_(request_bytes) {}

  bool is_over() {
    while (range_ < ranges_.size() && done_ >= ranges_[range_].bytes) {
      ++range_;
      done_ = 0;
    }
    return range_ == ranges_.size();
  }
  // Only if not is_over().
  FileRange Take() {
    const FileRange& range = ranges_[range_];
    const FileRange next = {.file = range.file,
                            .offset = range.offset + done_,
                            .bytes = std::min(request_bytes_, range.bytes - done_)};
    done_ += next.bytes;
    return next;
  }

 private:
  const std::span<const FileRange> ranges_;
  const std::uint64_t request_bytes_;
  std::size_t range_ = 0;
  std::uint64_t done_ = 0;  // bytes of ranges_[range_] that were handed out
};

}  // namespace

std::uint64_t TransferRate::BytesPerSecond() const {
  return ns <= 0 ? 0
                 : static_cast<std::uint64_t>(static_cast<double>(bytes) * 1e9 /
                                              static_cast<double>(ns));
}

Result<TransferRate> Transfer(io::IoBackend& backend, const io::Clock& clock,
                              std::span<const FileRange> ranges, const TransferOptions& options) {
  FOREBAY_ASSIGN(io::AlignedBuffer buffer,
                 io::AlignedBuffer::Create(options.request_bytes * options.requests));
  if (options.kind == io::OpKind::kWrite) FillRandomly(buffer.span());
  // After the buffer, so that its destructor, which waits for requests in flight, comes before.
  FOREBAY_ASSIGN(const auto queue, backend.CreateQueue({.depth = options.requests}));
  std::vector<std::size_t> idle;  // parts of the buffer that no request uses
  for (std::size_t i = 0; i < options.requests; ++i) idle.push_back(i);
  RequestList requests(ranges, options.request_bytes);
  TransferRate rate;
  const std::int64_t begun_ns = clock.NowNs();
  std::vector<io::Completion> completions;
  for (;;) {
    while (!idle.empty() && !requests.is_over() && clock.NowNs() < options.deadline_ns) {
      const FileRange request = requests.Take();
      const std::span<std::byte> memory =
          buffer.span().subspan(idle.back() * options.request_bytes, request.bytes);
      io::Operation operation;
      operation.kind = options.kind;
      operation.file = request.file;
      operation.offset = request.offset;
      // Only the one that the kind needs is looked at.
      operation.buffer = memory;
      operation.data = memory;
      operation.tag = idle.back();
      FOREBAY_TRY(queue->Submit({&operation, 1}));
      idle.pop_back();
    }
    if (queue->in_flight() == 0) break;  // all is transferred, or the time is over
    completions.clear();
    queue->Wait(1, completions);
    for (const io::Completion& completion : completions) {
      if (!completion.bytes.has_value()) return completion.bytes.error();
      rate.bytes += *completion.bytes;
      idle.push_back(completion.tag);
    }
  }
  rate.ns = clock.NowNs() - begun_ns;
  return rate;
}

}  // namespace forebay::daemon

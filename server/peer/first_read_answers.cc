// A node at its limit of calls keeps first reads all the same, because their nodes would serve the
// extents without them. So these calls have a bound of their own. It holds also for calls that
// their node has given up, because what they gave still waits for the thread.
#include "server/peer/first_read_answers.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "proto/contract/limits.h"
#include "server/peer/channel_settings.h"
#include "server/stage/extent_source.h"

namespace forebay::peer {
namespace {

// A call has memory of its own, however little it gives. So no more than kPeerCallsMax wait.
constexpr std::uint64_t kCallBytesMin =
    limits::kPeerFirstReadsWaitingBytesMax / limits::kPeerCallsMax;

}  // namespace

Result<std::unique_ptr<FirstReadAnswers>> FirstReadAnswers::Create(
    stage::LocalFirstReads& first_reads, io::IoBackend& backend) {
  std::unique_ptr<FirstReadAnswers> answers(new FirstReadAnswers(first_reads));
  FOREBAY_ASSIGN(answers->thread_,
                 io::ThreadExecutor::Create(backend, /*threads=*/1, /*queue_depth=*/1));
  return answers;
}

Status FirstReadAnswers::Answer(stage::Dataset& dataset, FirstReadsGiven given,
                                std::uint64_t bytes, std::shared_ptr<UnaryAnswer> answer) {
  // A read takes more memory than it has bytes in the request.
  const std::uint64_t held =
      std::max({bytes, given.reads.size() * sizeof(given.reads.front()), kCallBytesMin});
  {
    const MutexLock lock(mutex_);
    if (held > limits::kPeerFirstReadsWaitingBytesMax - waiting_bytes_) {
      return stage::TooBusy(fmt::format(
          "{} bytes of checksums of first reads wait to be kept, and {} more exceed the limit of "
          "{}: daemon.state_dir is slow",
          waiting_bytes_, held, limits::kPeerFirstReadsWaitingBytesMax));
    }
    waiting_bytes_ += held;
  }
  thread_->Post([this, &dataset, given = std::move(given), held,
                 answer = std::move(answer)](io::IoQueue&) {
    const Result<std::vector<std::uint32_t>> differing = first_reads_.Keep(
        dataset, given.request.catalog_fingerprint, given.from, given.reads);
    {
      const MutexLock lock(mutex_);
      waiting_bytes_ -= held;
    }
    if (!differing.has_value()) return answer->Fail(ToGrpcStatus(differing.error()));
    answer->Answer(WriteFirstReadsReply(*differing));
  });
  return {};
}

}  // namespace forebay::peer

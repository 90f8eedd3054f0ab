// The time for all nodes together grows with their number, because a connection takes some
// milliseconds of CPU time. A node is asked when its turn comes, and its time counts from then on.
#include "server/daemon/status_pings.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/limits.h"
#include "proto/contract/thread_annotations.h"
#include "server/daemon/call_round.h"

namespace forebay::daemon {
namespace {

constexpr std::int64_t kStatusNsOfMs = 1'000'000;

std::int64_t TimeForAllMs(std::size_t nodes) {
  return limits::kNodesStatusMs + static_cast<std::int64_t>(nodes) * limits::kNodesStatusMsPerNode;
}

// Shared with the callbacks, the last of which may still run when the thread that waits has gone
// on.
struct StatusAnswers {
  Mutex mutex;
  CondVar changed;
  std::size_t awaited FOREBAY_GUARDED_BY(mutex) = 0;
  std::vector<StatusPing> pings FOREBAY_GUARDED_BY(mutex);

  void Put(std::size_t index, StatusPing ping) {
    const MutexLock lock(mutex);
    pings[index] = std::move(ping);
    --awaited;
    changed.NotifyAll();
  }
};

StatusPing Unasked(std::int64_t time_ms) {
  return {.is_unasked = true,
          .report = Error(ErrorCode::kDeadlineExceeded,
                          fmt::format("the others took longer than {} s", time_ms / 1'000))};
}

}  // namespace

std::vector<StatusPing> PingForStatus(const StatusPings& pings) {
  const std::int64_t time_ms = TimeForAllMs(pings.nodes.size());
  const std::int64_t end_ns = pings.clock.NowNs() + time_ms * kStatusNsOfMs;
  const auto answers = std::make_shared<StatusAnswers>();
  {
    const MutexLock lock(answers->mutex);
    answers->awaited = pings.nodes.size();
    answers->pings.resize(pings.nodes.size());
  }
  CallRound round(pings.at_a_time);
  round.Begin(pings.nodes.size(), [&](std::size_t index, const CallRound::Ended& ended) {
    io::Clock& clock = pings.clock;
    const std::int64_t began_ns = clock.NowNs();
    if (began_ns >= end_ns) {
      answers->Put(index, Unasked(time_ms));
      return ended();
    }
    const std::int64_t deadline_ns =
        std::min(end_ns, began_ns + limits::kNodesStatusMs * kStatusNsOfMs);
    pings.ping(pings.nodes[index], deadline_ns,
               [answers, ended, index, began_ns, &clock](Result<peer::NodeReport> report) {
                 answers->Put(index, {.is_unasked = false,
                                      .answer_ns = clock.NowNs() - began_ns,
                                      .report = std::move(report)});
                 ended();
               });
  });
  UniqueLock lock(answers->mutex);
  while (answers->awaited > 0) answers->changed.Wait(answers->mutex);
  return answers->pings;
}

}  // namespace forebay::daemon

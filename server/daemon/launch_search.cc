// Probes up to 64 nodes at the same time, and then the next ones (in a small job the same ones once
// more). The first one that answers is enough.
#include "server/daemon/launch_search.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "proto/contract/thread_annotations.h"
#include "server/probe/probe_transport.h"

namespace forebay::daemon {
namespace {

constexpr std::int64_t kNsOfOneMs = 1'000'000;

}  // namespace

std::optional<NodeRank> FindAnswer(const std::vector<rendezvous::NodeEntry>& nodes,
                                   const peer::GrpcPeersOptions& asking, io::Clock& clock) {
  constexpr std::int64_t kAnswerMs = 2'000;
  constexpr std::size_t kAskedMax = 64;
  constexpr std::size_t kRounds = 2;
  struct Round {
    Mutex mutex;
    CondVar changed;
    std::size_t awaited FOREBAY_GUARDED_BY(mutex) = 0;
    std::optional<NodeRank> answers FOREBAY_GUARDED_BY(mutex);
  };
  const auto peers = peer::GrpcPeers::Create(asking, clock);
  if (!peers.has_value()) return std::nullopt;
  // Nobody is in a free place.
  const auto others = static_cast<std::size_t>(
      std::ranges::count_if(nodes, [&](const rendezvous::NodeEntry& node) {
        return !node.is_free() && node.rank != asking.self;
      }));
  const std::size_t in_round = std::min(kAskedMax, others);
  std::optional<NodeRank> answers;
  std::size_t next = asking.self.value();
  for (std::size_t i = 0; i < kRounds && !answers; ++i) {
    // They begin behind this node, so that not all nodes that return probe the same ones.
    std::vector<NodeRank> asked;
    while (asked.size() < in_round) {
      next = (next + 1) % nodes.size();
      const bool is_other = nodes[next].rank != asking.self && !nodes[next].is_free();
      if (is_other) asked.push_back(nodes[next].rank);
    }
    const auto round = std::make_shared<Round>();
    {
      const MutexLock lock(round->mutex);
      round->awaited = asked.size();
    }
    for (const NodeRank rank : asked) {
      // A node of another launch answers with an error, and one that is starting does not serve.
      (*peers)->Probe(rank, {}, {}, clock.NowNs() + kAnswerMs * kNsOfOneMs,
                      [round, rank](const Result<probe::ProbeTransport::Answer>& answer) {
                        const MutexLock lock(round->mutex);
                        --round->awaited;
                        if (answer.has_value() && answer->has_answered) round->answers = rank;
                        round->changed.NotifyAll();
                      });
    }
    UniqueLock lock(round->mutex);
    while (round->awaited > 0 && !round->answers) round->changed.Wait(round->mutex);
    answers = round->answers;
  }
  (*peers)->Stop();
  return answers;
}

}  // namespace forebay::daemon

// Works in rounds, usually two. In each, every read that has too few keepers is given to one
// further node. A node is asked once for a read, so there are no more rounds than nodes. A read
// goes to its nodes one after the other: if the first one knows other bytes, the second one is not
// given a checksum that may be wrong, for example of a stale page of this node.
#include "server/stage/first_read_sharing.h"

#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "proto/contract/limits.h"
#include "server/io/log.h"
#include "server/stage/extent_source.h"

namespace forebay::stage {
namespace {

// With two, one of the nodes that have the checksum is alive unless three of a group's nodes die.
constexpr std::size_t kKeepers = 2;
// A node whose daemon.state_dir hangs answers pings, and so is taken for alive again and again.
constexpr std::int64_t kLeftOutNs = 60'000'000'000;

using Outcome = Result<std::vector<std::uint32_t>>;

}  // namespace

struct FirstReadSharing::Progress {
  std::size_t keepers = 0;
  std::vector<NodeRank> asked;
};

// One request to one node.
struct FirstReadSharing::Call {
  NodeRank node;
  std::vector<std::size_t> reads;  // indexes
};

// The answers of a round, shared with the callbacks. Each is called, after the deadline at the
// latest.
struct FirstReadSharing::Round {
  Mutex mutex;
  CondVar changed;
  std::size_t awaited FOREBAY_GUARDED_BY(mutex) = 0;
  std::vector<std::optional<Outcome>> outcomes FOREBAY_GUARDED_BY(mutex);
};

std::vector<FirstReadSharing::Call> FirstReadSharing::NextCalls(
    std::span<const SharedRead> reads, std::vector<Progress>& progress) {
  std::vector<NodeRank> left_out;
  {
    const MutexLock lock(mutex_);
    const std::int64_t now_ns = clock_.NowNs();
    std::erase_if(left_out_, [&](const auto& node) { return node.second <= now_ns; });
    for (const auto& [node, until_ns] : left_out_) left_out.push_back(node);
  }
  std::vector<Call> calls;
  std::map<NodeRank, std::size_t> open;  // the call of each node that has room, in `calls`
  for (std::size_t i = 0; i < reads.size(); ++i) {
    if (progress[i].keepers >= kKeepers) continue;
    std::vector<NodeRank> asked = left_out;
    asked.insert(asked.end(), progress[i].asked.begin(), progress[i].asked.end());
    const std::optional<NodeRank> node = nodes_.NextSubstitute(reads[i].group_key, asked);
    if (!node) continue;
    const auto found = open.find(*node);
    if (found == open.end() || calls[found->second].reads.size() == limits::kPeerFirstReadsMax) {
      open[*node] = calls.size();
      calls.push_back({.node = *node, .reads = {}});
    }
    calls[open[*node]].reads.push_back(i);
    progress[i].asked.push_back(*node);
  }
  return calls;
}

std::vector<Outcome> FirstReadSharing::Ask(const Dataset& dataset,
                                           std::span<const SharedRead> reads,
                                           const std::vector<Call>& calls) {
  const auto round = std::make_shared<Round>();
  {
    const MutexLock lock(round->mutex);
    round->awaited = calls.size();
    round->outcomes.resize(calls.size());
  }
  const std::int64_t deadline_ns =
      clock_.NowNs() + limits::kPeerFirstReadsDeadlineMs * 1'000'000;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    KeepRequest request{.node = calls[i].node, .from = nodes_.self(), .dataset = dataset,
                        .reads = {}, .deadline_ns = deadline_ns};
    request.reads.reserve(calls[i].reads.size());
    for (const std::size_t read : calls[i].reads) request.reads.push_back(reads[read].read);
    keepers_.Keep(std::move(request), [round, i](Outcome outcome) {
      const MutexLock lock(round->mutex);
      round->outcomes[i] = std::move(outcome);
      if (--round->awaited == 0) round->changed.NotifyAll();
    });
  }
  std::vector<Outcome> outcomes;
  UniqueLock lock(round->mutex);
  while (round->awaited > 0) round->changed.Wait(round->mutex);
  for (std::optional<Outcome>& outcome : round->outcomes) outcomes.push_back(std::move(*outcome));
  return outcomes;
}

// The extents are served all the same. If this node and the substitutes that did answer die, a
// change of the objects is not noticed, so the log has to say it; once in a while, because there
// may be a million extents.
void FirstReadSharing::NoteError(NodeRank node, const Dataset& dataset, const Error& error) {
  if (IsNoAnswer(error)) nodes_.SetLives(node, false);
  {
    const MutexLock lock(mutex_);
    // Several threads may have asked the node at the same time.
    if (!left_out_.emplace(node, clock_.NowNs() + kLeftOutNs).second) return;
  }
  log::Warn("data set '{}': node {} keeps no checksums of first reads for this node; the next "
            "node of each ranking is asked in its place: {}",
            dataset.name(), node.value(), error.message());
}

Result<std::vector<Contradiction>> FirstReadSharing::Give(const Dataset& dataset,
                                                          std::span<const SharedRead> reads) {
  std::vector<Progress> progress(reads.size());
  std::vector<Contradiction> contradictions;
  for (;;) {
    const std::vector<Call> calls = NextCalls(reads, progress);
    if (calls.empty()) return contradictions;
    const std::vector<Outcome> outcomes = Ask(dataset, reads, calls);
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const Call& call = calls[i];
      if (!outcomes[i].has_value()) {
        // What nobody else has been told must not be served by a daemon that ends.
        if (outcomes[i].error().code() == ErrorCode::kCancelled) return outcomes[i].error();
        NoteError(call.node, dataset, outcomes[i].error());
        continue;
      }
      for (const std::size_t read : call.reads) ++progress[read].keepers;
      for (const std::uint32_t differing : *outcomes[i]) {
        const std::size_t read = call.reads[differing];
        contradictions.push_back({.read = read, .node = call.node});
        // It will be refused, so nobody else needs it.
        progress[read].keepers = kKeepers;
      }
    }
  }
}

}  // namespace forebay::stage

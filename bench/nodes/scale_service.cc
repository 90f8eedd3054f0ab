// Nodes of the simulations here are as far apart as those of one machine room: what is sent arrives
// within a step of the simulation, or within 20 ms. The tests of the classes lose, delay and
// reorder messages; here only the size of the job matters.
#include "bench/nodes/scale_service.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "bench/peers/run_report.h"
#include "proto/contract/wire_layout.h"
#include "server/peer/member_requests.h"
#include "server/probe/testing/simulated_nodes.h"
#include "server/stage/gfs/cap_share.h"
#include "server/stream/stream_spec.h"
#include "server/stream/upcoming_extents.h"

namespace forebay::bench {
namespace {

constexpr std::int64_t kSecondNs = 1'000'000'000;

// Returns whether a node is one of those that are lost: the first `lost_count` ones after node 0.
// They are neighbours in rank, so only the share of the last of them passes on, because an heir
// needs all witnesses (ShareLeases).
bool IsLost(std::uint32_t rank, std::uint32_t lost_count) {
  return rank >= 1 && rank <= lost_count;
}

// Returns the bytes of a probe with this gossip. An answer has a few bytes less.
std::size_t BytesOfProbe(const probe::Gossip& gossip) {
  return peer::WriteRequest(peer::ProbeAsked{.identity = ~std::uint64_t{0},
                                             .from = NodeRank(1),
                                             .gossip = gossip})
      .Length();
}

// The shares of a cap that the nodes of a job have, in steps of 20 ms: a node saves up its rate for
// 40 ms at most. One of four nodes reads as fast as it may; the others read nothing. So the nodes
// that read have to borrow most of what they use.
class CappedJob {
 public:
  // In bytes per second. All figures are parts of the cap, so its size says nothing.
  static constexpr double kJobRate = 50e9;

  CappedJob(std::uint32_t node_count, std::uint64_t seed) : lives_(node_count, true) {
    std::mt19937_64 random(seed);
    for (std::uint32_t rank = 0; rank < node_count; ++rank) {
      shares_.push_back(std::make_unique<stage::CapShare>(
          stage::CapShareOptions{.caps = {kJobRate, 0},
                                 .node_count = node_count,
                                 .self = NodeRank(rank)},
          now_ns_));
      // The daemons of a job do not begin their seconds at the same time.
      tick_ns_.push_back(static_cast<std::int64_t>(random() % kSecondNs));
    }
  }
  void Run(std::int64_t seconds) {
    for (const std::int64_t end_ns = now_ns_ + seconds * kSecondNs; now_ns_ < end_ns;) Step();
  }
  void Lose(std::uint32_t lost_count) {
    for (std::uint32_t rank = 0; rank < shares_.size(); ++rank) {
      if (IsLost(rank, lost_count)) lives_[rank] = false;
    }
  }
  double used() const { return used_; }
  double most() const { return most_; }
  std::uint64_t asks() const { return asks_; }

 private:
  static constexpr std::int64_t kStepNs = 20'000'000;

  void Step() {
    now_ns_ += kStepNs;
    // The bytes of one request: what an equal share allows in a hundredth of a second.
    const double amount = kJobRate / static_cast<double>(shares_.size()) / 100;
    for (std::uint32_t rank = 0; rank < shares_.size(); ++rank) {
      if (!lives_[rank]) continue;
      stage::CapShare& share = *shares_[rank];
      if (rank % 4 == 0) {
        while (share.CanTake(stage::Cap::kBytes, amount, now_ns_)) {
          share.Take(stage::Cap::kBytes, amount, now_ns_);
          used_ += amount;
        }
        // Such a node would always use more, so it has waited for the whole step.
        share.AddWait(stage::Cap::kBytes, kStepNs);
      }
      if (now_ns_ >= tick_ns_[rank]) {
        tick_ns_[rank] += kSecondNs;
        Tick(rank);
      }
    }
    // The rates are added when all nodes have done this step. In the middle of it, what one node
    // lends another one could count for both of them, or for none.
    double rates = 0;
    for (std::uint32_t rank = 0; rank < shares_.size(); ++rank) {
      if (lives_[rank]) rates += shares_[rank]->figures(stage::Cap::kBytes, now_ns_).rate;
    }
    most_ = std::max(most_, rates);
  }

  // A node that is lost answers nothing, and all others know at once that it is lost. Requests and
  // answers take no time here.
  void Tick(std::uint32_t rank) {
    const auto lives = [this](NodeRank node) { return lives_[node.value()]; };
    for (const stage::CapShare::Ask& asked : shares_[rank]->Tick(now_ns_, lives)) {
      ++asks_;
      if (!lives(asked.node)) continue;
      const stage::ShareAnswer answer =
          shares_[asked.node.value()]->Answer(NodeRank(rank), asked.ask, now_ns_);
      shares_[rank]->Answered(asked.node, asked.ask, answer, now_ns_, now_ns_);
    }
  }

  std::int64_t now_ns_ = 0;
  std::vector<std::unique_ptr<stage::CapShare>> shares_;  // by rank
  std::vector<std::int64_t> tick_ns_;                     // by rank: when it looks next
  std::vector<bool> lives_;
  double used_ = 0;
  double most_ = 0;
  std::uint64_t asks_ = 0;
};

}  // namespace

Probing ProbingOf(std::uint32_t node_count, std::uint32_t lost_count, std::uint64_t seed) {
  // Messages are counted in this time, in which no node is lost.
  constexpr std::int64_t kCalmMs = 10'000;
  // Then nodes are lost, and the simulation ends here at the latest. The time until all know grows
  // with the job, because suspicion takes longer (ProberSettings), and with the number of lost
  // nodes, because a message has room for few news (limits::kGossipNewsMax).
  constexpr std::int64_t kEndMs = 190'000;
  probe::SimulatedNodes nodes({.nodes = node_count, .seed = seed});
  nodes.SetSize(BytesOfProbe);
  nodes.RunFor(kCalmMs);
  const double node_seconds = static_cast<double>(node_count) * kCalmMs / 1e3;
  Probing probing{.messages = static_cast<double>(nodes.messages()) / node_seconds,
                  .bytes = static_cast<double>(nodes.bytes()) / node_seconds,
                  .known_s = -1,
                  .wrong_verdicts = 0};
  for (std::uint32_t rank = 1; rank <= lost_count; ++rank) nodes.Stop(rank);
  const auto is_known = [&] {
    for (std::uint32_t rank = 1; rank <= lost_count; ++rank) {
      if (nodes.TakenForDeadBy(rank) < node_count - lost_count) return false;
    }
    return true;
  };
  // All nodes are asked only twice a second, because that goes through all of them for each lost
  // node. So the figure is too large by half a second at most.
  while (probing.known_s < 0 && nodes.now_ms() < kEndMs) {
    nodes.RunFor(500);
    if (is_known()) probing.known_s = static_cast<double>(nodes.now_ms() - kCalmMs) / 1e3;
  }
  probing.wrong_verdicts = nodes.wrong_verdicts().size();
  return probing;
}

Politeness PolitenessOf(std::uint32_t node_count, std::uint32_t lost_count, std::uint64_t seed) {
  constexpr std::int64_t kSeconds = 10;
  CappedJob job(node_count, seed);
  job.Run(kSeconds);  // until all have their leases and loans
  const double before = job.used();
  const std::uint64_t asks_before = job.asks();
  job.Run(kSeconds);
  Politeness politeness;
  politeness.used_of_cap = (job.used() - before) / (kSeconds * CappedJob::kJobRate);
  politeness.asks = static_cast<double>(job.asks() - asks_before) /
                    (kSeconds * static_cast<double>(node_count));
  job.Lose(lost_count);
  // Within this time, the leases of the lost nodes end (ShareLeases::kLeaseNs), and so do all loans
  // from them. Then the heirs have what passes on, and only after that the use is counted.
  job.Run(kSeconds);
  const double after = job.used();
  job.Run(kSeconds);
  politeness.after_of_cap = (job.used() - after) / (kSeconds * CappedJob::kJobRate);
  politeness.most_of_cap = job.most() / CappedJob::kJobRate;
  return politeness;
}

Result<Prefetch> PrefetchOf(stage::Dataset& dataset, const OrderShape& shape,
                            std::uint32_t node_count, std::uint32_t batch, std::uint64_t seed) {
  FOREBAY_ASSIGN(const auto selection,
                 stream::ResolveSelection(dataset, *dataset.catalog(), ""));
  const OrderSpec order = {.seed = seed,
                           .sample_count = selection->size(),
                           .selection_fingerprint = selection->fingerprint(),
                           .shape = shape};
  const auto encoded = order.Encode();
  stream::StreamRequestSpec request;
  request.dataset = dataset.name();
  request.stream_name = "train";
  request.order_spec = {encoded.begin(), encoded.end()};
  request.global_batch = batch * node_count;
  request.ranks = node_count;
  request.delivery = static_cast<std::uint32_t>(Delivery::kContiguous);
  request.credits = 1;
  FOREBAY_ASSIGN(stream::StreamSpec spec, stream::ResolveStream(dataset, request));
  stream::UpcomingExtents upcoming(std::make_shared<const stream::StreamSpec>(std::move(spec)));
  // The reader stays at the beginning of the epoch, so only what its first window needs is taken.
  const stream::StreamPlace begin;
  Prefetch prefetch;
  const double began = CpuSeconds();
  // The first call begins the epoch, which takes time for each extent of the data set.
  if (!upcoming.Take(begin)) return prefetch;  // the window needs no extent of this node
  const double first = CpuSeconds();
  prefetch.begin_s = first - began;
  prefetch.extents = 1;
  while (upcoming.Take(begin)) ++prefetch.extents;
  prefetch.window_s = CpuSeconds() - first;
  return prefetch;
}

}  // namespace forebay::bench

// Calls between nodes are made of messages, each of which is delayed or lost by itself, and of an
// event at their deadline, so that an answer that comes too late is treated as in a daemon.
//
// Latency and loss are drawn for each message alone: links have no queue and no bandwidth, and no
// node is slow. All that is drawn comes from one generator, in the order of the events, so a run
// can be repeated with its seed.
#include "server/probe/testing/simulated_nodes.h"

#include <utility>

namespace forebay::probe {

SimulatedNodes::SimulatedNodes(const SimulationSettings& settings)
    : settings_(settings), free_(settings.free), random_(settings.seed), nodes_(settings.nodes) {
  for (std::size_t rank = 0; rank < nodes_.size(); ++rank) {
    nodes_[rank] = {.prober = NewProber(rank), .is_stopped = free_.contains(rank)};
    // Daemons do not begin their periods at the same time.
    After(static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(settings_.period_ms)),
          [this, rank] { BeginPeriods(rank); });
  }
}

std::unique_ptr<Prober> SimulatedNodes::NewProber(std::size_t rank) {
  std::vector<NodeRank> free;
  for (const std::size_t place : free_) {
    if (place != rank) free.emplace_back(static_cast<std::uint32_t>(place));
  }
  return std::make_unique<Prober>(
      ProberSettings{.self = NodeRank(static_cast<std::uint32_t>(rank)),
                     .node_count = settings_.nodes,
                     .free = std::move(free),
                     .period_ms = settings_.period_ms,
                     .suspicion_ms = settings_.suspicion_ms,
                     // Each prober has an order of its own, also one that was started again.
                     .seed = settings_.seed * 1'000'003 + ++seeds_});
}

// Events that are due may make further ones, which happen in the same call if they are due as well.
void SimulatedNodes::RunFor(std::int64_t ms) {
  const std::int64_t end_ms = now_ms_ + ms;
  while (!events_.empty() && events_.top().at_ms <= end_ms) {
    // A copy, because the event may add others to the queue.
    const Event event = events_.top();
    events_.pop();
    now_ms_ = event.at_ms;
    event.happen();
  }
  now_ms_ = end_ms;
}

void SimulatedNodes::Restart(std::size_t rank) {
  nodes_[rank] = {.prober = NewProber(rank)};
}

void SimulatedNodes::Occupy(std::size_t rank, std::size_t told) {
  free_.erase(rank);
  Restart(rank);
  for (std::size_t other = 0; other < told; ++other) {
    if (other == rank) continue;
    nodes_[other].prober->Occupy(NodeRank(static_cast<std::uint32_t>(rank)));
  }
}

std::size_t SimulatedNodes::TakenForDeadBy(std::size_t rank) const {
  std::size_t count = 0;
  for (std::size_t other = 0; other < nodes_.size(); ++other) {
    // A stopped node knows what it knew when it was stopped, which says nothing.
    if (other == rank || nodes_[other].is_stopped) continue;
    const NodeState state =
        nodes_[other].prober->state(NodeRank(static_cast<std::uint32_t>(rank)));
    count += state == NodeState::kDead ? 1 : 0;
  }
  return count;
}

void SimulatedNodes::After(std::int64_t ms, std::function<void()> happen) {
  events_.push({.at_ms = now_ms_ + ms, .number = event_count_++, .happen = std::move(happen)});
}

// The periods of a stopped node go on, and are empty. So it has the same rhythm when it continues.
void SimulatedNodes::BeginPeriods(std::size_t rank) {
  Node& node = nodes_[rank];
  if (!node.is_stopped) {
    for (const Prober::Probe& probe : node.prober->BeginPeriod(now_ms_)) Send(rank, probe);
    NoteChanges(rank);
  }
  After(settings_.period_ms, [this, rank] { BeginPeriods(rank); });
}

void SimulatedNodes::Message(std::size_t from, std::size_t to, const Gossip& gossip,
                             std::function<void()> arrive) {
  // A message that gets lost was sent, too.
  ++messages_;
  if (size_) bytes_ += size_(gossip);
  const bool is_lost =
      std::uniform_real_distribution<double>(0, 1)(random_) < settings_.loss ||
      (passes_ && !passes_(from, to));
  if (is_lost) return;
  const std::int64_t latency_ms =
      1 + static_cast<std::int64_t>(random_() %
                                    static_cast<std::uint64_t>(settings_.latency_ms_max));
  After(latency_ms, [this, to, arrive = std::move(arrive)] { Happen(to, arrive); });
}

void SimulatedNodes::Happen(std::size_t rank, std::function<void()> happen) {
  if (nodes_[rank].is_stopped) {
    nodes_[rank].missed.push_back(std::move(happen));
  } else {
    happen();
  }
}

void SimulatedNodes::Continue(std::size_t rank) {
  nodes_[rank].is_stopped = false;
  for (const std::function<void()>& happen : std::exchange(nodes_[rank].missed, {})) happen();
}

// The deadlines here and in Call must be those of NodeProber::Send and ProbeFor, which daemons have
// in place of this class.
void SimulatedNodes::Send(std::size_t from, const Prober::Probe& probe) {
  const std::int64_t deadline_ms =
      probe.target ? (settings_.period_ms - settings_.answer_ms) * 4 / 5 : settings_.answer_ms;
  Call(from, probe, deadline_ms,
       [this, from, probe](const std::optional<Gossip>& answer, bool has_answered) {
         Prober& prober = *nodes_[from].prober;
         if (answer) {
           for (const Prober::Probe& refutation :
                prober.Answered(probe, *answer, has_answered, now_ms_)) {
             Send(from, refutation);
           }
         } else {
           for (const Prober::Probe& helped : prober.Missed(probe, now_ms_)) Send(from, helped);
         }
         NoteChanges(from);
       });
}

void SimulatedNodes::Call(std::size_t from, const Prober::Probe& probe, std::int64_t deadline_ms,
                          Heard heard) {
  // The answer and the deadline both end the call. The first one of them counts.
  const auto has_ended = std::make_shared<bool>(false);
  const auto end = [has_ended, heard](const std::optional<Gossip>& answer, bool has_answered) {
    if (std::exchange(*has_ended, true)) return;
    heard(answer, has_answered);
  };
  After(deadline_ms, [this, from, end] { Happen(from, [end] { end(std::nullopt, false); }); });
  const std::size_t to = probe.to.value();
  Message(from, to, probe.gossip, [this, from, to, probe, end] {
    Prober& other = *nodes_[to].prober;
    const Gossip answer = other.Hear(NodeRank(static_cast<std::uint32_t>(from)), probe.gossip,
                                     now_ms_);
    NoteChanges(to);
    const auto reply = [this, from, to, answer, end](bool has_answered) {
      Message(to, from, answer, [end, answer, has_answered] { end(answer, has_answered); });
    };
    if (!probe.target) return reply(true);
    // A helper probes the target and tells the result. The answer of the target has news for the
    // helper, too. If none comes, the helper itself does not suspect the target because of that.
    Prober::Probe helped{.to = *probe.target, .gossip = other.GossipFor(*probe.target)};
    Call(to, helped, (settings_.period_ms - settings_.answer_ms) / 2,
         [this, to, helped, reply](const std::optional<Gossip>& heard_of, bool) {
           if (heard_of) {
             for (const Prober::Probe& refutation :
                  nodes_[to].prober->Answered(helped, *heard_of, true, now_ms_)) {
               Send(to, refutation);
             }
           }
           NoteChanges(to);
           reply(heard_of.has_value());
         });
  });
}

// Called after each step of a prober, so that a verdict is compared with what is true at that time.
void SimulatedNodes::NoteChanges(std::size_t rank) {
  for (const News& change : nodes_[rank].prober->TakeChanges()) {
    if (change.state == NodeState::kDead && !nodes_[change.node.value()].is_stopped) {
      wrong_verdicts_.push_back({.by = rank, .of = change.node.value()});
    }
  }
}

}  // namespace forebay::probe

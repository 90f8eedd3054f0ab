// SimulatedNodes: the probers of a whole job in a network that exists only as a list of events, so
// that minutes of thousands of nodes take seconds, and each run with the same seed is the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <vector>

#include "server/probe/prober.h"

namespace forebay::probe {

struct SimulationSettings {
  std::size_t nodes = 4;
  std::int64_t period_ms = 1000;
  std::int64_t answer_ms = 500;
  std::int64_t suspicion_ms = 5000;
  std::int64_t latency_ms_max = 20;  // of a message, drawn evenly from 1 ms on
  double loss = 0;                   // share of the messages that get lost
  std::uint64_t seed = 1;
  std::set<std::size_t> free = {};  // places without a node at first
};

// Not thread-safe.
class SimulatedNodes {
 public:
  explicit SimulatedNodes(const SimulationSettings& settings);

  void RunFor(std::int64_t ms);
  std::int64_t now_ms() const { return now_ms_; }
  Prober& node(std::size_t rank) { return *nodes_[rank].prober; }

  // The node neither sends nor hears anything, as a killed or a stopped process.
  void Stop(std::size_t rank) { nodes_[rank].is_stopped = true; }
  // A stopped process goes on where it was, and gets what came meanwhile: messages, and deadlines
  // of its calls.
  void Continue(std::size_t rank);
  // A killed process was started again, and knows nothing.
  void Restart(std::size_t rank);
  // A node takes the place, which is free or whose node is stopped. It tells so the nodes that come
  // before `told`; the others have to hear it from them.
  void Occupy(std::size_t rank, std::size_t told);
  // Says whether a message passes; the default is that each does.
  void SetLinks(std::function<bool(std::size_t from, std::size_t to)> passes) {
    passes_ = std::move(passes);
  }

  // Messages that were sent so far, answers too, and what `size` says of them.
  std::size_t messages() const { return messages_; }
  std::size_t bytes() const { return bytes_; }
  void SetSize(std::function<std::size_t(const Gossip&)> size) { size_ = std::move(size); }

  // How many of the nodes that are not stopped take `rank` for dead.
  std::size_t TakenForDeadBy(std::size_t rank) const;
  // A node that was not stopped was found dead.
  struct Verdict {
    std::size_t by;
    std::size_t of;
  };
  const std::vector<Verdict>& wrong_verdicts() const { return wrong_verdicts_; }

 private:
  struct Node {
    std::unique_ptr<Prober> prober;
    bool is_stopped = false;
    std::vector<std::function<void()>> missed = {};  // what is to happen when it goes on
  };
  struct Event {
    std::int64_t at_ms;
    std::uint64_t number;  // events of one time happen in the order in which they were made
    std::function<void()> happen;
    bool operator<(const Event& other) const {
      return at_ms != other.at_ms ? at_ms > other.at_ms : number > other.number;
    }
  };

  std::unique_ptr<Prober> NewProber(std::size_t rank);
  void After(std::int64_t ms, std::function<void()> happen);
  // Now, or when the node goes on if it is stopped.
  void Happen(std::size_t rank, std::function<void()> happen);
  void BeginPeriods(std::size_t rank);
  // Calls `arrive` on the other node when the message arrives there, if it does.
  void Message(std::size_t from, std::size_t to, const Gossip& gossip,
               std::function<void()> arrive);
  void Send(std::size_t from, const Prober::Probe& probe);
  using Heard = std::function<void(const std::optional<Gossip>& answer, bool has_answered)>;
  // A call with a deadline: `heard` is called once.
  void Call(std::size_t from, const Prober::Probe& probe, std::int64_t deadline_ms, Heard heard);
  void NoteChanges(std::size_t rank);

  const SimulationSettings settings_;
  std::set<std::size_t> free_;  // places that no node has taken yet
  std::mt19937_64 random_;
  std::vector<Node> nodes_;
  std::priority_queue<Event> events_;
  std::uint64_t event_count_ = 0;
  std::int64_t now_ms_ = 0;
  std::function<bool(std::size_t, std::size_t)> passes_;
  std::function<std::size_t(const Gossip&)> size_;
  std::size_t messages_ = 0;
  std::size_t bytes_ = 0;
  std::vector<Verdict> wrong_verdicts_;
  std::uint64_t seeds_ = 0;
};

}  // namespace forebay::probe

// CappedJob: the shares of the caps of all nodes of a job, in a simulated network. Part of
// forebay::stage_testing.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <queue>
#include <random>
#include <utility>
#include <vector>

#include "server/stage/gfs/cap_share.h"

namespace forebay::stage {

// Messages between the nodes are delayed, lost and reordered; nodes stop, die, are cut off and
// return, and take each other for dead or alive, as the test has it. Time goes on in steps of
// 10 ms.
class CappedJob {
 public:
  static constexpr std::int64_t kStep = 10'000'000;
  static constexpr double kBytes = 50e6;              // the cap, a second
  static constexpr double kAmount = kBytes / 100'000;  // of one request
  static constexpr std::uint64_t kNodeRequests = 8;    // the most that a node can use

  // `requests`: the cap on those in flight; 0: none.
  CappedJob(std::uint32_t nodes, std::uint64_t seed, std::uint64_t requests = 0);

  // Returns the bytes that a node wants in each step. A node that wants more than it gets uses all
  // that it gets.
  std::function<double(std::uint32_t node, std::int64_t now)> demand =
      [](std::uint32_t, std::int64_t) { return 0; };
  // Returns the requests that a node would have in flight. Each of them takes a random number of
  // steps, at most `request_max_steps`.
  std::function<std::uint64_t(std::uint32_t node)> demand_requests =
      [](std::uint32_t) { return 0; };
  std::int64_t request_max_steps = 40;
  // Whether a node believes that another one lives, which may be wrong, and whether messages get
  // from one to the other.
  using OfTwo = std::function<bool(std::uint32_t from, std::uint32_t to)>;
  OfTwo believes_alive = [](std::uint32_t, std::uint32_t) { return true; };
  OfTwo reaches = [](std::uint32_t, std::uint32_t) { return true; };
  double loss = 0;
  double answer_loss = 0;  // of answers alone
  std::int64_t delay_max_steps = 10;
  std::int64_t late_max_steps = 0;  // one tick of ten comes so much later, at most

  void Kill(std::uint32_t i) {
    nodes_[i].share.reset();
    nodes_[i].in_flight.clear();
  }
  void Start(std::uint32_t i, bool has_returned);
  // All other nodes take it for dead.
  void Lose(std::uint32_t lost) {
    Kill(lost);
    believes_alive = [known = believes_alive, lost](std::uint32_t from, std::uint32_t to) {
      return to != lost && known(from, to);
    };
  }
  // Starts the lost node again, and all other nodes know at once that it lives.
  void Return(std::uint32_t lost) {
    Start(lost, /*has_returned=*/true);
    believes_alive = [](std::uint32_t, std::uint32_t) { return true; };
  }
  void SetStopped(std::uint32_t i, bool stopped) { nodes_[i].stopped = stopped; }
  bool IsDead(std::uint32_t i) const { return nodes_[i].share == nullptr; }

  void Run(std::int64_t steps) {
    for (std::int64_t i = 0; i < steps; ++i) Step();
  }
  double used_of(std::uint32_t i) const { return nodes_[i].used; }
  double used() const {
    double sum = 0;
    for (const Node& node : nodes_) sum += node.used;
    return sum;
  }
  double rate_of(std::uint32_t i) { return nodes_[i].share->figures(Cap::kBytes, now_).rate; }
  std::uint64_t requests_of(std::uint32_t i) const { return InFlight(nodes_[i]); }
  std::uint64_t most_requests() const { return most_requests_; }
  std::uint64_t request_loans() const { return request_loans_; }
  std::int64_t now() const { return now_; }
  double most_in_a_second() const { return most_in_a_second_; }
  double highest_rate() const { return highest_rate_; }
  std::uint64_t loans() const { return loans_; }
  // Returns how often an heir has got the share of another node.
  std::uint64_t takes() const { return takes_; }
  std::int64_t Draw(std::int64_t from, std::int64_t to) {
    return from + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(to - from + 1));
  }

 private:
  struct Node {
    std::unique_ptr<CapShare> share;  // null: dead
    bool stopped = false;
    int life = 0;  // how often it was started
    std::int64_t tick_at = 0;
    double wants = 0;
    double used = 0;
    bool had_ward = false;
    std::vector<std::int64_t> in_flight;  // when the GFS answers each request
  };
  struct Message {
    std::int64_t at = 0;
    std::uint64_t number = 0;  // of equal times
    std::function<void()> deliver;
    bool operator<(const Message& other) const {
      return std::pair(at, number) > std::pair(other.at, other.number);
    }
  };

  bool Chance(double probability) { return std::ldexp(random_() >> 11, -53) < probability; }
  void Send(std::uint32_t from, std::uint32_t to, std::function<void()> deliver);
  bool Hears(std::uint32_t i) const { return nodes_[i].share && !nodes_[i].stopped; }

  void Tick(std::uint32_t i);
  // Requests of a node that stands still end, too, because the GFS answers them.
  std::uint64_t InFlight(const Node& node) const {
    return static_cast<std::uint64_t>(
        std::ranges::count_if(node.in_flight, [&](std::int64_t end) { return end > now_; }));
  }
  void MakeRequests(std::uint32_t i);
  void Step();

  const std::uint64_t requests_;
  std::mt19937_64 random_;
  std::vector<Node> nodes_;
  std::priority_queue<Message> messages_;
  std::uint64_t next_message_ = 0;
  std::int64_t now_ = 0;
  std::deque<double> last_second_;
  double in_last_second_ = 0;
  double most_in_a_second_ = 0;
  double highest_rate_ = 0;
  std::uint64_t loans_ = 0;
  std::uint64_t takes_ = 0;
  std::uint64_t most_requests_ = 0;
  std::uint64_t request_loans_ = 0;
};

}  // namespace forebay::stage

// Times are counted in looks and not read from a clock at both ends: when this process stands still
// (SIGSTOP, a suspended virtual machine), no request becomes late because of that.
#include "server/peer/link_watch.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/limits.h"
#include "server/io/log.h"

namespace forebay::peer {
namespace {

constexpr std::int64_t kNsPerMs = 1'000'000;
constexpr std::int64_t kUsualTimes = 4;
// A request is late after this time in any case, so that no reader waits for its whole deadline.
constexpr std::int64_t kSilenceMaxNs = 30'000 * kNsPerMs;
// A rest is twice as long as the last one if the node is late within so long after that, or within
// the time of the last rest if that is longer.
constexpr std::int64_t kSoonNs = 10'000 * kNsPerMs;
constexpr std::int64_t kRestMinNs = 2'000 * kNsPerMs;
constexpr std::int64_t kRestMaxNs = 64'000 * kNsPerMs;

// A link keeps up if it brings at least this part of the usual rate.
constexpr double kKeepsUpPart = 0.25;
// A node is slow if it brings less than this. SSDs of a few times less speed than memory are not.
constexpr double kSlowPart = 0.2;
constexpr double kHeardSlowPart = 0.5;  // if another node has said that it is slow
// For so long a node counts as slow because another one has said so, which it repeats with each of
// its requests for rows.
constexpr std::int64_t kHeardNs = 5'000 * kNsPerMs;
constexpr double kOldPart = 0.75;  // of earlier bytes and times that still counts
// A node that is slow is found only by asking it, so it rests for longer at once.
constexpr std::int64_t kSlowRestMinNs = 32'000 * kNsPerMs;

double Seconds(std::int64_t ns) { return static_cast<double>(ns) / 1e9; }

// The median of the values that are not 0, in the order `less`; of two the first one. 0 if there is
// none.
template <typename Nodes, typename ValueOf, typename Less>
auto MedianOf(const Nodes& nodes, ValueOf value_of, Less less) {
  std::vector<decltype(value_of(nodes.front()))> values;
  for (const auto& node : nodes) {
    if (value_of(node) > 0) values.push_back(value_of(node));
  }
  if (values.empty()) return decltype(value_of(nodes.front())){};
  const auto median = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::ranges::nth_element(values, median, less);
  return *median;
}

}  // namespace

LinkWatch::LinkWatch(const LinkWatchParts& parts, const std::vector<WatchedNode>& nodes)
    : parts_(parts), last_look_ns_(parts.clock.NowNs()) {
  for (const WatchedNode& node : nodes) nodes_.push_back({.watched = node});
}

std::int64_t LinkWatch::period_ns() const {
  constexpr std::int64_t kWithoutLateMs = 1'000;  // wrong bytes are looked for all the same
  constexpr std::int64_t kPeriodMsMin = 10;
  const std::int64_t late_ms = parts_.late_ms == 0 ? kWithoutLateMs : parts_.late_ms;
  return std::max(late_ms / 10, kPeriodMsMin) * kNsPerMs;
}

// A median, so one slow node does not change it much. If all nodes have become slow, the reason is
// this node's own link, and the time grows.
std::int64_t LinkWatch::LateAfterNs() const {
  const std::int64_t usual_ns = MedianOf(
      nodes_, [](const Node& node) { return node.state.usual_ns; }, std::less<>());
  if (usual_ns == 0 || parts_.late_ms == 0) return kSilenceMaxNs;
  return std::clamp(kUsualTimes * usual_ns, parts_.late_ms * kNsPerMs, kSilenceMaxNs);
}

// What came in this period, by the time in which something was asked for.
void LinkWatch::NoteRate(Node& node, const LinkState& before, std::int64_t elapsed_ns) {
  const std::uint64_t bytes = node.state.received_bytes - before.received_bytes;
  const std::uint64_t busy_ns = node.state.busy_ns - before.busy_ns;
  node.idle_ns = bytes > 0 ? 0 : node.idle_ns + elapsed_ns;
  node.keeps_up = false;
  // A node that is used again is measured anew: it may have been mended.
  if (!parts_.nodes.Lives(node.watched.rank)) node.sent_bytes = node.asked_ns = 0.0;
  const bool waits = node.state.has_excused || before.has_excused;
  // A time in which the node itself has waited says nothing about its speed.
  if (waits || !parts_.nodes.Lives(node.watched.rank)) {
    node.unanswered_ns = 0;
    node.slow_ns = 0;
    return;
  }
  node.unanswered_ns += busy_ns;
  if (bytes > 0 && node.unanswered_ns > 0) {
    const auto asked_ns = static_cast<double>(std::exchange(node.unanswered_ns, 0));
    node.sent_bytes = kOldPart * node.sent_bytes + static_cast<double>(bytes);
    node.asked_ns = kOldPart * node.asked_ns + asked_ns;
    node.keeps_up = static_cast<double>(bytes) >= kKeepsUpPart * usual_rate_ * asked_ns;
  }
  const bool was_always_asked = 10 * static_cast<std::int64_t>(busy_ns) >= 9 * elapsed_ns;
  const double slow_rate = (WasHeardOf(node) ? kHeardSlowPart : kSlowPart) * usual_rate_;
  node.slow_ns = was_always_asked && node.rate() < slow_rate ? node.slow_ns + elapsed_ns : 0;
}

bool LinkWatch::HasRestedLately(const Node& node) const {
  return node.rest_ns > 0 &&
         last_look_ns_ - node.rested_until_ns < std::max(kSoonNs, node.rest_ns);
}

bool LinkWatch::WasHeardOf(const Node& node) const {
  return node.heard_slow_ns != 0 && last_look_ns_ - node.heard_slow_ns < kHeardNs;
}

// A node that has rested lately is found slow again sooner, so it costs little to try it. One that
// has sent nothing yet since then gets the whole time.
std::int64_t LinkWatch::SlowAfterNs(const Node& node) const {
  if (parts_.late_ms == 0) return std::numeric_limits<std::int64_t>::max();
  const bool was_found = HasRestedLately(node) || WasHeardOf(node);
  const bool is_measured = node.rate() > 0.0;
  return (was_found && is_measured ? parts_.late_ms / 4 : parts_.late_ms) * kNsPerMs;
}

// Whether it is rather this node than `late` that has a broken link: another node that is used is
// silent, too, and none has answered since the late request was sent.
bool LinkWatch::MayBeCutOff(const Node& late, std::int64_t after_ns) const {
  bool is_other_silent = false;
  for (const Node& other : nodes_) {
    if (&other == &late || !parts_.nodes.Lives(other.watched.rank)) continue;
    if (other.idle_ns < late.state.silent_ns) return false;
    is_other_silent = is_other_silent || other.state.silent_ns > after_ns / 2;
  }
  return is_other_silent;
}

void LinkWatch::Look() {
  const std::int64_t now_ns = parts_.clock.NowNs();
  const std::int64_t elapsed_ns = std::min(now_ns - last_look_ns_, 2 * period_ns());
  last_look_ns_ = now_ns;
  TakeNews();
  bool is_any_busy = false;
  for (Node& node : nodes_) {
    const LinkState before = node.state;
    node.state = node.watched.link->AddSilence(
        node.keeps_up ? 0 : elapsed_ns, [&] { return parts_.is_suspected(node.watched.rank); });
    NoteRate(node, before, elapsed_ns);
    is_any_busy = is_any_busy || node.state.busy_ns > before.busy_ns;
    if (node.state.wrong >= limits::kPeerWrongMax) LeaveOut(node);
  }
  TellSlow();
  if (!is_any_busy) return;
  // The faster one of two, so that the slow one of two other nodes is found.
  usual_rate_ =
      MedianOf(nodes_, [](const Node& node) { return node.rate(); }, std::greater<>());
  const std::int64_t after_ns = LateAfterNs();
  std::vector<Node*> late;
  for (Node& node : nodes_) {
    if (node.state.silent_ns > after_ns && !MayBeCutOff(node, after_ns)) late.push_back(&node);
  }
  // Only now, because each of them changes what is used.
  for (Node* const node : late) {
    const std::string why = fmt::format("nothing has come from it for {:.1f} s{}",
                                        Seconds(after_ns),
                                        parts_.late_ms > 0 ? " (nodes.late_ms)" : "");
    LetRest(*node, Finding::kLate, why);
    node->watched.link->EndLate(after_ns, why);
  }
  LetSlowRest();
}

void LinkWatch::TakeNews() {
  std::vector<std::size_t> heard;
  std::vector<std::size_t> forgotten;
  {
    const MutexLock lock(news_mutex_);
    heard.swap(heard_);
    forgotten.swap(forgotten_);
  }
  for (const std::size_t node : heard) nodes_[node].heard_slow_ns = last_look_ns_;
  for (const std::size_t node : forgotten) StartAgain(nodes_[node]);
}

// By the thread that also lets nodes rest, so that no rest of the machine before begins after this.
void LinkWatch::StartAgain(Node& node) {
  if (node.is_left_out) has_left_out_ = false;
  // The state is kept, because figures of the link are compared with it.
  node = Node{.watched = node.watched, .state = node.state};
  parts_.nodes.EndRest(node.watched.rank);
}

std::size_t LinkWatch::IndexOf(NodeRank rank) const {
  const auto rank_of = [](const Node& node) { return node.watched.rank; };  // never changes
  const auto found = std::ranges::lower_bound(nodes_, rank, {}, rank_of);
  const bool is_there = found != nodes_.end() && found->watched.rank == rank;
  return is_there ? static_cast<std::size_t>(found - nodes_.begin()) : nodes_.size();
}

void LinkWatch::HearSlow(std::span<const NodeRank> nodes) {
  const MutexLock lock(news_mutex_);
  for (const NodeRank rank : nodes) {
    const std::size_t node = IndexOf(rank);
    // The next look takes the list away, so it is short.
    if (node < nodes_.size() && std::ranges::count(heard_, node) == 0) heard_.push_back(node);
  }
}

void LinkWatch::Forget(NodeRank node) {
  const std::size_t index = IndexOf(node);
  const MutexLock lock(news_mutex_);
  if (index < nodes_.size() && std::ranges::count(forgotten_, index) == 0) {
    forgotten_.push_back(index);
  }
}

std::vector<NodeRank> LinkWatch::SlowNodes() const {
  const MutexLock lock(news_mutex_);
  return slow_nodes_;
}

void LinkWatch::TellSlow() {
  std::vector<NodeRank> slow;
  for (const Node& node : nodes_) {
    if (node.is_told && IsResting(node) && slow.size() < limits::kPeerSlowMax) {
      slow.push_back(node.watched.rank);
    }
  }
  const MutexLock lock(news_mutex_);
  slow_nodes_ = std::move(slow);
}

void LinkWatch::LetSlowRest() {
  // EndLate ends all calls with it, except those that have begun, or have got a part of their
  // answer, since the last look.
  constexpr std::int64_t kAnySilence = -1;
  for (Node& node : nodes_) {
    const std::int64_t rested_ns = last_look_ns_ - (node.rested_until_ns - node.rest_ns);
    if (node.slow_ns > SlowAfterNs(node)) {
      const std::string why = fmt::format(
          "it brings {:.1f} MB/s while it is asked, and most nodes {:.1f} MB/s or more",
          1e3 * node.rate(), 1e3 * usual_rate_);
      LetRest(node, Finding::kSlow, why);
      // This ends only the calls that wait for their turn. Those that have begun may still bring
      // their rows, until the node has rested for late_ms.
      node.watched.link->EndLate(std::numeric_limits<std::int64_t>::max(), why);
    } else if (node.rests_as_slow && IsResting(node) && rested_ns > parts_.late_ms * kNsPerMs) {
      node.watched.link->EndLate(kAnySilence, "it is slow, and rests");
    }
  }
}

void LinkWatch::LetRest(Node& node, Finding finding, const std::string& why) {
  const bool is_slow = finding == Finding::kSlow;
  const bool is_below_a_fifth = node.rate() < kSlowPart * usual_rate_;
  node.slow_ns = 0;
  // A request that was on its way to the link when the node began to rest does not make the rest
  // longer.
  if (IsResting(node)) return;
  const std::int64_t rest_min_ns = is_slow ? kSlowRestMinNs : kRestMinNs;
  node.rest_ns = HasRestedLately(node) ? std::clamp(2 * node.rest_ns, rest_min_ns, kRestMaxNs)
                                       : rest_min_ns;
  node.rested_until_ns = last_look_ns_ + node.rest_ns;
  node.rests_as_slow = is_slow;
  // If each node also told what it has found by the word of others, the words would keep each other
  // alive.
  node.is_told = is_slow && is_below_a_fifth;
  log::Warn("{} is {}: {}; its substitutes are asked in its place for {:.0f} s",
            parts_.name(node.watched.rank), is_slow ? "slow" : "late", why,
            Seconds(node.rest_ns));
  // Before its requests end, so that they go to other nodes.
  if (!node.is_left_out) parts_.nodes.Rest(node.watched.rank, node.rested_until_ns);
  if (node.is_told) TellSlow();
}

// One node at most: if the bytes of several are wrong, it is rather this node that is broken.
void LinkWatch::LeaveOut(Node& node) {
  if (std::exchange(node.is_known_as_wrong, true)) return;
  if (std::exchange(has_left_out_, true)) {
    log::Error("{} has sent wrong bytes in {} answers, as another node has: look at the memory and "
               "the network interface of this node",
               parts_.name(node.watched.rank), node.state.wrong);
    return;
  }
  node.is_left_out = true;
  parts_.nodes.Rest(node.watched.rank, plan::Membership::kForEver);
  log::Error("{} has sent wrong bytes in {} answers: this node asks it for nothing more; look at "
             "its memory, its SSD and its network interface",
             parts_.name(node.watched.rank), node.state.wrong);
}

void LinkWatch::Run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    Look();
    const MutexLock lock(mutex_);
    pause_.WaitFor(mutex_, stop, std::chrono::nanoseconds(period_ns()), [] { return false; });
  }
}

}  // namespace forebay::peer

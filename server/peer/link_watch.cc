// Times are counted in looks and not read from a clock at both ends: when this process stands still
// (SIGSTOP, a suspended virtual machine), no request becomes late because of that.
#include "server/peer/link_watch.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include <fmt/format.h>

#include "proto/contract/limits.h"
#include "server/io/log.h"

namespace forebay::peer {
namespace {

constexpr std::int64_t kNsPerMs = 1'000'000;
constexpr std::int64_t kUsualTimes = 4;
// A rest is twice as long as the last one if the node is late within so long after that, or within
// the time of the last rest if that is longer.
constexpr std::int64_t kSoonNs = 10'000 * kNsPerMs;
constexpr std::int64_t kRestMinNs = 2'000 * kNsPerMs;
constexpr std::int64_t kRestMaxNs = 64'000 * kNsPerMs;

double Seconds(std::int64_t ns) { return static_cast<double>(ns) / 1e9; }

}  // namespace

LinkWatch::LinkWatch(const LinkWatchParts& parts, const std::vector<WatchedNode>& nodes)
    : parts_(parts), last_look_ns_(parts.clock.NowNs()) {
  for (const WatchedNode& node : nodes) nodes_.push_back({.watched = node});
}

std::int64_t LinkWatch::period_ns() const {
  return std::max<std::int64_t>(parts_.late_ms, 1'000) * kNsPerMs / 10;
}

// The median of the nodes that have answered often enough. One slow node does not change it much.
// If all have become slow, the reason is this node's own link, and it grows.
std::int64_t LinkWatch::LateAfterNs() const {
  std::vector<std::int64_t> usual;
  for (const Node& node : nodes_) {
    if (node.state.usual_ns > 0) usual.push_back(node.state.usual_ns);
  }
  if (usual.empty() || parts_.late_ms == 0) return std::numeric_limits<std::int64_t>::max();
  const auto median = usual.begin() + static_cast<std::ptrdiff_t>((usual.size() - 1) / 2);
  std::ranges::nth_element(usual, median);
  return std::max(kUsualTimes * *median, parts_.late_ms * kNsPerMs);
}

void LinkWatch::Look() {
  const std::int64_t now_ns = parts_.clock.NowNs();
  const std::int64_t elapsed_ns = std::min(now_ns - last_look_ns_, 2 * period_ns());
  last_look_ns_ = now_ns;
  std::size_t busy = 0;
  for (Node& node : nodes_) {
    node.state = node.watched.link->AddSilence(
        elapsed_ns, [&] { return parts_.is_suspected(node.watched.rank); });
    if (node.state.silent_ns > 0) ++busy;
    if (node.state.wrong >= limits::kPeerWrongMax) Quarantine(node);
  }
  if (busy == 0) return;
  const std::int64_t after_ns = LateAfterNs();
  const auto is_late = [after_ns](const Node& node) { return node.state.silent_ns > after_ns; };
  const std::ptrdiff_t late = std::ranges::count_if(nodes_, is_late);
  const auto is_used = [this](const Node& node) { return parts_.nodes.Lives(node.watched.rank); };
  // If none of several nodes answers, it is probably this one that is cut off. Whether the others
  // are dead is then found out by probes.
  if (late > 1 && late == std::ranges::count_if(nodes_, is_used)) return;
  for (Node& node : nodes_) {
    if (is_late(node)) LetRest(node, after_ns, now_ns);
  }
}

void LinkWatch::LetRest(Node& node, std::int64_t after_ns, std::int64_t now_ns) {
  const bool is_soon = node.rest_ns > 0 &&
                       now_ns - node.rested_until_ns < std::max(kSoonNs, node.rest_ns);
  node.rest_ns = is_soon ? std::min(2 * node.rest_ns, kRestMaxNs) : kRestMinNs;
  node.rested_until_ns = now_ns + node.rest_ns;
  const std::string why =
      fmt::format("nothing has come from it for {:.1f} s (nodes.late_ms)", Seconds(after_ns));
  log::Warn("{} is late: {}; its substitutes are asked in its place for {:.0f} s",
            parts_.name(node.watched.rank), why, Seconds(node.rest_ns));
  // In this order, so that the requests that end now go to other nodes.
  if (!node.is_quarantined) parts_.nodes.Rest(node.watched.rank, node.rested_until_ns);
  node.watched.link->EndLate(after_ns, why);
}

void LinkWatch::Quarantine(Node& node) {
  if (node.is_quarantined) return;
  node.is_quarantined = true;
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

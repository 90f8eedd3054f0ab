// Links note the time of their last use themselves. So only a call that makes a channel takes the
// lock that all links share, and every call while more links than allowed are in use. To look at
// all links takes less time than to open a connection with TLS, and is done once for many channels.
#include "server/peer/open_channels.h"

#include <algorithm>
#include <memory>
#include <vector>

#include <grpcpp/channel.h>

#include "proto/contract/limits.h"
#include "server/peer/peer_link.h"

namespace forebay::peer {
namespace {

// gRPC itself closes the connection of a channel that had no call for this time. The channel is
// closed for its memory alone, which can happen later, at one of the next looks.
constexpr std::int64_t kIdleNs = limits::kPeerIdleMs * std::int64_t{1'000'000};
constexpr std::int64_t kLookNs = kIdleNs / 8;
// While more links than allowed have calls, this is the time between two looks. Otherwise each of
// many calls would look at all links.
constexpr std::int64_t kCrowdedLookNs = 100'000'000;
// One of so many places is made free in one look, so that the next channels need no look.
constexpr std::size_t kFreePart = 16;
// To close a channel takes some time, and the thread may be one of the few of gRPC's that bring
// answers. After a round of calls to all nodes, there may be thousands to close.
constexpr std::size_t kCloseMax = 256;

struct UnusedLink {
  std::int64_t used_ns = 0;
  PeerLink* link = nullptr;
};

}  // namespace

OpenChannels::OpenChannels(std::size_t channels_max, io::Clock& clock)
    : channels_max_(channels_max), clock_(clock), looked_ns_(clock.NowNs()) {}

bool OpenChannels::MustLookLocked(std::int64_t now_ns) const {
  const bool is_above = links_.size() > channels_max_;
  if (is_above && !is_crowded_) return true;
  return now_ns - looked_ns_ >= (is_above ? kCrowdedLookNs : kLookNs);
}

void OpenChannels::Used(PeerLink& link) {
  // These channels are released last, without a mutex. The thread may be one of gRPC's that bring
  // answers: these must not release the last channel of a process, because gRPC would wait for that
  // thread to end. They do not, because the call whose end such a thread reports still has its own
  // channel (PeerLink::Ended). gRPC's threads for alarms, and LinkWatch's, are none of these.
  std::vector<std::shared_ptr<grpc::Channel>> closing;
  const MutexLock lock(mutex_);
  links_.insert(&link);
  const std::int64_t now_ns = clock_.NowNs();
  if (!MustLookLocked(now_ns)) return;
  looked_ns_ = now_ns;
  std::vector<UnusedLink> unused;
  std::erase_if(links_, [&unused](PeerLink* each) {
    const PeerLink::ChannelUse use = each->channel_use();
    if (use.is_open && !use.is_needed) unused.push_back({.used_ns = use.used_ns, .link = each});
    return !use.is_open;
  });
  std::ranges::sort(unused, {}, &UnusedLink::used_ns);
  const bool is_above = links_.size() > channels_max_;
  const std::size_t keep = is_above ? channels_max_ - channels_max_ / kFreePart : channels_max_;
  for (const UnusedLink& each : unused) {
    if (closing.size() == kCloseMax) break;
    if (links_.size() <= keep && now_ns - each.used_ns < kIdleNs) break;
    std::shared_ptr<grpc::Channel> channel = each.link->TakeUnusedChannel();
    if (channel == nullptr) continue;  // it has a call by now
    closing.push_back(std::move(channel));
    links_.erase(each.link);
  }
  is_crowded_ = links_.size() > channels_max_;
}

std::size_t OpenChannels::count() const {
  const MutexLock lock(mutex_);
  return links_.size();
}

}  // namespace forebay::peer

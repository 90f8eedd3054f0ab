// A witness needs to know only two times for each share: when the owner asked last, which has
// extended its lease or has to end the heir's, and when the heir's lease ends.
#include "server/stage/gfs/share_leases.h"

#include <algorithm>
#include <limits>
#include <span>

#include "proto/contract/check.h"

namespace forebay::stage {
namespace {

// With less left of its lease, a node asks all its witnesses.
constexpr std::int64_t kEnoughNs = 5'000'000'000;
constexpr std::int64_t kForEver = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::min();

}  // namespace

ShareLeases::ShareLeases(std::uint32_t node_count, NodeRank self, bool has_returned,
                         std::int64_t now_ns)
    : node_count_(node_count),
      self_(self),
      witnesses_(node_count < 3 ? 0 : std::min(kWitnesses, node_count - 1)) {
  FOREBAY_CHECK(node_count_ > 0 && self_.value() < node_count_);
  // No heir gets a lease before owners have had the time to ask for theirs. The killed daemon may
  // have granted one to an heir just before its end.
  promises_.fill({.owner_asked_ns = now_ns,
                  .heir_end_ns = has_returned ? now_ns + kLeaseNs : now_ns});
  own_ends_.fill(kNever);
  ward_ends_.fill(kNever);
}

std::int64_t ShareLeases::own_end_ns() const {
  return witnesses_ == 0 ? kForEver : *std::ranges::max_element(own_ends_);
}

std::int64_t ShareLeases::ward_end_ns() const {
  if (witnesses_ == 0) return kNever;
  return *std::ranges::min_element(std::span(ward_ends_).first(witnesses_));
}

bool ShareLeases::Grant(NodeRank holder, NodeRank share, std::int64_t now_ns) {
  const std::uint32_t distance = Distance(share, self_);
  if (!IsWitness(distance)) return false;
  Promise& promise = promises_[distance - 1];
  if (holder == share) {
    // The heir gets no further lease from now on, so the owner gets its share back if it has to
    // wait now.
    promise.owner_asked_ns = now_ns;
    return promise.heir_end_ns <= now_ns;
  }
  if (holder != After(share, 1) || now_ns - promise.owner_asked_ns < kLeaseNs) return false;
  promise.heir_end_ns = now_ns + kLeaseNs;
  return true;
}

void ShareLeases::Granted(NodeRank witness, NodeRank share, std::int64_t asked_ns) {
  const std::uint32_t distance = Distance(share, witness);
  if (!IsWitness(distance) || (share != self_ && share != ward())) return;
  Ends& ends = share == self_ ? own_ends_ : ward_ends_;
  // Answers may overtake each other.
  ends[distance - 1] = std::max(ends[distance - 1], asked_ns + kLeaseNs);
}

std::vector<ShareLeases::Ask> ShareLeases::Tick(std::int64_t now_ns,
                                                const std::function<bool(NodeRank)>& lives) {
  std::vector<Ask> asks;
  const std::int64_t own_end = own_end_ns();
  const bool has_enough = own_end > now_ns && own_end - now_ns >= kEnoughNs;
  for (std::uint32_t i = 0; i < witnesses_; ++i) {
    next_witness_ = next_witness_ % witnesses_ + 1;
    const NodeRank witness = After(self_, next_witness_);
    // A node that does not answer this one may answer again, so it is asked in need.
    if (has_enough && !lives(witness)) continue;
    asks.push_back({.witness = witness, .share = self_});
    if (has_enough) break;
  }
  // This node is the first witness of its ward.
  if (witnesses_ == 0 || lives(ward()) || !Grant(self_, ward(), now_ns)) return asks;
  Granted(self_, ward(), now_ns);
  for (std::uint32_t i = 2; i <= witnesses_; ++i) {
    asks.push_back({.witness = After(ward(), i), .share = ward()});
  }
  return asks;
}

}  // namespace forebay::stage

// A node that does not answer, or refuses, lends and grants nothing; the next call of Tick asks
// again. So errors need no further treatment.
#include "server/stage/gfs/share_borrower.h"

#include <fmt/format.h>

#include "server/io/log.h"

namespace forebay::stage {
namespace {

// The caller may be a little early with its second, and may call for other reasons. An answer that
// comes after this time is not awaited: then the node is asked again, and loans and leases count
// from the moment at which they were asked for.
constexpr std::int64_t kPeriodNs = 950'000'000;

}  // namespace

// No node is asked while it may still answer what it was asked before. Otherwise a node in need
// would ask ever more nodes, and drop the answers of those that it has asked again meanwhile.
void ShareBorrower::Tick() {
  const std::int64_t now_ns = clock_.NowNs();
  if (now_ns < next_ns_) return;
  next_ns_ = now_ns + kPeriodNs;
  const auto lives = [this](NodeRank node) { return nodes_.Lives(node); };
  for (const CapShare::Ask& ask : throttle_.Tick(lives)) {
    const std::int64_t asked_ns = clock_.NowNs();
    source_.Borrow(ask.node, ask.ask, next_ns_,
                   [&throttle = throttle_, ask, asked_ns](const Result<ShareAnswer>& answer) {
                     if (!answer.has_value()) return;
                     throttle.Answered(ask.node, ask.ask, *answer, asked_ns);
                   });
  }
  LogChanges();
}

// A node has no lease before its first answer; that is no loss.
void ShareBorrower::LogChanges() {
  const CapShare::Held now = throttle_.held();
  if (held_.own && !now.own) {
    has_lost_ = true;
    log::Warn("caps of the job on the GFS: no node has confirmed the share of this node for {} s, "
              "and another one may use it; this node goes on with a quarter of it until other "
              "nodes answer again",
              ShareLeases::kLeaseNs / 1'000'000'000);
  } else if (now.own && has_lost_) {
    has_lost_ = false;
    log::Info("caps of the job on the GFS: this node has its whole share again");
  }
  if (now.ward != held_.ward) {
    log::Info("caps of the job on the GFS: this node {}",
              now.ward ? fmt::format("also uses the share of node {}, which does not answer",
                                     now.ward_rank.value())
                       : fmt::format("no longer uses the share of node {}",
                                     now.ward_rank.value()));
  }
  held_ = now;
}

}  // namespace forebay::stage

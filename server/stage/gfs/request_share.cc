// The cap holds for this reason. What a lender does without for a borrower is the largest loan to
// it that has not ended (LentTo). The borrower uses at most the loan of the last answer, until
// kLoanNs after it asked. From when it asks again until the answer is there, it has no more in
// flight than it says it holds, and the lender counts at least that as lent. What is held when a
// loan ends is told to the lender on and on until it has ended, so the lender knows it whenever a
// message gets through.
#include "server/stage/gfs/request_share.h"

#include <algorithm>

#include "proto/contract/check.h"

namespace forebay::stage {
namespace {

// A loan is renewed when less than this is left of it. Tick comes once a second, so there are two
// attempts before it ends.
constexpr std::int64_t kRenewNs = 2'500'000'000;
// In the last part of a loan or a lease, nothing begins on it. So if it is not renewed, only
// requests that take longer than this are in flight when it ends.
constexpr std::int64_t kQuietNs = 500'000'000;
// A node is short if a request of it waited for this part of the time.
constexpr double kShortPart = 0.2;
// A node that has had enough for so many ticks lends.
constexpr int kTicksUntilLending = 2;
// The largest number of loans to one node that have not ended. There may be several, because
// renewals overlap. A node that asks again and again must not make this list long.
constexpr std::ptrdiff_t kLoansToNodeMax = 8;

std::uint64_t Less(std::uint64_t a, std::uint64_t b) { return a > b ? a - b : 0; }

// The parts of all nodes together are the whole cap: where it cannot be divided evenly, the first
// nodes have one request more.
std::uint64_t PartOf(const RequestShareOptions& options) {
  const std::uint64_t rest = options.job % options.node_count;
  return options.job / options.node_count + (options.self.value() < rest ? 1 : 0);
}

// Without a lease, a node has a quarter of its part (CapShare::kFixedPart), but at least one
// request. The rest needs a lease. It is the same number for all nodes, so an heir knows it of its
// ward's part.
std::uint64_t LeasedOf(const RequestShareOptions& options) {
  const std::uint64_t part = options.job / options.node_count;
  return Less(part, std::max<std::uint64_t>(1, (part + 3) / 4));
}

}  // namespace

RequestShare::RequestShare(const RequestShareOptions& options, const ShareLeases& leases,
                           std::int64_t now_ns)
    : options_(options),
      leases_(leases),
      part_(PartOf(options)),
      leased_(LeasedOf(options)),
      whole_from_ns_(options.has_returned ? now_ns + kLoanNs : now_ns),
      ticked_ns_(now_ns),
      // The killed daemon may have lent requests of its ward's part. In jobs of one or two nodes,
      // no node has the part of another one (ShareLeases).
      of_ward_(options.has_returned && options.node_count > 2 ? leased_ : 0) {}

std::uint64_t RequestShare::LentTo(NodeRank borrower, std::int64_t now_ns) const {
  std::uint64_t most = 0;
  for (const Loan& loan : lent_) {
    if (loan.node == borrower && now_ns < loan.end_ns) most = std::max(most, loan.requests);
  }
  return most;
}

std::uint64_t RequestShare::Lent(std::int64_t now_ns) const {
  std::unordered_map<NodeRank, std::uint64_t, IdHash> most;
  for (const Loan& loan : lent_) {
    if (now_ns >= loan.end_ns) continue;
    std::uint64_t& of_node = most[loan.node];
    of_node = std::max(of_node, loan.requests);
  }
  std::uint64_t sum = 0;
  for (const auto& [node, requests] : most) sum += requests;
  return sum;
}

std::uint64_t RequestShare::BorrowedAt(std::int64_t at_ns) const {
  std::uint64_t sum = 0;
  for (const Loan& loan : borrowed_) sum += at_ns < loan.end_ns ? loan.requests : 0;
  return sum;
}

std::uint64_t RequestShare::OwnPart(std::int64_t at_ns) const {
  const std::uint64_t fixed = part_ - leased_;
  if (at_ns >= leases_.own_end_ns()) return fixed;
  return fixed + Less(leased_, at_ns < held_by_heir_end_ns_ ? held_by_heir_ : 0);
}

std::uint64_t RequestShare::Own(std::int64_t at_ns) const {
  return OwnPart(at_ns) + (at_ns < leases_.ward_end_ns() ? of_ward_ : 0);
}

// Returns at least one, because a node never lends its last request. When the lease of its ward's
// part has ended, it may have lent more than it has left. The ward does without the difference
// (LookAtWard).
std::uint64_t RequestShare::OwnNotLent(std::int64_t now_ns) const {
  // A daemon that was started again does not know what the killed one had lent. At most, that was
  // all but one request.
  if (now_ns < whole_from_ns_) return 1;
  return std::max<std::uint64_t>(1, Less(Own(now_ns + kQuietNs), Lent(now_ns)));
}

std::uint64_t RequestShare::Usable(std::int64_t now_ns) const {
  return OwnNotLent(now_ns) + BorrowedAt(now_ns + kQuietNs);
}

void RequestShare::CountWait(std::int64_t now_ns) {
  if (!short_since_ns_) return;
  waited_ns_ += now_ns - *short_since_ns_;
  short_since_ns_ = now_ns;
}

bool RequestShare::TryBegin(std::uint64_t kept, std::int64_t now_ns) {
  if (IsCapped()) {
    const std::uint64_t left = Less(Usable(now_ns), in_flight_);
    if (left == 0 && !short_since_ns_) short_since_ns_ = now_ns;
    if (left <= kept) return false;
    CountWait(now_ns);
    short_since_ns_.reset();
  }
  ++begun_;
  peak_ = std::max(peak_, ++in_flight_);
  return true;
}

void RequestShare::End() {
  FOREBAY_CHECK(in_flight_ > 0);
  --in_flight_;
}

// A borrowed loan that has ended stays in the list until no request on it is in flight any more,
// because the lender must be told of these requests (Renewals).
void RequestShare::EndLoans(std::int64_t now_ns) {
  std::erase_if(lent_, [now_ns](const Loan& loan) { return loan.end_ns <= now_ns; });
  for (Loan& loan : borrowed_) {
    if (loan.end_ns > now_ns) continue;
    loan.held = std::max(loan.held, loan.requests);
    loan.requests = 0;
  }
}

std::uint64_t RequestShare::Lendable(NodeRank borrower, std::int64_t now_ns) const {
  if (now_ns < whole_from_ns_) return 0;
  // Only what this node has now and as long as the loan lasts can be lent: its heir may still hold
  // some of it now, and a lease may end before the loan does.
  const std::uint64_t lasting = std::min(Own(now_ns), Own(now_ns + kLoanNs));
  const std::uint64_t kept = ticks_with_enough_ < kTicksUntilLending
                                 ? options_.node_max
                                 : std::max<std::uint64_t>({1, recent_, in_flight_});
  const std::uint64_t spare = Less(lasting, kept);
  const std::uint64_t of_others = Lent(now_ns) - LentTo(borrower, now_ns);
  // Nodes that ask get equal parts. Loans that have not ended are not taken back.
  const std::uint64_t askers = std::max<std::uint64_t>(1, askers_.size());
  return std::min(std::max<std::uint64_t>(1, spare / askers), Less(spare, of_others));
}

// A daemon that was started again does not know what the killed one has lent. So it believes any
// number up to the largest that can be lent. Any other daemon believes what it knows to have lent,
// and beyond that what it can spare now: if a renewal was late, the loan had ended here, and its
// requests are still in flight. The bound is needed because a message must not take requests from
// this node that it uses.
std::uint64_t RequestShare::Believed(NodeRank borrower, std::uint64_t held,
                                     std::int64_t now_ns) const {
  const std::uint64_t lent = LentTo(borrower, now_ns);
  const std::uint64_t left =
      now_ns < whole_from_ns_
          ? Less(part_ + leased_, Lent(now_ns) + 1)
          : Less(OwnNotLent(now_ns), std::max<std::uint64_t>(1, in_flight_));
  return std::min(held, lent + left);
}

std::uint64_t RequestShare::Lend(NodeRank borrower, const RequestLoanAsk& ask,
                                 std::int64_t now_ns) {
  if (!IsCapped() || borrower == options_.self) return 0;
  EndLoans(now_ns);
  const std::uint32_t distance =
      (borrower.value() + options_.node_count - options_.self.value()) % options_.node_count;
  if (distance == 1 && ask.held_as_heir > 0) {
    held_by_heir_ = ask.held_as_heir;
    held_by_heir_end_ns_ = now_ns + kLoanNs;
  }
  std::erase_if(askers_, [&](const auto& asker) { return asker.second <= now_ns; });
  if (ask.wanted > 0) askers_[borrower] = now_ns + kLoanNs;
  const std::uint64_t granted = std::min(ask.wanted, Lendable(borrower, now_ns));
  const Loan loan{.node = borrower,
                  .requests = std::max(granted, Believed(borrower, ask.held, now_ns)),
                  .end_ns = now_ns + kLoanNs};
  if (loan.requests == 0) return 0;
  std::erase_if(lent_, [&](const Loan& old) {
    return old.node == borrower && old.requests <= loan.requests;
  });
  if (std::ranges::count(lent_, borrower, &Loan::node) >= kLoansToNodeMax) return 0;
  lent_.push_back(loan);
  return granted;
}

void RequestShare::Borrowed(NodeRank lender, std::uint64_t granted, std::int64_t asked_ns,
                            std::int64_t now_ns) {
  EndLoans(now_ns);
  const auto asked = asked_.find(lender);
  if (asked == asked_.end() || asked_ns < asked->second) return;
  asked_.erase(asked);
  Loan loan{.node = lender, .end_ns = asked_ns + kLoanNs};
  std::erase_if(borrowed_, [&](const Loan& old) {
    if (old.node == lender) loan.held = old.held;  // as it has told the lender
    return old.node == lender;
  });
  // Several lenders are asked at once for the same need. This node takes no more than it needs, and
  // the lenders have the rest again when the loan ends there.
  const std::uint64_t need = Less(options_.node_max, OwnNotLent(now_ns) + BorrowedAt(now_ns));
  const bool is_loan = loan.end_ns > now_ns && borrowed_.size() < kLoansMax;
  loan.requests = is_loan ? std::min(granted, need) : 0;
  if (loan.requests + loan.held > 0) borrowed_.push_back(loan);
}

// Each other node keeps one request, so a node that is short cannot get more than all the others.
std::uint64_t RequestShare::Wanted() const {
  const std::uint64_t most = options_.job - (options_.node_count - 1);
  return is_short_ ? std::min(most, options_.node_max) : recent_;
}

void RequestShare::LookAtWait(std::int64_t now_ns) {
  // A request that waits tries again and again. So if one could begin now, the one that waited has
  // been given up.
  if (in_flight_ < Usable(now_ns)) short_since_ns_.reset();
  CountWait(now_ns);
  is_short_ = static_cast<double>(waited_ns_ - waited_at_tick_ns_) >=
              kShortPart * static_cast<double>(now_ns - ticked_ns_);
  waited_at_tick_ns_ = waited_ns_;
  ticks_with_enough_ = is_short_ ? 0 : std::min(ticks_with_enough_ + 1, 1000);
  recent_ = std::max(peak_, recent_ / 2);
  peak_ = in_flight_;
}

// The ward has its part again soon after the lease of this node has ended. Before that, this node
// tells it how many requests it has to do without: those that are in flight here, or lent, and that
// neither this node's own part nor the loans to it cover.
void RequestShare::LookAtWard(std::int64_t now_ns) {
  if (leases_.ward_end_ns() >= now_ns + kRenewNs) {
    of_ward_ = leased_;
    return;
  }
  // A daemon that was started again does not know yet what the killed one had lent, so it tells the
  // ward the largest number that is possible (constructor).
  if (now_ns < whole_from_ns_) return;
  std::uint64_t covered = OwnPart(now_ns + kQuietNs);
  for (const Loan& loan : borrowed_) covered += std::max(loan.requests, loan.held);
  const std::uint64_t used = std::max<std::uint64_t>(1, in_flight_) + Lent(now_ns);
  of_ward_ = std::min(of_ward_, Less(used, covered));
}

// Each lender is told how many of the requests in flight are on its loan: those that neither this
// node's own part nor other loans cover.
std::vector<RequestShare::Ask> RequestShare::Renewals(std::int64_t now_ns,
                                                      const std::function<bool(NodeRank)>& lives) {
  const auto is_due = [now_ns](const Loan& loan) { return loan.end_ns - now_ns < kRenewNs; };
  std::uint64_t covered =
      now_ns < whole_from_ns_
          ? 1
          : std::max<std::uint64_t>(1, Less(OwnPart(now_ns + kQuietNs) + of_ward_, Lent(now_ns)));
  for (const Loan& loan : borrowed_) {
    covered += is_due(loan) ? 0 : std::max(loan.requests, loan.held);
  }
  std::vector<Ask> asks;
  for (Loan& loan : borrowed_) {
    if (!is_due(loan)) continue;
    loan.held = std::min(std::max(loan.requests, loan.held), Less(in_flight_, covered));
    const std::uint64_t more = Less(Wanted(), covered);
    covered += std::max(loan.held, std::min(loan.requests, more));
    loan.requests = std::min(loan.requests, loan.held);
    // Also a node that seems to be lost is told what is still in flight: it may live.
    if (loan.held == 0 && (more == 0 || !lives(loan.node))) continue;
    asks.push_back({.node = loan.node, .ask = {.wanted = more, .held = loan.held}});
  }
  return asks;
}

std::vector<RequestShare::Ask> RequestShare::Tick(std::int64_t now_ns,
                                                  const std::function<bool(NodeRank)>& lives) {
  if (!IsCapped() || now_ns <= ticked_ns_) return {};
  EndLoans(now_ns);
  LookAtWait(now_ns);
  ticked_ns_ = now_ns;
  LookAtWard(now_ns);
  const std::uint64_t missing = Less(Wanted(), Usable(now_ns));
  std::vector<Ask> asks = Renewals(now_ns, lives);
  // The answer to each of these messages may be a loan, so all of them count for kLoansMax.
  std::size_t loans = borrowed_.size();
  for (std::uint32_t i = 1; missing > 0 && i < options_.node_count && loans < kLoansMax; ++i) {
    next_lender_ = next_lender_ % (options_.node_count - 1) + 1;
    const NodeRank lender((options_.self.value() + next_lender_) % options_.node_count);
    const bool has_lent = std::ranges::find(borrowed_, lender, &Loan::node) != borrowed_.end();
    if (has_lent || !lives(lender)) continue;
    asks.push_back({.node = lender, .ask = {.wanted = missing}});
    ++loans;
  }
  std::erase_if(asked_, [&](const auto& asked) { return asked.second + kLoanNs <= now_ns; });
  for (const Ask& ask : asks) asked_[ask.node] = now_ns;
  // Loans of which nothing is used, and that are not asked for again, are given up or have ended.
  std::erase_if(borrowed_, [&](const Loan& loan) {
    return loan.requests + loan.held == 0 && !asked_.contains(loan.node);
  });
  const bool ends_soon = leases_.ward_end_ns() < now_ns + kRenewNs;
  if (ends_soon && of_ward_ > 0) {
    asks.push_back({.node = leases_.ward(), .ask = {.held_as_heir = of_ward_}});
  }
  return asks;
}

RequestShare::Figures RequestShare::figures(std::int64_t now_ns) const {
  const std::int64_t waits_ns = short_since_ns_ ? now_ns - *short_since_ns_ : 0;
  return {.job = options_.job,
          .node = part_,
          .now = IsCapped() ? Usable(now_ns) : 0,
          .lent = Lent(now_ns),
          .borrowed = BorrowedAt(now_ns),
          .inherited = now_ns < leases_.ward_end_ns() ? of_ward_ : 0,
          .recent = recent_,
          .begun = begun_,
          .waited_ns = waited_ns_ + waits_ns};
}

}  // namespace forebay::stage

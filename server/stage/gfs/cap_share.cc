// A token bucket whose rate changes when loans and leases begin and end. Every call first goes
// through the ends since the last call, in their order, so the rate that counted at each time is
// used.
//
// No message has to arrive. If an answer is lost, nobody uses that loan until it ends. If a request
// is lost, the next Tick asks again, that node or others, as long as there is a need.
#include "server/stage/gfs/cap_share.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace forebay::stage {
namespace {

constexpr double kNsPerSecond = 1e9;
constexpr double kNsMax = 1e18;  // 30 years
// A loan is renewed when less than this is left of it. Tick comes once a second as a rule, so there
// is one attempt at least before the loan ends. If it comes late, the node does without it for a
// moment.
constexpr std::int64_t kRenewNs = 1'500'000'000;
// A node is short if its calls waited for this part of the time.
constexpr double kShortPart = 0.2;
// A node keeps, or wants, so many times what it has used lately, so that its use can grow a little
// until the next Tick.
constexpr double kHeadroom = 1.25;
// Smaller parts of a share are not worth a message.
constexpr double kSmallestPart = 0.01;
// The largest number of loans to one node that have not ended. There may be several, because
// renewals overlap. A node that asks again and again must not make this list long.
constexpr std::ptrdiff_t kLoansToNodeMax = 8;
// A node that has had enough for so many ticks lends.
constexpr int kTicksUntilLending = 2;

// Returns whether the first loan is at least as large as the second one for each cap.
bool Covers(const CapRates& larger, const CapRates& smaller) {
  return std::ranges::equal(larger, smaller, [](double a, double b) { return a >= b; });
}

}  // namespace

CapShare::CapShare(const CapShareOptions& options, std::int64_t now_ns)
    : options_(options),
      leases_(options.node_count, options.self, options.has_returned, now_ns),
      requests_({.job = options.requests,
                 .node_max = options.node_requests_max,
                 .node_count = options.node_count,
                 .self = options.self,
                 .has_returned = options.has_returned},
                leases_, now_ns),
      saved_at_ns_(now_ns),
      ticked_ns_(now_ns),
      whole_from_ns_(options.has_returned ? now_ns + kLoanNs : now_ns) {
  for (const Cap cap : kCaps) {
    At(cap).job = options_.caps[Index(cap)];
    At(cap).equal = At(cap).job / options_.node_count;
  }
}

// A node uses one of the loans that it got from another one at a time, so the largest counts.
double CapShare::LentTo(NodeRank borrower, Cap cap) const {
  double most = 0;
  for (const Loan& loan : lent_) {
    if (loan.node == borrower) most = std::max(most, loan.rates[Index(cap)]);
  }
  return most;
}

// The sums are kept, because each use of the GFS asks for the rate, and loans change about once a
// second.
void CapShare::Recount() {
  std::unordered_map<NodeRank, CapRates, IdHash> lent_to;
  for (const Loan& loan : lent_) {
    CapRates& most = lent_to[loan.node];
    for (const Cap cap : kCaps) {
      most[Index(cap)] = std::max(most[Index(cap)], loan.rates[Index(cap)]);
    }
  }
  lent_rates_ = {};
  borrowed_rates_ = {};
  for (const Cap cap : kCaps) {
    for (const auto& [node, most] : lent_to) lent_rates_[Index(cap)] += most[Index(cap)];
    for (const Loan& loan : borrowed_) borrowed_rates_[Index(cap)] += loan.rates[Index(cap)];
  }
}

// A node whose ward is lost gets the part of the ward's share that the ward loses without a lease,
// which is all but the fixed part.
// So the two together never have more than the share, also while the ward is only cut off.
double CapShare::Own(const State& state, std::int64_t at_ns) const {
  const double leased = state.equal * (1 - kFixedPart);
  return state.equal * kFixedPart + (at_ns < leases_.own_end_ns() ? leased : 0) +
         (at_ns < leases_.ward_end_ns() ? leased : 0);
}

double CapShare::Rate(Cap cap) const {
  double own = Own(At(cap), saved_at_ns_);
  // The killed daemon, in whose place this one is, may have lent all of its share but this part.
  if (saved_at_ns_ < whole_from_ns_) own *= kKeptPart;
  return own - lent_rates_[Index(cap)] + borrowed_rates_[Index(cap)];
}

// No loan or lease begins or ends between the last call and `now_ns`.
void CapShare::SaveUntil(std::int64_t now_ns) {
  const double seconds =
      static_cast<double>(std::max<std::int64_t>(0, now_ns - saved_at_ns_)) / kNsPerSecond;
  for (const Cap cap : kCaps) {
    if (!IsCapped(cap)) continue;
    const double rate = Rate(cap);
    At(cap).saved = std::min(At(cap).saved + rate * seconds, rate * kBurstSeconds);
  }
  saved_at_ns_ = std::max(saved_at_ns_, now_ns);
}

void CapShare::Advance(std::int64_t now_ns) {
  for (;;) {
    std::int64_t end_ns = now_ns;
    for (const Loan& loan : lent_) end_ns = std::min(end_ns, loan.end_ns);
    for (const Loan& loan : borrowed_) end_ns = std::min(end_ns, loan.end_ns);
    for (const std::int64_t end : {whole_from_ns_, leases_.own_end_ns(), leases_.ward_end_ns()}) {
      if (saved_at_ns_ < end) end_ns = std::min(end_ns, end);
    }
    SaveUntil(end_ns);
    const auto has_ended = [&](const Loan& loan) { return loan.end_ns <= end_ns; };
    if (std::erase_if(lent_, has_ended) + std::erase_if(borrowed_, has_ended) > 0) Recount();
    SaveUntil(end_ns);  // what is saved must not exceed what the new rate allows
    if (end_ns >= now_ns) return;
  }
}

bool CapShare::CanTake(Cap cap, double amount, std::int64_t now_ns) {
  return NsUntil(cap, amount, now_ns) == 0;
}

std::int64_t CapShare::NsUntil(Cap cap, double amount, std::int64_t now_ns) {
  if (!IsCapped(cap)) return 0;
  Advance(now_ns);
  const double rate = Rate(cap);
  const double missing = std::min(amount, rate * kBurstSeconds) - At(cap).saved;
  if (missing <= 0) return 0;
  // A large debt at a small rate is more than an integer holds.
  return static_cast<std::int64_t>(std::min(std::ceil(missing / rate * kNsPerSecond), kNsMax));
}

// Uses are counted also without a cap, for the figures.
void CapShare::Take(Cap cap, double amount, std::int64_t now_ns) {
  At(cap).used += amount;
  if (!IsCapped(cap)) return;
  Advance(now_ns);
  At(cap).saved -= amount;
}

// A node that was short lately keeps its whole share: it would have to borrow again what it lends.
double CapShare::Kept(const State& state, double own) const {
  if (state.ticks_with_enough < kTicksUntilLending) return own;
  return std::clamp(state.recent * kHeadroom, own * kKeptPart, own);
}

// It is not known how much a node that is short would use, because it has been held back. So it
// asks for the whole cap, and gets what the others can spare.
double CapShare::Wanted(const State& state) const {
  return state.is_short ? state.job : std::min(state.job, state.recent * kHeadroom);
}

// A node that has borrowed needs its own share, and lends nothing.
double CapShare::Lendable(Cap cap, NodeRank borrower) const {
  const State& state = At(cap);
  if (!IsCapped(cap) || saved_at_ns_ < whole_from_ns_ || borrowed_rates_[Index(cap)] > 0) {
    return 0;
  }
  // A node lends only what it has for as long as the loan lasts, even if no lease is extended.
  const double lasting = Own(state, saved_at_ns_ + kLoanNs);
  const double spare = lasting - Kept(state, lasting);
  const double of_others = lent_rates_[Index(cap)] - LentTo(borrower, cap);
  // Nodes that ask get equal parts. Loans that have not ended are not taken back.
  const double part = spare / static_cast<double>(std::max<std::size_t>(1, askers_.size()));
  return std::max(0.0, std::min(part, spare - of_others));
}

CapRates CapShare::Lend(NodeRank borrower, const CapRates& wanted, std::int64_t now_ns) {
  if (borrower == options_.self) return {};
  Advance(now_ns);
  std::erase_if(askers_, [&](const auto& asker) { return asker.second <= now_ns; });
  askers_[borrower] = now_ns + kLoanNs;
  Loan loan{.node = borrower, .rates = {}, .end_ns = now_ns + kLoanNs};
  for (const Cap cap : kCaps) {
    const double rate = std::min(wanted[Index(cap)], Lendable(cap, borrower));
    if (rate > At(cap).equal * kSmallestPart) loan.rates[Index(cap)] = rate;
  }
  if (loan.rates == CapRates{}) return {};
  // A loan that is larger than the new one for no cap has no effect any more (LentTo). Any other
  // one stays until it ends, because the borrower uses it if it does not get this answer.
  const auto is_to_borrower = [&](const Loan& old) { return old.node == borrower; };
  const auto is_covered = [&](const Loan& old) {
    return is_to_borrower(old) && Covers(loan.rates, old.rates);
  };
  if (std::ranges::count_if(lent_, is_to_borrower) - std::ranges::count_if(lent_, is_covered) >=
      kLoansToNodeMax) {
    return {};
  }
  std::erase_if(lent_, is_covered);
  lent_.push_back(loan);
  Recount();
  SaveUntil(now_ns);
  return loan.rates;
}

void CapShare::Borrowed(NodeRank lender, const CapRates& granted, std::int64_t asked_ns,
                        std::int64_t now_ns) {
  Advance(now_ns);
  Loan loan{.node = lender, .rates = {}, .end_ns = asked_ns + kLoanNs};
  for (const Cap cap : kCaps) {
    if (!IsCapped(cap)) continue;
    // No node has more than its share, which is as large as the one of this node, and what passes
    // on to it of another one.
    loan.rates[Index(cap)] =
        std::min(granted[Index(cap)], At(cap).equal * (2 - kFixedPart) * (1 - kKeptPart));
  }
  // An answer that was under way for as long as a loan lasts is of no use.
  if (loan.rates == CapRates{} || loan.end_ns <= now_ns) return;
  std::erase_if(borrowed_, [&](const Loan& old) { return old.node == lender; });
  borrowed_.push_back(loan);
  Recount();
  SaveUntil(now_ns);
}

bool CapShare::HasBorrowedFrom(NodeRank lender) const {
  return std::ranges::find(borrowed_, lender, &Loan::node) != borrowed_.end();
}

// Lenders whose loans end soon come first, then all others in turn. The next call goes on where
// this one ends, so in a large job all nodes are asked in the end, kAsksMax of them in each call.
std::vector<NodeRank> CapShare::LendersToAsk(bool asks_new_ones, std::int64_t now_ns,
                                             const std::function<bool(NodeRank)>& lives) {
  std::vector<NodeRank> lenders;
  for (const Loan& loan : borrowed_) {
    const bool is_asked =
        loan.end_ns - now_ns < kRenewNs && lenders.size() < kAsksMax && lives(loan.node);
    if (is_asked) lenders.push_back(loan.node);
  }
  if (!asks_new_ones) return lenders;
  for (std::uint32_t i = 1; i < options_.node_count && lenders.size() < kAsksMax; ++i) {
    next_lender_ = next_lender_ % (options_.node_count - 1) + 1;
    const NodeRank lender((options_.self.value() + next_lender_) % options_.node_count);
    if (!HasBorrowedFrom(lender) && lives(lender)) lenders.push_back(lender);
  }
  return lenders;
}

std::vector<CapShare::Ask> CapShare::Tick(std::int64_t now_ns,
                                          const std::function<bool(NodeRank)>& lives) {
  Advance(now_ns);
  const auto passed_ns = static_cast<double>(now_ns - ticked_ns_);
  if (passed_ns <= 0) return {};
  ticked_ns_ = now_ns;
  // What is asked of each lender whose loan ends soon, and of each other node: all that is missing,
  // because it is not known which of them can spare how much.
  CapRates of_renewals = {};
  CapRates of_others = {};
  bool renews = false;
  bool asks_new_ones = false;
  for (const Cap cap : kCaps) {
    const std::size_t index = Index(cap);
    State& state = At(cap);
    const double used = (state.used - state.used_at_tick) / passed_ns * kNsPerSecond;
    state.used_at_tick = state.used;
    // It grows at once and falls slowly, so that a short pause does not make a node lend.
    state.recent = std::max(used, state.recent / 2);
    state.is_short = static_cast<double>(state.waited_ns - state.waited_at_tick_ns) >=
                     kShortPart * passed_ns;
    state.waited_at_tick_ns = state.waited_ns;
    state.ticks_with_enough = state.is_short ? 0 : std::min(state.ticks_with_enough + 1, 1000);
    if (!IsCapped(cap)) continue;
    double lasting = 0;  // the rate of loans that do not end soon
    for (const Loan& loan : borrowed_) {
      if (loan.end_ns - now_ns >= kRenewNs) lasting += loan.rates[index];
    }
    const double here = Own(state, now_ns) - lent_rates_[index];
    const auto worth = [&](double rate) { return rate > state.equal * kSmallestPart ? rate : 0; };
    of_renewals[index] = worth(Wanted(state) - here - lasting);
    of_others[index] = worth(Wanted(state) - here - borrowed_rates_[index]);
    renews = renews || of_renewals[index] > 0;
    asks_new_ones = asks_new_ones || of_others[index] > 0;
  }
  std::vector<Ask> asks;
  if (options_.caps == CapRates{} && !requests_.IsCapped()) return asks;
  for (const ShareLeases::Ask& ask : leases_.Tick(now_ns, lives)) {
    asks.push_back({.node = ask.witness, .ask = {.lease = ask.share}});
  }
  for (const RequestShare::Ask& ask : requests_.Tick(now_ns, lives)) {
    asks.push_back({.node = ask.node, .ask = {.requests = ask.ask}});
  }
  if (!renews && !asks_new_ones) return asks;
  for (const NodeRank lender : LendersToAsk(asks_new_ones, now_ns, lives)) {
    asks.push_back({.node = lender,
                    .ask = {.wanted = HasBorrowedFrom(lender) ? of_renewals : of_others}});
  }
  return asks;
}

// A message may ask for several of these at once, although each one that Tick returns asks for one.
ShareAnswer CapShare::Answer(NodeRank from, const ShareAsk& ask, std::int64_t now_ns) {
  ShareAnswer answer;
  if (ask.lease) answer.is_leased = leases_.Grant(from, *ask.lease, now_ns);
  if (ask.wanted != CapRates{}) answer.lent = Lend(from, ask.wanted, now_ns);
  if (ask.requests != RequestLoanAsk{}) {
    answer.requests = requests_.Lend(from, ask.requests, now_ns);
  }
  return answer;
}

void CapShare::Answered(NodeRank node, const ShareAsk& ask, const ShareAnswer& answer,
                        std::int64_t asked_ns, std::int64_t now_ns) {
  Borrowed(node, answer.lent, asked_ns, now_ns);
  if (ask.lease && answer.is_leased) leases_.Granted(node, *ask.lease, asked_ns);
  // A message that only tells what an heir holds asks for no loan, and RequestShare waits for no
  // answer to it.
  if (ask.requests.wanted + ask.requests.held > 0) {
    requests_.Borrowed(node, answer.requests, asked_ns, now_ns);
  }
}

CapShare::Held CapShare::held(std::int64_t now_ns) const {
  return {.own = now_ns < leases_.own_end_ns(),
          .ward = now_ns < leases_.ward_end_ns(),
          .ward_rank = leases_.ward()};
}

CapShare::Figures CapShare::figures(Cap cap, std::int64_t now_ns) {
  Advance(now_ns);
  const State& state = At(cap);
  const bool inherits = IsCapped(cap) && held(now_ns).ward;
  return {.job_rate = state.job,
          .node_rate = state.equal,
          .rate = IsCapped(cap) ? Rate(cap) : 0,
          .lent = lent_rates_[Index(cap)],
          .borrowed = borrowed_rates_[Index(cap)],
          .inherited = inherits ? state.equal * (1 - kFixedPart) : 0,
          .inherited_from = inherits ? std::optional(leases_.ward()) : std::nullopt,
          .recent = state.recent,
          .used = state.used,
          .waited_s = static_cast<double>(state.waited_ns) / kNsPerSecond};
}

}  // namespace forebay::stage

// RequestShare: this node's share of the requests that all nodes of the job together may have in
// flight to the GFS (stage.job_requests). All nodes have equal parts, and lend each other what they
// do not use. The part of a lost node passes on to its heir, as that of other caps does (CapShare,
// which owns this class). This class has no clock, no thread and no network: times are arguments.
//
// A request cannot be taken back: the GFS may take long to answer it. So, unlike a rate, a loan
// does not end by time alone. The node that borrows says each second how many of its requests are
// on the loan (`held`), until they have ended. The lender does without these in any case. If it
// needs its part again, it does not extend the loan, and then no request begins on it any more. The
// heir of a lost node does likewise when that node is back.
//
// So all nodes together never have more requests in flight than the cap, as long as these messages
// get through. If none gets through for kLoanNs, or a lender loses its part to its heir, then
// requests on the loan that are still not answered, half a second or more after they began, exceed
// the cap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "proto/contract/ids.h"
#include "server/stage/gfs/share_leases.h"

namespace forebay::stage {

// What a node tells another one about requests in flight. All 0: nothing.
struct RequestLoanAsk {
  std::uint64_t wanted = 0;  // asks for a loan of at most so many
  std::uint64_t held = 0;    // in flight now on a loan of that node
  std::uint64_t held_as_heir = 0;  // in flight now on the part of that node, which was lost
  bool operator==(const RequestLoanAsk&) const = default;
};

struct RequestShareOptions {
  std::uint64_t job = 0;       // the cap: requests of all nodes together; 0: none
  std::uint64_t node_max = 0;  // more than this, one node never has in flight (stage.requests)
  std::uint32_t node_count = 1;
  NodeRank self = NodeRank(0);
  bool has_returned = false;  // as in CapShareOptions
};

// Not thread-safe.
class RequestShare {
 public:
  // How long a loan lasts that is not renewed.
  static constexpr std::int64_t kLoanNs = 3'000'000'000;
  // Nodes that this node has loans from at a time. It renews all of them in each call of Tick.
  static constexpr std::size_t kLoansMax = 16;

  // `leases` is borrowed.
  RequestShare(const RequestShareOptions& options, const ShareLeases& leases, std::int64_t now_ns);

  bool IsCapped() const { return options_.job > 0; }
  // A request begins, if so many more than `kept` may begin now. If none may, the node counts as
  // short until one begins. Always true without a cap.
  bool TryBegin(std::uint64_t kept, std::int64_t now_ns);
  void End();  // of one that has begun

  struct Ask {
    NodeRank node = NodeRank(0);
    RequestLoanAsk ask = {};
  };
  // Call about once a second. Returns what to tell and to ask other nodes now. `lives` says which
  // nodes answer. Until the answer comes, no more than `held` are used of a loan.
  std::vector<Ask> Tick(std::int64_t now_ns, const std::function<bool(NodeRank)>& lives);
  // What another node says. Returns how many it may have in flight on the loan that it asks for.
  // This node does without these, and without what is held, from now on. Nothing is lent to a node
  // that says it is this one.
  std::uint64_t Lend(NodeRank borrower, const RequestLoanAsk& ask, std::int64_t now_ns);
  // The answer of `lender` to what was asked at `asked_ns`.
  void Borrowed(NodeRank lender, std::uint64_t granted, std::int64_t asked_ns,
                std::int64_t now_ns);

  struct Figures {
    std::uint64_t job = 0;   // the cap; 0: none
    std::uint64_t node = 0;  // an equal part of it
    std::uint64_t now = 0;   // that may be in flight now
    std::uint64_t lent = 0;
    std::uint64_t borrowed = 0;
    std::uint64_t inherited = 0;  // of the part of a lost node, without loans
    std::uint64_t recent = 0;     // the most in flight lately
    std::uint64_t begun = 0;      // since the start
    std::int64_t waited_ns = 0;   // in which one or more requests waited for the cap
  };
  Figures figures(std::int64_t now_ns) const;

 private:
  struct Loan {
    NodeRank node = NodeRank(0);  // the other one
    std::uint64_t requests = 0;   // that may begin on it, or are lent
    std::uint64_t held = 0;       // borrowed: that are on it, as the lender is told
    std::int64_t end_ns = 0;
  };

  std::uint64_t LentTo(NodeRank borrower, std::int64_t now_ns) const;
  std::uint64_t Lent(std::int64_t now_ns) const;
  // Of loans that end after `at_ns`.
  std::uint64_t BorrowedAt(std::int64_t at_ns) const;
  // This node's own part, by the leases that it has at `at_ns`.
  std::uint64_t OwnPart(std::int64_t at_ns) const;
  // With the part of its ward, without loans.
  std::uint64_t Own(std::int64_t at_ns) const;
  std::uint64_t OwnNotLent(std::int64_t now_ns) const;
  // What this node may have in flight at `now_ns`.
  std::uint64_t Usable(std::int64_t now_ns) const;
  std::uint64_t Lendable(NodeRank borrower, std::int64_t now_ns) const;
  // What this node believes that the borrower holds of it.
  std::uint64_t Believed(NodeRank borrower, std::uint64_t held, std::int64_t now_ns) const;
  // What it would have in flight if it could.
  std::uint64_t Wanted() const;
  void CountWait(std::int64_t now_ns);
  void EndLoans(std::int64_t now_ns);
  // Parts of Tick.
  void LookAtWait(std::int64_t now_ns);
  void LookAtWard(std::int64_t now_ns);
  std::vector<Ask> Renewals(std::int64_t now_ns, const std::function<bool(NodeRank)>& lives);

  const RequestShareOptions options_;
  const ShareLeases& leases_;
  const std::uint64_t part_;          // of this node
  const std::uint64_t leased_;        // of each node's part: what needs a lease
  const std::int64_t whole_from_ns_;  // until then, this node uses one request and lends nothing
  std::uint64_t in_flight_ = 0;
  std::uint64_t peak_ = 0;  // of in_flight_, since the last tick
  std::uint64_t recent_ = 0;
  std::uint64_t begun_ = 0;
  std::optional<std::int64_t> short_since_ns_;  // a request waits since then
  std::int64_t waited_ns_ = 0;
  std::int64_t waited_at_tick_ns_ = 0;
  std::int64_t ticked_ns_;
  // Ticks since it was short. 0 at the start, because a node does not know yet what it will need.
  int ticks_with_enough_ = 0;
  bool is_short_ = false;  // a request waited for a large part of the time before the last tick
  std::vector<Loan> lent_;  // renewals overlap: of several to a node, the largest counts
  std::vector<Loan> borrowed_;  // one from each node
  // The time of the last request to a node, while it is not answered. An answer to an earlier one
  // is dropped: the lender may have taken back since what that said.
  std::unordered_map<NodeRank, std::int64_t, IdHash> asked_;
  // Nodes that have asked for loans lately, and until when they count: they share what there is.
  std::unordered_map<NodeRank, std::int64_t, IdHash> askers_;
  std::uint32_t next_lender_ = 0;  // distance from this node
  // Of the part of its ward, what this node uses. Once the lease is soon over, no more than it has
  // told the ward.
  std::uint64_t of_ward_;
  // What the heir of this node has told it likewise, and until when that counts.
  std::uint64_t held_by_heir_ = 0;
  std::int64_t held_by_heir_end_ns_ = 0;
};

}  // namespace forebay::stage

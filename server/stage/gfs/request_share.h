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

// What a node tells another node, the receiver, about its requests in flight. If all members are 0,
// it has nothing to tell.
struct RequestLoanAsk {
  std::uint64_t wanted = 0;  // the size of the loan that the node asks for, at most
  std::uint64_t held = 0;    // requests in flight now on a loan from the receiver
  // Requests in flight now on the part of the receiver, which was lost and whose heir the node is.
  std::uint64_t held_as_heir = 0;
  bool operator==(const RequestLoanAsk&) const = default;
};

struct RequestShareOptions {
  std::uint64_t job = 0;       // the cap on requests of all nodes together; 0: there is none
  std::uint64_t node_max = 0;  // no node ever has more than this in flight (stage.requests)
  std::uint32_t node_count = 1;
  NodeRank self = NodeRank(0);
  bool has_returned = false;  // this daemon takes the place of a killed one (CapShareOptions)
};

// Not thread-safe.
class RequestShare {
 public:
  // How long a loan lasts if it is not renewed.
  static constexpr std::int64_t kLoanNs = 3'000'000'000;
  // The largest number of nodes from which this node has loans at a time. Each call of Tick may
  // renew all of them, so this also bounds its messages.
  static constexpr std::size_t kLoansMax = 16;

  // `leases` is borrowed.
  RequestShare(const RequestShareOptions& options, const ShareLeases& leases, std::int64_t now_ns);

  bool IsCapped() const { return options_.job > 0; }
  // Begins a request and returns true if more than `kept` requests may begin now: so many are kept
  // for requests that are more urgent. If none at all may begin, the node counts as short until one
  // begins. Without a cap, each request begins.
  bool TryBegin(std::uint64_t kept, std::int64_t now_ns);
  // Ends a request that TryBegin has begun.
  void End();

  struct Ask {
    NodeRank node = NodeRank(0);
    RequestLoanAsk ask = {};
  };
  // Call about once a second. Returns what to tell and to ask other nodes now. `lives` says which
  // nodes answer. Until the answer to a message comes, this node has no more requests in flight on
  // that loan than the `held` of the message.
  std::vector<Ask> Tick(std::int64_t now_ns, const std::function<bool(NodeRank)>& lives);
  // Takes the message `ask` of the node `borrower`. Returns how many requests that node may have in
  // flight on the loan that it asks for. From now on, for kLoanNs, this node does without them, or
  // without the requests that the borrower holds, if these are more. A node that says it is this
  // one gets nothing.
  std::uint64_t Lend(NodeRank borrower, const RequestLoanAsk& ask, std::int64_t now_ns);
  // Takes the answer of `lender` to the message that was sent at `asked_ns`.
  void Borrowed(NodeRank lender, std::uint64_t granted, std::int64_t asked_ns,
                std::int64_t now_ns);

  struct Figures {
    std::uint64_t job = 0;   // the cap; 0: there is none
    std::uint64_t node = 0;  // this node's equal part of the cap
    std::uint64_t now = 0;   // how many requests of this node may be in flight now
    std::uint64_t lent = 0;
    std::uint64_t borrowed = 0;
    // How many this node may have in flight on the part of a lost node, if it lends none of them.
    std::uint64_t inherited = 0;
    std::uint64_t recent = 0;    // the largest number in flight lately
    std::uint64_t begun = 0;     // requests since the start
    std::int64_t waited_ns = 0;  // the time in which one or more requests waited for the cap
  };
  Figures figures(std::int64_t now_ns) const;

 private:
  // A loan that this node has given or got.
  struct Loan {
    NodeRank node = NodeRank(0);  // the other node
    std::uint64_t requests = 0;   // how many are lent, or may be in flight on a borrowed loan
    // Only of a borrowed loan: how many may be in flight on it even if it is not extended.
    std::uint64_t held = 0;
    std::int64_t end_ns = 0;
  };

  // Returns how many requests this node does without for `borrower` at `now_ns`.
  std::uint64_t LentTo(NodeRank borrower, std::int64_t now_ns) const;
  // Returns the sum of LentTo of all nodes.
  std::uint64_t Lent(std::int64_t now_ns) const;
  // Returns the requests of all borrowed loans that end after `at_ns`.
  std::uint64_t BorrowedAt(std::int64_t at_ns) const;
  // Returns how many requests of its own part this node has at `at_ns`, if its lease is not
  // extended until then. What its heir still holds of the part does not count.
  std::uint64_t OwnPart(std::int64_t at_ns) const;
  // Returns OwnPart and what this node has of its ward's part. Loans do not count.
  std::uint64_t Own(std::int64_t at_ns) const;
  // Returns what is left of Own after this node's loans to others; one at least.
  std::uint64_t OwnNotLent(std::int64_t now_ns) const;
  // Returns how many requests this node may have in flight at `now_ns`, borrowed ones included.
  std::uint64_t Usable(std::int64_t now_ns) const;
  // Returns how many requests this node can lend to `borrower`, in place of earlier loans to it.
  std::uint64_t Lendable(NodeRank borrower, std::int64_t now_ns) const;
  // Returns how many requests this node takes to be in flight on its loans to `borrower`, which
  // says that there are `held`: no more than this node can have lent to it.
  std::uint64_t Believed(NodeRank borrower, std::uint64_t held, std::int64_t now_ns) const;
  // Returns how many requests this node needs: as many as lately, or if it is short, all that it
  // can get and use.
  std::uint64_t Wanted() const;
  // Adds the time for which a request has waited until now to waited_ns_.
  void CountWait(std::int64_t now_ns);
  void EndLoans(std::int64_t now_ns);
  // The steps of Tick, in this order. LookAtWait finds out whether this node is short, LookAtWard
  // how much of its ward's part it may use, and Renewals which loans to extend.
  void LookAtWait(std::int64_t now_ns);
  void LookAtWard(std::int64_t now_ns);
  std::vector<Ask> Renewals(std::int64_t now_ns, const std::function<bool(NodeRank)>& lives);

  const RequestShareOptions options_;
  const ShareLeases& leases_;
  const std::uint64_t part_;    // this node's equal part of the cap
  const std::uint64_t leased_;  // how many requests of each node's part need a lease
  // Before this time, this node uses one request of its own and lends nothing.
  const std::int64_t whole_from_ns_;
  std::uint64_t in_flight_ = 0;
  std::uint64_t peak_ = 0;  // the largest in_flight_ since the last tick
  std::uint64_t recent_ = 0;
  std::uint64_t begun_ = 0;
  // Set while a request waits: the time until which waited_ns_ counts its wait.
  std::optional<std::int64_t> short_since_ns_;
  std::int64_t waited_ns_ = 0;
  std::int64_t waited_at_tick_ns_ = 0;
  std::int64_t ticked_ns_;
  // Ticks since it was short. 0 at the start, because a node does not know yet what it will need.
  int ticks_with_enough_ = 0;
  bool is_short_ = false;  // a request waited for a large part of the time before the last tick
  std::vector<Loan> lent_;      // renewals overlap, so of several to a node the largest counts
  std::vector<Loan> borrowed_;  // at most one from each node
  // The time of the last message to a node, until it is answered. An answer to an earlier message
  // is dropped, because the lender may have taken back since then what that answer granted.
  std::unordered_map<NodeRank, std::int64_t, IdHash> asked_;
  // Nodes that have asked for loans lately, and until when they count. They share what can be lent.
  std::unordered_map<NodeRank, std::int64_t, IdHash> askers_;
  // Where the search for lenders goes on, as a distance in ranks from this node.
  std::uint32_t next_lender_ = 0;
  // How many requests of its ward's part this node may use. From shortly before the end of the
  // lease of that part, these are no more than it has told the ward.
  std::uint64_t of_ward_;
  // How many requests of this node's part its heir still uses, as the heir has told this node, and
  // until when that number counts.
  std::uint64_t held_by_heir_ = 0;
  std::int64_t held_by_heir_end_ns_ = 0;
};

}  // namespace forebay::stage

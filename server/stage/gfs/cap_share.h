// CapShare: this node's share of the caps that the job has on its use of the GFS: bytes/s, opens/s,
// and requests in flight, which RequestShare counts by rules of its own. All nodes have equal
// shares, and lend each other what they do not use. The share of a lost node passes on to one other
// node (ShareLeases), all but kFixedPart of it. So the rates of all nodes together never exceed a
// cap, whatever messages or nodes are lost, and no node is a master. This class has no clock, no
// thread and no network: times are arguments.
//
// A loan ends by time alone. The lender does without it from the moment at which it grants it, for
// kLoanNs. The borrower counts kLoanNs from the moment at which it asked, which is earlier, so it
// stops first. A node lends of its share, or of that of a lost node, only what it has for longer
// than that.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "proto/contract/ids.h"
#include "server/stage/gfs/request_share.h"
#include "server/stage/gfs/share_leases.h"

namespace forebay::stage {

// What is capped: bytes that are read; opens, stats by path and listings of directories.
enum class Cap : std::uint8_t { kBytes, kOpens };
inline constexpr std::array<Cap, 2> kCaps = {Cap::kBytes, Cap::kOpens};
// Per second, by Cap.
using CapRates = std::array<double, kCaps.size()>;

// A request of one node to another one for a loan, a lease or both, and the answer to it.
struct ShareAsk {
  CapRates wanted = {};  // the loan that the node asks for, at most
  // The node whose share the lease is for: the one that asks, or its ward. The node that is asked
  // is a witness of that share. Unset: no lease is asked for.
  std::optional<NodeRank> lease = {};
  RequestLoanAsk requests = {};
  bool operator==(const ShareAsk&) const = default;
};
struct ShareAnswer {
  CapRates lent = {};
  bool is_leased = false;
  std::uint64_t requests = 0;  // how many may be in flight on the loan (RequestShare::Lend)
  bool operator==(const ShareAnswer&) const = default;
};

struct CapShareOptions {
  CapRates caps = {};          // of the job; 0: there is none
  std::uint64_t requests = 0;  // the cap of the job on requests in flight; 0: there is none
  std::uint64_t node_requests_max = 0;  // RequestShareOptions::node_max
  std::uint32_t node_count = 1;
  NodeRank self = NodeRank(0);
  // This daemon takes the place of a killed one, which may have lent parts of its share. They are
  // not used before those loans have ended.
  bool has_returned = false;
};

class CapShare {
 public:
  // How long a loan lasts. The share of a node that suddenly needs it is back after this time.
  static constexpr std::int64_t kLoanNs = 3'000'000'000;
  // For how long a node that uses nothing saves up its rate. Caps must hold within 5 % in every
  // second, which is 0.05 s; the difference is for reads that begin later than they were allowed.
  static constexpr double kBurstSeconds = 0.04;
  // The part of its share that a node never lends, so that its own next request does not wait long.
  static constexpr double kKeptPart = 1.0 / 16;
  // The part of its share that a node has without a lease, in a job of three nodes or more: also
  // if it reaches no other node.
  static constexpr double kFixedPart = 1.0 / 4;
  // Nodes that are asked for loans in one call of Tick.
  static constexpr std::size_t kAsksMax = 16;

  CapShare(const CapShareOptions& options, std::int64_t now_ns);

  bool IsCapped(Cap cap) const { return At(cap).job > 0; }
  // Returns whether `amount` may be used now. An amount above what can be saved up may be used as
  // soon as that is saved up; the rest becomes a debt, for which later uses wait.
  bool CanTake(Cap cap, double amount, std::int64_t now_ns);
  void Take(Cap cap, double amount, std::int64_t now_ns);
  // Returns how long it takes until CanTake is true, if the rate stays as it is.
  std::int64_t NsUntil(Cap cap, double amount, std::int64_t now_ns);
  // Adds a time for which calls have waited for this cap. The times of several calls add up.
  void AddWait(Cap cap, std::int64_t waited_ns) { At(cap).waited_ns += waited_ns; }

  struct Ask {
    NodeRank node = NodeRank(0);
    ShareAsk ask = {};
  };
  // Call about once a second. Returns the nodes to ask for loans and leases now. `lives` says which
  // nodes answer.
  std::vector<Ask> Tick(std::int64_t now_ns, const std::function<bool(NodeRank)>& lives);
  // Takes the message of the node `from`, and returns the answer to it.
  ShareAnswer Answer(NodeRank from, const ShareAsk& ask, std::int64_t now_ns);
  // Takes the answer of `node` to the message `ask`, which was sent at `asked_ns`.
  void Answered(NodeRank node, const ShareAsk& ask, const ShareAnswer& answer,
                std::int64_t asked_ns, std::int64_t now_ns);

  // Parts of Answer and Answered. Lend returns what `borrower` gets, which this node does without
  // from now on; nothing if it says that it is this node. What was borrowed takes the place of an
  // earlier loan from that node.
  CapRates Lend(NodeRank borrower, const CapRates& wanted, std::int64_t now_ns);
  void Borrowed(NodeRank lender, const CapRates& granted, std::int64_t asked_ns,
                std::int64_t now_ns);

  // Which shares this node has now.
  struct Held {
    bool own = false;   // whole, and not only kFixedPart of it
    bool ward = false;  // that of the lost node `ward`, but for kFixedPart of it
    NodeRank ward_rank = NodeRank(0);
  };
  Held held(std::int64_t now_ns) const;

  struct Figures {
    double job_rate = 0;   // the cap; 0: none
    double node_rate = 0;  // an equal part of it
    double rate = 0;       // that it may use now
    double lent = 0;
    double borrowed = 0;
    double inherited = 0;  // of the share of the lost node `inherited_from`, without loans
    std::optional<NodeRank> inherited_from = {};  // unset: this node is nobody's heir now
    double recent = 0;     // used per second, up to the last call of Tick
    double used = 0;       // since the start
    double waited_s = 0;   // calls have waited for it, in sum, since the start
  };
  Figures figures(Cap cap, std::int64_t now_ns);

  RequestShare& requests() { return requests_; }
  const RequestShare& requests() const { return requests_; }

 private:
  struct State {
    double job = 0;
    double equal = 0;  // the share of each node: job / node_count
    double saved = 0;  // may be used at once; negative: a debt
    double used = 0;
    double used_at_tick = 0;
    double recent = 0;  // used per second lately
    std::int64_t waited_ns = 0;
    std::int64_t waited_at_tick_ns = 0;
    bool is_short = false;  // calls waited for a large part of the time before the last tick
    // Ticks since it was short. 0 at the start, because a node does not know yet what it will need.
    int ticks_with_enough = 0;
  };
  struct Loan {
    NodeRank node = NodeRank(0);  // the other one
    CapRates rates = {};
    std::int64_t end_ns = 0;
  };

  static std::size_t Index(Cap cap) { return static_cast<std::size_t>(cap); }
  State& At(Cap cap) { return states_[Index(cap)]; }
  const State& At(Cap cap) const { return states_[Index(cap)]; }
  // Adds what has become usable since the last call.
  void Advance(std::int64_t now_ns);
  void SaveUntil(std::int64_t now_ns);
  // Adds up the loans, after one began or ended.
  void Recount();
  double LentTo(NodeRank borrower, Cap cap) const;
  // The rate that this node has at `at_ns` without loans, if no lease is extended until then.
  double Own(const State& state, std::int64_t at_ns) const;
  double Rate(Cap cap) const;
  // The part of the rate `own` that this node does not lend, because it needs it.
  double Kept(const State& state, double own) const;
  // Returns the rate that this node would use if it could.
  double Wanted(const State& state) const;
  double Lendable(Cap cap, NodeRank borrower) const;
  bool HasBorrowedFrom(NodeRank lender) const;
  std::vector<NodeRank> LendersToAsk(bool asks_new_ones, std::int64_t now_ns,
                                     const std::function<bool(NodeRank)>& lives);

  const CapShareOptions options_;
  ShareLeases leases_;
  RequestShare requests_;
  std::array<State, kCaps.size()> states_;
  std::int64_t saved_at_ns_;
  std::int64_t ticked_ns_;
  std::int64_t whole_from_ns_;  // until then, only the part that is never lent is this node's
  std::vector<Loan> lent_;      // renewals overlap: there may be several to a node
  std::vector<Loan> borrowed_;  // one from each node
  CapRates lent_rates_ = {};    // of all loans
  CapRates borrowed_rates_ = {};
  // Nodes that have asked lately, and until when they count: they share what there is.
  std::unordered_map<NodeRank, std::int64_t, IdHash> askers_;
  std::uint32_t next_lender_ = 0;  // distance from this node
};

}  // namespace forebay::stage

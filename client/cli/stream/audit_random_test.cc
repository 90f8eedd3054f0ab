// Random histories of a job that is stopped and restored, each audited with clocks that are right
// and with clocks that are not, whole and with a batch lost. What the audit says of them is
// compared with what is true, and with what holds in every order that files and tokens allow, which
// are tried one by one.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "client/cli/stream/delivery_history.h"
#include "client/cli/testing/logged_opening.h"
#include "proto/contract/order_steps.h"

namespace forebay::cli::audit_random_test {

constexpr std::uint64_t kEpochs = 2;
constexpr std::uint64_t kEnd = kEpochs * kLoggedSteps;
constexpr std::uint64_t kHistories = 150;

// An opening, in the order of time, and the steps whose batches its log has.
struct LoggedRun {
  LoggedStream stream;
  std::string log;
  std::vector<std::uint64_t> steps;
};
using History = std::vector<LoggedRun>;

class RandomHistory {
 public:
  explicit RandomHistory(std::uint64_t seed) : random_(seed) {}

  std::uint64_t Below(std::uint64_t end) { return random_() % end; }

  // A job that ends at last. It is restored as a whole, also on another number of ranks, or one
  // rank is, from any step that was delivered.
  History Make() {
    shares_files_ = Below(2) == 0;
    keeps_ranks_ = Below(2) == 0;
    Open(1 + Below(2), 0);
    for (std::uint64_t restarts = Below(3); restarts > 0; --restarts) {
      const std::uint64_t to = std::min(kEnd, LeastReached() + Below(kEnd / 2));
      for (const std::size_t i : live_) Deliver(i, std::min(kEnd, to + Below(3)));
      if (Below(3) == 0) {
        const std::size_t rank = Below(live_.size());
        const std::uint64_t delivered = history_[live_[rank]].stream.end - job_first_;
        live_[rank] = OpenOne(live_.size(), rank, job_first_ + Below(delivered + 1));
      } else {
        const bool begins_again = Below(4) == 0;
        Open(keeps_ranks_ ? live_.size() : 1 + Below(2),
             begins_again ? 0 : Below(LeastReached() + 1));
      }
    }
    for (const std::size_t i : live_) Deliver(i, kEnd);
    return history_;
  }
  // Every rank has one file, and their number stays, so no clock is needed.
  bool NeedsNoClock() const { return shares_files_ && keeps_ranks_; }

 private:
  std::uint64_t LeastReached() const {
    std::uint64_t least = kEnd;
    for (const std::size_t i : live_) least = std::min(least, history_[i].stream.end);
    return least;
  }
  void Open(std::uint64_t ranks, std::uint64_t first) {
    live_.clear();
    job_first_ = first;
    for (std::uint64_t rank = 0; rank < ranks; ++rank) {
      live_.push_back(OpenOne(ranks, rank, first));
    }
  }
  std::size_t OpenOne(std::uint64_t ranks, std::uint64_t rank, std::uint64_t first) {
    const std::size_t i = history_.size();
    history_.push_back({.stream = {.ranks = ranks, .rank = rank, .first = first, .end = first,
                                   .opened = 10 + i, .epochs = kEpochs},
                        .log = shares_files_ ? std::to_string(rank) : "run " + std::to_string(i),
                        .steps = {}});
    return i;
  }
  void Deliver(std::size_t i, std::uint64_t end) {
    LoggedRun& run = history_[i];
    for (; run.stream.end < end; ++run.stream.end) run.steps.push_back(run.stream.end);
  }

  std::mt19937_64 random_;
  bool shares_files_ = false, keeps_ranks_ = false;
  History history_;
  std::vector<std::size_t> live_;  // by rank
  // Where the job began on this number of ranks. Other ranks do not deliver again what is before
  // it.
  std::uint64_t job_first_ = 0;
};

StreamVerdict Audit(const History& history, bool require_complete) {
  std::map<std::string, std::string> logs;
  for (const LoggedRun& run : history) {
    std::string& log = logs[run.log];
    log += LoggedHeader(run.stream);
    for (const std::uint64_t step : run.steps) log += LoggedBatchOf(run.stream, step);
  }
  DeliveryHistory audit;
  for (const auto& [name, text] : logs) {
    std::istringstream log(text);
    EXPECT_TRUE(audit.Read(name, log).has_value());
  }
  return audit.Judge(require_complete).at(0);
}

// What is true if the openings came in a certain order.
class Truth {
 public:
  Truth(const History& history, const std::vector<std::size_t>& order) {
    for (std::size_t at = 0; at < order.size(); ++at) {
      const LoggedStream& stream = history[order[at]].stream;
      std::uint64_t taken_back = kEnd;
      for (std::size_t later = at + 1; later < order.size(); ++later) {
        const LoggedStream& other = history[order[later]].stream;
        if (other.ranks != stream.ranks || other.rank == stream.rank) {
          taken_back = std::min(taken_back, other.first);
        }
      }
      for (const std::uint64_t step : history[order[at]].steps) {
        if (step < taken_back) Count(stream, step);
      }
    }
  }

  bool IsWhole() const { return std::ranges::all_of(count_, [](int n) { return n == 1; }); }
  // Whether it is whole as far as the last step that all have, and a run was stopped there.
  bool IsUnfinished() const {
    if (std::ranges::any_of(count_, [](int n) { return n > 1; })) return false;
    std::size_t whole_end = 0;  // behind the last step that is whole, or the epoch that is over
    for (std::size_t step = 0; step < kEnd; ++step) {
      const auto begin = count_.begin() + static_cast<std::ptrdiff_t>(step * kLoggedBatch);
      if (std::all_of(begin, begin + kLoggedBatch, [](int n) { return n == 1; })) {
        whole_end = (step + 1) * kLoggedBatch;
      }
      // Something of the next epoch was consumed, or the last positions of this one.
      const bool ends_epoch = (step + 1) % kLoggedSteps == 0 && begin[kLoggedBatch - 1] == 1;
      const bool begins_epoch = std::any_of(begin, begin + kLoggedBatch, [](int n) { return n; });
      if (ends_epoch) whole_end = (step + 1) * kLoggedBatch;
      if (begins_epoch) {
        whole_end = std::max(whole_end, step / kLoggedSteps * kLoggedSamples);
      }
    }
    return std::all_of(count_.begin(), count_.begin() + static_cast<std::ptrdiff_t>(whole_end),
                       [](int n) { return n == 1; });
  }

 private:
  void Count(const LoggedStream& stream, std::uint64_t step) {
    const std::uint64_t share = kLoggedBatch / stream.ranks;
    const std::uint64_t first = step * kLoggedBatch + stream.rank * share;
    for (std::uint64_t position = first; position < first + share; ++position) ++count_[position];
  }

  std::array<int, kEnd * kLoggedBatch> count_ = {};
};

// All orders that files and tokens allow.
class PermittedOrders {
 public:
  explicit PermittedOrders(const History& history) : history_(history) { Extend(); }

  bool are_all_whole = true, is_any_whole = false, is_any_unfinished = false;

 private:
  void Extend() {
    if (order_.size() == history_.size()) {
      const Truth truth(history_, order_);
      are_all_whole = are_all_whole && truth.IsWhole();
      is_any_whole = is_any_whole || truth.IsWhole();
      is_any_unfinished = is_any_unfinished || truth.IsUnfinished();
      return;
    }
    for (std::size_t i = 0; i < history_.size(); ++i) {
      if (!MayBeNext(i)) continue;
      order_.push_back(i);
      Extend();
      order_.pop_back();
    }
  }
  bool IsIn(std::size_t i) const { return std::ranges::count(order_, i) != 0; }
  bool MayBeNext(std::size_t i) const {
    if (IsIn(i)) return false;
    for (std::size_t before = 0; before < i; ++before) {
      if (history_[before].log == history_[i].log && !IsIn(before)) return false;
    }
    const LoggedStream& stream = history_[i].stream;
    if (Reached(stream.ranks, stream.rank) >= stream.first) return true;
    for (const std::uint64_t ranks : {1U, 2U}) {
      std::uint64_t together = kEnd;
      bool has_logs = false;
      for (const LoggedRun& run : history_) {
        if (run.stream.ranks != ranks) continue;
        has_logs = true;
        together = std::min(together, Reached(ranks, run.stream.rank));
      }
      if (has_logs && together >= stream.first) return true;
    }
    return false;
  }
  std::uint64_t Reached(std::uint64_t ranks, std::uint64_t rank) const {
    std::uint64_t reached = 0;
    for (const std::size_t i : order_) {
      const LoggedStream& stream = history_[i].stream;
      if (stream.ranks != ranks || stream.rank != rank) continue;
      for (const std::uint64_t step : history_[i].steps) reached = std::max(reached, step + 1);
      reached = std::max(reached, stream.first);
    }
    return reached;
  }

  const History& history_;
  std::vector<std::size_t> order_;
};

bool IsOk(const StreamVerdict& verdict) {
  return verdict.outcome == Outcome::kWhole || verdict.outcome == Outcome::kUnfinished;
}

// Whatever clocks say, the audit says no more than is so in every order.
void ExpectNoMoreThanProven(const History& history) {
  const PermittedOrders orders(history);
  const StreamVerdict verdict = Audit(history, /*require_complete=*/true);
  EXPECT_TRUE(!IsOk(verdict) || verdict.rests_on_clocks || orders.are_all_whole);
  EXPECT_FALSE(verdict.outcome == Outcome::kViolation && orders.is_any_whole);
  const StreamVerdict lenient = Audit(history, /*require_complete=*/false);
  EXPECT_TRUE(lenient.outcome != Outcome::kWhole || lenient.rests_on_clocks ||
              orders.are_all_whole);
  EXPECT_FALSE(lenient.outcome == Outcome::kViolation && orders.is_any_unfinished);
}

class AuditRandomTest : public ::testing::Test {
 protected:
  void ForEach(const auto& test) const {
    for (std::uint64_t seed = 0; seed < kHistories; ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      RandomHistory random(seed);
      const History history = random.Make();
      test(random, history);
      if (HasFailure()) return;
    }
  }
  // Openings of one file keep their order whatever their clocks say.
  static History WithWrongClocks(RandomHistory& random, History history) {
    std::uint64_t n = 0;  // no two openings have one header
    for (LoggedRun& run : history) run.stream.opened = 10 + random.Below(1000) * 100 + n++;
    return history;
  }
  // Removes a batch of the last opening, from which no other one takes anything back.
  static bool LoseABatch(RandomHistory& random, History& history) {
    LoggedRun& last = history.back();
    if (last.steps.empty()) return false;
    last.steps.erase(last.steps.begin() +
                     static_cast<std::ptrdiff_t>(random.Below(last.steps.size())));
    return true;
  }
};

TEST_F(AuditRandomTest, AnExactHistoryWithRightClocksIsWhole) {
  std::uint64_t rests = 0;
  ForEach([&rests](const RandomHistory& random, const History& history) {
    const StreamVerdict verdict = Audit(history, /*require_complete=*/true);
    EXPECT_EQ(verdict.outcome, Outcome::kWhole);
    EXPECT_FALSE(random.NeedsNoClock() && verdict.rests_on_clocks);
    rests += verdict.rests_on_clocks ? 1 : 0;
    ExpectNoMoreThanProven(history);
  });
  EXPECT_GT(rests, 0U);
  EXPECT_LT(rests, kHistories / 2) << "files and tokens order most restarts";
}

TEST_F(AuditRandomTest, AnExactHistoryWithWrongClocksIsNoViolation) {
  std::uint64_t undecided = 0;
  ForEach([&undecided](RandomHistory& random, const History& history) {
    const History wrong = WithWrongClocks(random, history);
    const StreamVerdict verdict = Audit(wrong, /*require_complete=*/true);
    EXPECT_NE(verdict.outcome, Outcome::kViolation);
    EXPECT_TRUE(!random.NeedsNoClock() || verdict.outcome == Outcome::kWhole);
    undecided += verdict.outcome == Outcome::kUndecided ? 1 : 0;
    ExpectNoMoreThanProven(wrong);
  });
  EXPECT_GT(undecided, 0U);
}

TEST_F(AuditRandomTest, ALostBatchIsFoundWithRightClocks) {
  std::uint64_t lost = 0, undecided = 0;
  ForEach([&](RandomHistory& random, History history) {
    if (!LoseABatch(random, history)) return;
    ++lost;
    const StreamVerdict verdict = Audit(history, /*require_complete=*/true);
    EXPECT_FALSE(IsOk(verdict));
    undecided += verdict.outcome == Outcome::kUndecided ? 1 : 0;
    ExpectNoMoreThanProven(history);
  });
  EXPECT_GT(lost, kHistories / 2);
  EXPECT_LT(undecided, lost / 50) << "in nearly all of them a batch is lost in every order";
}

// Whatever the logs that are left would prove if they were all.
TEST_F(AuditRandomTest, ALogThatIsMissingMakesNoVerdictWrongWithRightClocks) {
  std::uint64_t whole = 0, undecided = 0;
  ForEach([&](RandomHistory& random, History history) {
    const std::string missing = history[random.Below(std::min<std::size_t>(2, history.size()))].log;
    std::erase_if(history, [&](const LoggedRun& run) { return run.log == missing; });
    if (history.empty()) return;
    std::vector<std::size_t> in_order(history.size());
    std::iota(in_order.begin(), in_order.end(), 0);
    const bool is_whole = Truth(history, in_order).IsWhole();
    const StreamVerdict verdict = Audit(history, /*require_complete=*/true);
    EXPECT_NE(verdict.outcome, is_whole ? Outcome::kViolation : Outcome::kWhole);
    whole += is_whole ? 1 : 0;
    undecided += verdict.outcome == Outcome::kUndecided ? 1 : 0;
  });
  EXPECT_GT(whole, 0U);
  EXPECT_GT(undecided, 0U);
}

TEST_F(AuditRandomTest, AHistoryThatLacksABatchIsWholeByWrongClocksOnly) {
  ForEach([](RandomHistory& random, const History& history) {
    History lacking = WithWrongClocks(random, history);
    if (!LoseABatch(random, lacking)) return;
    const StreamVerdict verdict = Audit(lacking, /*require_complete=*/true);
    EXPECT_TRUE(!IsOk(verdict) || verdict.rests_on_clocks);
    ExpectNoMoreThanProven(lacking);
  });
}

}  // namespace forebay::cli::audit_random_test

// The bound on simulated links: it grows to what a link needs, costs no throughput, falls when the
// node becomes slow, and is not misled by short answers, pauses, or answers that take long because
// of the node's storage.
#include "server/peer/flight_bound.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <queue>
#include <vector>

#include <gtest/gtest.h>

namespace forebay::peer {
namespace {

using limits::kKiB;
using limits::kMiB;

constexpr std::int64_t kNsPerUs = 1'000;
constexpr std::int64_t kNsPerMs = 1'000'000;
constexpr std::int64_t kNsPerSecond = 1'000'000'000;
constexpr std::uint64_t kFirst = limits::kPeerBytesInFlightAtFirst;
constexpr std::uint64_t kMin = limits::kPeerBytesInFlightMin;
constexpr std::uint64_t kMax = limits::kPeerBytesInFlightMax;

// An answer of a node: its bytes, and how long the node needs before it can send them.
struct Answer {
  std::uint64_t bytes = 0;
  std::int64_t ready_ns = 0;  // with the time on the wire; answers get ready side by side
};

// A node that sends one answer after the other, in the order in which they are ready, and a reader
// that asks for as much as the bound allows.
class SimulatedLink {
 public:
  explicit SimulatedLink(double rate) : bytes_per_ns(rate) {}

  // Receives so many answers, and returns how long that took.
  std::int64_t Run(std::size_t count, const std::function<std::uint64_t()>& bound,
                   const std::function<Answer(std::size_t)>& answer, FlightBound* told) {
    const std::int64_t began_ns = now_ns_;
    for (std::size_t i = 0; i < count; ++i) {
      for (;;) {
        if (!next_) next_ = answer(asked_++);
        if (in_flight_ > 0 && in_flight_ + next_->bytes > bound()) break;
        in_flight_ += next_->bytes;
        asked_for_.push({now_ns_ + next_->ready_ns, now_ns_, next_->bytes});
        next_.reset();
      }
      const Asked first = asked_for_.top();
      asked_for_.pop();
      const auto sending_ns =
          static_cast<std::int64_t>(static_cast<double>(first.bytes) / bytes_per_ns);
      now_ns_ = std::max(now_ns_, first.ready_ns) + sending_ns;
      in_flight_ -= first.bytes;
      if (told != nullptr) told->OnAnswer(first.bytes, now_ns_ - first.sent_ns, now_ns_);
    }
    return now_ns_ - began_ns;
  }
  // Receives what is under way, and then nothing for a time.
  void Rest(std::int64_t ns, FlightBound& told) {
    Run(asked_for_.size(), [] { return std::uint64_t{0}; },
        [this](std::size_t) { return Answer{.bytes = next_bytes}; }, &told);
    now_ns_ += ns;
  }

  double bytes_per_ns;
  std::uint64_t next_bytes = kMiB;

 private:
  struct Asked {
    std::int64_t ready_ns;
    std::int64_t sent_ns;
    std::uint64_t bytes;
    bool operator>(const Asked& other) const { return ready_ns > other.ready_ns; }
  };
  std::int64_t now_ns_ = kNsPerSecond;
  std::size_t asked_ = 0;
  std::optional<Answer> next_;  // waits for room
  std::uint64_t in_flight_ = 0;
  std::priority_queue<Asked, std::vector<Asked>, std::greater<>> asked_for_;
};

// Runs a link with equal answers, and tells the bound.
void Fetch(SimulatedLink& link, FlightBound& bound, std::size_t count, Answer answer) {
  link.Run(count, [&] { return bound.bytes(); }, [&](std::size_t) { return answer; }, &bound);
}

// How much longer so many answers take with the bound than with the fixed one, after as many that
// are not counted.
double Loss(double bytes_per_ns, const std::function<Answer(std::size_t)>& answer,
            std::size_t count = 20'000) {
  FlightBound bound;
  SimulatedLink adapted(bytes_per_ns);
  SimulatedLink fixed(bytes_per_ns);
  std::int64_t adapted_ns = 0;
  std::int64_t fixed_ns = 0;
  for (int i = 0; i < 2; ++i) {
    adapted_ns = adapted.Run(count, [&] { return bound.bytes(); }, answer, &bound);
    fixed_ns = fixed.Run(count, [] { return kMax; }, answer, nullptr);
  }
  return static_cast<double>(adapted_ns) / static_cast<double>(fixed_ns) - 1.0;
}

TEST(FlightBound, BeginsModerately) {
  EXPECT_EQ(FlightBound().bytes(), kFirst);
  EXPECT_LT(kMin, kFirst);
  EXPECT_LT(kFirst, kMax);
}

TEST(FlightBound, GrowsAsLongAsTheLinkIsNotFull) {
  // 10 GB/s and 20 ms: more than the largest bound would be needed.
  FlightBound bound;
  SimulatedLink link(10.0);
  Fetch(link, bound, 200, {.bytes = kMiB, .ready_ns = 20 * kNsPerMs});
  EXPECT_EQ(bound.bytes(), kMax);
}

TEST(FlightBound, FallsToWhatALinkNeeds) {
  // 1 GB/s and 1 ms, 2 MiB each: the product is some 3 MiB.
  FlightBound bound;
  SimulatedLink link(1.0);
  Fetch(link, bound, 500, {.bytes = 2 * kMiB, .ready_ns = kNsPerMs});
  EXPECT_LE(bound.bytes(), 12 * kMiB);
}

TEST(FlightBound, AFastLinkLosesNothing) {
  for (const double bytes_per_ns : {0.05, 1.0, 10.0, 50.0}) {
    for (const std::int64_t ready_ns : {50 * kNsPerUs, kNsPerMs, 20 * kNsPerMs}) {
      for (const std::uint64_t bytes : {100 * kKiB, kMiB, 7 * kMiB, 16 * kMiB}) {
        const Answer answer = {.bytes = bytes, .ready_ns = ready_ns};
        EXPECT_LT(Loss(bytes_per_ns, [&](std::size_t) { return answer; }), 0.02)
            << bytes_per_ns << " GB/s, " << ready_ns / kNsPerUs << " us, " << bytes << " bytes";
      }
    }
  }
}

TEST(FlightBound, ANodeThatBecomesSlowIsAskedForLess) {
  // 1 GB/s and 40 ms, so the link needs some 40 MiB at first, and a tenth of it later.
  constexpr Answer kAnswer = {.bytes = kMiB, .ready_ns = 40 * kNsPerMs};
  FlightBound bound;
  SimulatedLink link(1.0);
  Fetch(link, bound, 1000, kAnswer);
  EXPECT_GE(bound.bytes(), 32 * kMiB);
  link.bytes_per_ns = 0.1;
  Fetch(link, bound, 100, kAnswer);
  EXPECT_LE(bound.bytes(), 16 * kMiB);
  Fetch(link, bound, 300, kAnswer);
  EXPECT_LE(bound.bytes(), 16 * kMiB) << "a larger one brought nothing";
  // It needs as much as before once it is fast again.
  link.bytes_per_ns = 1.0;
  Fetch(link, bound, 500, kAnswer);
  EXPECT_GE(bound.bytes(), 32 * kMiB);
}

TEST(FlightBound, TwoOfTheLargestAnswersFitAlways) {
  FlightBound bound;
  SimulatedLink link(0.05);
  Fetch(link, bound, 1, {.bytes = 16 * kMiB, .ready_ns = kNsPerMs});
  EXPECT_GE(bound.bytes(), 32 * kMiB);
  Fetch(link, bound, 500, {.bytes = 16 * kMiB, .ready_ns = kNsPerMs});
  EXPECT_GE(bound.bytes(), 32 * kMiB);
  // Once the answers are smaller, so may be the bound. A pause shows how long one takes alone.
  link.Rest(kNsPerSecond, bound);
  Fetch(link, bound, 1000, {.bytes = kMiB, .ready_ns = kNsPerMs});
  EXPECT_LE(bound.bytes(), 2 * kMin);
  // A row that is larger than any bound changes nothing for what comes after it.
  link.Rest(kNsPerSecond, bound);
  Fetch(link, bound, 2, {.bytes = 1024 * 1024 * kMiB, .ready_ns = kNsPerMs});
  EXPECT_EQ(bound.bytes(), kMax);
  Fetch(link, bound, 1000, {.bytes = kMiB, .ready_ns = kNsPerMs});
  EXPECT_LE(bound.bytes(), 2 * kMin);
}

TEST(FlightBound, ManySmallAnswersLeaveRoomForMany) {
  FlightBound bound;
  SimulatedLink link(1.0);
  Fetch(link, bound, 100'000, {.bytes = 4 * kKiB, .ready_ns = 100 * kNsPerUs});
  EXPECT_GE(bound.bytes(), kMin);
  EXPECT_LT(Loss(1.0, [](std::size_t) { return Answer{4 * kKiB, 100 * kNsPerUs}; }), 0.02);
}

// Each tenth answer is short and comes from RAM. The others come from SSD after 30 ms, side by
// side: they take long although nothing waits for the link, so many have to be asked for.
TEST(FlightBound, AnswersThatTakeLongAtTheNodeAreNotTakenForAQueue) {
  const auto answer = [](std::size_t i) {
    return i % 10 == 0 ? Answer{.bytes = 4 * kKiB, .ready_ns = 100 * kNsPerUs}
                       : Answer{.bytes = kMiB, .ready_ns = 30 * kNsPerMs};
  };
  EXPECT_LT(Loss(5.0, answer), 0.05);
}

// A reader that keeps up with its node asks for a few batches, and then for nothing until the next
// step. The bound still grows to what the bursts need.
TEST(FlightBound, ShortBurstsWithPausesBetweenThemAreEnoughToGrow) {
  constexpr Answer kAnswer = {.bytes = 8 * kMiB, .ready_ns = 50 * kNsPerMs};
  FlightBound bound;
  SimulatedLink link(10.0);
  for (int i = 0; i < 60; ++i) {
    Fetch(link, bound, 4, kAnswer);
    link.next_bytes = 8 * kMiB;
    link.Rest(kNsPerSecond, bound);
  }
  EXPECT_EQ(bound.bytes(), kMax);
}

// Each halving costs a little, less than what a single trial may cost.
TEST(FlightBound, ManyTrialsOfLessCostNoMoreThanATenthTogether) {
  FlightBound bound;
  std::int64_t now_ns = kNsPerSecond;
  // In bytes per nanosecond.
  const auto rate_of = [](std::uint64_t bytes) {
    return std::pow(static_cast<double>(bytes) / static_cast<double>(kMax), 0.1);
  };
  for (int i = 0; i < 20'000; ++i) {
    const double rate = rate_of(bound.bytes());
    now_ns += static_cast<std::int64_t>(static_cast<double>(kMiB) / rate);
    // With so many bytes in flight at this rate. The least time was that of a single answer.
    const auto elapsed_ns = static_cast<std::int64_t>(static_cast<double>(bound.bytes()) / rate);
    bound.OnAnswer(kMiB, i == 0 ? 2 * kNsPerMs : elapsed_ns, now_ns);
  }
  EXPECT_GE(rate_of(bound.bytes()), 0.9 * rate_of(kFirst));
}

TEST(FlightBound, ATimeWithoutRequestsSaysNothing) {
  constexpr Answer kAnswer = {.bytes = kMiB, .ready_ns = 20 * kNsPerMs};
  FlightBound bound;
  SimulatedLink link(10.0);
  Fetch(link, bound, 1000, kAnswer);
  ASSERT_EQ(bound.bytes(), kMax);
  for (int i = 0; i < 20; ++i) {
    link.Rest(3600 * kNsPerSecond, bound);
    Fetch(link, bound, 50, kAnswer);
    EXPECT_EQ(bound.bytes(), kMax);
  }
}

}  // namespace
}  // namespace forebay::peer

// The rate of a round is that of the arrivals after the first one, so it does not depend on how
// long that answer took. A round lasts for an answer time at least: requests that were sent
// together are answered together, and the pause before the next answers belongs to their rate.
#include "server/peer/flight_bound.h"

#include <algorithm>

namespace forebay::peer {
namespace {

constexpr std::uint64_t kRoundAnswers = 8;
constexpr std::int64_t kHoldNs = 10'000'000'000;
// In relation to the least answer time.
constexpr std::int64_t kLittleWaits = 2;
constexpr std::int64_t kMostWaits = 4;
constexpr double kGain = 2.0;  // in relation to the bandwidth-delay product
// A rate that has changed by less is the same.
constexpr double kFallen = 0.9;
constexpr double kGrown = 1.1;

}  // namespace

std::uint64_t FlightBound::bytes() const { return std::max(bound_bytes_, Floor()); }

std::uint64_t FlightBound::Floor() const {
  const std::uint64_t largest = std::max(largest_bytes_, round_.largest_bytes);
  // Compared first, because twice any number might not fit.
  if (largest >= limits::kPeerBytesInFlightMax / 2) return limits::kPeerBytesInFlightMax;
  return std::max(2 * largest, limits::kPeerBytesInFlightMin);
}

void FlightBound::OnAnswer(std::uint64_t bytes, std::int64_t elapsed_ns, std::int64_t now_ns) {
  elapsed_ns = std::max<std::int64_t>(elapsed_ns, 1);  // the clock may be coarse
  const std::int64_t sent_ns = now_ns - elapsed_ns;
  // If no answer came after the request was sent, the node was asked for nothing else before it.
  // The pause says nothing about the link, and is cut out of the round.
  const bool was_idle = sent_ns > last_ns_;
  const std::int64_t pause_ns = now_ns - last_ns_;
  last_ns_ = now_ns;
  least_ns_ = least_ns_ == 0 ? elapsed_ns : std::min(least_ns_, elapsed_ns);
  round_.largest_bytes = std::max(round_.largest_bytes, bytes);
  if (sent_ns < since_ns_) return;
  if (!round_.has_begun) {
    round_ = {.has_begun = true,
              .begin_ns = now_ns,
              .least_ns = elapsed_ns,
              .largest_bytes = round_.largest_bytes};
    return;
  }
  round_.least_ns = std::min(round_.least_ns, elapsed_ns);
  if (was_idle) {
    // As if the round had begun so much later. This answer is not counted either.
    round_.begin_ns += pause_ns;
    return;
  }
  ++round_.answers;
  round_.bytes += bytes;
  const std::int64_t lasted_ns = now_ns - round_.begin_ns;
  if (round_.answers >= kRoundAnswers && lasted_ns >= round_.least_ns) EndRound(now_ns);
}

void FlightBound::EndRound(std::int64_t now_ns) {
  const double rate =
      static_cast<double>(round_.bytes) / static_cast<double>(now_ns - round_.begin_ns);
  if (HasFailed(rate, now_ns)) {
    Change(bytes_before_trial_, Trial::kNone, now_ns);
  } else {
    trial_ = Trial::kNone;
    Decide(rate, now_ns);
  }
  rate_ = rate;
  largest_bytes_ = round_.largest_bytes;
  round_ = {};
}

// Whether the round was a trial that failed.
bool FlightBound::HasFailed(double rate, std::int64_t now_ns) {
  switch (trial_) {
    case Trial::kNone: return false;
    case Trial::kMore:
      if (rate < kGrown * rate_) {
        no_more_until_ns_ = now_ns + kHoldNs;
        return true;
      }
      rate_before_less_ = 0.0;
      return false;
    case Trial::kLess:
      // Several trials of less that follow each other may cost a tenth together, not each.
      if (rate_before_less_ == 0.0) rate_before_less_ = rate_;
      halves_ = rate < kFallen * rate_before_less_;
      if (halves_) {
        no_less_until_ns_ = now_ns + kHoldNs;
        rate_before_less_ = 0.0;
      }
      return halves_;
  }
  return false;
}

void FlightBound::Decide(double rate, std::int64_t now_ns) {
  const std::uint64_t more = std::min(2 * bytes(), limits::kPeerBytesInFlightMax);
  if (round_.least_ns < kLittleWaits * least_ns_) {
    rate_before_less_ = 0.0;
    return Change(more, Trial::kNone, now_ns);
  }
  // While the rate changes by itself, nobody could tell what a trial has changed.
  if (rate < kFallen * rate_ || rate > kGrown * rate_) return;
  const std::uint64_t half = bytes() / 2;
  // A smaller step would not show in the rate.
  if (Floor() <= half && now_ns >= no_less_until_ns_) {
    auto aim = static_cast<std::uint64_t>(kGain * rate * static_cast<double>(least_ns_));
    if (round_.least_ns < kMostWaits * least_ns_) {
      // Every answer so far may have waited behind others, so that the least time is not known.
      aim = Floor();
      no_less_until_ns_ = now_ns + kHoldNs;
    }
    return Change(halves_ ? half : std::clamp(aim, Floor(), half), Trial::kLess, now_ns);
  }
  if (now_ns >= no_more_until_ns_) Change(more, Trial::kMore, now_ns);
}

void FlightBound::Change(std::uint64_t bytes, Trial trial, std::int64_t now_ns) {
  trial_ = Trial::kNone;
  const std::uint64_t before = this->bytes();
  bound_bytes_ = bytes;
  // The largest answers may hold the bound where it is.
  if (bytes == before) return;
  bytes_before_trial_ = before;
  trial_ = trial;
  // The requests that fill new room find fewer others before them than later ones will.
  since_ns_ = now_ns + round_.least_ns;
}

}  // namespace forebay::peer

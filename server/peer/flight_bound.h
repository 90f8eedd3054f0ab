// FlightBound: how many bytes of rows may be asked of one other node at a time. They have to keep
// its link busy. More of them only wait behind others, for long if the node has become slow, while
// their substitutes could be asked. The bound follows what the answers show.
//
//   FlightBound bound;
//   ... an answer has come: bound.OnAnswer(bytes, elapsed_ns, now_ns) ...
//   ... before a request is sent: if (in_flight + bytes <= bound.bytes()) ...
//
// The model is that of BBR (Cardwell, Cheng, Gunn, Yeganeh, Jacobson: "BBR: Congestion-Based
// Congestion Control", ACM Queue 14(5), 2016): a link is busy with rate * least answer time bytes
// in flight, the bandwidth-delay product. With more, answers take longer and come no faster. The
// aim is twice the product. Here the model is only a hint, because answers differ: some come from
// RAM and others from SSD, some are short and others long. So a change that might cost throughput,
// or might gain none, is a trial of one round, and the measured rate decides whether it stays.
//
// A round is at least eight answers to requests that were sent since the bound has changed.
//   - If an answer of the round took less than twice the least time, little waits: the bound
//     doubles.
//   - If every answer took at least four times the least time, most bytes wait: as a trial, the
//     bound falls to twice the product, at least by half. It goes back if the rate falls by a
//     tenth, counted over all such trials in a row; the next one then only halves it.
//   - Otherwise, once in ten seconds, it falls as far as it may, as a trial, because a queue that
//     never ends may hide the least time (BBR's ProbeRTT).
//   - Otherwise the bound doubles as a trial. It goes back unless the rate grows by a tenth.
// For ten seconds after a trial that failed, no other one in its direction begins.
//
// Why this does not make a fast link slower:
//   - Two requests of the size of the largest recent one fit, up to kPeerBytesInFlightMax. So the
//     owner has the next answer to send while it sends one, and the next request arrives meanwhile.
//   - As long as the bound limits the rate, answers hardly wait behind others, so the bound doubles
//     with each round, up to kPeerBytesInFlightMax, which is as much as was ever asked for.
//   - A smaller bound stays only if the rate has stayed. One that was too small lasts for a round,
//     which is a few answer times, once in ten seconds; and one that has become too small is found
//     by the trial of a larger one.
#pragma once

#include <cstdint>

#include "proto/contract/limits.h"

namespace forebay::peer {

// Not thread-safe. Times are in nanoseconds, of a clock that does not go back.
class FlightBound {
 public:
  // An answer with all `bytes` of its request came at `now_ns`, `elapsed_ns` after the request was
  // sent. Answers may come in another order than that of the requests.
  void OnAnswer(std::uint64_t bytes, std::int64_t elapsed_ns, std::int64_t now_ns);

  // From limits::kPeerBytesInFlightMin to kPeerBytesInFlightMax.
  std::uint64_t bytes() const;

 private:
  enum class Trial : std::uint8_t { kNone, kMore, kLess };
  struct Round {
    bool has_begun = false;
    std::int64_t begin_ns = 0;        // arrival of an answer that is not counted
    std::uint64_t answers = 0;        // that came after it
    std::uint64_t bytes = 0;          // of them
    std::int64_t least_ns = 0;        // answer time
    std::uint64_t largest_bytes = 0;  // answer
  };

  void EndRound(std::int64_t now_ns);
  bool HasFailed(double rate, std::int64_t now_ns);
  void Decide(double rate, std::int64_t now_ns);
  void Change(std::uint64_t bytes, Trial trial, std::int64_t now_ns);
  std::uint64_t Floor() const;

  std::uint64_t bound_bytes_ = limits::kPeerBytesInFlightAtFirst;
  std::int64_t since_ns_ = 0;        // requests that were sent earlier do not count for a round
  std::int64_t last_ns_ = 0;         // arrival of the latest answer
  std::int64_t least_ns_ = 0;        // answer time ever; 0: no answer has come
  std::uint64_t largest_bytes_ = 0;  // answer of the round before
  double rate_ = 0.0;                // of the round before, in bytes per nanosecond
  double rate_before_less_ = 0.0;    // before the first of several trials of less; 0: none was made
  Round round_;
  Trial trial_ = Trial::kNone;
  std::uint64_t bytes_before_trial_ = 0;
  bool halves_ = false;  // because twice the product was too small
  std::int64_t no_more_until_ns_ = 0;
  std::int64_t no_less_until_ns_ = 0;
};

}  // namespace forebay::peer

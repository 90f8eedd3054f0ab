// The timing of the suite. Encoding comes first, then decodes of all contenders in turn, round by
// round, then random frames, also in turn, so that a change of the machine's speed meets all of
// them. A figure is falsified by a decode that leaves a byte unwritten (the buffer is poisoned
// before and hashed after), by warm caches (they are walked over before), and by a decoder that
// remembers (its scratch is kept, its output is not).
#include "bench/codec/codec_rounds.h"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <ctime>
#include <thread>
#include <utility>

#include "proto/contract/checksum.h"
#include "proto/contract/mix64.h"

namespace forebay::bench {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kFlushBytes = std::size_t{96} << 20;  // thrice the largest cache met
// Neither 0 nor 255, which arrays have many of.
constexpr std::byte kPoison{0xA5};

double Since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// CPU time beside wall-clock time: on a busy machine it says whether a slow round was the codec's
// fault.
double ProcessCpu() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

class CacheFlush {
 public:
  explicit CacheFlush(bool on) : buffer_(on ? kFlushBytes / sizeof(std::uint64_t) : 0) {}
  void Walk() {
    // One word of each line of 64 bytes is written, which pushes out every other line.
    for (std::size_t at = 0; at < buffer_.size(); at += 8) ++buffer_[at];
  }

 private:
  std::vector<std::uint64_t> buffer_;
};

// A contender with what it needs to run.
struct Entrant {
  const Peer* peer = nullptr;
  Contender result;
  std::unique_ptr<EncodedArray> coded;
  std::vector<std::unique_ptr<ArrayDecoder>> decoders;  // one a thread
  std::optional<std::uint64_t> expected;                // hash of the decoded array
};

class Rounds {
 public:
  Rounds(const CodecArray& array, const RoundOptions& options)
      : array_(array),
        options_(options),
        flush_(options.cold),
        out_(array.bytes.size()),
        frame_(array.info.frame_bytes()) {}

  Status Encode(Entrant& entrant) {
    FOREBAY_TRY(entrant.peer->Accepts(array_.info));
    for (std::uint32_t round = 0; round < std::max(options_.encode_rounds, 1U); ++round) {
      const Clock::time_point start = Clock::now();
      FOREBAY_ASSIGN(entrant.coded, entrant.peer->Encode(array_));
      entrant.result.encode_s.push_back(Since(start));
    }
    // The size is that of the last encode. The codecs are deterministic, so all rounds give the
    // same size.
    entrant.result.coded_bytes = entrant.coded->coded_bytes();
    const std::uint32_t threads = *std::ranges::max_element(options_.threads);
    // Made before the timing, as many as the largest number of threads needs.
    for (std::uint32_t thread = 0; thread < threads; ++thread) {
      FOREBAY_ASSIGN(auto decoder, entrant.coded->MakeDecoder());
      entrant.decoders.push_back(std::move(decoder));
    }
    if (entrant.peer->lossless()) entrant.expected = Checksum(array_.bytes);
    return {};
  }

  Status Decode(Entrant& entrant, std::uint32_t threads) {
    // Before the walk over the caches, so that the output is cold as well.
    std::ranges::fill(out_, kPoison);
    flush_.Walk();
    const double cpu = ProcessCpu();
    double seconds = 0;
    if (threads == 1) {
      const Clock::time_point start = Clock::now();
      FOREBAY_TRY(entrant.decoders.front()->Decode(0, entrant.coded->parts(), out_));
      seconds = Since(start);
    } else {
      FOREBAY_ASSIGN(seconds, DecodeOnThreads(entrant, threads));
    }
    entrant.result.decode_s[threads].push_back(seconds);
    entrant.result.decode_cpu_s[threads].push_back(ProcessCpu() - cpu);
    // The first decode of a lossy codec decides what the others must give: its bound is judged by
    // another program, but it must not vary.
    const std::uint64_t hash = Checksum(out_);
    if (entrant.expected.value_or(hash) != hash) {
      return Error(ErrorCode::kDataLoss, "the decoded array differs");
    }
    entrant.expected = hash;
    // Kept for bound_check.py, which holds all lossy codecs to the same words.
    if (!entrant.peer->lossless()) entrant.result.decoded = out_;
    return {};
  }

  Status DecodeFrame(Entrant& entrant, std::uint32_t frame) {
    std::ranges::fill(frame_, kPoison);
    flush_.Walk();
    const Clock::time_point start = Clock::now();
    FOREBAY_TRY(entrant.decoders.front()->DecodeFrame(frame, frame_));
    entrant.result.frame_s.push_back(Since(start));
    const auto wanted = std::span(array_.bytes).subspan(frame * frame_.size(), frame_.size());
    if (entrant.peer->lossless() && !std::ranges::equal(frame_, wanted)) {
      return Error(ErrorCode::kDataLoss, "frame " + std::to_string(frame) + " differs");
    }
    return {};
  }

 private:
  // Each thread takes a contiguous share of the parts; the clock runs from the moment the first
  // of them begins, after all are there, to the end of the last.
  Result<double> DecodeOnThreads(Entrant& entrant, std::uint32_t threads) {
    const std::size_t parts = entrant.coded->parts();
    std::vector<Status> outcomes(threads);
    std::vector<Clock::time_point> begins(threads);
    std::vector<Clock::time_point> ends(threads);
    // Threads begin together: without the barrier the first could be done before the last has
    // started, and the sum would look like scaling.
    std::barrier ready(static_cast<std::ptrdiff_t>(threads));
    std::vector<std::jthread> workers;
    for (std::uint32_t index = 0; index < threads; ++index) {
      workers.emplace_back([&, index] {
        // Each thread gets a contiguous share, and there is no queue. Parts differ in size, so a
        // thread may end early; the figure includes this.
        const std::size_t first = parts * index / threads;
        const std::size_t last = parts * (index + 1) / threads;
        ready.arrive_and_wait();
        begins[index] = Clock::now();
        outcomes[index] = entrant.decoders[index]->Decode(first, last - first, out_);
        ends[index] = Clock::now();
      });
    }
    for (std::jthread& worker : workers) worker.join();
    for (Status& outcome : outcomes) FOREBAY_TRY(std::move(outcome));
    // The time runs from the first begin to the last end, so idle threads count against the codec.
    return std::chrono::duration<double>(*std::ranges::max_element(ends) -
                                         *std::ranges::min_element(begins))
        .count();
  }

  const CodecArray& array_;
  const RoundOptions& options_;
  CacheFlush flush_;
  std::vector<std::byte> out_;
  std::vector<std::byte> frame_;
};

// A contender that failed once leaves all later rounds: figures of a codec that decodes wrongly
// mean nothing.
void Keep(Entrant& entrant, const Status& status) {
  if (!status.has_value()) entrant.result.error = status.error();
}

// The order turns in odd rounds, so that no contender always follows the same one.
template <typename Visit>
void ForEachInTurn(std::vector<Entrant>& entrants, std::uint32_t round, const Visit& visit) {
  for (std::size_t place = 0; place < entrants.size(); ++place) {
    visit(entrants[round % 2 == 0 ? place : entrants.size() - 1 - place]);
  }
}

}  // namespace

std::vector<Contender> RunRounds(const CodecArray& array,
                                 const std::vector<std::unique_ptr<Peer>>& peers,
                                 const RoundOptions& options) {
  Rounds rounds(array, options);
  std::vector<Entrant> entrants(peers.size());
  for (std::size_t index = 0; index < peers.size(); ++index) {
    Entrant& entrant = entrants[index];
    entrant.peer = peers[index].get();
    entrant.result.name = peers[index]->name();
    entrant.result.settings = peers[index]->settings();
    Keep(entrant, rounds.Encode(entrant));
  }
  for (std::uint32_t round = 0; round < options.rounds; ++round) {
    ForEachInTurn(entrants, round, [&](Entrant& entrant) {
      for (const std::uint32_t threads : options.threads) {
        if (!entrant.result.error) Keep(entrant, rounds.Decode(entrant, threads));
      }
    });
  }
  std::uint64_t state = options.seed;
  for (std::uint32_t draw = 0; draw < options.frame_draws; ++draw) {
    // All contenders share one draw, so every contender decodes the same frames.
    const auto frame = static_cast<std::uint32_t>(NextWord64(state) % array.info.frames());
    ForEachInTurn(entrants, draw, [&](Entrant& entrant) {
      if (!entrant.result.error) Keep(entrant, rounds.DecodeFrame(entrant, frame));
    });
  }
  std::vector<Contender> results;
  for (Entrant& entrant : entrants) results.push_back(std::move(entrant.result));
  return results;
}

}  // namespace forebay::bench

// Times codecs against each other on one array.
#pragma once

#include <map>
#include <vector>

#include "bench/codec/codec_peer.h"

namespace forebay::bench {

struct RoundOptions {
  std::uint32_t rounds = 9;
  std::uint32_t encode_rounds = 1;
  std::vector<std::uint32_t> threads = {1};
  std::uint32_t frame_draws = 0;  // random frames decoded alone, per contender
  std::uint64_t seed = 1;
  bool cold = true;               // caches are walked over before each timed decode
};

// What one contender did. `error` set: nothing else counts.
struct Contender {
  std::string name;
  std::string settings;
  std::optional<Error> error;
  std::size_t coded_bytes = 0;
  std::vector<double> encode_s;
  std::map<std::uint32_t, std::vector<double>> decode_s;      // by threads; wall clock
  std::map<std::uint32_t, std::vector<double>> decode_cpu_s;  // of the process
  std::vector<double> frame_s;
  std::vector<std::byte> decoded;  // of the last round, kept for lossy codecs only
};

// Encodes with every peer, then decodes in interleaved rounds, order turned in odd ones. The
// output is overwritten before and its hash compared after each decode, outside the timing: a
// lossless codec must give the array's, a lossy one the same in every round. A contender that
// fails keeps its error and leaves the rounds.
std::vector<Contender> RunRounds(const CodecArray& array,
                                 const std::vector<std::unique_ptr<Peer>>& peers,
                                 const RoundOptions& options);

}  // namespace forebay::bench

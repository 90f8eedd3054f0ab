// RankWatch: tells from heartbeats which rank is lost and which stands still. Knows neither
// sockets nor clocks: times are passed in.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trainer/comm/watchdog/progress.h"

namespace forebay::train {

struct RankWatchOptions {
  std::uint64_t limit_ns = 3'000'000'000;    // of silence
  std::uint64_t report_ns = 60'000'000'000;  // at one instruction; and between two reports
};

// Not thread-safe. A rank is watched from its first beat on; now_ns is monotonic.
class RankWatch {
 public:
  explicit RankWatch(const RankWatchOptions& options) : options_(options) {}

  // A beat of a rank, this one's own included.
  void Heard(std::uint32_t rank, const std::string& host, const Progress::Note& note,
             std::uint64_t now_ns);
  // The rank has done its work: its silence means nothing.
  void Left(std::uint32_t rank) { ranks_.erase(rank); }
  // This process itself stood still (a suspended job): what the others did meanwhile is not known.
  void Forgive(std::uint64_t now_ns);

  bool Watches(std::uint32_t rank) const { return ranks_.contains(rank); }

  // "rank 1 (host h) has not been heard of for 4.0 s; its last known instruction: step 7, F
  // micro-batch 3 of stage 1". nullopt: all are heard of.
  std::optional<std::string> Silent(std::uint64_t now_ns) const;
  // "rank 1 (host h) has gone; its last known instruction: ...". Of a rank that is watched.
  std::string Gone(std::uint32_t rank) const;
  // Lines about ranks that are alive and have been at one instruction for the report time: those
  // that compute or wait for data, or else, where all wait for each other, all of them.
  std::vector<std::string> Stuck(std::uint64_t now_ns);

 private:
  struct Rank {
    std::string host;
    Progress::Note note;
    std::uint64_t heard_ns = 0;
    std::uint64_t changed_ns = 0;
  };

  static std::string Name(std::uint32_t rank, const Rank& seen);

  RankWatchOptions options_;
  std::map<std::uint32_t, Rank> ranks_;
  std::optional<std::uint64_t> reported_ns_;
};

}  // namespace forebay::train

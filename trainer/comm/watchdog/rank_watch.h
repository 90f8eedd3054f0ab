// RankWatch: decides from heartbeats which rank is lost and which makes no progress. It knows
// neither sockets nor clocks; times are passed in.
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

// Not thread-safe. A rank is watched from its first heartbeat on. `now_ns` is monotonic.
class RankWatch {
 public:
  explicit RankWatch(const RankWatchOptions& options) : options_(options) {}

  // Notes a heartbeat of a rank, which may be this one.
  void Heard(std::uint32_t rank, const std::string& host, const Progress::Note& note,
             std::uint64_t now_ns);
  // The rank has done its work, so its silence means nothing from now on.
  void Left(std::uint32_t rank) { ranks_.erase(rank); }
  // Call it if this process itself did not run for a while, as in a suspended job: it does not know
  // what the others did meanwhile.
  void Forgive(std::uint64_t now_ns);

  bool Watches(std::uint32_t rank) const { return ranks_.contains(rank); }

  // A message about a rank that is silent for too long: "rank 1 (host h) has not been heard of for
  // 4.0 s; its last known instruction: step 7, F micro-batch 3 of stage 1". nullopt if there is
  // none.
  std::optional<std::string> Silent(std::uint64_t now_ns) const;
  // A message about a rank whose process has died: "rank 1 (host h) has gone; its last known
  // instruction: ...". The rank is watched.
  std::string Gone(std::uint32_t rank) const;
  // Messages about ranks that are alive but have been at one instruction for the report time. Only
  // ranks that compute or wait for data are named; if all ranks wait for each other, all are.
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

// For each rank: when it was last heard of, and when the instruction that it named last changed.
// From these two times follow all judgements. A rank that is silent for too long is lost. A rank
// that sends heartbeats but names the same instruction for too long is stuck.
#include "trainer/comm/watchdog/rank_watch.h"

#include <fmt/format.h>

#include <algorithm>

namespace forebay::train {
namespace {

constexpr std::size_t kLinesMax = 8;  // of a report

double Seconds(std::uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

std::string Instruction(const Progress::Note& note) {
  return note.text.empty() ? "none yet" : note.text;
}

}  // namespace

void RankWatch::Heard(std::uint32_t rank, const std::string& host, const Progress::Note& note,
                      std::uint64_t now_ns) {
  const auto [entry, first] = ranks_.try_emplace(rank);
  Rank& seen = entry->second;
  // The count of changes and not the text: consecutive steps have equal texts.
  if (first || note.changes != seen.note.changes) seen.changed_ns = now_ns;
  seen.host = host;
  seen.note = note;
  seen.heard_ns = now_ns;
}

void RankWatch::Forgive(std::uint64_t now_ns) {
  // As if all had been heard of now, with a new instruction: their times begin again.
  for (auto& [rank, seen] : ranks_) {
    seen.heard_ns = now_ns;
    seen.changed_ns = now_ns;
  }
}

std::string RankWatch::Name(std::uint32_t rank, const Rank& seen) {
  return fmt::format("rank {} (host {})", rank, seen.host);
}

std::optional<std::string> RankWatch::Silent(std::uint64_t now_ns) const {
  for (const auto& [rank, seen] : ranks_) {
    const std::uint64_t silence_ns = now_ns - seen.heard_ns;
    if (silence_ns < options_.limit_ns) continue;
    return fmt::format("{} has not been heard of for {:.1f} s; its last known instruction: {}",
                       Name(rank, seen), Seconds(silence_ns), Instruction(seen.note));
  }
  return std::nullopt;
}

std::string RankWatch::Gone(std::uint32_t rank) const {
  const Rank& seen = ranks_.at(rank);
  return fmt::format("{} has gone; its last known instruction: {}", Name(rank, seen),
                     Instruction(seen.note));
}

std::vector<std::string> RankWatch::Stuck(std::uint64_t now_ns) {
  if (reported_ns_ && now_ns - *reported_ns_ < options_.report_ns) return {};
  std::vector<std::string> culprits;
  std::vector<std::string> waiting;
  for (const auto& [rank, seen] : ranks_) {
    // Up to the last heartbeat, not up to now: a rank that fell silent is Silent's to judge.
    const std::uint64_t still_ns = seen.heard_ns - seen.changed_ns;
    if (still_ns < options_.report_ns) continue;
    (seen.note.waits ? waiting : culprits)
        .push_back(fmt::format("{} has been at one instruction for {:.0f} s: {}{}",
                               Name(rank, seen), Seconds(still_ns), Instruction(seen.note),
                               seen.note.waits ? " (waiting for other ranks)" : ""));
  }
  // A rank that waits is held up by another one, which is the one to name. If all wait, no rank is
  // to blame, and all are shown.
  const bool all_wait = culprits.empty() && waiting.size() == ranks_.size();
  std::vector<std::string>& lines = all_wait ? waiting : culprits;
  if (lines.empty()) return {};
  reported_ns_ = now_ns;
  lines.resize(std::min(lines.size(), kLinesMax));
  return lines;
}

}  // namespace forebay::train

// What tokens prove about the order of a stream's openings (docs/delivery_log.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace forebay::cli {

// Epoch and step. Behind the last step of an epoch comes step 0 of the next one.
using StepKey = std::pair<std::uint64_t, std::uint64_t>;
inline constexpr StepKey kBehindEveryStep = {std::numeric_limits<std::uint64_t>::max(), 0};

// What is known of an opening beside its batches.
struct OpeningPlace {
  std::size_t log = 0;  // the number of the file that it is in
  std::uint64_t ranks = 0;
  std::uint64_t rank = 0;  // below `ranks`
  StepKey first;    // where it begins
  StepKey reached;  // the step behind its last batch, or `first`
  std::uint64_t opened_unix_ns = 0;
};

// The openings of one rank, as indices; those of one log in the order of the file.
using RankOpenings = std::vector<std::size_t>;

// Tells how far ranks can have come without a certain opening. An opening begins at step 0 of epoch
// 0, or goes on from a token: then the batches before it were delivered to its own rank, or to all
// ranks of some number of which there are logs. So an opening that begins behind what was reached
// without another one came after that one, whatever clocks say.
class TokenReach {
 public:
  // `openings` is borrowed. The openings of one log are in the order of the file.
  explicit TokenReach(std::span<const OpeningPlace> openings);

  // How far one rank has come, and which openings have led it there.
  struct Progress {
    StepKey reached;
    std::set<std::size_t> begun;
  };
  // If all ranks of some number had come to `together`; without opening `without` of this rank, and
  // those that are behind it in its log.
  Progress Follow(const RankOpenings& rank, const StepKey& together,
                  std::optional<std::size_t> without = {}) const;

  // How far all ranks of some number have come together without opening `without`. The start of the
  // stream if there is one number of ranks: then this leads no rank on.
  StepKey TogetherWithout(std::size_t without) { return Together(without); }

  // Whether the logs have what the opening goes on from. If logs are missing, they may not.
  bool IsLedTo(std::size_t opening) const { return is_led_to_[opening]; }

  // By the number of ranks, then by rank.
  using Ranks = std::map<std::uint64_t, RankOpenings>;
  const std::map<std::uint64_t, Ranks>& by_number() const { return by_number_; }

 private:
  StepKey Together(std::optional<std::size_t> without);
  const std::map<std::uint64_t, StepKey>& ReachedByNumber(const StepKey& together);

  const std::span<const OpeningPlace> openings_;
  std::map<std::uint64_t, Ranks> by_number_;
  std::vector<bool> is_led_to_;
  // How far all ranks of each number come, by what is said to Follow. There are few different
  // steps.
  std::map<StepKey, std::map<std::uint64_t, StepKey>> reached_by_number_;
};

}  // namespace forebay::cli

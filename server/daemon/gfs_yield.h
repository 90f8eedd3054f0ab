// GfsYield: lets this node yield (plan::Membership::Yields) while its GFS is much slower than that
// of other nodes, as when its mount hangs. Otherwise all nodes would wait for its share: it answers
// probes, and says rightly that it waits itself. If the GFS is as slow for all nodes, none yields,
// because the substitutes would be as slow.
//
// Only a node that has waited for a call to the GFS for long asks others: three of them, every five
// seconds, how long a call takes there. So this costs nothing as long as the GFS works.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "server/io/clock.h"
#include "server/plan/membership.h"
#include "server/stage/gfs/gfs_calls.h"

namespace forebay::daemon {

struct GfsYieldParts {
  plan::Membership& nodes;                    // borrowed
  io::Clock& clock;                           // borrowed
  std::function<stage::GfsCalls::Pace()> pace;  // of this node
  // Asks a node how long a call to the GFS takes there now, in nanoseconds; 0: it has made none.
  // `heard` is called later, by any thread, or never.
  using Heard = std::function<void(const Result<std::int64_t>&)>;
  std::function<void(NodeRank, Heard heard)> ask;
  // This node has begun to yield: ends what waits for its GFS, so that it is asked for elsewhere.
  // Called twice, with a second between, because something may begin to wait at the same time.
  std::function<void()> begun;
};

// Look is called by one thread.
class GfsYield {
 public:
  explicit GfsYield(GfsYieldParts parts) : parts_(std::move(parts)) {}

  // Call about once a second.
  void Look();

  // A call that is under way for so long, and for so many times as long as calls of most of the
  // nodes that were asked, makes this node yield, unless a read has ended quickly meanwhile.
  static constexpr std::int64_t kSlowNs = 5'000'000'000;
  static constexpr std::int64_t kTimes = 10;
  // For so long it yields, and twice as long each time it goes on to yield or yields again soon, up
  // to the maximum; but not for longer than the minimum once its calls end again.
  static constexpr std::int64_t kRestMinNs = 32'000'000'000;
  static constexpr std::int64_t kRestMaxNs = 256'000'000'000;
  static constexpr std::size_t kAsked = 3;  // nodes at a time

 private:
  struct Answers;  // of the nodes that were asked last
  void Ask(std::int64_t now_ns);
  std::optional<std::int64_t> UsualOfOthers() const;
  void Begin(std::int64_t now_ns, std::int64_t oldest_ns, std::int64_t usual_ns);
  void End(const char* why);

  const GfsYieldParts parts_;
  std::shared_ptr<Answers> answers_;  // null: nobody was asked since the GFS is slow
  std::int64_t asked_ns_ = 0;
  std::uint32_t asked_in_vain_ = 0;  // turns without any answer, since the last answer
  std::uint64_t turn_ = 0;  // of the nodes that are asked
  std::int64_t rest_ns_ = 0;
  std::int64_t begun_ns_ = 0;  // when it has begun to yield, or went on to
  std::int64_t until_ns_ = 0;  // until when it yields
  bool says_again_ = false;    // that it has begun to
};

}  // namespace forebay::daemon

// A call that does not end shows that the GFS is still slow, so this node does not have to try it
// again to know.
#include "server/daemon/gfs_yield.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "proto/contract/thread_annotations.h"
#include "server/io/log.h"

namespace forebay::daemon {
namespace {

double Seconds(std::int64_t ns) { return static_cast<double>(ns) / 1e9; }

}  // namespace

// Shared with the callbacks, which may come when this object has gone.
struct GfsYield::Answers {
  Mutex mutex;
  std::vector<std::int64_t> call_ns FOREBAY_GUARDED_BY(mutex);
};

void GfsYield::Look() {
  const std::int64_t now_ns = parts_.clock.NowNs();
  const bool yields = parts_.nodes.YieldsFor(plan::YieldReason::kSlowGfs);
  if (yields && std::exchange(says_again_, false)) parts_.begun();
  const stage::GfsCalls::Pace pace = parts_.pace();
  const std::int64_t oldest_ns = pace.oldest_ns;
  // As long as reads end quickly, it is one object that is not answered, and not the GFS.
  const bool is_slow = oldest_ns >= kSlowNs && pace.since_quick_ns >= kSlowNs;
  if (yields && now_ns < (is_slow ? until_ns_ : std::min(begun_ns_ + kRestMinNs, until_ns_))) {
    return;
  }
  if (!is_slow) {
    answers_.reset();
    if (yields) End("its calls end again");
    return;
  }
  const std::optional<std::int64_t> usual_ns = UsualOfOthers();
  if (usual_ns && *usual_ns * kTimes <= oldest_ns) return Begin(now_ns, oldest_ns, *usual_ns);
  if (yields && usual_ns) End("it is as slow for other nodes");
  if (answers_ != nullptr && now_ns - asked_ns_ < kSlowNs) return;
  // Nobody has answered in this turn. Others are asked before that counts.
  asked_in_vain_ = answers_ != nullptr && !usual_ns ? asked_in_vain_ + 1 : 0;
  if (yields && asked_in_vain_ >= 2) End("no other node says how it is there");
  Ask(now_ns);
}

// The median of the answers that have come. Nodes of which no call has ended yet know nothing.
std::optional<std::int64_t> GfsYield::UsualOfOthers() const {
  if (answers_ == nullptr) return std::nullopt;
  const MutexLock lock(answers_->mutex);
  std::vector<std::int64_t> heard = answers_->call_ns;
  if (heard.empty()) return std::nullopt;
  const auto median = heard.begin() + static_cast<std::ptrdiff_t>(heard.size() / 2);
  std::ranges::nth_element(heard, median);
  return *median;
}

// Other nodes each time, so that a few without an answer do no harm.
void GfsYield::Ask(std::int64_t now_ns) {
  answers_ = std::make_shared<Answers>();
  asked_ns_ = now_ns;
  const std::span<const plan::Node> nodes = parts_.nodes.nodes();
  std::size_t asked = 0;
  for (std::size_t i = 0; i < nodes.size() && asked < kAsked; ++i) {
    const NodeRank node = nodes[(turn_++ + parts_.nodes.self().value()) % nodes.size()].rank;
    if (node == parts_.nodes.self() || !parts_.nodes.Lives(node)) continue;
    ++asked;
    parts_.ask(node, [answers = answers_](const Result<std::int64_t>& call_ns) {
      if (!call_ns.has_value() || *call_ns == 0) return;
      const MutexLock lock(answers->mutex);
      answers->call_ns.push_back(*call_ns);
    });
  }
}

void GfsYield::Begin(std::int64_t now_ns, std::int64_t oldest_ns, std::int64_t usual_ns) {
  // Also if it ended to yield before its time.
  const bool is_soon = rest_ns_ > 0 && now_ns - until_ns_ < rest_ns_;
  rest_ns_ = is_soon ? std::min(2 * rest_ns_, kRestMaxNs) : kRestMinNs;
  begun_ns_ = now_ns;
  until_ns_ = now_ns + rest_ns_;
  answers_.reset();
  asked_in_vain_ = 0;
  log::Warn("the GFS has not answered this node for {:.1f} s, and answers other nodes within "
            "{:.3f} s: look at its mount here; other nodes read in place of this one for {:.0f} s",
            Seconds(oldest_ns), Seconds(usual_ns), Seconds(rest_ns_));
  parts_.nodes.SetYields(plan::YieldReason::kSlowGfs, true);
  parts_.begun();
  says_again_ = true;
}

void GfsYield::End(const char* why) {
  log::Warn("this node reads the GFS for others again: {}", why);
  parts_.nodes.SetYields(plan::YieldReason::kSlowGfs, false);
}

}  // namespace forebay::daemon

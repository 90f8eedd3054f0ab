// One short-lived thread for each look: looks are seconds apart, and most streams never need one.
#include "client/connection/home_look.h"

#include <exception>
#include <utility>

namespace forebay::internal {

using std::chrono::steady_clock;

HomeLook::HomeLook(std::chrono::milliseconds period, Ask ask)
    : period_(period), ask_(std::move(ask)), next_(steady_clock::now() + period) {}

std::optional<HomeLook::Found> HomeLook::Poll() {
  const auto now = steady_clock::now();
  {
    const MutexLock lock(mutex_);
    if (is_looking_) return std::nullopt;
    if (found_) return std::exchange(found_, std::nullopt);
    if (now < next_ || interrupt_.is_raised()) return std::nullopt;
    is_looking_ = true;
  }
  next_ = now + period_;
  try {
    // Joins the thread of the look before, which has ended.
    thread_ = std::jthread([this] { Run(); });
  } catch (const std::exception&) {  // no thread, or no memory for one
    const MutexLock lock(mutex_);
    is_looking_ = false;
  }
  return std::nullopt;
}

void HomeLook::Run() {
  std::optional<Found> found;
  try {
    found = ask_(interrupt_);
  } catch (const std::exception& error) {
    // No memory, or no thread for the connection: an exception that leaves a thread would end the
    // program, which reads well from the other node.
    found = Error(ErrorCode::kUnavailable, error.what());
  }
  const MutexLock lock(mutex_);
  found_ = std::move(found);
  is_looking_ = false;
}

}  // namespace forebay::internal

// Signals that ask for an end set a flag, which the loop reads after each step. The handler only
// stores to a lock-free atomic, which is all that a handler may safely do.
#include "trainer/core/machine/stop_signal.h"

#include <signal.h>

#include <atomic>

namespace forebay::train {
namespace {

// A handler can reach only static storage. Lock-free, constant-initialised.
constinit std::atomic<bool> stop_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free);

constexpr int kSignals[] = {SIGTERM, SIGUSR1, SIGINT};

void Remember(int) { stop_requested.store(true, std::memory_order_relaxed); }

}  // namespace

StopSignal::StopSignal() {
  stop_requested.store(false);
  struct sigaction action = {};
  action.sa_handler = Remember;
  for (const int signal : kSignals) {
    // System calls that the signal interrupts go on.
    action.sa_flags = SA_RESTART;
    // A batch system may repeat its warning; of the others the second is meant to end us.
    if (signal != SIGUSR1) action.sa_flags |= static_cast<int>(SA_RESETHAND);
    ::sigaction(signal, &action, nullptr);
  }
}

StopSignal::~StopSignal() {
  struct sigaction action = {};
  action.sa_handler = SIG_DFL;
  for (const int signal : kSignals) ::sigaction(signal, &action, nullptr);
}

bool StopSignal::requested() const { return stop_requested.load(std::memory_order_relaxed); }

}  // namespace forebay::train

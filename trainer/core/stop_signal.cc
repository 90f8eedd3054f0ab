#include "trainer/core/stop_signal.h"

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
  action.sa_flags = SA_RESTART | SA_RESETHAND;
  for (const int signal : kSignals) {
    if (signal == SIGUSR1) {
      // Batch systems may repeat the warning; only the default action of the others is wanted.
      struct sigaction repeated = action;
      repeated.sa_flags = SA_RESTART;
      ::sigaction(signal, &repeated, nullptr);
    } else {
      ::sigaction(signal, &action, nullptr);
    }
  }
}

StopSignal::~StopSignal() {
  struct sigaction action = {};
  action.sa_handler = SIG_DFL;
  for (const int signal : kSignals) ::sigaction(signal, &action, nullptr);
}

bool StopSignal::requested() const { return stop_requested.load(std::memory_order_relaxed); }

}  // namespace forebay::train

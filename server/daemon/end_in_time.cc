// The thread holds the mutex from when the time is over to the end of the process, so HasStopped
// waits for ever then, and the daemon is not destroyed while it is asked for its GFS calls.
#include "server/daemon/end_in_time.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <system_error>
#include <utility>

#include "server/daemon/config/daemon_arguments.h"
#include "server/io/log.h"

namespace forebay::daemon {
namespace {

constexpr auto kLastWords = std::chrono::milliseconds(800);

}  // namespace

EndInTime::EndInTime(EndInTimeParts parts)
    : parts_(std::move(parts)),
      thread_([this](const std::stop_token& stop) { Watch(stop); }) {}

void EndInTime::HasStopped(int exit_code) {
  const MutexLock lock(mutex_);
  has_stopped_ = true;
  exit_code_ = exit_code;
}

void EndInTime::Watch(const std::stop_token& stop) {
  const MutexLock lock(mutex_);
  // The destructor requests the stop of this thread, which ends the wait.
  if (gone_.WaitFor(mutex_, stop, parts_.patience, [&stop] { return stop.stop_requested(); })) {
    return;
  }
  const bool has_stopped = has_stopped_;
  std::atomic<int> code = has_stopped ? exit_code_ : kExitFailure.code;
  // The disk of the log, or of the files, may be what does not answer. So another thread uses them,
  // which ends with the process.
  std::promise<void> said;
  try {
    std::thread last([&] {
      const std::string calls = has_stopped ? "" : parts_.gfs_calls();
      if (!calls.empty()) code = kExitOk.code;
      log::Error("forebayd could not stop within {} ms, and exits without waiting for {}",
                 parts_.patience.count(),
                 calls.empty() ? parts_.steps->now() : "an answer of the GFS: " + calls);
      // The destructors of the socket and the leases would remove these files. After Stop only the
      // lock files are left, which the next daemon takes over: it may have begun to do so.
      if (!has_stopped) RemoveFiles();
      said.set_value();
    });
    said.get_future().wait_for(kLastWords);
    std::_Exit(code);
  } catch (const std::system_error&) {
    // The process may have no more threads, so it ends without a word.
  }
  std::_Exit(code);
}

void EndInTime::RemoveFiles() const {
  for (const std::string& path : parts_.paths) {
    unlink(path.c_str());
    rmdir(std::filesystem::path(path).parent_path().c_str());
  }
}

}  // namespace forebay::daemon

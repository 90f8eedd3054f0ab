// A library that is loaded before all others of a process (LD_PRELOAD), and adds a number of
// seconds to its wall clock. The number stands in the file that $FOREBAY_TEST_CLOCK names, and may
// change at any time. The monotonic clock is as ever. The kernel does not know of it: a wait until
// a time of the wall clock, as those of gRPC's timers (abseil), is too long by what is added. So a
// process whose clock is ahead from its start is no good test.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <ctime>

#include <sys/syscall.h>

namespace {

// Null: there is no such file, and the clock is right.
const std::atomic<std::int64_t>* MapOffset() {
  const char* const path = std::getenv("FOREBAY_TEST_CLOCK");
  if (path == nullptr) return nullptr;
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return nullptr;
  void* const page = mmap(nullptr, sizeof(std::int64_t), PROT_READ, MAP_SHARED, file, 0);
  close(file);
  return page == MAP_FAILED ? nullptr : static_cast<const std::atomic<std::int64_t>*>(page);
}

std::int64_t OffsetSeconds() {
  static const std::atomic<std::int64_t>* const offset = MapOffset();
  return offset == nullptr ? 0 : offset->load(std::memory_order_relaxed);
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const auto result = static_cast<int>(syscall(SYS_clock_gettime, clock, now));
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    now->tv_sec += OffsetSeconds();
  }
  return result;
}

time_t time(time_t* seconds) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (seconds != nullptr) *seconds = now.tv_sec;
  return now.tv_sec;
}

int gettimeofday(timeval* now, void*) noexcept {
  timespec precise{};
  const int result = clock_gettime(CLOCK_REALTIME, &precise);
  now->tv_sec = precise.tv_sec;
  now->tv_usec = precise.tv_nsec / 1000;
  return result;
}

}  // extern "C"

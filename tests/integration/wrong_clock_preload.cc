// A library that is loaded before all others of a process (LD_PRELOAD), and adds a number of
// seconds to its wall clock. The number stands in the file that $FOREBAY_TEST_CLOCK names, and may
// change at any time. The monotonic clock is as ever. A wait until a time of the wall clock, as
// those of gRPC's timers (abseil), ends when the process's own clock has reached that time, as it
// would if the kernel's clock were set. That is so for futexes, by which abseil waits,
// and with it gRPC.
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>
#include <ctime>

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

using SystemCall = long (*)(long, ...);

// syscall() of the C library, which ours stands before.
SystemCall RealSyscall() {
  static const auto real = reinterpret_cast<SystemCall>(dlsym(RTLD_NEXT, "syscall"));
  return real;
}

constexpr std::int64_t kNanosPerSecond = 1'000'000'000;

std::int64_t NanosOf(const timespec& time) { return time.tv_sec * kNanosPerSecond + time.tv_nsec; }

std::int64_t Now(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return NanosOf(now);
}

// futex(2) with FUTEX_WAIT_BITSET and FUTEX_CLOCK_REALTIME. The kernel does not know of our wall
// clock, so we wait by the monotonic one, and look at ours every 50 ms: it may have jumped. If the
// word changes between two such waits, the next one returns at once.
long WaitByWallClock(long word, int operation, long expected, const timespec& until, long bits) {
  for (;;) {
    const std::int64_t left = NanosOf(until) - Now(CLOCK_REALTIME);
    if (left <= 0) {
      errno = ETIMEDOUT;
      return -1;
    }
    const std::int64_t wake_at =
        Now(CLOCK_MONOTONIC) + std::min<std::int64_t>(left, 50'000'000);
    const timespec wake{.tv_sec = wake_at / kNanosPerSecond, .tv_nsec = wake_at % kNanosPerSecond};
    const long result = RealSyscall()(SYS_futex, word, operation & ~FUTEX_CLOCK_REALTIME, expected,
                                      &wake, nullptr, bits);
    if (result == 0 || errno != ETIMEDOUT) return result;
  }
}

}  // namespace

extern "C" {

// Passes on all six arguments that a system call can have, as the C library does.
long syscall(long number, ...) noexcept {
  std::va_list list;
  va_start(list, number);
  long arguments[6];
  for (long& argument : arguments) argument = va_arg(list, long);
  va_end(list);
  const auto operation = static_cast<int>(arguments[1]);
  const auto* const until = reinterpret_cast<const timespec*>(arguments[3]);
  constexpr int kWaitByWallClock = FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME;
  if (number == SYS_futex && (operation & ~FUTEX_PRIVATE_FLAG) == kWaitByWallClock &&
      until != nullptr) {
    return WaitByWallClock(arguments[0], operation, arguments[2], *until, arguments[5]);
  }
  return RealSyscall()(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4],
                       arguments[5]);
}

int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const auto result = static_cast<int>(RealSyscall()(SYS_clock_gettime, clock, now));
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

// Defines open, write, fsync, rename and others again, before those of the C library, and passes
// each call on with a direct system call. The state lies in memory that is shared with forked
// children, so that a parent sees what a killed child has done.
#include "trainer/testing/disk_faults.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstring>
#include <new>

#include "proto/contract/check.h"

namespace forebay::train::testing {
namespace {

constexpr std::size_t kRenamesMax = 512;
constexpr std::size_t kPathMax = 256;
// As <fcntl.h> has them; that header would declare what is defined here.
constexpr int kAtCwd = -100;
constexpr int kAccessMode = 3;

struct Rename {
  std::array<char, kPathMax> from = {};
  std::array<char, kPathMax> to = {};
};

struct Shared {
  std::atomic<pid_t> armed = 0;  // the process that faults are for
  DiskFaultPlan plan;
  std::atomic<std::uint64_t> calls = 0;
  std::atomic<std::uint64_t> refused = 0;
  std::atomic<std::uint64_t> renames = 0;
  std::array<Rename, kRenamesMax> log = {};
};

Shared* shared = nullptr;

bool IsArmed() { return shared != nullptr && shared->armed.load() == ::getpid(); }

enum class Verdict : std::uint8_t { kDo, kRefuse, kDoAndDie };

void Die() { ::kill(::getpid(), SIGKILL); }

Verdict Judge(bool needs_space) {
  if (!IsArmed()) return Verdict::kDo;
  const DiskFaultPlan& plan = shared->plan;
  const std::uint64_t call = ++shared->calls;
  if (call == plan.kill_at && plan.kills_before) Die();
  if (call == plan.kill_at) return Verdict::kDoAndDie;
  if (!needs_space || plan.full_from == 0 || call < plan.full_from ||
      call >= plan.full_from + plan.full_calls) {
    return Verdict::kDo;
  }
  ++shared->refused;
  errno = ENOSPC;
  return Verdict::kRefuse;
}

template <typename Call>
long Judged(bool needs_space, Call call) {
  const Verdict verdict = Judge(needs_space);
  if (verdict == Verdict::kRefuse) return -1;
  const long result = call();
  if (verdict == Verdict::kDoAndDie) Die();
  return result;
}

void Log(const char* from, const char* to) {
  if (!IsArmed()) return;
  const std::uint64_t at = shared->renames++;
  if (at >= kRenamesMax) return;
  std::strncpy(shared->log[at].from.data(), from, kPathMax - 1);
  std::strncpy(shared->log[at].to.data(), to, kPathMax - 1);
}

}  // namespace

DiskFaults::DiskFaults() {
  FOREBAY_CHECK(shared == nullptr);
  void* const memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  FOREBAY_CHECK(memory != MAP_FAILED);
  shared = ::new (memory) Shared;
}

DiskFaults::~DiskFaults() { ::munmap(std::exchange(shared, nullptr), sizeof(Shared)); }

void DiskFaults::Arm(const DiskFaultPlan& plan) {
  shared->armed = 0;
  shared->plan = plan;
  shared->calls = shared->refused = shared->renames = 0;
  shared->armed = ::getpid();
}

std::uint64_t DiskFaults::calls() const { return shared->calls; }
std::uint64_t DiskFaults::refused() const { return shared->refused; }

std::vector<std::pair<std::string, std::string>> DiskFaults::Renames() const {
  const std::uint64_t count = shared->renames;
  FOREBAY_CHECK(count <= kRenamesMax);
  std::vector<std::pair<std::string, std::string>> renames;
  for (std::uint64_t at = 0; at < count; ++at) {
    renames.emplace_back(shared->log[at].from.data(), shared->log[at].to.data());
  }
  return renames;
}

// By names of the linker's, because headers declare these functions, some of them inline.
extern "C" {
int JudgedOpen(const char* path, int flags, ...) __asm__("open");
int JudgedMkdir(const char* path, unsigned mode) __asm__("mkdir");
ssize_t JudgedWrite(int fd, const void* bytes, std::size_t count) __asm__("write");
int JudgedFsync(int fd) __asm__("fsync");
int JudgedFtruncate(int fd, off_t size) __asm__("ftruncate");
int JudgedRename(const char* from, const char* to) __asm__("rename");
int JudgedUnlinkat(int folder, const char* path, int flags) __asm__("unlinkat");

int JudgedOpen(const char* path, int flags, ...) {
  std::va_list arguments;
  va_start(arguments, flags);
  const unsigned mode = va_arg(arguments, unsigned);
  va_end(arguments);
  const auto call = [&] { return ::syscall(SYS_openat, kAtCwd, path, flags, mode); };
  return static_cast<int>((flags & kAccessMode) == 0 ? call() : Judged(true, call));
}

int JudgedMkdir(const char* path, unsigned mode) {
  return static_cast<int>(
      Judged(true, [&] { return ::syscall(SYS_mkdirat, kAtCwd, path, mode); }));
}

ssize_t JudgedWrite(int fd, const void* bytes, std::size_t count) {
  const Verdict verdict = Judge(true);
  if (verdict == Verdict::kRefuse) return -1;
  if (verdict == Verdict::kDo) return ::syscall(SYS_write, fd, bytes, count);
  ::syscall(SYS_write, fd, bytes, count / 2);
  Die();
  return -1;
}

int JudgedFsync(int fd) {
  return static_cast<int>(Judged(false, [&] { return ::syscall(SYS_fsync, fd); }));
}

int JudgedFtruncate(int fd, off_t size) {
  return static_cast<int>(Judged(false, [&] { return ::syscall(SYS_ftruncate, fd, size); }));
}

int JudgedRename(const char* from, const char* to) {
  return static_cast<int>(Judged(false, [&] {
    const long result = ::syscall(SYS_renameat2, kAtCwd, from, kAtCwd, to, 0);
    if (result == 0) Log(from, to);
    return result;
  }));
}

int JudgedUnlinkat(int folder, const char* path, int flags) {
  return static_cast<int>(
      Judged(false, [&] { return ::syscall(SYS_unlinkat, folder, path, flags); }));
}
}

}  // namespace forebay::train::testing

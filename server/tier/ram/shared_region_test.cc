// A client can read a region but not write, grow or shrink it, in whatever way it tries. Attempts
// that must fail run in child processes.
#include "server/tier/ram/shared_region.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace forebay::tier::shared_region_test {

constexpr std::uint64_t kMiB = 1 << 20;

SharedRegion Make(std::uint64_t bytes) {
  Result<SharedRegion> region = SharedRegion::Create("forebay-test", bytes);
  if (!region.has_value()) {
    ADD_FAILURE() << region.error().ToString();
    std::abort();
  }
  return std::move(*region);
}

// Runs `body` in a child process; returns its exit status.
template <typename Body>
int InChild(Body body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

TEST(SharedRegion, WhatTheOwnerWritesAReaderSees) {
  const SharedRegion region = Make(3 * kMiB);
  EXPECT_EQ(region.bytes().size(), 4 * kMiB);  // whole huge pages
  std::memset(region.bytes().data(), 0x5A, region.bytes().size());
  void* view = ::mmap(nullptr, region.bytes().size(), PROT_READ, MAP_SHARED, region.fd(), 0);
  ASSERT_NE(view, MAP_FAILED);
  EXPECT_EQ(std::memcmp(view, region.bytes().data(), region.bytes().size()), 0);
  region.bytes()[0] = std::byte{1};
  EXPECT_EQ(static_cast<const std::byte*>(view)[0], std::byte{1});
  ::munmap(view, region.bytes().size());
}

TEST(SharedRegion, MappingOfAClientOutlivesTheRegion) {
  void* view = nullptr;
  {
    const SharedRegion region = Make(2 * kMiB);
    region.bytes()[7] = std::byte{42};
    view = ::mmap(nullptr, 2 * kMiB, PROT_READ, MAP_SHARED, region.fd(), 0);
    ASSERT_NE(view, MAP_FAILED);
  }
  EXPECT_EQ(static_cast<const std::byte*>(view)[7], std::byte{42});
  ::munmap(view, 2 * kMiB);
}

TEST(SharedRegion, MoveLeavesTheOldOneEmpty) {
  SharedRegion first = Make(2 * kMiB);
  std::byte* const data = first.bytes().data();
  SharedRegion second(std::move(first));
  EXPECT_EQ(second.bytes().data(), data);
  SharedRegion third = Make(2 * kMiB);
  third = std::move(second);
  EXPECT_EQ(third.bytes().data(), data);
  third.bytes()[0] = std::byte{1};
}

TEST(SharedRegion, WorksBeneathASmallLimitOfLockedMemory) {
  EXPECT_EQ(InChild([] {
              const rlimit small = {8 * kMiB, 8 * kMiB};
              if (::setrlimit(RLIMIT_MEMLOCK, &small) != 0) return 1;
              Result<SharedRegion> region = SharedRegion::Create("forebay-test", 64 * kMiB);
              if (!region.has_value()) return 2;
              std::memset(region->bytes().data(), 1, region->bytes().size());
              return 0;
            }),
            0);
}

TEST(SharedRegion, DescriptorIsNotInheritedByPrograms) {
  const SharedRegion region = Make(2 * kMiB);
  EXPECT_NE(::fcntl(region.fd(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(SharedRegion, EverySealIsSet) {
  const SharedRegion region = Make(2 * kMiB);
  EXPECT_EQ(::fcntl(region.fd(), F_GET_SEALS),
            F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
  EXPECT_NE(::fcntl(region.fd(), F_ADD_SEALS, F_SEAL_WRITE), 0);
}

TEST(SharedRegion, WritesThroughTheDescriptorFail) {
  const SharedRegion region = Make(2 * kMiB);
  const std::array<char, 4> bytes = {'e', 'v', 'i', 'l'};
  EXPECT_EQ(::write(region.fd(), bytes.data(), bytes.size()), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::pwrite(region.fd(), bytes.data(), bytes.size(), 4096), -1);
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, region.fd(), 0), MAP_FAILED);
  EXPECT_EQ(errno, EPERM);
}

TEST(SharedRegion, ReopenedDescriptorCannotWriteEither) {
  const SharedRegion region = Make(2 * kMiB);
  const std::string path = "/proc/self/fd/" + std::to_string(region.fd());
  const UniqueFd again(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!again.valid()) return;  // a kernel that refuses the open is as good
  const char byte = 'x';
  EXPECT_EQ(::write(again.get(), &byte, 1), -1);
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_WRITE, MAP_SHARED, again.get(), 0), MAP_FAILED);
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, again.get(), 0), MAP_FAILED);
}

TEST(SharedRegion, SizeAndContentsCannotBeTakenAway) {
  const SharedRegion region = Make(4 * kMiB);
  region.bytes()[0] = std::byte{9};
  EXPECT_NE(::ftruncate(region.fd(), 2 * kMiB), 0);
  EXPECT_NE(::ftruncate(region.fd(), 8 * kMiB), 0);
  EXPECT_NE(::fallocate(region.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
  EXPECT_NE(::fallocate(region.fd(), 0, 4 * kMiB, 4096), 0);
  EXPECT_EQ(region.bytes()[0], std::byte{9});
}

TEST(SharedRegion, ReaderCannotMakeItsMappingWritable) {
  const SharedRegion region = Make(2 * kMiB);
  EXPECT_EQ(InChild([&region] {
              void* view = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, region.fd(), 0);
              if (view == MAP_FAILED) return 1;
              return ::mprotect(view, 4096, PROT_READ | PROT_WRITE) == 0 ? 2 : 0;
            }),
            0);
}

TEST(SharedRegion, ReaderThatWritesDiesAlone) {
  const SharedRegion region = Make(2 * kMiB);
  region.bytes()[0] = std::byte{3};
  const int status = InChild([&region] {
    ::signal(SIGSEGV, SIG_DFL);
    void* view = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, region.fd(), 0);
    if (view == MAP_FAILED) return 1;
    *static_cast<volatile char*>(view) = 1;
    return 2;
  });
  EXPECT_EQ(status, 1000 + SIGSEGV);
  EXPECT_EQ(region.bytes()[0], std::byte{3});
}

TEST(SharedRegion, RefusesNoBytesAndTooMany) {
  const Result<SharedRegion> none = SharedRegion::Create("forebay-test", 0);
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code(), ErrorCode::kInvalidArgument);
  const Result<SharedRegion> most = SharedRegion::Create("forebay-test", ~std::uint64_t{0});
  ASSERT_FALSE(most.has_value());
  EXPECT_EQ(most.error().code(), ErrorCode::kInvalidArgument);
}

TEST(SharedRegion, RefusalOfTheSystemIsResourceExhausted) {
  EXPECT_EQ(InChild([] {
              const rlimit none = {3, 3};  // no descriptor beyond the standard three
              if (::setrlimit(RLIMIT_NOFILE, &none) != 0) return 1;
              const Result<SharedRegion> region = SharedRegion::Create("forebay-test", kMiB);
              if (region.has_value()) return 2;
              return region.error().code() == ErrorCode::kResourceExhausted &&
                             region.error().system_errno() == EMFILE
                         ? 0
                         : 3;
            }),
            0);
  const Result<SharedRegion> huge = SharedRegion::Create("forebay-test", std::uint64_t{1} << 61);
  ASSERT_FALSE(huge.has_value());
  EXPECT_EQ(huge.error().code(), ErrorCode::kResourceExhausted);
}

}  // namespace forebay::tier::shared_region_test

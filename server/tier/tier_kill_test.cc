// A process that stores extents is killed at a random time. All extents that it had committed are
// there, complete, and no other files are left.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <ctime>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "proto/contract/unique_fd.h"
#include "server/io/backend_selection.h"
#include "server/tier/ssd/segment_store.h"
#include "server/tier/testing/tier_test_fixture.h"

#ifndef FOREBAY_KILL_CYCLES
#define FOREBAY_KILL_CYCLES 50
#endif

namespace forebay::tier::tier_kill_test {

using testing::KeyOfNumber;
using testing::MakeExtent;
using testing::Take;
using testing::TestExtent;

constexpr std::uint32_t kNumbers = 24;  // extents that the child puts and removes in turn
constexpr std::uint64_t kCapacityBytes = 256 << 20;

// The extents are made once, before the first child is forked. Otherwise 5 MB of pattern and
// checksums would take longer than all that a child does.
std::vector<TestExtent>& Extents() {
  static std::vector<TestExtent> extents = [] {
    std::vector<TestExtent> made;
    for (std::uint32_t i = 0; i < kNumbers; ++i) made.push_back(MakeExtent(i, 10'000 + i * 17'001));
    return made;
  }();
  return extents;
}

// The child's record of its own actions, in shared memory that outlives it.
struct Journal {
  std::atomic<std::uint32_t> is_putting;
  std::atomic<std::uint32_t> puts;
  // 0: not stored; 1: committed; 2: being put or removed, so either is right.
  std::atomic<std::uint32_t> states[kNumbers];
};

class SharedJournal {
 public:
  SharedJournal()
      : memory_(::mmap(nullptr, sizeof(Journal), PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {}
  ~SharedJournal() { ::munmap(memory_, sizeof(Journal)); }
  SharedJournal(const SharedJournal&) = delete;
  SharedJournal& operator=(const SharedJournal&) = delete;
  bool valid() const { return memory_ != MAP_FAILED; }
  Journal& operator*() const { return *static_cast<Journal*>(memory_); }
  Journal* operator->() const { return static_cast<Journal*>(memory_); }

 private:
  void* const memory_;
};

// The child: puts and removes until it is killed. Returns only on an error.
int StoreForEver(const std::string& path, Journal& journal, int ready_fd) {
  auto selected = io::SelectBackend(io::BackendChoice::kAutomatic);
  if (!selected.has_value()) return 10;
  io::IoBackend& backend = *selected->backend;
  const auto directory = backend.OpenDirectory(path);
  const auto queue = backend.CreateQueue({.depth = 8});
  if (!directory.has_value() || !queue.has_value()) return 11;
  const auto store = SegmentStore::Open(backend, **directory, {kCapacityBytes, true});
  if (!store.has_value()) return 12;
  if (::write(ready_fd, "r", 1) != 1) return 13;
  for (std::uint32_t round = 0;; ++round) {
    const std::uint32_t number = round % kNumbers;
    TestExtent& extent = Extents()[number];
    const bool is_stored = journal.states[number] == 1;
    journal.states[number] = 2;
    if (is_stored) {
      if (!(*store)->Remove(extent.key).has_value()) return 14;
      journal.states[number] = 0;
      continue;
    }
    journal.is_putting = 1;
    const Status put =
        (*store)->Put(**queue, extent.key, extent.image(), extent.checksums);
    if (!put.has_value()) return 15;
    journal.states[number] = 1;
    journal.is_putting = 0;
    ++journal.puts;
  }
}

// Starts a child, lets it work for `work_us` once it is ready, and kills it.
void RunAndKill(const std::string& path, Journal& journal, std::int64_t work_us) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(::pipe(ends), 0);
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(StoreForEver(path, journal, writer.get()));
  writer.Reset();
  char ready = 0;
  const ssize_t got = ::read(reader.get(), &ready, 1);
  // The child's end of the pipe stays open while it lives, so this ends early only if it dies.
  pollfd watched = {reader.get(), 0, 0};
  const timespec wait = {0, work_us * 1000};
  const int died = ::ppoll(&watched, 1, &wait, nullptr);
  ::kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(got, 1);
  EXPECT_EQ(died, 0);
  EXPECT_TRUE(WIFSIGNALED(status)) << "the child failed with " << WEXITSTATUS(status);
}

// Opens what the child left and compares it with the journal, which is then made definite.
void Inspect(const std::string& path, Journal& journal) {
  const auto selected = Take(io::SelectBackend(io::BackendChoice::kAutomatic));
  io::IoBackend& backend = *selected.backend;
  const auto directory = Take(backend.OpenDirectory(path));
  const auto queue = Take(backend.CreateQueue({}));
  const auto store = Take(SegmentStore::Open(backend, *directory, {kCapacityBytes, true}));
  EXPECT_TRUE(testing::StrayNames(*directory).empty());
  EXPECT_EQ(store->recovery().dropped_records, 0U);
  EXPECT_EQ(Take(directory->List("")).size(), store->Keys().size() + 1);
  std::set<std::uint32_t> found;
  for (const ExtentKey& key : store->Keys()) {
    const std::uint32_t number = key.extent.value();
    ASSERT_LT(number, kNumbers);
    found.insert(number);
    FOREBAY_EXPECT_OK(
        testing::VerifySegment(*queue, *Take(store->Get(key)), Extents()[number].pieces));
  }
  for (std::uint32_t number = 0; number < kNumbers; ++number) {
    const bool is_found = found.count(number) != 0;
    const std::uint32_t state = journal.states[number];
    EXPECT_TRUE(state == 2 || is_found == (state == 1)) << "extent " << number;
    journal.states[number] = is_found ? 1 : 0;
  }
}

TEST(TierKill, CommittedSegmentsSurviveAndNothingElseIsLeft) {
  const testing::TempFolder folder;
  const SharedJournal journal;
  ASSERT_TRUE(journal.valid());
  ASSERT_EQ(Extents().size(), kNumbers);
  constexpr std::uint64_t kSeed = 20240607;
  std::mt19937_64 random(kSeed);
  int kills_in_a_put = 0;
  for (int cycle = 0; cycle < FOREBAY_KILL_CYCLES; ++cycle) {
    SCOPED_TRACE("seed " + std::to_string(kSeed) + ", cycle " + std::to_string(cycle));
    journal->is_putting = 0;
    RunAndKill(folder.path(), *journal, 5'000 + static_cast<std::int64_t>(random() % 20'000));
    kills_in_a_put += journal->is_putting == 1 ? 1 : 0;
    Inspect(folder.path(), *journal);
    if (HasFatalFailure()) return;
  }
  std::printf("%d of %d kills with a Put in flight, %u Puts finished\n", kills_in_a_put,
              FOREBAY_KILL_CYCLES, journal->puts.load());
  EXPECT_GE(kills_in_a_put, FOREBAY_KILL_CYCLES / 5);
  EXPECT_GT(journal->puts, 0U);
}

}  // namespace forebay::tier::tier_kill_test

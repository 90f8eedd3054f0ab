// The queue's threads: what they say without memory, what they leave undone when it ends early, and
// that they do not use a record which the caller has written and deleted.
#include "compress/encode/pack/record_queue.h"

#include <fcntl.h>

#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "compress/encode/testing/allocation_watch.h"
#include "compress/encode/testing/pack_test_model.h"

namespace forebay::compress::record_queue_test {

constexpr std::uint32_t kSeed = 20261125;
// A prime: nothing else that is allocated has as many bytes.
constexpr std::size_t kStringBytes = 1'000'003;

// Byte strings, each a chunk.
PackSchema Strings() {
  PackSchema schema;
  schema.fields = {{.name = "noise", .fill_bits = {}, .bound = {}, .samples_per_chunk = 1}};
  return schema;
}

PendingRecord StringOf(std::size_t bytes, std::uint64_t sample) {
  std::mt19937 random(kSeed);
  PendingRecord record;
  record.head = {.first_sample = sample, .sample_count = 1};
  record.lengths = {static_cast<std::uint32_t>(bytes)};
  record.raw.resize(bytes);
  for (std::byte& byte : record.raw) byte = static_cast<std::byte>(random() & 0x3F);
  return record;
}

std::unique_ptr<RecordQueue> OpenQueue(const PackSchema& schema, unsigned threads,
                                       const std::string& path) {
  UniqueFd file(open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  EXPECT_GE(file.get(), 0);
  return std::make_unique<RecordQueue>(schema, ChunkOptions{.profile = Profile::kDense}, threads,
                                       1, path, std::move(file), 0);
}

TEST(RecordQueue, WithoutMemoryIsAnErrorThatNamesFieldAndRemedy) {
  if (!CanWatchAllocations()) GTEST_SKIP() << "sanitizers keep their own operator new";
  const PackSchema schema = Strings();
  for (const unsigned threads : {1U, 3U}) {
    const TestFolder folder;
    const auto queue = OpenQueue(schema, threads, folder.Path("p"));
    PendingRecord record = StringOf(kStringBytes, 0);
    // From here on so many bytes are what an encoder decodes into.
    WatchAllocationsOf(kStringBytes, true);
    Status status = queue->Push(std::move(record));
    if (status.has_value()) status = queue->Finish(1);
    const std::size_t failed = WatchedAllocations();
    WatchAllocationsOf(0, false);
    EXPECT_GT(failed, 0U) << threads;
    ASSERT_FALSE(status.has_value()) << threads;
    EXPECT_EQ(status.error().code(), ErrorCode::kResourceExhausted);
    for (const char* words : {"field noise", "not enough memory", "fewer threads"}) {
      EXPECT_NE(status.error().message().find(words), std::string::npos)
          << status.error().message();
    }
  }
}

// The path is so long that no message about it is made without an allocation.
TEST(RecordQueue, AThreadWithoutAnyMemoryLeftReportsIt) {
  if (!CanWatchAllocations()) GTEST_SKIP() << "sanitizers keep their own operator new";
  const PackSchema schema = Strings();
  const TestFolder folder;
  const auto queue = OpenQueue(schema, 2, folder.Path(std::string(100, 'p')));
  PendingRecord record = StringOf(kStringBytes, 0);
  StarveThreadsAfter(kStringBytes);
  Status status = queue->Push(std::move(record));
  if (status.has_value()) status = queue->Finish(1);
  const std::size_t failed = WatchedAllocations();
  StarveThreadsAfter(0);
  EXPECT_GT(failed, 0U);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code(), ErrorCode::kResourceExhausted);
  EXPECT_NE(status.error().message().find("field noise"), std::string::npos);
}

// The first string fails at once, while the second takes far longer than all others: the thread
// that failed begins none of those that wait.
TEST(RecordQueue, ThatFailedBeginsNothingElse) {
  if (!CanWatchAllocations()) GTEST_SKIP() << "sanitizers keep their own operator new";
  constexpr std::size_t kShortBytes = 10'007;
  const PackSchema schema = Strings();
  const TestFolder folder;
  auto queue = OpenQueue(schema, 2, folder.Path("p"));
  std::vector<PendingRecord> records;
  for (std::size_t i = 0; i < 5; ++i) {
    records.push_back(StringOf(i == 1 ? kStringBytes : kShortBytes, i));
  }
  WatchAllocationsOf(kShortBytes, true);
  for (PendingRecord& record : records) ASSERT_TRUE(queue->Push(std::move(record)).has_value());
  const Status status = queue->Finish(5);
  // The error stays: nothing waits for records that nobody begins.
  const Status again = queue->Push({});
  const Status finished = queue->Finish(5);
  queue.reset();
  const std::size_t failed = WatchedAllocations();
  WatchAllocationsOf(0, false);
  EXPECT_EQ(failed, 1U) << "strings behind the one that failed were encoded";
  for (const Status& each : {status, again, finished}) {
    ASSERT_FALSE(each.has_value());
    EXPECT_EQ(each.error().code(), ErrorCode::kResourceExhausted);
  }
}

// The last of five strings waits behind two that two threads encode, each of which takes far longer
// than the lines from the first Push to the queue's end.
TEST(RecordQueue, ThatEndsEarlyLeavesWhatWaitsUndone) {
  if (!CanWatchAllocations()) GTEST_SKIP() << "sanitizers keep their own operator new";
  const PackSchema schema = Strings();
  const TestFolder folder;
  auto queue = OpenQueue(schema, 2, folder.Path("p"));
  std::vector<PendingRecord> records;
  for (std::size_t i = 0; i < 5; ++i) records.push_back(StringOf(kStringBytes + 2 * i, i));
  WatchAllocationsOf(kStringBytes + 8, false);
  for (PendingRecord& record : records) ASSERT_TRUE(queue->Push(std::move(record)).has_value());
  queue.reset();
  EXPECT_EQ(WatchedAllocations(), 0U) << "the last string was encoded for nobody";
  // All of them are encoded where the queue is brought to its end.
  queue = OpenQueue(schema, 2, folder.Path("q"));
  records.clear();
  for (std::size_t i = 0; i < 5; ++i) records.push_back(StringOf(kStringBytes + 2 * i, i));
  WatchAllocationsOf(kStringBytes + 8, false);
  for (PendingRecord& record : records) ASSERT_TRUE(queue->Push(std::move(record)).has_value());
  ASSERT_TRUE(queue->Finish(5).has_value());
  EXPECT_GT(WatchedAllocations(), 0U);
  WatchAllocationsOf(0, false);
}

// Many queues at a time on few cores, with records that are encoded in no time: a thread is often
// interrupted right after it has encoded one, and the caller, who does not sleep then, writes and
// deletes the record meanwhile. A thread that looked at it once more took what lay there by then
// for a failure, so all threads ended and the caller waited for ever.
TEST(RecordQueue, ThreadsThatAreInterruptedUseNoRecordThatTheCallerHasDeleted) {
  const PackSchema schema = Strings();
  constexpr std::uint64_t kQueues = 100, kRecords = 60;
  OverwriteFreedMemory(true);
  const auto run_queues = [&] {
    const TestFolder folder;
    for (std::uint64_t i = 0; i < kQueues; ++i) {
      const auto queue = OpenQueue(schema, 2, folder.Path("p"));
      for (std::uint64_t sample = 0; sample < kRecords; ++sample) {
        EXPECT_TRUE(queue->Push(StringOf(1, sample)).has_value());
      }
      EXPECT_TRUE(queue->Finish(kRecords).has_value());
      EXPECT_EQ(queue->index().chunks.size(), kRecords);
    }
  };
  std::vector<std::jthread> callers;
  for (int i = 0; i < 8; ++i) callers.emplace_back(run_queues);
  callers.clear();
  OverwriteFreedMemory(false);
}

}  // namespace forebay::compress::record_queue_test

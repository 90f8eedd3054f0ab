// The scheduler alone: its streams are test doubles, and its tasks run when a test says so.
#include "server/stream/batch_scheduler.h"

#include <chrono>
#include <cstring>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "proto/contract/limits.h"
#include "server/io/testing/faulty_backend.h"
#include "server/io/testing/manual_clock.h"
#include "server/io/testing/memory_backend.h"
#include "server/stream/testing/serve_fixture.h"

namespace forebay::stream::batch_scheduler_test {

constexpr std::size_t kRecordBytes = 1000;

// Runs its tasks one by one, in the thread that cranks.
class HandCranked final : public io::Executor {
 public:
  explicit HandCranked(std::unique_ptr<io::IoQueue> queue) : queue_(std::move(queue)) {}
  void Post(io::Task task) override {
    std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  std::size_t waiting() const {
    std::lock_guard lock(mutex_);
    return tasks_.size();
  }
  // Runs one task; false if there is none.
  bool Crank() {
    std::unique_lock lock(mutex_);
    if (tasks_.empty()) return false;
    const io::Task task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task(*queue_);
    return true;
  }
  void CrankAll() {
    while (Crank()) {
    }
  }

 private:
  std::unique_ptr<io::IoQueue> queue_;
  mutable std::mutex mutex_;  // extents arrive on threads of the stager
  std::deque<io::Task> tasks_;
};

// A stream that takes batches, or that does not.
class ScriptedOwner final : public BatchOwner {
 public:
  explicit ScriptedOwner(std::shared_ptr<const StreamSpec> spec) : spec_(std::move(spec)) {}

  const StreamSpec& spec() const override { return *spec_; }
  std::stop_token unwanted() const override { return closing.get_token(); }
  std::uint64_t StepsUntil(const BatchName&) const override { return 0; }
  void Answer(std::span<AnsweredBatch> batches) override {
    const std::lock_guard lock(mutex);
    calls.push_back(batches.size());
    for (AnsweredBatch& batch : batches) {
      if (!batch.outcome.has_value()) {
        errors.push_back(batch.outcome.error());
        continue;
      }
      if (!takes) continue;
      names.push_back(batch.job->name);
      other_samples.push_back(batch.outcome->other_samples);
      holds.push_back(std::exchange(batch.outcome->hold, {}));
      rooms.push_back(batch.job->room);
      batch.id = names.size();
    }
  }

  std::stop_source closing;
  bool takes = true;
  // Rows that this node reads itself arrive on threads of the fixture. Tests that have such rows
  // hold it while they look.
  std::mutex mutex;
  std::vector<std::size_t> calls;  // how many batches each brought
  std::vector<BatchName> names;
  std::vector<std::size_t> other_samples;
  std::vector<BatchHold> holds;
  std::vector<BatchRoom> rooms;
  std::vector<Error> errors;

 private:
  const std::shared_ptr<const StreamSpec> spec_;
};

class BatchSchedulerTest : public ::testing::Test {
 protected:
  explicit BatchSchedulerTest(const ServeOptions& options = {.slot_bytes = 64 << 10},
                              std::uint64_t records = 64,
                              OrderMode mode = OrderMode::kGlobal) {
    EXPECT_TRUE(memory_.AddDirectory("/ssd").has_value());
    EXPECT_TRUE(memory_.AddFile("/gfs/data.bin", ServeFixture::RecordFile(records, kRecordBytes))
                    .has_value());
    auto made = ServeFixture::Create(backend_, kRecordBytes, options);
    EXPECT_TRUE(made.has_value());
    serve_ = std::move(*made);
    EXPECT_TRUE(serve_->StageAll().has_value());
    executor_.emplace(*backend_.CreateQueue({.depth = 4}));
    scheduler_.emplace(SchedulerOptions{.has_ssd = options.ssd_bytes > 0,
                                        .view_pin_bytes = options.view_pin_bytes},
                       SchedulerParts{.fetcher = serve_->fetcher(),
                                      .decoded = serve_->decoded(),
                                      .executor = *executor_,
                                      .slots = serve_->slots(),
                                      .clock = clock_,
                                      .rows = serve_->router()});
    // A batch takes two pages: 8 records of 1,000 bytes.
    Open({.batch = 8, .credits = 2, .mode = mode});
  }
  ~BatchSchedulerTest() override { scheduler_->Dismiss(*slots_); }

  // From now on the batches are of this stream.
  void Open(const ServeFixture::Ask& ask) {
    if (slots_) scheduler_->Dismiss(*slots_);
    auto spec = ResolveStream(serve_->dataset(), *serve_->Request(ask));
    EXPECT_TRUE(spec.has_value());
    spec_ = std::make_shared<const StreamSpec>(std::move(*spec));
    owner_ = std::make_shared<ScriptedOwner>(spec_);
    slots_ = scheduler_->Admit(spec_).value();
  }
  void Submit(std::initializer_list<std::uint64_t> steps) {
    std::vector<BatchName> names;
    for (const std::uint64_t step : steps) names.push_back({.step = StepId(step)});
    scheduler_->Submit(owner_, slots_, names);
  }

  // The reader gives back the batch that came as number `index`.
  void Release(std::size_t index) {
    std::vector<HeldBatches::Held> batches(1);
    {
      const std::lock_guard lock(owner_->mutex);
      batches[0] = {.hold = std::exchange(owner_->holds[index], {}), .room = owner_->rooms[index]};
    }
    scheduler_->Release(*slots_, std::move(batches));
  }

  io::MemoryBackend memory_;
  io::FaultInjector injector_;
  io::FaultyBackend backend_{memory_, injector_};
  io::ManualClock clock_;
  std::unique_ptr<ServeFixture> serve_;
  std::optional<HandCranked> executor_;
  std::optional<BatchScheduler> scheduler_;
  std::shared_ptr<const StreamSpec> spec_;
  std::shared_ptr<ScriptedOwner> owner_;
  std::shared_ptr<StreamSlots> slots_;
};

TEST_F(BatchSchedulerTest, BatchesComeInTheOrderInWhichTheyWereSubmitted) {
  Submit({3, 1, 2});
  EXPECT_TRUE(owner_->names.empty()) << "nothing is assembled within the call";
  executor_->CrankAll();
  ASSERT_EQ(owner_->names.size(), 3U);
  EXPECT_EQ(owner_->names[0].step, StepId(3));
  EXPECT_EQ(owner_->names[2].step, StepId(2));
}

TEST_F(BatchSchedulerTest, SmallBatchesOfOnePullAreAssembledByOneTaskAndHandedOverTogether) {
  Submit({0, 1});
  EXPECT_EQ(executor_->waiting(), 1U);
  executor_->CrankAll();
  EXPECT_EQ(owner_->calls, (std::vector<std::size_t>{2}));
}

// The extents of 64 records, some in RAM and some on SSD.
class SsdBatchTest : public BatchSchedulerTest {
 protected:
  static constexpr std::uint64_t kExtentBytes = 8 << 10;
  SsdBatchTest()
      : BatchSchedulerTest({.ram_bytes = 48 << 10,
                            .slot_bytes = 256 << 10,
                            .ssd_bytes = 1 << 20,
                            .extent_bytes = kExtentBytes}) {
    Open({.batch = 8, .credits = 4, .mode = OrderMode::kSequential});
  }

  bool IsInRam(std::uint64_t step) {
    const std::uint64_t begin = step * 8 * kRecordBytes;
    for (std::uint64_t at = begin / kExtentBytes;
         at <= (begin + 8 * kRecordBytes - 1) / kExtentBytes; ++at) {
      const auto key = serve_->dataset().key(ExtentId(static_cast<std::uint32_t>(at)));
      if (!serve_->cache().FindOn(key, tier::TierKind::kRam)) return false;
    }
    return true;
  }
};

TEST_F(SsdBatchTest, ABatchThatReadsSsdHoldsBackNoOther) {
  std::vector<std::uint64_t> in_ram;
  std::vector<std::uint64_t> on_ssd;
  for (std::uint64_t step = 0; step < 8; ++step) (IsInRam(step) ? in_ram : on_ssd).push_back(step);
  ASSERT_FALSE(in_ram.empty());
  ASSERT_FALSE(on_ssd.empty());
  Submit({in_ram[0], on_ssd[0], in_ram[0]});
  ASSERT_EQ(executor_->waiting(), 1U);
  executor_->Crank();
  EXPECT_EQ(owner_->calls, (std::vector<std::size_t>{1, 1})) << "the first came before the read";
  EXPECT_EQ(executor_->waiting(), 1U) << "and the last one has a task of its own";
  executor_->CrankAll();
  EXPECT_TRUE(owner_->errors.empty());
  EXPECT_EQ(owner_->names.size(), 3U);
}

// Twelve chunks, an extent each, of which the RAM tier takes about half.
class CompressedBatchTest : public BatchSchedulerTest {
 protected:
  static constexpr std::uint32_t kExtents = 12;
  static constexpr std::uint32_t kSamplesOfExtent = 16;
  CompressedBatchTest()
      : BatchSchedulerTest({.ram_bytes = 128 << 10,
                            .slot_bytes = 256 << 10,
                            .extent_bytes = 16 << 10,
                            .readers = 1,
                            .compression = stage::Compression::kFast},
                           kExtents * kSamplesOfExtent, OrderMode::kSequential) {}
};

// The chunk that the batch found decoded is dropped while it waits for the other one. Until it has
// its turn to wait for both, it keeps none from the batches before it.
TEST_F(CompressedBatchTest, ABatchThatIsPlannedAnewKeepsNothingOfItsFirstWait) {
  ASSERT_EQ(serve_->dataset().catalog()->extent_count(), kExtents);
  Open({.batch = kSamplesOfExtent, .mode = OrderMode::kSequential});
  Submit({0});
  executor_->CrankAll();
  ASSERT_EQ(owner_->names.size(), 1U) << "the first chunk is decoded";
  std::vector<ExtentId> others;
  for (std::uint32_t i = 0; i < kExtents; ++i) {
    if (i > 1 && others.size() < 6) others.push_back(ExtentId(i));
    static_cast<void>(serve_->cache().Evict(serve_->dataset().key(ExtentId(i)), std::nullopt));
  }
  owner_->holds.clear();
  Open({.batch = 2 * kSamplesOfExtent, .mode = OrderMode::kSequential});
  Submit({0});
  ASSERT_TRUE(executor_->Crank());
  while (executor_->waiting() == 0) std::this_thread::yield();  // the second chunk has come
  ASSERT_FALSE(serve_->cache().Find(serve_->dataset().key(ExtentId(0))));
  ASSERT_GT(serve_->cache().stats(tier::TierKind::kRam).pinned_bytes, 0U);

  serve_->decoded().Forget(serve_->dataset().hash());
  injector_.Arm({.kind = io::FaultKind::kStall, .call = io::IoCall::kRead});
  std::promise<void> came;
  serve_->fetcher().Acquire(serve_->dataset(), others, {.need = fetch::Need::kRuns},
                            [&](const auto&) { came.set_value(); });
  while (injector_.faults_injected() == 0) std::this_thread::yield();
  executor_->CrankAll();
  EXPECT_EQ(serve_->fetcher().waiting(), 1U) << "the room is full";
  EXPECT_EQ(serve_->cache().stats(tier::TierKind::kRam).pinned_bytes, 0U);

  injector_.ReleaseStalls();
  came.get_future().get();
  while (owner_->names.empty() && owner_->errors.empty()) {
    if (!executor_->Crank()) std::this_thread::yield();
  }
  EXPECT_EQ(owner_->names.size(), 1U);
}

// Twelve extents, of which the RAM tier takes about half.
class CrowdedViewsTest : public BatchSchedulerTest {
 protected:
  static inline const ServeFixture::Ask kViews = {
      .batch = 8, .delivery = Delivery::kViews, .mode = OrderMode::kSequential};

  explicit CrowdedViewsTest(std::uint64_t slot_bytes = 1 << 20,
                            std::uint64_t view_pin_bytes = 96 << 10)
      : BatchSchedulerTest({.ram_bytes = 128 << 10,
                            .slot_bytes = slot_bytes,
                            .extent_bytes = 16 << 10,
                            .readers = 1,
                            .view_pin_bytes = view_pin_bytes},
                           192, OrderMode::kSequential) {}

  // Assembles the first batch.
  BatchHold Read() {
    Submit({0});
    while (owner_->holds.empty() && owner_->errors.empty()) {
      if (!executor_->Crank()) std::this_thread::yield();
    }
    EXPECT_TRUE(owner_->errors.empty()) << owner_->errors.at(0).ToString();
    if (owner_->holds.empty()) return {};
    BatchHold hold = std::move(owner_->holds[0]);
    owner_->holds.clear();
    return hold;
  }
  // It is in one extent.
  bool IsInPlace() {
    const BatchHold hold = Read();
    EXPECT_EQ(hold.views != nullptr, hold.slot.bytes().empty());
    return hold.slot.bytes().empty();
  }
};

TEST_F(CrowdedViewsTest, WhileReadersWaitForRoomInRamViewsAreCopied) {
  Open(kViews);
  ASSERT_TRUE(IsInPlace());
  std::vector<ExtentId> wanted[2];
  for (std::uint32_t i = 1; i < 12; ++i) {
    static_cast<void>(serve_->cache().Evict(serve_->dataset().key(ExtentId(i)), std::nullopt));
    wanted[i > 7].push_back(ExtentId(i));
  }
  injector_.Arm({.kind = io::FaultKind::kStall, .call = io::IoCall::kRead});
  std::promise<void> came[2];
  std::atomic<std::uint64_t> steps = 3;
  for (std::size_t i = 0; i < 2; ++i) {
    serve_->fetcher().Acquire(
        serve_->dataset(), wanted[i],
        {.need = fetch::Need::kRuns, .steps = [&steps] { return steps.load(); }},
        [&, i](const auto&) { came[i].set_value(); });
  }
  EXPECT_EQ(serve_->fetcher().waiting(), 1U);
  EXPECT_TRUE(IsInPlace()) << "nobody needs yet what waits";
  steps = 0;
  EXPECT_FALSE(IsInPlace());

  while (injector_.faults_injected() == 0) std::this_thread::yield();
  injector_.ReleaseStalls();
  serve_->fetcher().LookAgain();
  for (std::promise<void>& end : came) end.get_future().get();
  EXPECT_TRUE(IsInPlace()) << "nobody waits any more";
}

// Views may pin nothing here.
class UnpromisedViewsTest : public CrowdedViewsTest {
 protected:
  explicit UnpromisedViewsTest(std::uint64_t slot_bytes = 1 << 20)
      : CrowdedViewsTest(slot_bytes, 0) {}
};

TEST_F(UnpromisedViewsTest, AStreamThatWasPromisedNoSlotsCopiesIntoWhatIsLeft) {
  ServeFixture::Ask many = kViews;
  many.credits = 16;
  Open(many);
  ASSERT_EQ(slots_->need.held_bytes, 0U) << "16 batches of copies have no room";
  EXPECT_FALSE(IsInPlace());
}

class TinySlotsTest : public UnpromisedViewsTest {
 protected:
  TinySlotsTest() : UnpromisedViewsTest(16 << 10) {}
};

TEST_F(TinySlotsTest, ViewsWaitForNoSlotMemoryThatTheyWereNotPromised) {
  Open(kViews);
  ASSERT_EQ(slots_->need.held_bytes, 0U) << "not even one batch of copies has room";
  EXPECT_TRUE(IsInPlace());
}

TEST_F(BatchSchedulerTest, ABatchOfAClosedStreamIsCancelledWithoutBeingAssembled) {
  Submit({0});
  owner_->closing.request_stop();
  executor_->CrankAll();
  ASSERT_EQ(owner_->errors.size(), 1U);
  EXPECT_EQ(owner_->errors[0].code(), ErrorCode::kCancelled);
}

TEST_F(BatchSchedulerTest, AWrongNameFailsAlone) {
  Submit({1'000, 0});
  executor_->CrankAll();
  ASSERT_EQ(owner_->errors.size(), 1U);
  EXPECT_EQ(owner_->errors[0].code(), ErrorCode::kOutOfRange);
  EXPECT_EQ(owner_->names.size(), 1U);
}

TEST_F(BatchSchedulerTest, ABatchThatNobodyTakesLeavesNoMemoryBehind) {
  owner_->takes = false;
  Submit({0, 1, 2, 3});
  executor_->CrankAll();
  EXPECT_EQ(serve_->slots().used_bytes(), 0U);
  EXPECT_EQ(slots_->promises_left, slots_->promised);
}

TEST_F(BatchSchedulerTest, BatchesBeyondThePromiseWaitForARelease) {
  // Another stream has all the memory that is not promised to this one.
  auto other = ResolveStream(serve_->dataset(), *serve_->Request({.batch = 8, .credits = 6}));
  ASSERT_TRUE(other.has_value());
  const auto others = scheduler_->Admit(std::make_shared<const StreamSpec>(std::move(*other)));
  ASSERT_TRUE(others.has_value()) << others.error().ToString();
  ASSERT_FALSE(scheduler_->Admit(spec_).has_value()) << "some memory is not promised";
  Submit({0, 1, 2});
  executor_->CrankAll();
  ASSERT_EQ(owner_->names.size(), 2U);
  owner_->holds.resize(1);
  Release(0);
  EXPECT_EQ(executor_->waiting(), 1U);
  executor_->CrankAll();
  EXPECT_EQ(owner_->names.size(), 3U);
  scheduler_->Dismiss(**others);
}

TEST_F(BatchSchedulerTest, ABatchThatWaitsForMemoryTooLongIsFailed) {
  auto other = ResolveStream(serve_->dataset(), *serve_->Request({.batch = 8, .credits = 6}));
  ASSERT_TRUE(other.has_value());
  const auto others = scheduler_->Admit(std::make_shared<const StreamSpec>(std::move(*other)));
  ASSERT_TRUE(others.has_value()) << others.error().ToString();
  Submit({0, 1, 2});
  executor_->CrankAll();
  ASSERT_EQ(owner_->names.size(), 2U);
  scheduler_->ExpireWaiting();
  EXPECT_TRUE(owner_->errors.empty());
  clock_.AdvanceNs((limits::kPullDeadlineMs + 1) * 1'000'000);
  scheduler_->ExpireWaiting();
  ASSERT_EQ(owner_->errors.size(), 1U);
  EXPECT_EQ(owner_->errors[0].code(), ErrorCode::kUnavailable);
  scheduler_->Dismiss(**others);
}

// --- rows of other nodes --------------------------------------------------------------------

// Another node, which answers when the test says so, and never for whole extents.
class HeldNode final : public fetch::RowSource, public stage::ExtentSource {
 public:
  void Read(std::shared_ptr<const fetch::RowRequest> request, Done done) override {
    held.emplace_back(std::move(request), std::move(done));
  }
  Result<stage::SuppliedExtent> Read(const stage::ExtentRequest&, const stage::AllocateImage&,
                                     io::IoQueue&) override {
    return Error(ErrorCode::kUnavailable, "no answer");
  }
  // Ends the oldest request; without an error, with the records of its samples.
  void Answer(const Status& status = {}) {
    const auto [request, done] = std::move(held.front());
    held.pop_front();
    for (const fetch::Row& row : request->rows) {
      if (!status.has_value()) continue;
      const std::string record = ServeFixture::RecordOf(row.sample.value(), kRecordBytes);
      std::memcpy(row.memory.data(), record.data(), record.size());
    }
    done(status);
  }

  std::deque<std::pair<std::shared_ptr<const fetch::RowRequest>, Done>> held;
};

struct TwoNodes {
  HeldNode other;
  plan::Membership nodes{NodeRank(0), {{NodeRank(0), 1}, {NodeRank(1), 1}}};
};

class RowsOfOthersTest : protected TwoNodes, public BatchSchedulerTest {
 protected:
  explicit RowsOfOthersTest(std::uint64_t ram_bytes = 1 << 20,
                            OrderMode mode = OrderMode::kGlobal, std::uint64_t records = 64,
                            std::uint64_t slot_bytes = 64 << 10)
      : BatchSchedulerTest({.ram_bytes = ram_bytes,
                            .slot_bytes = slot_bytes,
                            .extent_bytes = 4 << 10,
                            .nodes = &nodes,
                            .extents = &other,
                            .rows = &other},
                           records, mode) {}

  static constexpr std::int64_t kSlowNs = 60'000'000;
  static constexpr std::int64_t kSecondNs = 1'000'000'000;

  // Reads the last batch, whose rows come after so many nanoseconds.
  void AskOnce(std::int64_t after_ns) {
    Submit({spec_->plan.steps() - 1});
    executor_->CrankAll();
    ASSERT_EQ(other.held.size(), 1U);
    clock_.AdvanceNs(after_ns);
    other.Answer();
    Release(0);
    owner_->names.clear();
    owner_->holds.clear();
    owner_->rooms.clear();
    owner_->other_samples.clear();
    owner_->calls.clear();
  }
  // The first second of a stream is over.
  void BeginLater() { clock_.AdvanceNs(kSecondNs); }

  void ExpectRecords(const BatchHold& hold, std::uint64_t step) {
    const Order order(owner_->spec().order, EpochId(0));
    for (std::uint64_t i = 0; i < 8; ++i) {
      const std::uint64_t sample = order.Forward(Position(step * 8 + i));
      const std::string record = ServeFixture::RecordOf(sample, kRecordBytes);
      EXPECT_EQ(std::memcmp(hold.slot.bytes().data() + i * kRecordBytes, record.data(),
                            kRecordBytes),
                0)
          << "sample " << sample;
    }
  }
  std::uint64_t gfs_bytes() { return serve_->dataset().progress().gfs_bytes; }
};

TEST_F(RowsOfOthersTest, ABatchIsDeliveredOnceItsRowsHaveArrivedInItsSlot) {
  const std::uint64_t staged = gfs_bytes();
  Submit({0});
  Submit({1});
  executor_->CrankAll();
  ASSERT_EQ(other.held.size(), 2U) << "one request for each batch that was pulled alone";
  EXPECT_TRUE(owner_->names.empty());
  for (const fetch::Row& row : other.held.front().first->rows) {
    EXPECT_EQ(row.memory.size(), kRecordBytes);
  }
  other.Answer();
  ASSERT_EQ(owner_->names.size(), 1U);
  other.Answer();
  ASSERT_EQ(owner_->names.size(), 2U);
  ExpectRecords(owner_->holds[0], 0);
  ExpectRecords(owner_->holds[1], 1);
  EXPECT_EQ(gfs_bytes(), staged);
}

TEST_F(RowsOfOthersTest, SmallBatchesOfOnePullAskTogetherAndAreHandedOverTogether) {
  BeginLater();
  Submit({0, 1});
  executor_->CrankAll();
  ASSERT_EQ(other.held.size(), 1U);
  const std::size_t asked = other.held.front().first->rows.size();
  EXPECT_TRUE(owner_->names.empty());
  other.Answer();
  EXPECT_EQ(owner_->calls, (std::vector<std::size_t>{2}));
  ASSERT_EQ(owner_->names.size(), 2U);
  EXPECT_EQ(owner_->names[0].step, StepId(0));
  ExpectRecords(owner_->holds[0], 0);
  ExpectRecords(owner_->holds[1], 1);
  EXPECT_EQ(owner_->other_samples[0] + owner_->other_samples[1], asked);
  EXPECT_GT(owner_->other_samples[0], 0U);
  EXPECT_GT(owner_->other_samples[1], 0U);
}

TEST_F(RowsOfOthersTest, AfterASlowAnswerBatchesAskOneByOneForASecond) {
  BeginLater();
  AskOnce(kSlowNs);
  for (const std::size_t requests : {2U, 1U}) {
    Submit({0, 1});
    executor_->CrankAll();
    EXPECT_EQ(other.held.size(), requests);
    while (!other.held.empty()) other.Answer();
    ASSERT_EQ(owner_->names.size(), 2U);
    Release(0);
    Release(1);
    owner_->names.clear();
    owner_->holds.clear();
    owner_->rooms.clear();
    BeginLater();
  }
}

TEST_F(RowsOfOthersTest, InTheFirstSecondOfAStreamBatchesAskOneByOne) {
  Submit({0, 1});
  executor_->CrankAll();
  EXPECT_EQ(other.held.size(), 2U);
  while (!other.held.empty()) other.Answer();
}

TEST_F(RowsOfOthersTest, AnErrorThatIsAboutOneBatchDoesNotFailThoseThatAskedWithIt) {
  BeginLater();
  Submit({0, 1});
  executor_->CrankAll();
  ASSERT_EQ(other.held.size(), 1U);
  const Error changed(ErrorCode::kFailedPrecondition, "an object has changed");
  other.Answer(changed);
  ASSERT_EQ(other.held.size(), 2U) << "each asks alone";
  EXPECT_TRUE(owner_->calls.empty());
  other.Answer();
  ASSERT_EQ(owner_->names.size(), 1U);
  EXPECT_EQ(owner_->names[0].step, StepId(0));
  ExpectRecords(owner_->holds[0], 0);
  other.Answer(changed);
  ASSERT_EQ(owner_->errors.size(), 1U);
  EXPECT_EQ(owner_->errors[0].code(), ErrorCode::kFailedPrecondition);
  EXPECT_TRUE(other.held.empty()) << "not asked a third time";
  owner_->holds.clear();
  EXPECT_EQ(serve_->slots().used_bytes(), 0U);
}

TEST_F(RowsOfOthersTest, AnErrorThatPassesIsLeftToTheReaderWhichThenAsksOneByOne) {
  BeginLater();
  Submit({0, 1});
  executor_->CrankAll();
  ASSERT_EQ(other.held.size(), 1U);
  other.Answer(Error(ErrorCode::kAborted, "its GFS does not respond"));
  ASSERT_EQ(owner_->errors.size(), 2U);
  EXPECT_EQ(owner_->errors[0].code(), ErrorCode::kUnavailable);
  EXPECT_EQ(serve_->slots().used_bytes(), 0U);
  EXPECT_EQ(slots_->promises_left, slots_->promised);
  AskOnce(0);  // quickly; the batches that failed must not meet again all the same
  clock_.AdvanceNs(60 * kSecondNs);
  Submit({0, 1});
  executor_->CrankAll();
  EXPECT_EQ(other.held.size(), 2U);
  while (!other.held.empty()) other.Answer();
  EXPECT_EQ(owner_->names.size(), 2U);
}

TEST_F(RowsOfOthersTest, BatchesOfAStreamThatHasClosedAreNotAskedForAgain) {
  BeginLater();
  Submit({0, 1});
  executor_->CrankAll();
  ASSERT_EQ(other.held.size(), 1U);
  owner_->closing.request_stop();
  other.Answer(Error(ErrorCode::kCancelled, "nobody waits for it"));
  EXPECT_TRUE(other.held.empty());
  EXPECT_EQ(owner_->errors.size(), 2U);
  EXPECT_EQ(serve_->slots().used_bytes(), 0U);
  EXPECT_EQ(slots_->promises_left, slots_->promised);
}

class ManyRowsTest : public RowsOfOthersTest {
 protected:
  ManyRowsTest() : RowsOfOthersTest(1 << 20, OrderMode::kGlobal, 512, 1 << 20) {}
};

TEST_F(ManyRowsTest, ARequestHasABoundedNumberOfRows) {
  Open({.batch = 8, .credits = 63});
  BeginLater();
  std::vector<BatchName> names;
  for (std::uint64_t step = 0; step < 62; ++step) names.push_back({.step = StepId(step)});
  scheduler_->Submit(owner_, slots_, names);
  executor_->CrankAll();
  std::size_t rows = 0;
  for (const auto& [request, done] : other.held) {
    EXPECT_LE(request->rows.size(), 128U);
    rows += request->rows.size();
  }
  EXPECT_GT(rows, 128U);
  EXPECT_LT(other.held.size(), 5U);
  while (!other.held.empty()) other.Answer();
  EXPECT_EQ(owner_->names.size(), 62U);
  owner_->holds.clear();
}

// The RAM tier takes nine of 16 extents.
class CrowdedRowsTest : public RowsOfOthersTest {
 protected:
  CrowdedRowsTest() : RowsOfOthersTest(36 << 10, OrderMode::kSequential) {}
};

TEST_F(CrowdedRowsTest, WhileReadersWaitForRoomInRamBatchesAskOneByOne) {
  // Two batches that need rows of the other node, and extents that neither of them needs.
  std::vector<std::uint64_t> steps;
  std::vector<ExtentId> others;
  for (std::uint64_t step = 0; step < 8; ++step) {
    std::vector<ExtentId> own;
    for (std::uint32_t i = 0; i < 2; ++i) {
      const ExtentId extent(static_cast<std::uint32_t>(step) * 2 + i);
      if (!serve_->dataset().IsRemote(extent)) own.push_back(extent);
    }
    if (own.size() < 2 && steps.size() < 2) {
      steps.push_back(step);
    } else {
      others.insert(others.end(), own.begin(), own.end());
    }
  }
  ASSERT_EQ(steps.size(), 2U);
  ASSERT_EQ(others.size(), 7U);
  BeginLater();
  for (const ExtentId extent : others) {
    static_cast<void>(serve_->cache().Evict(serve_->dataset().key(extent), std::nullopt));
  }
  injector_.Arm({.kind = io::FaultKind::kStall, .call = io::IoCall::kRead});
  std::promise<void> came[2];
  const std::vector<ExtentId> last = {others.back()};
  others.pop_back();
  for (std::size_t i = 0; i < 2; ++i) {
    serve_->fetcher().Acquire(serve_->dataset(), i == 0 ? others : last,
                              {.need = fetch::Need::kRuns},
                              [&, i](const auto&) { came[i].set_value(); });
  }
  while (injector_.faults_injected() == 0) std::this_thread::yield();
  EXPECT_TRUE(serve_->fetcher().IsAnyNeededNow());
  Submit({steps[0], steps[1]});
  executor_->CrankAll();
  EXPECT_EQ(other.held.size(), 2U);
  while (!other.held.empty()) other.Answer();
  EXPECT_EQ(owner_->calls, (std::vector<std::size_t>{1, 1}));
  injector_.ReleaseStalls();
  for (std::promise<void>& each : came) each.get_future().get();
  EXPECT_FALSE(serve_->fetcher().IsAnyNeededNow());
}

TEST_F(RowsOfOthersTest, WhenTheOwnerIsGoneTheBatchIsGatheredAgainFromWhatThisNodeReads) {
  Submit({0, 1, 2, 3, 4, 5, 6, 7});
  executor_->CrankAll();
  ASSERT_FALSE(other.held.empty());
  while (!other.held.empty()) other.Answer(Error(ErrorCode::kUnavailable, "no answer"));
  EXPECT_FALSE(nodes.Lives(NodeRank(1)));
  EXPECT_TRUE(owner_->errors.empty());
  // The reader takes each batch and releases it; extents arrive on threads of the stager.
  std::size_t released = 0;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (released < 8 && std::chrono::steady_clock::now() < deadline) {
    executor_->CrankAll();
    std::unique_lock lock(owner_->mutex);
    const bool has_come = released < owner_->names.size();
    if (has_come) {
      ExpectRecords(owner_->holds[released], owner_->names[released].step.value());
      lock.unlock();
      Release(released);
      ++released;
    } else {
      lock.unlock();
      std::this_thread::yield();
    }
  }
  EXPECT_EQ(released, 8U);
  EXPECT_TRUE(other.held.empty());
  EXPECT_EQ(gfs_bytes(), 64 * kRecordBytes) << "the other node's share was read once";
  EXPECT_EQ(serve_->slots().used_bytes(), 0U);
  EXPECT_EQ(slots_->promises_left, slots_->promised);
  EXPECT_EQ(slots_->excess_bytes, 0U);
}

TEST_F(RowsOfOthersTest, AnErrorOfTheOwnerFailsTheBatchAndFreesItsMemory) {
  Submit({0});
  executor_->CrankAll();
  ASSERT_EQ(other.held.size(), 1U);
  EXPECT_GT(serve_->slots().used_bytes(), 0U);
  other.Answer(Error(ErrorCode::kAborted, "its GFS does not respond"));
  ASSERT_EQ(owner_->errors.size(), 1U);
  EXPECT_EQ(owner_->errors[0].code(), ErrorCode::kUnavailable);
  EXPECT_EQ(serve_->slots().used_bytes(), 0U);
  EXPECT_EQ(slots_->promises_left, slots_->promised);
}

TEST_F(RowsOfOthersTest, ABatchWhoseReaderHasLeftKeepsItsMemoryUntilItsRowsHaveArrived) {
  Submit({0});
  executor_->CrankAll();
  ASSERT_EQ(other.held.size(), 1U);
  owner_->takes = false;
  clock_.AdvanceNs((limits::kPullDeadlineMs + 1) * 1'000'000);
  scheduler_->ExpireWaiting();
  EXPECT_GT(serve_->slots().used_bytes(), 0U) << "the other node may still write to it";
  other.Answer();
  EXPECT_EQ(serve_->slots().used_bytes(), 0U);
  EXPECT_EQ(slots_->promises_left, slots_->promised);
}

}  // namespace forebay::stream::batch_scheduler_test

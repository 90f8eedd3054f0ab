// Readers whose call ends while they read: their batches stay in place until they say what they
// still have, or their process has ended, and nobody else gets the memory meanwhile.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/io/testing/memory_backend.h"
#include "server/stream/stream_session.h"
#include "server/stream/testing/serve_fixture.h"

namespace forebay::stream::cut_off_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::size_t kRecordBytes = 1000;
constexpr std::uint64_t kSamples = 512;
constexpr std::uint64_t kReader = 77;

// Remembers where the bytes of each batch lie, as a program does that reads them in place.
class PlacesSink final : public BatchSink {
 public:
  struct Place {
    std::uint64_t id = 0;
    std::span<const std::byte> bytes;
    std::vector<std::byte> copy;
    bool IsUnchanged() const { return std::ranges::equal(bytes, copy); }
  };

  void Deliver(std::span<const AnsweredBatch> batches) override {
    const std::scoped_lock lock(mutex_);
    for (const AnsweredBatch& answered : batches) {
      if (!answered.is_taken()) {
        ADD_FAILURE() << answered.outcome.error().ToString();
        continue;
      }
      places_.push_back({.id = answered.id,
                         .bytes = answered.slot,
                         .copy = {answered.slot.begin(), answered.slot.end()}});
    }
    came_.notify_all();
  }
  void Closed() override { ++closed_; }
  int closed() const { return closed_; }
  // Waits for the batch with this index in the order of arrival.
  Place Get(std::size_t index) {
    std::unique_lock lock(mutex_);
    const bool came = came_.wait_for(lock, std::chrono::seconds(20),
                                     [&] { return places_.size() > index; });
    EXPECT_TRUE(came);
    return came ? places_[index] : Place();
  }

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::vector<Place> places_;
  std::atomic<int> closed_ = 0;
};

// A process that only waits to be killed.
class Child {
 public:
  Child() : pid_(::fork()) {
    if (pid_ == 0) {
      for (;;) ::pause();
    }
  }
  ~Child() { Kill(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  pid_t pid() const { return pid_; }
  void Kill() {
    if (killed_) return;
    killed_ = true;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

 private:
  const pid_t pid_;
  bool killed_ = false;
};

class CutOffTest : public ::testing::Test {
 protected:
  CutOffTest() {
    EXPECT_TRUE(backend_.AddDirectory("/ssd").has_value());
    EXPECT_TRUE(backend_
                    .AddFile("/gfs/data.bin", ServeFixture::RecordFile(kSamples, kRecordBytes))
                    .has_value());
    Start({});
  }

  void Start(const ServeOptions& options) {
    serve_.reset();
    auto made = ServeFixture::Create(backend_, kRecordBytes, options);
    ASSERT_TRUE(made.has_value()) << made.error().ToString();
    serve_ = std::move(*made);
    ASSERT_TRUE(serve_->StageAll().has_value());
  }

  ServeFixture::Ask Named(const ServeFixture::Ask& ask = {}) {
    ServeFixture::Ask named = ask;
    named.reader = kReader;
    named.call = ++calls_;
    if (named.pid == 0) named.pid = ::getpid();
    return named;
  }
  Result<std::shared_ptr<StreamSession>> TryOpen(const ServeFixture::Ask& ask, BatchSink& sink,
                                                 std::vector<std::uint64_t> still_held = {}) {
    FOREBAY_ASSIGN(const StreamRequestSpec request, serve_->Request(ask));
    FOREBAY_ASSIGN(StreamSpec spec, ResolveStream(serve_->dataset(), request));
    return registry().Open(std::move(spec), &sink, still_held);
  }
  std::shared_ptr<StreamSession> Open(const ServeFixture::Ask& ask, BatchSink& sink,
                                      std::vector<std::uint64_t> still_held = {}) {
    auto session = TryOpen(ask, sink, std::move(still_held));
    EXPECT_TRUE(session.has_value()) << (session ? "" : session.error().ToString());
    return session ? *session : nullptr;
  }
  static void Pull(StreamSession& session, std::uint64_t step, std::uint32_t count = 1) {
    EXPECT_TRUE(session.Pull({.first = {.step = StepId(step)}, .count = count}).has_value());
  }
  // Another reader goes through an epoch, so that all memory that is free is used.
  void ReadAnEpoch(const ServeFixture::Ask& ask) {
    PlacesSink sink;
    const auto session = Open(ask, sink);
    ASSERT_NE(session, nullptr);
    for (std::uint64_t step = 0; step < session->spec().plan.steps(); ++step) {
      Pull(*session, step);
      const std::uint64_t id = sink.Get(step).id;
      ASSERT_TRUE(session->Release({&id, 1}).has_value());
    }
    session->Close();
  }
  std::uint64_t used() { return serve_->slots().used_bytes(); }
  StreamRegistry& registry() { return serve_->registry(); }

  io::MemoryBackend backend_;
  std::unique_ptr<ServeFixture> serve_;
  std::uint64_t calls_ = 0;
};

TEST_F(CutOffTest, ItsBatchesStayAsTheyAreWhileOthersUseAllThatIsFree) {
  // Two batches of 8 for each of the two readers, in whole pages.
  Start({.slot_bytes = 4 * 8192});
  PlacesSink sink;
  const auto session = Open(Named({.credits = 2}), sink);
  Pull(*session, 0, 2);
  const std::vector<PlacesSink::Place> places = {sink.Get(0), sink.Get(1)};
  session->Close();
  ReadAnEpoch({.credits = 2, .name = "other"});
  for (const PlacesSink::Place& place : places) EXPECT_TRUE(place.IsUnchanged()) << place.id;
  registry().Forget(std::vector<std::uint64_t>{kReader});
  EXPECT_EQ(used(), 0U);
}

TEST_F(CutOffTest, ItsPromiseOfMemoryStaysItsOwn) {
  Start({.slot_bytes = 2 * 8192});
  PlacesSink sink;
  const auto session = Open(Named({.credits = 2}), sink);
  Pull(*session, 0, 2);
  const std::uint64_t first = sink.Get(0).id;
  sink.Get(1);
  session->Close();
  const auto refused = TryOpen({.credits = 2, .name = "other"}, sink);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kResourceExhausted);
  const auto again = Open(Named({.credits = 2}), sink, {first});
  ASSERT_NE(again, nullptr);
  Pull(*again, 2);
  sink.Get(2);
  again->CloseDone();
  EXPECT_EQ(used(), 0U);
  ReadAnEpoch({.credits = 2, .name = "other"});
}

TEST_F(CutOffTest, WhoComesBackHasWhatItNamesAndNothingElse) {
  PlacesSink sink;
  const auto session = Open(Named({.credits = 3}), sink);
  Pull(*session, 0, 3);
  const std::vector<std::uint64_t> ids = {sink.Get(0).id, sink.Get(1).id, sink.Get(2).id};
  const std::uint64_t of_three = used();
  session->Close();
  EXPECT_EQ(used(), of_three);
  ASSERT_EQ(registry().Summaries().size(), 1U);
  EXPECT_TRUE(registry().Summaries()[0].is_cut_off);
  EXPECT_EQ(registry().Summaries()[0].stats.held, 3U);

  const auto again = Open(Named({.credits = 3}), sink, {ids[1], 4711});
  EXPECT_THAT(again->held_ids(), ElementsAre(ids[1]));
  EXPECT_EQ(used(), of_three / 3);
  EXPECT_TRUE(sink.Get(1).IsUnchanged());
  EXPECT_EQ(again->stats().held, 1U);
  EXPECT_EQ(again->Pull({.first = {.step = StepId(3)}, .count = 3}).error().code(),
            ErrorCode::kResourceExhausted)
      << "a batch of before takes a credit";
  Pull(*again, 3, 2);
  EXPECT_GT(sink.Get(3).id, ids[2]) << "an id has one meaning";
  sink.Get(4);
  EXPECT_EQ(again->Release({&ids[0], 1}).error().code(), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(again->Release({&ids[1], 1}).has_value());
  Pull(*again, 5);
  sink.Get(5);
  again->CloseDone();
  EXPECT_EQ(used(), 0U);
  EXPECT_TRUE(registry().Summaries().empty());
}

TEST_F(CutOffTest, ViewsStayPinned) {
  PlacesSink sink;
  const auto session = Open(Named({.delivery = Delivery::kViews, .credits = 2}), sink);
  Pull(*session, 0);
  sink.Get(0);
  session->Close();
  const auto again = Open(Named({.delivery = Delivery::kViews, .credits = 2}), sink, {1});
  const auto pinned = [this] { return serve_->cache().stats(tier::TierKind::kRam).pinned_bytes; };
  EXPECT_GT(pinned(), 0U);
  again->CloseDone();
  EXPECT_EQ(pinned(), 0U);
}

// A daemon that stood still finds the new call before the end of the old one.
TEST_F(CutOffTest, TheNewCallMayComeBeforeTheEndOfTheOldOne) {
  PlacesSink sink;
  const auto session = Open(Named(), sink);
  Pull(*session, 0);
  const PlacesSink::Place place = sink.Get(0);
  PlacesSink new_sink;
  const auto again = Open(Named(), new_sink, {place.id});
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(registry().open_count(), 1U);
  EXPECT_EQ(sink.closed(), 1) << "the old call is ended";
  Pull(*session, 1);  // nobody answers
  EXPECT_TRUE(session->Release({&place.id, 1}).has_value()) << "no error, and without effect";
  Pull(*again, 2);
  new_sink.Get(0);
  EXPECT_TRUE(place.IsUnchanged());
  session->Close();
  EXPECT_EQ(sink.closed(), 1);
  EXPECT_EQ(again->stats().held, 2U);
  again->CloseDone();
  EXPECT_EQ(used(), 0U);
}

// Such a call was given up, and says what the reader had then.
TEST_F(CutOffTest, ACallThatComesAfterALaterOneChangesNothing) {
  const ServeFixture::Ask first = Named();
  const ServeFixture::Ask second = Named();
  const ServeFixture::Ask third = Named();
  PlacesSink sink;
  const auto session = Open(second, sink);
  Pull(*session, 0);
  const PlacesSink::Place place = sink.Get(0);
  EXPECT_EQ(TryOpen(first, sink).error().code(), ErrorCode::kCancelled);
  EXPECT_EQ(TryOpen(second, sink).error().code(), ErrorCode::kCancelled);
  EXPECT_EQ(sink.closed(), 0);
  session->Close();
  EXPECT_EQ(TryOpen(first, sink).error().code(), ErrorCode::kCancelled) << "nor when it is cut off";
  EXPECT_TRUE(place.IsUnchanged());
  EXPECT_GT(used(), 0U);
  const auto again = Open(third, sink, {place.id});
  EXPECT_THAT(again->held_ids(), ElementsAre(place.id));
  again->CloseDone();
}

TEST_F(CutOffTest, AReaderThatIsGoneNeedsNoCallThatIsStillOpen) {
  PlacesSink sink;
  const auto session = Open(Named(), sink);
  Pull(*session, 0);
  sink.Get(0);
  registry().Forget(std::vector<std::uint64_t>{kReader + 1});
  EXPECT_EQ(sink.closed(), 0);
  registry().Forget(std::vector<std::uint64_t>{kReader});
  EXPECT_EQ(sink.closed(), 1);
  EXPECT_EQ(used(), 0U);
  EXPECT_EQ(registry().open_count(), 0U);
  session->Close();
  EXPECT_TRUE(registry().Summaries().empty());
}

TEST_F(CutOffTest, TheEndOfItsProcessFreesTheMemory) {
  Child child;
  PlacesSink sink;
  const auto session = Open(Named({.pid = child.pid()}), sink);
  Pull(*session, 0);
  sink.Get(0);
  session->Close();
  registry().FreeWhatNobodyReads();
  EXPECT_GT(used(), 0U);
  child.Kill();
  registry().FreeWhatNobodyReads();
  EXPECT_EQ(used(), 0U);
  EXPECT_EQ(registry().totals().held, 0U);
}

TEST_F(CutOffTest, AProcessThatHasEndedKeepsNothingFromTheNext) {
  Start({.slot_bytes = 2 * 8192});
  Child child;
  PlacesSink sink;
  const auto session = Open(Named({.credits = 2, .pid = child.pid()}), sink);
  Pull(*session, 0, 2);
  sink.Get(1);
  session->Close();
  child.Kill();
  ReadAnEpoch({.credits = 2});  // under the same name, as the next run does
  const auto later = Open({.credits = 2, .reader = kReader, .pid = child.pid()}, sink);
  Pull(*later, 0);
  sink.Get(2);
  later->Close();
  EXPECT_EQ(used(), 0U) << "the process had ended before the call did";
}

TEST_F(CutOffTest, NothingIsKeptForReadersThatCannotComeBack) {
  for (const ServeFixture::Ask& ask :
       {ServeFixture::Ask{.reader = 0, .pid = ::getpid()},  // it has no name
        ServeFixture::Ask{.reader = kReader, .pid = 0}}) {  // its process is not known
    PlacesSink sink;
    const auto session = Open(ask, sink);
    Pull(*session, 0);
    sink.Get(0);
    session->Close();
    EXPECT_EQ(used(), 0U);
    const auto again = Open(ask, sink, {1});
    EXPECT_TRUE(again->held_ids().empty());
    again->Close();
  }
}

TEST_F(CutOffTest, ItCannotComeBackToAnotherStream) {
  PlacesSink sink;
  const auto session = Open(Named(), sink);
  Pull(*session, 0);
  const PlacesSink::Place place = sink.Get(0);
  session->Close();
  for (const ServeFixture::Ask& other :
       {Named({.batch = 16}), Named({.credits = 5}), Named({.delivery = Delivery::kViews}),
        Named({.seed = 8})}) {
    const auto refused = TryOpen(other, sink, {place.id});
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code(), ErrorCode::kFailedPrecondition);
    EXPECT_THAT(refused.error().message(), HasSubstr("open a new stream"));
  }
  EXPECT_TRUE(place.IsUnchanged());
  EXPECT_GT(used(), 0U);
  Open(Named(), sink, {place.id})->CloseDone();
  EXPECT_EQ(used(), 0U);
}

TEST_F(CutOffTest, AStreamWithoutBatchesLeavesNothing) {
  PlacesSink sink;
  Open(Named(), sink)->Close();
  EXPECT_TRUE(registry().Summaries().empty());
  ReadAnEpoch(Named());  // gives every batch back, and then closes
  EXPECT_TRUE(registry().Summaries().empty());
}

}  // namespace forebay::stream::cut_off_test

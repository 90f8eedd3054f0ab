// Whatever is asked for arrives pinned, from the tier, the owner or the GFS, each extent by one
// read, and `done` is called once.
#include "server/fetch/fetcher.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/io/io_test_fixture.h"
#include "server/io/memory_backend.h"
#include "server/stage/testing/stage_rig.h"

namespace forebay::fetch {
namespace {

using io::FaultKind;
using io::IoCall;
using io::testing::CodeOf;
using io::testing::Pattern;
using stage::RigOptions;
using ::testing::HasSubstr;

constexpr std::uint64_t kFileBytes = 512'000;  // in 8 extents
constexpr std::uint64_t kExtentBytes = 65'000;

// A transport of as many nodes as a test wants; what Bring does is the test's.
class ScriptedPeers final : public PeerSource {
 public:
  std::vector<plan::Node> Nodes() const override { return nodes; }
  NodeRank self() const override { return NodeRank(0); }
  void Bring(NodeRank owner, std::uint64_t, ExtentId extent,
             std::function<void(const Status&)> done) override {
    EXPECT_EQ(owner, NodeRank(1));
    ++asked;
    bring(extent, std::move(done));
  }

  std::vector<plan::Node> nodes = {{NodeRank(0), 1}};
  std::function<void(ExtentId, std::function<void(const Status&)>)> bring;
  std::atomic<int> asked = 0;
};

class FetcherTest : public ::testing::Test {
 protected:
  FetcherTest() {
    EXPECT_TRUE(memory_.AddDirectory("/ssd").has_value());
    EXPECT_TRUE(memory_.AddFile("/gfs/data.bin", Pattern(kFileBytes, 1)).has_value());
  }
  void Start(const RigOptions& options = {}) {
    FOREBAY_EXPECT_OK(rig_.Start(stage::RecordDataset(), options));
    FOREBAY_EXPECT_OK(rig_.StageAll());
    fetcher_.emplace(rig_.cache(), rig_.stager(), peers_);
  }
  static std::vector<ExtentId> Extents(std::uint32_t count) {
    std::vector<ExtentId> extents;
    for (std::uint32_t i = 0; i < count; ++i) extents.push_back(ExtentId(i));
    return extents;
  }
  using Refs = std::vector<tier::ExtentRef>;
  Result<Refs> Acquire(std::vector<ExtentId> extents) {
    std::mutex mutex;
    std::condition_variable told;
    std::optional<Result<Refs>> outcome;
    fetcher_->Acquire(rig_.dataset(), std::move(extents), [&](Result<Refs> refs) {
      std::lock_guard lock(mutex);
      EXPECT_FALSE(outcome.has_value()) << "called twice";
      outcome.emplace(std::move(refs));
      told.notify_all();
    });
    std::unique_lock lock(mutex);
    told.wait(lock, [&] { return outcome.has_value(); });
    return std::move(*outcome);
  }
  void EvictAll() {
    for (const ExtentId extent : Extents(8)) {
      FOREBAY_EXPECT_OK(rig_.cache().Evict(rig_.dataset().key(extent), std::nullopt));
    }
  }
  std::uint64_t ReadAgain() const {
    return const_cast<stage::StageRig&>(rig_).dataset().progress().gfs_bytes - kFileBytes;
  }

  io::MemoryBackend memory_;
  stage::StageRig rig_{memory_, ""};
  ScriptedPeers peers_;
  std::optional<Fetcher> fetcher_;
};

TEST_F(FetcherTest, AnswersFromTheCallWhereAllIsResident) {
  Start();
  bool is_done = false;
  fetcher_->Acquire(rig_.dataset(), Extents(8), [&](Result<Refs> refs) {
    is_done = true;
    ASSERT_TRUE(refs.has_value());
    ASSERT_EQ(refs->size(), 8u);
    for (std::uint32_t i = 0; i < 8; ++i) {
      EXPECT_EQ((*refs)[i]->key, rig_.dataset().key(ExtentId(i))) << "in the order asked for";
    }
  });
  EXPECT_TRUE(is_done);
  EXPECT_EQ(ReadAgain(), 0u);
}

TEST_F(FetcherTest, NoExtentsAreAnsweredAtOnce) {
  Start();
  const auto refs = Acquire({});
  ASSERT_TRUE(refs.has_value());
  EXPECT_TRUE(refs->empty());
}

TEST_F(FetcherTest, BringsWhatIsMissingAndPinsTheRest) {
  Start();
  FOREBAY_EXPECT_OK(rig_.cache().Evict(rig_.dataset().key(ExtentId(2)), std::nullopt));
  FOREBAY_EXPECT_OK(rig_.cache().Evict(rig_.dataset().key(ExtentId(5)), std::nullopt));
  const auto refs = Acquire(Extents(8));
  ASSERT_TRUE(refs.has_value());
  for (std::uint32_t i = 0; i < 8; ++i) {
    ASSERT_TRUE((*refs)[i]);
    EXPECT_EQ((*refs)[i]->key, rig_.dataset().key(ExtentId(i)));
  }
  EXPECT_EQ(ReadAgain(), 2 * kExtentBytes);
  EXPECT_EQ(rig_.cache().stats(tier::TierKind::kRam).pinned_bytes, kFileBytes);
}

TEST_F(FetcherTest, TryAcquireSaysWhatIsThereAndStartsNothing) {
  Start();
  Refs refs;
  EXPECT_TRUE(fetcher_->TryAcquire(rig_.dataset(), Extents(8), refs));
  FOREBAY_EXPECT_OK(rig_.cache().Evict(rig_.dataset().key(ExtentId(2)), std::nullopt));
  EXPECT_FALSE(fetcher_->TryAcquire(rig_.dataset(), Extents(8), refs));
  EXPECT_TRUE(refs[0]);
  EXPECT_FALSE(refs[2]);
  EXPECT_EQ(ReadAgain(), 0u);
}

TEST_F(FetcherTest, ManyReadersOfOneExtentCauseOneRead) {
  Start({.readers = 4});
  for (int round = 0; round < 20; ++round) {
    EvictAll();
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([this] { EXPECT_TRUE(Acquire(Extents(8)).has_value()); });
    }
  }
  EXPECT_EQ(ReadAgain(), 20 * kFileBytes);
}

TEST_F(FetcherTest, TheSameExtentTwiceInOneRequestIsOneRead) {
  Start();
  EvictAll();
  const auto refs = Acquire({ExtentId(3), ExtentId(3), ExtentId(3)});
  ASSERT_TRUE(refs.has_value());
  EXPECT_EQ((*refs)[0], (*refs)[2]);
  EXPECT_EQ(ReadAgain(), kExtentBytes);
}

// --- peers --------------------------------------------------------------------------------

TEST_F(FetcherTest, AsksTheOwnerAndReadsNothingFromTheGfs) {
  Start();
  EvictAll();
  peers_.nodes = {{NodeRank(1), 1}};  // the other node owns everything
  ASSERT_EQ(plan::OwnerOf(rig_.dataset().hash(), ExtentId(0), peers_.nodes), NodeRank(1));
  peers_.bring = [this](ExtentId extent, auto done) {
    // As a transport does: the bytes come from elsewhere, into this node's cache.
    const catalog::ExtentInfo info = rig_.dataset().catalog()->extent(extent);
    auto block = io::testing::Take(rig_.cache().AllocateRam(info.bytes, 0));
    FOREBAY_EXPECT_OK(rig_.cache().PublishRam(rig_.dataset().key(extent), std::move(block), {}));
    done(Status());
  };
  EXPECT_TRUE(Acquire(Extents(8)).has_value());
  EXPECT_EQ(peers_.asked, 8);
  EXPECT_EQ(ReadAgain(), 0u);
}

TEST_F(FetcherTest, ALostOwnerIsSurvivable) {
  Start();
  EvictAll();
  peers_.nodes = {{NodeRank(1), 1}};
  peers_.bring = [](ExtentId, auto done) { done(Error(ErrorCode::kUnavailable, "gone")); };
  EXPECT_TRUE(Acquire(Extents(8)).has_value());
  EXPECT_EQ(peers_.asked, 8);
  EXPECT_EQ(ReadAgain(), kFileBytes) << "this node reads the GFS itself, once";
  FOREBAY_EXPECT_OK(rig_.VerifyAll());
}

TEST_F(FetcherTest, AnOwnerThatDeliversNothingIsAskedABoundedNumberOfTimes) {
  Start();
  EvictAll();
  peers_.nodes = {{NodeRank(1), 1}};
  peers_.bring = [](ExtentId, auto done) { done(Status()); };  // so it says
  const auto refs = Acquire(Extents(1));
  ASSERT_EQ(CodeOf(refs), ErrorCode::kResourceExhausted);
  EXPECT_THAT(refs.error().message(), HasSubstr("evicted faster"));
  EXPECT_EQ(peers_.asked, 8);
}

// --- every error branch -------------------------------------------------------------------

TEST_F(FetcherTest, MemoryThatIsShortForLongerThanTheStagerWaitsIsAskedForAgain) {
  Start();
  EvictAll();
  std::vector<tier::ArenaBlock> hoard;
  while (rig_.arena().largest_free_bytes() > 0) {
    auto block = rig_.arena().Allocate(rig_.arena().largest_free_bytes());
    if (!block.has_value()) break;
    hoard.push_back(std::move(*block));
  }
  std::future<Result<Refs>> refs =
      std::async(std::launch::async, [&] { return Acquire(Extents(1)); });
  EXPECT_EQ(refs.wait_for(std::chrono::milliseconds(limits::kMemoryWaitMs + 500)),
            std::future_status::timeout);
  hoard.clear();
  EXPECT_TRUE(refs.get().has_value());
}

TEST_F(FetcherTest, OneErrorIsReportedOnceAndNothingStaysPinned) {
  Start({.readers = 1});
  EvictAll();
  rig_.gfs_faults.Arm({.kind = FaultKind::kEio, .call = IoCall::kRead, .nth = 9});
  const auto refs = Acquire(Extents(8));
  EXPECT_EQ(rig_.gfs_faults.faults_injected(), 1u);
  ASSERT_EQ(CodeOf(refs), ErrorCode::kDataLoss);
  EXPECT_THAT(refs.error().message(), HasSubstr("'data.bin'"));
  // The request's own references go with its last callback.
  while (rig_.cache().stats(tier::TierKind::kRam).pinned_bytes > 0) std::this_thread::yield();
  EXPECT_TRUE(Acquire(Extents(8)).has_value()) << "a later request tries again";
  FOREBAY_EXPECT_OK(rig_.VerifyAll());
}

TEST_F(FetcherTest, ABadCopyIsDroppedAndFetchedAnew) {
  Start({.ram_bytes = 384 << 10, .reserve_bytes = 256 << 10, .ssd_bytes = 4 << 20});
  const ExtentId last(7);
  const tier::ExtentRef bad = rig_.cache().Find(rig_.dataset().key(last));
  ASSERT_TRUE(bad);
  ASSERT_EQ(bad->tier, tier::TierKind::kSsd);
  fetcher_->ReportBad(bad, Error(ErrorCode::kDataLoss, "checksum"), 1);
  EXPECT_FALSE(rig_.cache().FindOn(bad->key, tier::TierKind::kSsd));
  EXPECT_TRUE(Acquire({last}).has_value());
  EXPECT_GT(ReadAgain(), 0u);
}

TEST_F(FetcherTest, ABadCopyReportedByManyCostsOneRead) {
  Start({.ram_bytes = 384 << 10, .reserve_bytes = 256 << 10, .ssd_bytes = 4 << 20});
  const ExtentId last(7);
  const tier::ExtentRef bad = rig_.cache().Find(rig_.dataset().key(last));
  ASSERT_TRUE(bad);
  ASSERT_EQ(bad->tier, tier::TierKind::kSsd);
  const std::uint64_t bytes = bad->image_bytes;
  // Eight readers hold the copy; the first one's report has it replaced before the others'.
  for (int reader = 0; reader < 8; ++reader) {
    fetcher_->ReportBad(bad, Error(ErrorCode::kDataLoss, "checksum"), 1);
    EXPECT_TRUE(Acquire({last}).has_value());
  }
  EXPECT_EQ(ReadAgain(), bytes);
  EXPECT_FALSE(rig_.cache().stats(tier::TierKind::kSsd).retired)
      << "one flipped bit is no reason to give up a device";
}

}  // namespace
}  // namespace forebay::fetch

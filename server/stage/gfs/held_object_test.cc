// Objects for which the GFS does not answer: they block the threads that wait for them already, and
// no others.
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/io/testing/fault_injector.h"
#include "server/io/testing/faulty_backend.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/manual_clock.h"
#include "server/io/testing/memory_backend.h"
#include "server/stage/gfs/gfs_calls.h"
#include "server/stage/gfs/patient_backend.h"
#include "server/stage/stager.h"
#include "server/stage/testing/stage_rig.h"

namespace forebay::stage::held_object_test {

using io::FaultKind;
using io::IoCall;
using io::testing::Pattern;
using io::testing::Take;

constexpr std::int64_t kHungAfterMs = 30'000;
constexpr std::uint32_t kReaders = 2;
constexpr std::uint32_t kRequests = 2;
constexpr std::uint64_t kRamBytes = 16 << 20;
constexpr std::uint64_t kObjectBytes = 1'000'000;  // 16 extents, of four requests each

class HeldObjectTest : public ::testing::Test {
 protected:
  struct Tiers {
    std::uint64_t ram_bytes = kRamBytes;
    std::uint64_t home_bytes = kRamBytes;
    std::uint64_t working_bytes = 0;
    std::uint64_t ssd_bytes = 0;  // 0: no SSD tier
  };
  HeldObjectTest() : HeldObjectTest(Tiers()) {}
  explicit HeldObjectTest(const Tiers& tiers) {
    for (const char* path : {"/gfs/held.bin", "/gfs/sound.bin", "/gfs/other.bin"}) {
      EXPECT_TRUE(memory_.AddFile(path, Pattern(kObjectBytes, 1)).has_value());
    }
    arena_ = Take(tier::RamArena::Create(
        {.capacity_bytes = tiers.ram_bytes, .region_bytes = 1 << 30, .first_region = RegionId(0)}));
    if (tiers.ssd_bytes > 0) {
      EXPECT_TRUE(memory_.AddDirectory("/ssd").has_value());
      ssd_ = Take(backend_.OpenDirectory("/ssd"));
      store_ = Take(tier::SegmentStore::Open(backend_, *ssd_, {.capacity_bytes = tiers.ssd_bytes}));
    }
    cache_ = tier::ExtentCache::Create(*arena_, store_.get(), {}, Never);
    held_ = Make("held");
    sound_ = Make("sound");
    other_ = Make("other");
    StagerOptions options;
    options.readers = kReaders;
    options.request_bytes = 16 << 10;
    options.requests = kRequests;
    options.hung_after_ms = kHungAfterMs;
    options.ram_home_bytes = tiers.home_bytes;
    options.ram_working_bytes = tiers.working_bytes;
    stager_ = Take(Stager::Create(options,
                                  {.backend = backend_,
                                   .arena = *arena_,
                                   .store = store_.get(),
                                   .cache = *cache_,
                                   .clock = clock_,
                                   .patience = &patience_,
                                   .calls = &calls_,
                                   .next_use = Never}));
  }
  ~HeldObjectTest() override { Answer(); }

  static std::uint64_t Never(const tier::ExtentKey&, std::uint64_t) {
    return ~std::uint64_t{0} - 1;
  }
  std::unique_ptr<Dataset> Make(const std::string& name) {
    DatasetOptions options = RecordDataset();
    options.root_path = "/gfs";
    options.source.name = name;
    options.source.settings.SetTexts("files", {"x=" + name + ".bin"});
    return std::make_unique<Dataset>(options, backend_, Take(backend_.OpenGfsDirectory("/gfs")));
  }

  void Hold(IoCall call, const std::string& path = "held.bin") {
    faults_.Arm({.kind = FaultKind::kStall, .call = call, .is_persistent = true, .path = path});
  }
  void Answer() {
    faults_.Disarm();
    faults_.ReleaseStalls();
  }
  // Moves the clock and calls Look until `met` returns true; returns false after a while.
  template <typename Condition>
  bool PassUntil(Condition met) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!met()) {
      if (std::chrono::steady_clock::now() > end) return false;
      clock_.AdvanceNs(kHungAfterMs * 1'000'000 / 4);
      calls_.Look();
      stager_->Look();
      std::this_thread::yield();
    }
    return true;
  }
  // Waits until a call that Hold names counts as hung. The clock stands still until that call has
  // begun. Otherwise, while the threads do not run, an earlier call would count as late, and spare
  // readers would begin on the object that is to be held before it is known not to answer.
  bool PassUntilHeld() {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (faults_.faults_injected() == 0) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::yield();
    }
    return PassUntil([this] { return calls_.figures().hung > 0; });
  }
  static bool IsStaged(const Dataset& dataset) {
    return dataset.progress().state == DatasetState::kStaged;
  }

  io::MemoryBackend memory_;
  io::FaultInjector faults_;
  io::FaultyBackend faulty_{memory_, faults_};
  io::ManualClock clock_;
  GfsCalls calls_{kHungAfterMs, clock_};
  GfsThrottle throttle_{clock_};
  GfsPatience patience_{PatienceOptions{}};
  PatientBackend backend_{faulty_, patience_, calls_, throttle_};
  std::unique_ptr<tier::RamArena> arena_;
  std::unique_ptr<io::Directory> ssd_;
  std::unique_ptr<tier::SegmentStore> store_;
  std::unique_ptr<tier::ExtentCache> cache_;
  std::unique_ptr<Dataset> held_;
  std::unique_ptr<Dataset> sound_;
  std::unique_ptr<Dataset> other_;
  std::unique_ptr<Stager> stager_;
};

TEST_F(HeldObjectTest, ReadsThatAreNotAnsweredLeaveOtherObjectsToSpareReaders) {
  Hold(IoCall::kRead);
  stager_->Stage(*held_);
  ASSERT_TRUE(PassUntilHeld());
  stager_->Stage(*sound_);
  ASSERT_TRUE(PassUntil([&] { return IsStaged(*sound_); }));
  EXPECT_FALSE(IsStaged(*held_));
  EXPECT_LE(faults_.faults_injected(), kRequests) << "it is not asked for more";
  const std::uint64_t asked = faults_.faults_injected();
  stager_->Stage(*other_);
  ASSERT_TRUE(PassUntil([&] { return IsStaged(*other_); }));
  EXPECT_EQ(faults_.faults_injected(), asked);
  Answer();
  EXPECT_TRUE(PassUntil([&] { return IsStaged(*held_); }));
  EXPECT_EQ(held_->progress().staged_bytes, kObjectBytes);
  EXPECT_EQ(held_->progress().gfs_bytes, kObjectBytes) << "each byte is read once all the same";
  EXPECT_EQ(calls_.figures().hung, 0U);
}

TEST_F(HeldObjectTest, AnOpenThatIsNotAnsweredHoldsWhoWaitsForItAndNobodyElse) {
  Hold(IoCall::kOpen);
  stager_->Stage(*held_);
  ASSERT_TRUE(PassUntilHeld());
  stager_->Stage(*sound_);
  ASSERT_TRUE(PassUntil([&] { return IsStaged(*sound_); }));
  EXPECT_EQ(faults_.faults_injected(), 1U);
  Answer();
  EXPECT_TRUE(PassUntil([&] { return IsStaged(*held_); }));
  EXPECT_EQ(held_->progress().gfs_opens, 1U);
}

TEST_F(HeldObjectTest, ADataSetThatCannotBeCataloguedDoesNotKeepOthersFromBeing) {
  Hold(IoCall::kStat);
  stager_->Stage(*held_);
  ASSERT_TRUE(PassUntilHeld());
  stager_->Stage(*sound_);
  stager_->Stage(*other_);
  ASSERT_TRUE(PassUntil([&] { return IsStaged(*sound_) && IsStaged(*other_); }));
  EXPECT_EQ(held_->progress().state, DatasetState::kCataloguing);
  Answer();
  EXPECT_TRUE(PassUntil([&] { return IsStaged(*held_); }));
}

TEST_F(HeldObjectTest, ADemandForAHeldObjectIsAnsweredWhenItIs) {
  stager_->Stage(*held_);
  stager_->Stage(*sound_);
  ASSERT_TRUE(PassUntil([&] { return IsStaged(*held_) && IsStaged(*sound_); }));
  for (std::uint32_t i = 0; i < held_->catalog()->extent_count(); ++i) {
    ASSERT_TRUE(cache_->Evict(held_->key(ExtentId(i)), {}).has_value());
    ASSERT_TRUE(cache_->Evict(sound_->key(ExtentId(i)), {}).has_value());
  }
  Hold(IoCall::kRead);
  std::mutex mutex;
  std::size_t held_came = 0;
  std::size_t sound_came = 0;
  const auto came = [&](std::size_t& count) {
    return [&](const Status& status) {
      EXPECT_TRUE(status.has_value()) << status.error().ToString();
      std::lock_guard lock(mutex);
      ++count;
    };
  };
  const auto read = [&](const std::size_t& count) {
    std::lock_guard lock(mutex);
    return count;
  };
  stager_->Demand(*held_, ExtentId(0), came(held_came));
  ASSERT_TRUE(PassUntilHeld());
  // The object is known not to answer, so demands for it occupy no thread.
  for (std::uint32_t i = 1; i < 6; ++i) stager_->Demand(*held_, ExtentId(i), came(held_came));
  for (std::uint32_t i = 0; i < 6; ++i) stager_->Demand(*sound_, ExtentId(i), came(sound_came));
  ASSERT_TRUE(PassUntil([&] { return read(sound_came) == 6; }));
  EXPECT_EQ(read(held_came), 0U);
  Answer();
  EXPECT_TRUE(PassUntil([&] { return read(held_came) == 6; }));
}

// Extents of small files are read while the catalog is still being built.
TEST_F(HeldObjectTest, ACatalogDoesNotWaitForAnObjectWhoseExtentIsReadEarly) {
  constexpr std::uint64_t kFileBytes = 2'000;
  for (int i = 0; i < 400; ++i) {
    const std::string path = "/gfs/class" + std::to_string(i % 2) + "/" + std::to_string(1000 + i);
    ASSERT_TRUE(memory_.AddFile(path + ".jpg", Pattern(kFileBytes, 3)).has_value());
  }
  DatasetOptions options;
  options.root_path = "/gfs";
  options.source.name = "folder";
  options.source.format = catalog::Format::kImageFolder;
  options.source.settings.SetTexts("suffixes", {".jpg"});
  options.source.extent_bytes = 64 << 10;
  Dataset folder(options, backend_, Take(backend_.OpenGfsDirectory("/gfs")));
  Hold(IoCall::kRead, "class0/1000.jpg");
  stager_->Stage(folder);
  ASSERT_TRUE(PassUntil([&] { return folder.catalog() != nullptr; }));
  const std::uint64_t held = folder.catalog()->extent(ExtentId(0)).bytes;
  EXPECT_TRUE(PassUntil([&] {
    const DatasetProgress progress = folder.progress();
    return progress.staged_bytes == progress.total_bytes - held;
  }));
  EXPECT_EQ(folder.progress().state, DatasetState::kStaging);
  Answer();
  EXPECT_TRUE(PassUntil([&] { return IsStaged(folder); }));
  stager_.reset();
}

// No extent has a home.
class HeldWithoutHomesTest : public HeldObjectTest {
 protected:
  HeldWithoutHomesTest() : HeldObjectTest({.ram_bytes = 256 << 10, .home_bytes = 0}) {}
};

TEST_F(HeldWithoutHomesTest, WhoReadsInPiecesWaitsForAHeldObjectWithoutAThread) {
  constexpr auto kPieces = Stager::Access::kPieces;
  stager_->Stage(*held_);
  stager_->Stage(*sound_);
  ASSERT_TRUE(PassUntil([&] { return IsStaged(*held_) && IsStaged(*sound_); }));
  std::atomic<int> came = 0;
  const auto count = [&](const Status& status) {
    EXPECT_TRUE(status.has_value()) << status.error().ToString();
    ++came;
  };
  const auto demand = [&](Dataset& dataset, std::uint32_t extent) {
    stager_->Demand(dataset, ExtentId(extent), count, kPieces);
  };
  for (std::uint32_t i = 0; i < 2; ++i) {
    demand(*held_, i);
    demand(*sound_, i);
  }
  ASSERT_TRUE(PassUntil([&] { return came == 4; }));
  const std::uint64_t read = held_->progress().gfs_bytes;
  Hold(IoCall::kRead);
  demand(*held_, 5);
  ASSERT_TRUE(PassUntilHeld());
  for (std::uint32_t i = 0; i < 2; ++i) {
    demand(*held_, i);
    demand(*sound_, i);
  }
  EXPECT_EQ(came, 6) << "those of the sound object, at once";
  EXPECT_FALSE(stager_->pieces().FindReadable(held_->key(ExtentId(0))));
  Answer();
  EXPECT_TRUE(PassUntil([&] { return came == 9; }));
  EXPECT_EQ(held_->progress().gfs_bytes - read, held_->catalog()->extent(ExtentId(5)).bytes)
      << "extents that are described were read again";
}

// Half of the RAM tier is working memory; all extents have their home on SSD.
class HeldOnTheWayToSsdTest : public HeldObjectTest {
 protected:
  HeldOnTheWayToSsdTest()
      : HeldObjectTest({.ram_bytes = 256 << 10, .home_bytes = 0, .working_bytes = 128 << 10,
                        .ssd_bytes = 16 << 20}) {}
};

TEST_F(HeldOnTheWayToSsdTest, MemoryThatHeldReadsWorkInKeepsNoOthersWaiting) {
  Hold(IoCall::kRead);
  stager_->Stage(*held_);
  ASSERT_TRUE(PassUntilHeld());
  stager_->Stage(*sound_);
  EXPECT_TRUE(PassUntil([&] { return IsStaged(*sound_); }));
  EXPECT_FALSE(IsStaged(*held_));
  EXPECT_EQ(sound_->progress().staged_bytes, kObjectBytes);
  Answer();
  EXPECT_TRUE(PassUntil([&] { return IsStaged(*held_); }));
}

TEST_F(HeldObjectTest, StoppingDoesNotWaitForAnAnswerAndTellsWhoWaits) {
  stager_->Stage(*held_);
  ASSERT_TRUE(PassUntil([&] { return IsStaged(*held_); }));
  for (std::uint32_t i = 0; i < held_->catalog()->extent_count(); ++i) {
    ASSERT_TRUE(cache_->Evict(held_->key(ExtentId(i)), {}).has_value());
  }
  Hold(IoCall::kRead);
  std::atomic<int> told = 0;  // the code with which the postponed demand ends
  stager_->Demand(*held_, ExtentId(0), [](const Status&) {});
  ASSERT_TRUE(PassUntilHeld());
  stager_->Demand(*held_, ExtentId(1), [&](const Status& status) {
    told = status.has_value() ? -1 : static_cast<int>(status.error().code());
  });
  stager_->BeginStop();
  EXPECT_FALSE(stager_->AwaitStopped(std::chrono::milliseconds(10)));
  while (told == 0) std::this_thread::yield();
  EXPECT_EQ(told, static_cast<int>(ErrorCode::kCancelled));
  EXPECT_THAT(calls_.UnderWay(), ::testing::HasSubstr("/gfs/held.bin"));
  Answer();
  EXPECT_TRUE(stager_->AwaitStopped(std::chrono::seconds(60)));
}

}  // namespace forebay::stage::held_object_test

// Faults of the device under the SSD tier: every operation fails once or for ever, power is
// lost at every operation, the disk is full.
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "server/io/queues/thread_backend.h"
#include "server/io/testing/faulty_backend.h"
#include "server/io/testing/memory_backend.h"
#include "server/tier/ssd/segment_store.h"
#include "server/tier/testing/tier_test_fixture.h"

namespace forebay::tier::tier_fault_test {

using io::FaultKind;
using testing::CodeOf;
using testing::KeyOfNumber;
using testing::MakeExtent;
using testing::Take;
using testing::TestExtent;

constexpr std::uint64_t kCapacityBytes = 1 << 20;

// A script of Put, Get, Remove and restarts on a device that may fail at any operation. It records
// every result, so that the final state can be checked.
class TierScript {
 public:
  TierScript() : faulty_(memory_, injector_) {}
  ~TierScript() { store_.reset(); }

  io::MemoryBackend& memory() { return memory_; }
  io::FaultInjector& injector() { return injector_; }
  const std::set<std::uint32_t>& committed() const { return committed_; }
  const std::set<std::uint32_t>& doubtful() const { return doubtful_; }

  void Run() {
    if (Restart()) {
      for (const std::uint32_t number : {1U, 2U, 3U}) Put(number);
      Get(1);
      Remove(2);
      Get(3);
      Put(2);
      Get(2);
    }
    if (Restart()) {
      for (const std::uint32_t number : {1U, 2U, 3U}) Get(number);
      Remove(1);
      Put(4);
      Get(4);
    }
  }

  // Opens the store again; after an error there is no store.
  bool Restart() {
    store_.reset();
    queue_ = Take(faulty_.CreateQueue({.depth = 4}));
    if (!directory_) directory_ = Take(faulty_.OpenDirectory("/"));
    auto store = SegmentStore::Open(faulty_, *directory_, {kCapacityBytes, true});
    if (!store.has_value()) return false;
    store_ = std::move(*store);
    return true;
  }
  void Put(std::uint32_t number) {
    TestExtent extent = MakeExtent(number);
    const Status status =
        store_->Put(*queue_, extent.key, extent.image(), extent.checksums);
    EXPECT_EQ(queue_->in_flight(), 0U);
    if (status.has_value()) {
      committed_.insert(number);
      doubtful_.erase(number);
    } else {
      EXPECT_NE(CodeOf(status), ErrorCode::kInternal) << status.error().ToString();
    }
  }
  void Remove(std::uint32_t number) {
    committed_.erase(number);
    if (!store_->Remove(KeyOfNumber(number)).has_value()) doubtful_.insert(number);
  }
  // Gets the right bytes or a typed error. Returns true if it got the bytes.
  bool Get(std::uint32_t number) {
    const auto segment = store_->Get(KeyOfNumber(number));
    if (!segment.has_value()) return false;
    TestExtent extent = MakeExtent(number);
    EXPECT_EQ((*segment)->image_bytes, extent.image_bytes);
    auto image = testing::ReadImage(*queue_, **segment);
    if (!image.has_value()) return false;
    for (std::size_t i = 0; i < extent.pieces.size(); ++i) {
      const auto& piece = extent.pieces[i];
      const auto bytes = image->span().subspan(piece.offset, piece.length);
      if (!VerifyPiece(extent.key, piece, (*segment)->checksums.pieces.at(i), bytes)
               .has_value()) {
        return false;
      }
      EXPECT_TRUE(std::ranges::equal(bytes, extent.image().subspan(piece.offset, piece.length)))
          << "wrong bytes passed for right ones";
    }
    return true;
  }
  // Call when the fault is over: checks that everything is accounted for and works. `is_silent`:
  // the fault damaged bytes without an error, which may lose extents but must never yield wrong
  // bytes.
  void ExpectSound(bool is_silent) {
    ASSERT_TRUE(store_ != nullptr || Restart());
    Put(50);  // takes away what could not be removed before
    EXPECT_EQ(committed_.count(50), 1U);
    ExpectAccounted();
    const std::vector<ExtentKey> before = store_->Keys();
    ASSERT_TRUE(Restart());
    ExpectAccounted();
    EXPECT_EQ(stuck_files(), 0U);
    EXPECT_TRUE(is_silent || store_->Keys() == before);
    for (const ExtentKey& key : store_->Keys()) {
      const bool came = Get(key.extent.value());
      EXPECT_TRUE(came || is_silent) << key.extent.value();
      if (!came) {
        const Status removed = store_->Remove(key);  // as a reader's report would
        EXPECT_TRUE(removed.has_value() || CodeOf(removed) == ErrorCode::kNotFound);
      }
    }
    for (const std::uint32_t number : {1U, 2U, 3U, 4U}) {
      TestExtent extent = MakeExtent(number);
      const Status put = store_->Put(*queue_, extent.key, extent.image(), extent.checksums);
      EXPECT_TRUE(put.has_value() || CodeOf(put) == ErrorCode::kAlreadyExists)
          << put.error().ToString();
      EXPECT_TRUE(Get(number)) << number;
    }
    ExpectAccounted();
    store_.reset();
    EXPECT_EQ(memory_.open_file_count(), 0U);
  }
  // used_bytes is what the published segments take, and the directory holds nothing else.
  void ExpectAccounted() {
    std::uint64_t used = 0;
    for (const ExtentKey& key : store_->Keys()) {
      const TestExtent extent = MakeExtent(key.extent.value());
      used += SegmentStore::FileBytes(extent.image_bytes, extent.pieces.size());
    }
    EXPECT_EQ(store_->used_bytes(), used);
    const auto entries = Take(directory_->List(""));
    EXPECT_EQ(entries.size(), store_->Keys().size() + 1 + stuck_files());
  }
  // Temps that Open could not remove stay until the next Open.
  std::size_t stuck_files() {
    std::size_t stuck = testing::StrayNames(*directory_).size();
    std::set<std::string> names;
    for (const ExtentKey& key : store_->Keys()) names.insert(KeyText(key) + ".seg");
    for (const auto& entry : Take(directory_->List(""))) {
      if (entry.name.ends_with(".seg") && names.count(entry.name) == 0) ++stuck;
    }
    return stuck;
  }
  // Power is lost, then comes back.
  void LosePower(const io::CrashOptions& options) {
    store_.reset();
    injector_.Disarm();
    memory_.Crash(options);
    directory_.reset();
  }
  SegmentStore& store() { return *store_; }

 private:
  io::MemoryBackend memory_;
  io::FaultInjector injector_;
  io::FaultyBackend faulty_;
  std::unique_ptr<io::Directory> directory_;
  std::unique_ptr<io::IoQueue> queue_;
  std::unique_ptr<SegmentStore> store_;
  std::set<std::uint32_t> committed_;  // Put succeeded, Remove was not called since
  std::set<std::uint32_t> doubtful_;   // Remove failed: gone here, perhaps not after a crash
};

// From its `nth` operation on, every operation of the device fails.
io::Fault DeadFrom(std::uint64_t nth) {
  io::Fault fault;
  fault.nth = nth;
  fault.is_persistent = true;
  return fault;
}

class TierFaultSweep : public ::testing::TestWithParam<std::tuple<FaultKind, bool>> {};

TEST_P(TierFaultSweep, EveryOperationOfTheScript) {
  const auto [kind, is_persistent] = GetParam();
  const bool is_silent = kind == FaultKind::kBitFlip || kind == FaultKind::kTornWrite;
  std::uint64_t injected = 0;
  for (std::uint64_t nth = 1;; ++nth) {
    SCOPED_TRACE("operation " + std::to_string(nth));
    TierScript script;
    script.injector().Arm({.kind = kind, .call = {}, .nth = nth, .is_persistent = is_persistent,
                           .seed = nth});
    script.Run();
    const std::uint64_t faults = script.injector().faults_injected();
    if (script.injector().candidates_seen() < nth) {
      EXPECT_EQ(faults, 0U);
      break;
    }
    EXPECT_GE(faults, 1U);
    injected += faults;
    script.injector().Disarm();
    script.ExpectSound(is_silent);
    ASSERT_LT(nth, 1000U) << "the sweep does not end";
  }
  EXPECT_GE(injected, 10U);
}

std::string SweepName(const ::testing::TestParamInfo<std::tuple<FaultKind, bool>>& info) {
  static const std::map<FaultKind, std::string> kNames = {
      {FaultKind::kEio, "Eio"},           {FaultKind::kEnospc, "Enospc"},
      {FaultKind::kInterrupted, "Eintr"}, {FaultKind::kShort, "Short"},
      {FaultKind::kBitFlip, "BitFlip"},   {FaultKind::kTornWrite, "TornWrite"}};
  return kNames.at(std::get<0>(info.param)) + (std::get<1>(info.param) ? "ForEver" : "Once");
}
INSTANTIATE_TEST_SUITE_P(
    Faults, TierFaultSweep,
    ::testing::Combine(::testing::Values(FaultKind::kEio, FaultKind::kEnospc,
                                         FaultKind::kInterrupted, FaultKind::kShort,
                                         FaultKind::kBitFlip, FaultKind::kTornWrite),
                       ::testing::Bool()),
    SweepName);

// The device dies at an operation, then power is lost.
void CrashAt(std::uint64_t nth, const io::CrashOptions& options, bool& was_reached) {
  TierScript script;
  script.injector().Arm(DeadFrom(nth));
  script.Run();
  was_reached = script.injector().faults_injected() > 0;
  const std::set<std::uint32_t> committed = script.committed();
  const std::set<std::uint32_t> doubtful = script.doubtful();
  script.LosePower(options);
  ASSERT_TRUE(script.Restart());
  std::set<std::uint32_t> found;
  for (const ExtentKey& key : script.store().Keys()) found.insert(key.extent.value());
  for (const std::uint32_t number : committed) {
    EXPECT_EQ(found.count(number), 1U) << "lost extent " << number;
  }
  for (const std::uint32_t number : found) {
    EXPECT_TRUE(script.Get(number)) << "extent " << number << " is visible but not whole";
    // Where nothing unsynced lasts, what was never committed is never seen.
    if (options.mode == io::CrashMode::kDropUnsynced) {
      EXPECT_TRUE(committed.count(number) != 0 || doubtful.count(number) != 0) << number;
    }
  }
  script.ExpectAccounted();
  script.ExpectSound(false);
}

TEST(TierCrash, AtEveryOperationDroppingWhatWasNotSynced) {
  std::uint64_t nth = 1;
  for (bool was_reached = true; was_reached; ++nth) {
    SCOPED_TRACE("operation " + std::to_string(nth));
    CrashAt(nth, {}, was_reached);
  }
  EXPECT_GT(nth, 50U);
}

TEST(TierCrash, AtEveryOperationKeepingAnyPart) {
  for (const std::size_t torn_bytes : {512U, 4096U}) {
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      std::uint64_t nth = 1;
      for (bool was_reached = true; was_reached; ++nth) {
        SCOPED_TRACE("operation " + std::to_string(nth) + ", seed " + std::to_string(seed));
        CrashAt(nth, {io::CrashMode::kRandomSubset, seed * 1000 + nth, torn_bytes}, was_reached);
      }
    }
  }
}

TEST(TierCrash, AtEveryOperationKeepingNamesWithoutData) {
  std::uint64_t nth = 1;
  for (bool was_reached = true; was_reached; ++nth) {
    SCOPED_TRACE("operation " + std::to_string(nth));
    CrashAt(nth, {.mode = io::CrashMode::kRenameWithoutData}, was_reached);
  }
}

TEST(TierCrash, AtEveryOperationOfACompaction) {
  std::uint64_t nth = 1;
  for (bool was_reached = true; was_reached; ++nth) {
    SCOPED_TRACE("operation " + std::to_string(nth));
    TierScript script;
    ASSERT_TRUE(script.Restart());
    for (const std::uint32_t number : {1U, 2U, 3U}) script.Put(number);
    for (int i = 0; i < 126; ++i) {
      script.Put(9);
      script.Remove(9);
    }
    script.injector().Arm(DeadFrom(nth));
    for (int i = 0; i < 3; ++i) {  // the compaction falls among these
      script.Put(9);
      script.Remove(9);
    }
    was_reached = script.injector().faults_injected() > 0;
    script.LosePower({.mode = nth % 2 == 0 ? io::CrashMode::kDropUnsynced
                                           : io::CrashMode::kRandomSubset,
                      .seed = nth});
    ASSERT_TRUE(script.Restart());
    for (const std::uint32_t number : {1U, 2U, 3U}) EXPECT_TRUE(script.Get(number)) << number;
    script.ExpectAccounted();
  }
  EXPECT_GT(nth, 30U);
}

TEST(TierSync, FailedSyncIsNotTriedAgain) {
  TierScript script;
  ASSERT_TRUE(script.Restart());
  script.injector().Arm({.kind = FaultKind::kEio, .call = io::IoCall::kDataSync});
  script.Put(1);
  EXPECT_EQ(script.injector().faults_injected(), 1U);
  EXPECT_EQ(script.injector().candidates_seen(), 1U);  // one sync, and no second
  EXPECT_EQ(script.store().Keys().size(), 0U);
  EXPECT_EQ(script.stuck_files(), 0U);
}

// A file system of its own, in memory, of a given size.
class SmallDisk {
 public:
  explicit SmallDisk(const std::string& options) {
    is_mounted_ = ::mount("forebay-test", folder_.path().c_str(), "tmpfs", 0,
                          options.c_str()) == 0;
  }
  ~SmallDisk() {
    if (is_mounted_) ::umount(folder_.path().c_str());
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  bool is_mounted() const { return is_mounted_; }
  const std::string& path() const { return folder_.path(); }

 private:
  testing::TempFolder folder_;
  bool is_mounted_ = false;
};

TEST(TierFullDisk, PutFailsCleanlyAndWorksAgainAfterARemoval) {
  const SmallDisk disk("size=4m");
  if (!disk.is_mounted()) GTEST_SKIP() << "mounting a small tmpfs needs privileges";
  const auto backend = Take(io::ThreadBackend::Create({.threads = 2, .resolve_method = {}}));
  const auto directory = Take(backend->OpenDirectory(disk.path()));
  const auto queue = Take(backend->CreateQueue({}));
  const auto store = Take(SegmentStore::Open(*backend, *directory, {limits::kGiB, true}));
  constexpr std::size_t kImageBytes = 300'000;
  std::uint32_t stored = 0;
  int refused = 0;
  for (std::uint32_t number = 0; refused < 3; ++number) {
    ASSERT_LT(number, 100U) << "the disk never fills";
    TestExtent extent = MakeExtent(number, kImageBytes);
    const Status put = store->Put(*queue, extent.key, extent.image(), extent.checksums);
    if (put.has_value()) {
      ++stored;
      continue;
    }
    ++refused;
    EXPECT_EQ(CodeOf(put), ErrorCode::kResourceExhausted) << put.error().ToString();
    EXPECT_TRUE(testing::StrayNames(*directory).empty());
  }
  EXPECT_GE(stored, 10U);
  const std::vector<ExtentKey> keys = store->Keys();
  EXPECT_EQ(keys.size(), stored);
  const TestExtent one = MakeExtent(0, kImageBytes);
  EXPECT_EQ(store->used_bytes(),
            stored * SegmentStore::FileBytes(kImageBytes, one.pieces.size()));
  for (const ExtentKey& key : keys) {
    const TestExtent extent = MakeExtent(key.extent.value(), kImageBytes);
    FOREBAY_EXPECT_OK(
        testing::VerifySegment(*queue, *Take(store->Get(key)), extent.pieces));
  }
  FOREBAY_EXPECT_OK(store->Remove(keys[0]));
  TestExtent extent = MakeExtent(77, kImageBytes);
  FOREBAY_EXPECT_OK(store->Put(*queue, extent.key, extent.image(), extent.checksums));
}

}  // namespace forebay::tier::tier_fault_test

// Every requested extent arrives pinned, from a tier or from the GFS, each by one read, and `done`
// is called once. Extents of other nodes are left to these nodes if the reader allows it.
#include "server/fetch/fetcher.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <future>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/io/aligned_buffer.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/manual_clock.h"
#include "server/io/testing/memory_backend.h"
#include "server/stage/testing/stage_rig.h"
#include "server/tier/piece_reader.h"

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

class FetcherTest : public ::testing::Test {
 protected:
  FetcherTest() {
    EXPECT_TRUE(memory_.AddDirectory("/ssd").has_value());
    EXPECT_TRUE(memory_.AddFile("/gfs/data.bin", Pattern(kFileBytes, 1)).has_value());
  }
  // The threads of the stager call the fetcher.
  ~FetcherTest() override { rig_.Stop(); }
  void Start(const RigOptions& options = {}) {
    FOREBAY_EXPECT_OK(rig_.Start(stage::RecordDataset(), options));
    FOREBAY_EXPECT_OK(rig_.StageAll());
    fetcher_.emplace(rig_.cache(), rig_.stager(), nodes_);
  }
  // A data set that is compressed at staging, of bytes that do not become fewer by that.
  stage::DatasetOptions Incompressible() {
    std::mt19937 random(7);
    std::vector<std::byte> bytes(kFileBytes);
    std::ranges::generate(bytes, [&] { return static_cast<std::byte>(random()); });
    EXPECT_TRUE(memory_.AddFile("/gfs/data.bin", bytes).has_value());
    stage::DatasetOptions options = stage::RecordDataset();
    options.compression = stage::Compression::kFast;
    return options;
  }
  static std::vector<ExtentId> Extents(std::uint32_t count) {
    std::vector<ExtentId> extents;
    for (std::uint32_t i = 0; i < count; ++i) extents.push_back(ExtentId(i));
    return extents;
  }
  using Refs = std::vector<tier::ExtentRef>;
  Result<Refs> Acquire(std::vector<ExtentId> extents,
                       Need need = Need::kRuns) {
    return AcquireOf(rig_.dataset(), std::move(extents), need);
  }
  Result<Refs> AcquireOf(stage::Dataset& dataset, std::vector<ExtentId> extents,
                         Need need = Need::kRuns,
                         Fetcher::Where where = Fetcher::Where::kHere) {
    std::mutex mutex;
    std::condition_variable told;
    std::optional<Result<Refs>> outcome;
    const auto done = [&](Result<Refs> refs) {
      std::lock_guard lock(mutex);
      EXPECT_FALSE(outcome.has_value()) << "called twice";
      outcome.emplace(std::move(refs));
      told.notify_all();
    };
    fetcher_->Acquire(dataset, std::move(extents), {.need = need, .where = where}, done);
    std::unique_lock lock(mutex);
    told.wait(lock, [&] { return outcome.has_value(); });
    return std::move(*outcome);
  }
  void EvictAll() {
    for (const ExtentId extent : Extents(8)) {
      FOREBAY_EXPECT_OK(rig_.cache().Evict(rig_.dataset().key(extent), std::nullopt));
    }
  }
  std::uint64_t BytesOf(std::span<const ExtentId> extents) {
    std::uint64_t bytes = 0;
    for (const ExtentId extent : extents) bytes += rig_.dataset().catalog()->extent(extent).bytes;
    return bytes;
  }
  std::uint64_t ReadAgain() const {
    return const_cast<stage::StageRig&>(rig_).dataset().progress().gfs_bytes - kFileBytes;
  }

  io::MemoryBackend memory_;
  stage::StageRig rig_{memory_, ""};
  plan::Membership nodes_{NodeRank(0), {{NodeRank(0), 1}, {NodeRank(1), 1}}};
  std::optional<Fetcher> fetcher_;
};

TEST_F(FetcherTest, AnswersFromTheCallWhereAllIsResident) {
  Start();
  bool is_done = false;
  fetcher_->Acquire(rig_.dataset(), Extents(8), {.need = Need::kRuns}, [&](Result<Refs> refs) {
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
  EXPECT_TRUE(fetcher_->TryAcquire(rig_.dataset(), Extents(8), Need::kRuns, refs));
  FOREBAY_EXPECT_OK(rig_.cache().Evict(rig_.dataset().key(ExtentId(2)), std::nullopt));
  EXPECT_FALSE(fetcher_->TryAcquire(rig_.dataset(), Extents(8), Need::kRuns, refs));
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

// --- other nodes ----------------------------------------------------------------------------

TEST_F(FetcherTest, ExtentsOfAnotherNodeAreLeftToItWhereTheReaderGetsRowsOfThem) {
  Start({.nodes = &nodes_});
  Refs refs;
  std::vector<ExtentId> ours;
  std::vector<ExtentId> others;
  for (const ExtentId extent : Extents(8)) {
    (nodes_.Reads(rig_.dataset().group_key(extent)) ? ours : others).push_back(extent);
  }
  ASSERT_FALSE(ours.empty());
  ASSERT_FALSE(others.empty());
  for (const ExtentId extent : ours) {
    FOREBAY_EXPECT_OK(rig_.cache().Evict(rig_.dataset().key(extent), std::nullopt));
  }
  EXPECT_FALSE(fetcher_->TryAcquire(rig_.dataset(), others, Need::kSamples, refs));
  EXPECT_TRUE(fetcher_->TryAcquire(rig_.dataset(), others, Need::kSamples, refs,
                                   Fetcher::Where::kAnywhere));
  EXPECT_EQ(refs.size(), others.size());
  EXPECT_EQ(refs.front(), nullptr);
  EXPECT_FALSE(fetcher_->TryAcquire(rig_.dataset(), ours, Need::kSamples, refs,
                                    Fetcher::Where::kAnywhere));

  const Result<Refs> all = AcquireOf(rig_.dataset(), Extents(8), Need::kRuns,
                                     Fetcher::Where::kAnywhere);
  ASSERT_TRUE(all.has_value()) << all.error().ToString();
  for (std::uint32_t i = 0; i < 8; ++i) {
    EXPECT_EQ((*all)[i] != nullptr, nodes_.Reads(rig_.dataset().group_key(ExtentId(i))));
  }
  EXPECT_EQ(rig_.dataset().progress().gfs_bytes, 2 * BytesOf(ours)) << "at staging, and now";
}

TEST_F(FetcherTest, ACopyThatIsHereIsUsedWhoeverOwnsTheExtent) {
  Start();
  const Result<Refs> all = AcquireOf(rig_.dataset(), Extents(8), Need::kRuns,
                                     Fetcher::Where::kAnywhere);
  ASSERT_TRUE(all.has_value()) << all.error().ToString();
  for (const tier::ExtentRef& ref : *all) EXPECT_NE(ref, nullptr);
}

TEST_F(FetcherTest, ExtentsOfANodeThatIsGoneAreReadHere) {
  Start();
  EvictAll();
  nodes_.SetLives(NodeRank(1), false);
  const Result<Refs> all = AcquireOf(rig_.dataset(), Extents(8), Need::kRuns,
                                     Fetcher::Where::kAnywhere);
  ASSERT_TRUE(all.has_value()) << all.error().ToString();
  EXPECT_EQ(ReadAgain(), kFileBytes) << "this node reads the GFS itself, once";
  FOREBAY_EXPECT_OK(rig_.VerifyAll());
}

TEST_F(FetcherTest, ReadersOfSamplesGetExtentsWithoutAHomeInPiecesAndEvictNothing) {
  Start({.ram_bytes = 384 << 10});
  ASSERT_GT(rig_.dataset().bytes_without_home(), 0U);
  const std::uint64_t staged = rig_.dataset().progress().gfs_bytes;
  const auto without_home = static_cast<int>(rig_.dataset().ExtentsWithoutHome().size());
  for (int round = 0; round < 3; ++round) {
    const auto refs = Acquire(Extents(8), Need::kSamples);
    ASSERT_TRUE(refs.has_value()) << refs.error().ToString();
    int in_pieces = 0;
    for (const tier::ExtentRef& ref : *refs) {
      in_pieces += ref->tier == tier::TierKind::kGfs ? 1 : 0;
    }
    EXPECT_EQ(in_pieces, without_home);
  }
  // Each extent was read as a whole once, for its checksums, and not again.
  EXPECT_EQ(rig_.dataset().progress().gfs_bytes - staged, rig_.dataset().bytes_without_home());
  EXPECT_EQ(rig_.cache().stats(tier::TierKind::kRam).evictions, 0U);
}

// This node knows their pieces from when it has replaced the other one.
TEST_F(FetcherTest, ExtentsOfANodeThatIsBackAreNotReadInPiecesHere) {
  Start({.ram_bytes = 384 << 10});
  // The other node owns nearly everything.
  plan::Membership nodes{NodeRank(0), {{NodeRank(0), 1}, {NodeRank(1), 1'000}}};
  fetcher_.emplace(rig_.cache(), rig_.stager(), nodes);
  nodes.SetLives(NodeRank(1), false);
  ASSERT_TRUE(Acquire(Extents(8), Need::kSamples).has_value());
  nodes.SetLives(NodeRank(1), true);
  std::vector<ExtentId> theirs;
  for (const ExtentId extent : rig_.dataset().ExtentsWithoutHome()) {
    if (!nodes.Reads(rig_.dataset().group_key(extent))) theirs.push_back(extent);
  }
  ASSERT_FALSE(theirs.empty());
  Refs refs;
  EXPECT_TRUE(fetcher_->TryAcquire(rig_.dataset(), theirs, Need::kSamples, refs,
                                   Fetcher::Where::kAnywhere));
  for (const tier::ExtentRef& ref : refs) EXPECT_EQ(ref, nullptr);
  // A node that the other one does not answer asks this one.
  EXPECT_TRUE(fetcher_->TryAcquire(rig_.dataset(), theirs, Need::kSamples, refs,
                                   Fetcher::Where::kHere));
  for (const tier::ExtentRef& ref : refs) EXPECT_NE(ref, nullptr);
  rig_.Stop();  // its threads may use the fetcher, and that the nodes
}

TEST_F(FetcherTest, PiecesFromTheGfsAreThoseOfTheFileAndAreCounted) {
  Start({.ram_bytes = 384 << 10});
  const auto refs = Acquire(Extents(8), Need::kSamples);
  ASSERT_TRUE(refs.has_value());
  const std::vector<std::byte> file = Pattern(kFileBytes, 1);
  const auto queue = io::testing::Take(rig_.backend().CreateQueue({.depth = 4}));
  std::uint64_t read_bytes = 0;
  for (const tier::ExtentRef& ref : *refs) {
    if (ref->tier != tier::TierKind::kGfs) continue;
    const auto catalog = rig_.dataset().catalog();
    std::vector<catalog::Range> pieces;
    FOREBAY_EXPECT_OK(catalog->Pieces(ref->key.extent, pieces));
    const std::uint64_t begin = catalog->extent(ref->key.extent).object_offset;
    for (std::size_t i = 0; i < pieces.size(); i += 7) {
      auto memory = io::testing::Take(io::AlignedBuffer::Create(tier::AlignedBytes(pieces[i])));
      const tier::PieceRead read{.extent = ref.get(),
                           .piece = pieces[i],
                           .checksum = ref->sums().pieces[i],
                           .memory = memory.span().first(tier::AlignedBytes(pieces[i]))};
      std::vector<tier::PieceFailure> failures;
      FOREBAY_EXPECT_OK(tier::ReadPieces(*queue, {&read, 1}, failures));
      EXPECT_TRUE(failures.empty());
      EXPECT_EQ(std::memcmp(memory.data() + tier::LeadBytes(pieces[i]),
                            file.data() + begin + pieces[i].offset, pieces[i].length),
                0);
      read_bytes += pieces[i].length;
    }
  }
  EXPECT_GT(read_bytes, 0U);
  EXPECT_EQ(rig_.dataset().progress().gfs_piece_bytes, read_bytes);
}

TEST_F(FetcherTest, APieceThatIsNotAsFirstReadIsRefusedAndAfterwardsTheExtentByName) {
  Start({.ram_bytes = 384 << 10});
  const ExtentId last(7);
  auto refs = Acquire({last}, Need::kSamples);
  ASSERT_TRUE(refs.has_value());
  const tier::ExtentRef ref = refs->front();
  ASSERT_EQ(ref->tier, tier::TierKind::kGfs);
  const std::uint64_t begin = rig_.dataset().catalog()->extent(last).object_offset;
  FOREBAY_EXPECT_OK(memory_.FlipBit("/gfs/data.bin", (begin + 5) * 8));
  std::vector<catalog::Range> pieces;
  FOREBAY_EXPECT_OK(rig_.dataset().catalog()->Pieces(last, pieces));
  const auto queue = io::testing::Take(rig_.backend().CreateQueue({.depth = 4}));
  auto memory = io::testing::Take(io::AlignedBuffer::Create(tier::AlignedBytes(pieces[0])));
  const tier::PieceRead read{.extent = ref.get(),
                       .piece = pieces[0],
                       .checksum = ref->sums().pieces[0],
                       .memory = memory.span().first(tier::AlignedBytes(pieces[0]))};
  std::vector<tier::PieceFailure> failures;
  FOREBAY_EXPECT_OK(tier::ReadPieces(*queue, {&read, 1}, failures));
  ASSERT_EQ(failures.size(), 1U);
  EXPECT_EQ(failures[0].error.code(), ErrorCode::kDataLoss);
  fetcher_->ReportBad(ref, failures[0].error, 1);
  refs = Acquire({last}, Need::kSamples);
  ASSERT_FALSE(refs.has_value());
  EXPECT_THAT(refs.error().message(), HasSubstr("extent 7: changed since first read"));
  EXPECT_EQ(rig_.dataset().first_reads().mismatches(), 3U) << "the piece, and the extent twice";
}

// --- every error branch -------------------------------------------------------------------

TEST_F(FetcherTest, AnExtentForWhichMemoryStaysShortIsReadInPieces) {
  Start();
  EvictAll();
  std::vector<tier::ArenaBlock> hoard;
  while (rig_.arena().largest_free_bytes() > 0) {
    auto block = rig_.arena().Allocate(rig_.arena().largest_free_bytes());
    if (!block.has_value()) break;
    hoard.push_back(std::move(*block));
  }
  const auto refs = Acquire(Extents(1));
  ASSERT_TRUE(refs.has_value()) << refs.error().ToString();
  EXPECT_EQ(refs->front()->tier, tier::TierKind::kGfs);
  hoard.clear();
  const auto later = Acquire(Extents(1));
  ASSERT_TRUE(later.has_value());
  EXPECT_EQ(later->front()->tier, tier::TierKind::kRam) << "there is room again";
}

TEST_F(FetcherTest, AnExtentThatLeavesBeforeItIsPinnedMayBeAskedForAgain) {
  stage::DatasetOptions options = stage::RecordDataset();
  // So that it cannot be read in pieces.
  options.compression = stage::Compression::kFast;
  FOREBAY_EXPECT_OK(rig_.Start(options, {.readers = 1}));
  FOREBAY_EXPECT_OK(rig_.StageAll());
  fetcher_.emplace(rig_.cache(), rig_.stager(), nodes_);
  EvictAll();
  // Waits for the extent before the fetcher does, and evicts it whenever it arrives, as the load of
  // an extent that is needed sooner would. The only reader thread calls both, so it brings nothing
  // between them.
  std::atomic<bool> is_full = true;
  std::atomic<int> evictions = 0;
  std::function<void(const Status&)> evict = [&](const Status& arrived) {
    FOREBAY_EXPECT_OK(arrived);
    if (!is_full) return;
    ++evictions;
    FOREBAY_EXPECT_OK(rig_.cache().Evict(rig_.dataset().key(ExtentId(0)), std::nullopt));
    rig_.stager().Demand(rig_.dataset(), ExtentId(0), evict);
  };
  rig_.stager().Demand(rig_.dataset(), ExtentId(0), evict);
  const auto refs = Acquire(Extents(1));
  EXPECT_EQ(CodeOf(refs), ErrorCode::kUnavailable);
  EXPECT_THAT(refs.error().message(), HasSubstr("raise tier.ram.capacity"));
  EXPECT_GE(evictions, limits::kExtentArrivalsMax);
  is_full = false;
  EXPECT_TRUE(Acquire(Extents(1)).has_value());
  rig_.Stop();  // `evict` is not called any more
}

// Each request needs three of eight extents, of a data set that cannot be read in pieces, and RAM
// holds seven. If three requests had two extents each, none would ever get its third one.
TEST_F(FetcherTest, RequestsThatDoNotFitTogetherTakeTurns) {
  FOREBAY_EXPECT_OK(rig_.Start(Incompressible(), {.ram_bytes = 512 << 10, .readers = 4}));
  FOREBAY_EXPECT_OK(rig_.StageAll());
  fetcher_.emplace(rig_.cache(), rig_.stager(), nodes_,
                   FetcherOptions{.own_pin_bytes = 4 * kExtentBytes});
  {
    std::vector<std::jthread> threads;
    for (std::uint32_t t = 0; t < 4; ++t) {
      threads.emplace_back([this, t] {
        for (std::uint32_t round = 0; round < 25; ++round) {
          std::vector<ExtentId> extents;
          for (std::uint32_t i = 0; i < 3; ++i) {
            extents.push_back(ExtentId((t * 2 + i + round) % 8));
          }
          // The free memory may be in pieces between pinned extents; readers ask again then.
          Result<Refs> refs = Acquire(extents);
          while (CodeOf(refs) == ErrorCode::kUnavailable) refs = Acquire(extents);
          EXPECT_TRUE(refs.has_value()) << refs.error().ToString();
        }
      });
    }
  }
  while (rig_.cache().stats(tier::TierKind::kRam).pinned_bytes > 0) std::this_thread::yield();
}

// RAM holds four extents, and each request needs three. Their loads come in an order in which each
// of the two would have two extents when memory is full, and neither would get its third one.
TEST_F(FetcherTest, ARequestKeepsNothingThatAnotherOneWaitsFor) {
  FOREBAY_EXPECT_OK(rig_.Start(Incompressible(), {.ram_bytes = 320 << 10, .readers = 1}));
  FOREBAY_EXPECT_OK(rig_.StageAll());
  fetcher_.emplace(rig_.cache(), rig_.stager(), nodes_,
                   FetcherOptions{.own_pin_bytes = 3 * (kExtentBytes + 4096)});
  for (const ExtentId extent : Extents(8)) {
    static_cast<void>(rig_.cache().Evict(rig_.dataset().key(extent), std::nullopt));
  }
  rig_.gfs_faults.Arm({.kind = FaultKind::kStall, .call = IoCall::kRead});
  for (const std::uint32_t extent : {0U, 1U, 3U, 4U, 2U, 5U}) {
    rig_.stager().Demand(rig_.dataset(), ExtentId(extent), [](const Status&) {},
                         stage::Access::kOnTier, stage::Urgency::kNow);
  }
  while (rig_.gfs_faults.faults_injected() == 0) std::this_thread::yield();
  std::promise<Result<Refs>> outcomes[2];
  for (std::uint32_t i = 0; i < 2; ++i) {
    fetcher_->Acquire(rig_.dataset(),
                      {ExtentId(3 * i), ExtentId(3 * i + 1), ExtentId(3 * i + 2)},
                      {.need = Need::kRuns, .steps = [] { return std::uint64_t{0}; }},
                      [&, i](Result<Refs> refs) { outcomes[i].set_value(std::move(refs)); });
  }
  EXPECT_EQ(fetcher_->waiting(), 1U);
  rig_.gfs_faults.ReleaseStalls();
  for (std::promise<Result<Refs>>& outcome : outcomes) {
    const Result<Refs> refs = outcome.get_future().get();  // unpinned before the next one
    EXPECT_TRUE(refs.has_value()) << refs.error().ToString();
  }
}

// Memory that never becomes free is not waited for.
TEST_F(FetcherTest, OfARequestThatIsLargerThanTheRoomTheRestIsReadInPieces) {
  Start();
  fetcher_.emplace(rig_.cache(), rig_.stager(), nodes_,
                   FetcherOptions{.own_pin_bytes = 2 * kExtentBytes});
  EvictAll();
  const auto refs = Acquire(Extents(4));
  ASSERT_TRUE(refs.has_value()) << refs.error().ToString();
  for (std::uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ((*refs)[i]->tier, i < 2 ? tier::TierKind::kRam : tier::TierKind::kGfs) << i;
  }
}

// It cannot be read in pieces, and keeps all memory itself. Another request gets its turn.
TEST_F(FetcherTest, ARequestThatFitsNowhereEndsWithTheSettingsToChange) {
  FOREBAY_EXPECT_OK(rig_.Start(Incompressible(), {.ram_bytes = 384 << 10, .readers = 4}));
  FOREBAY_EXPECT_OK(rig_.StageAll());
  fetcher_.emplace(rig_.cache(), rig_.stager(), nodes_, FetcherOptions::For(384 << 10, false));
  const PinRoom::Steps now = [] { return std::uint64_t{0}; };
  std::promise<Result<Refs>> first;
  fetcher_->Acquire(rig_.dataset(), Extents(8), {.need = Need::kRuns, .steps = now},
                    [&](Result<Refs> refs) { first.set_value(std::move(refs)); });
  std::promise<Result<Refs>> later;
  fetcher_->Acquire(rig_.dataset(), {ExtentId(7)}, {.need = Need::kRuns, .steps = now},
                    [&](Result<Refs> refs) { later.set_value(std::move(refs)); });
  const Result<Refs> refs = first.get_future().get();
  EXPECT_EQ(CodeOf(refs), ErrorCode::kUnavailable);
  EXPECT_THAT(refs.error().message(), HasSubstr("raise tier.ram.capacity"));
  EXPECT_TRUE(later.get_future().get().has_value());
}

// The free memory of two extents is in three pieces, between extents that the request pins.
TEST_F(FetcherTest, ARequestThatFailedForFragmentsSucceedsWhenItIsMadeAgain) {
  constexpr std::uint64_t kPieceBytes = 48 << 10;
  FOREBAY_EXPECT_OK(rig_.Start(Incompressible(), {.ram_bytes = 512 << 10, .readers = 1}));
  FOREBAY_EXPECT_OK(rig_.StageAll());
  fetcher_.emplace(rig_.cache(), rig_.stager(), nodes_,
                   FetcherOptions{.own_pin_bytes = kExtentBytes});
  for (const ExtentId extent : Extents(8)) {
    static_cast<void>(rig_.cache().Evict(rig_.dataset().key(extent), std::nullopt));
  }
  std::vector<tier::ArenaBlock> pieces;
  for (std::uint32_t i = 0; i < 2; ++i) {
    pieces.push_back(std::move(*rig_.arena().Allocate(kPieceBytes)));
    FOREBAY_EXPECT_OK(rig_.Demand(ExtentId(i)));
  }
  std::vector<tier::ArenaBlock> rest;
  while (rig_.arena().largest_free_bytes() > kPieceBytes) {
    rest.push_back(std::move(*rig_.arena().Allocate(4096)));
  }
  pieces.clear();
  ASSERT_LT(rig_.arena().largest_free_bytes(), kExtentBytes);
  const auto acquire = [this] {
    std::promise<Result<Refs>> outcome;
    fetcher_->Acquire(rig_.dataset(), Extents(3),
                      {.need = Need::kRuns, .steps = [] { return std::uint64_t{0}; }},
                      [&](Result<Refs> refs) { outcome.set_value(std::move(refs)); });
    return outcome.get_future().get();
  };
  EXPECT_EQ(rig_.cache().stats(tier::TierKind::kRam).moved, 0U);
  EXPECT_EQ(CodeOf(acquire()), ErrorCode::kUnavailable);
  EXPECT_GT(rig_.cache().stats(tier::TierKind::kRam).moved, 0U);
  const auto refs = acquire();
  EXPECT_TRUE(refs.has_value()) << refs.error().ToString();
}

// All memory has extents that are needed sooner than the batch. It is not tried at every step.
TEST_F(FetcherTest, ABatchAheadOfNeedWaitsUntilItIsNeededSooner) {
  std::atomic<bool> is_full = false;
  tier::ExtentKey missing_key;
  std::atomic<int> tries = 0;  // each one asks when the extent that is missing is needed
  FOREBAY_EXPECT_OK(rig_.Start(
      Incompressible(),
      {.ram_bytes = 384 << 10,
       .reserve_bytes = 256 << 10,
       .next_use = [&](const tier::ExtentKey& key, std::uint64_t) -> std::uint64_t {
         if (!is_full || key != missing_key) return 0;
         ++tries;
         return 5;
       }}));
  FOREBAY_EXPECT_OK(rig_.StageAll());
  fetcher_.emplace(rig_.cache(), rig_.stager(), nodes_, FetcherOptions::For(384 << 10, false));
  // Fills memory, and evicts the first ones again.
  for (const ExtentId extent : Extents(8)) FOREBAY_EXPECT_OK(rig_.Demand(extent));
  // One without a home, because one that has a home is also loaded in the background.
  std::uint32_t missing = 0;
  const auto is_missing = [&](ExtentId extent) {
    return rig_.dataset().home(extent) == plan::HomeTier::kNone &&
           rig_.cache().Find(rig_.dataset().key(extent)) == nullptr;
  };
  while (missing < 8 && !is_missing(ExtentId(missing))) ++missing;
  ASSERT_LT(missing, 8U);
  missing_key = rig_.dataset().key(ExtentId(missing));
  is_full = true;
  std::atomic<std::uint64_t> steps = 8;
  std::promise<Result<Refs>> outcome;
  fetcher_->Acquire(rig_.dataset(), {ExtentId(missing)},
                    {.need = Need::kRuns, .steps = [&] { return steps.load(); }},
                    [&](Result<Refs> refs) { outcome.set_value(std::move(refs)); });
  auto answer = outcome.get_future();
  const auto is_waiting = [&] { return fetcher_->waiting() == 1; };
  while (!is_waiting()) std::this_thread::yield();
  for (const std::uint64_t at : {5U, 4U, 3U, 2U, 1U}) {
    steps = at;
    fetcher_->LookAgain();
    while (!is_waiting()) std::this_thread::yield();
  }
  EXPECT_EQ(answer.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  EXPECT_EQ(tries, 4) << "at 8, 4, 2 and 1 steps";
  const std::uint64_t evictions = rig_.cache().stats(tier::TierKind::kRam).evictions;
  steps = 0;
  fetcher_->LookAgain();
  const Result<Refs> refs = answer.get();
  ASSERT_TRUE(refs.has_value()) << refs.error().ToString();
  EXPECT_GT(rig_.cache().stats(tier::TierKind::kRam).evictions, evictions);
}

// The GFS does not answer the first request, which has the room. The second one needs extents of
// which one is there, and must not keep it from being evicted meanwhile.
TEST_F(FetcherTest, ARequestThatWaitsForItsTurnPinsNothing) {
  Start({.readers = 4});
  io::ManualClock clock;
  fetcher_.emplace(rig_.cache(), rig_.stager(), nodes_,
                   FetcherOptions{.own_pin_bytes = 2 * kExtentBytes - 1, .clock = &clock});
  for (const std::uint32_t extent : {0U, 3U}) {
    FOREBAY_EXPECT_OK(rig_.cache().Evict(rig_.dataset().key(ExtentId(extent)), std::nullopt));
  }
  rig_.gfs_faults.Arm({.kind = FaultKind::kStall, .call = IoCall::kRead});
  std::promise<Result<Refs>> first;
  fetcher_->Acquire(rig_.dataset(), {ExtentId(0)}, {.need = Need::kRuns},
                    [&](Result<Refs> refs) { first.set_value(std::move(refs)); });
  while (rig_.gfs_faults.faults_injected() == 0) std::this_thread::yield();
  std::promise<Result<Refs>> second;
  fetcher_->Acquire(rig_.dataset(), {ExtentId(2), ExtentId(3)}, {.need = Need::kRuns},
                    [&](Result<Refs> refs) { second.set_value(std::move(refs)); });
  bool is_third_wanted = true;
  std::promise<Result<Refs>> third;
  fetcher_->Acquire(rig_.dataset(), {ExtentId(3), ExtentId(4), ExtentId(5)},
                    {.need = Need::kRuns, .is_wanted = [&] { return is_third_wanted; }},
                    [&](Result<Refs> refs) { third.set_value(std::move(refs)); });
  EXPECT_EQ(rig_.cache().stats(tier::TierKind::kRam).pinned_bytes, 0U)
      << "extents 2, 4 and 5 may be evicted";
  is_third_wanted = false;
  // After a while the first request no longer counts.
  auto answer = second.get_future();
  EXPECT_EQ(answer.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  clock.AdvanceNs(1'000'000'000);
  fetcher_->LendPinsOf(500'000'000);
  const Result<Refs> refs = answer.get();
  ASSERT_TRUE(refs.has_value()) << refs.error().ToString();
  EXPECT_EQ((*refs)[1]->key, rig_.dataset().key(ExtentId(3)));
  EXPECT_EQ(CodeOf(third.get_future().get()), ErrorCode::kCancelled);
  rig_.gfs_faults.ReleaseStalls();
  EXPECT_TRUE(first.get_future().get().has_value());
}

TEST_F(FetcherTest, AnExtentWithAHomeThatIsReadInPiecesIsBroughtHomeOnceThereIsMemory) {
  Start();
  EvictAll();
  std::vector<tier::ArenaBlock> hoard;
  while (rig_.arena().largest_free_bytes() > 0) {
    auto block = rig_.arena().Allocate(rig_.arena().largest_free_bytes());
    if (!block.has_value()) break;
    hoard.push_back(std::move(*block));
  }
  const auto refs = Acquire(Extents(1), Need::kSamples);
  ASSERT_TRUE(refs.has_value()) << refs.error().ToString();
  ASSERT_EQ(refs->front()->tier, tier::TierKind::kGfs);
  hoard.clear();
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!rig_.cache().Find(rig_.dataset().key(ExtentId(0)))) {
    ASSERT_LT(std::chrono::steady_clock::now(), give_up);
    std::this_thread::yield();
  }
}

// Changed bytes have the same keys as the old ones, so their copies cannot be told apart.
TEST_F(FetcherTest, AStreamOfBeforeARebuildGetsNoBytesThatTheRebuildAccepted) {
  Start();
  stage::Dataset& before = rig_.dataset();
  FOREBAY_EXPECT_OK(rig_.StageAll(/*rebuild=*/true));
  ASSERT_NE(&rig_.dataset(), &before);
  EXPECT_TRUE(AcquireOf(before, Extents(8)).has_value()) << "the objects are as they were";
  FOREBAY_EXPECT_OK(memory_.FlipBit("/gfs/data.bin", 8 * 100));
  EvictAll();
  FOREBAY_EXPECT_OK(rig_.StageAll(/*rebuild=*/true));
  EXPECT_TRUE(Acquire(Extents(8)).has_value());
  for (const Need need : {Need::kRuns, Need::kSamples}) {
    const auto refs = AcquireOf(before, Extents(1), need);
    EXPECT_EQ(CodeOf(refs), ErrorCode::kFailedPrecondition);
    EXPECT_THAT(refs.error().message(), HasSubstr("open the stream again"));
    EXPECT_EQ(CodeOf(AcquireOf(before, {}, need)), ErrorCode::kFailedPrecondition)
        << "what was decoded is not its own either";
  }
}

// The checksums that are known of pieces on no tier are those of the bytes before the rebuild.
TEST_F(FetcherTest, PiecesAreComparedWithTheBytesThatARebuildAccepted) {
  Start({.ram_bytes = 384 << 10});
  const ExtentId last(7);
  const auto before = Acquire({last}, Need::kSamples);
  ASSERT_TRUE(before.has_value()) << before.error().ToString();
  ASSERT_EQ(before->front()->tier, tier::TierKind::kGfs);
  const std::uint64_t begin = rig_.dataset().catalog()->extent(last).object_offset;
  FOREBAY_EXPECT_OK(memory_.FlipBit("/gfs/data.bin", (begin + 5) * 8));
  FOREBAY_EXPECT_OK(rig_.StageAll(/*rebuild=*/true));
  const auto refs = Acquire({last}, Need::kSamples);
  ASSERT_TRUE(refs.has_value()) << refs.error().ToString();
  const tier::ExtentRef ref = refs->front();
  ASSERT_EQ(ref->tier, tier::TierKind::kGfs);
  EXPECT_EQ(ref->key, before->front()->key);
  EXPECT_NE(ref->sums().pieces[0], before->front()->sums().pieces[0]);
  EXPECT_EQ(ref->sums().pieces[1], before->front()->sums().pieces[1]);
  std::vector<catalog::Range> pieces;
  FOREBAY_EXPECT_OK(rig_.dataset().catalog()->Pieces(last, pieces));
  const auto queue = io::testing::Take(rig_.backend().CreateQueue({.depth = 4}));
  auto memory = io::testing::Take(io::AlignedBuffer::Create(tier::AlignedBytes(pieces[0])));
  const tier::PieceRead read{.extent = ref.get(),
                             .piece = pieces[0],
                             .checksum = ref->sums().pieces[0],
                             .memory = memory.span().first(tier::AlignedBytes(pieces[0]))};
  std::vector<tier::PieceFailure> failures;
  FOREBAY_EXPECT_OK(tier::ReadPieces(*queue, {&read, 1}, failures));
  EXPECT_TRUE(failures.empty());
}

TEST_F(FetcherTest, OneErrorIsReportedOnceAndNothingStaysPinned) {
  Start({.readers = 1});
  EvictAll();
  rig_.gfs_faults.Arm({.kind = FaultKind::kEio, .call = IoCall::kRead, .nth = 9});
  const auto refs = Acquire(Extents(8));
  EXPECT_EQ(rig_.gfs_faults.faults_injected(), 1u);
  ASSERT_EQ(CodeOf(refs), ErrorCode::kDataLoss);
  EXPECT_THAT(refs.error().message(), HasSubstr("'data.bin'"));
  // The request releases its own references with its last callback.
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
  // Eight readers hold the copy. It is replaced after the first report, before the others.
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

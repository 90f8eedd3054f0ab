// A session serves exactly what its order says, byte for byte, on every tier and in both
// deliveries, and owes its reader no more than its credits. Real rooms on the memory back end.
#include "server/stream/stream_session.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <map>
#include <random>
#include <set>
#include <stop_token>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/contract/order.h"
#include "server/io/testing/fault_injector.h"
#include "server/io/testing/faulty_backend.h"
#include "server/stream/testing/serve_fixture.h"

namespace forebay::stream::stream_session_test {

using ::testing::HasSubstr;

constexpr std::size_t kRecordBytes = 1000;
constexpr std::uint64_t kSamples = 512;

class StreamSessionTest : public ::testing::Test {
 protected:
  StreamSessionTest() {
    EXPECT_TRUE(backend_.AddDirectory("/ssd").has_value());
    EXPECT_TRUE(backend_
                    .AddFile("/gfs/data.bin", ServeFixture::RecordFile(kSamples, kRecordBytes))
                    .has_value());
  }

  void Start(const ServeOptions& options = {}) {
    auto made = ServeFixture::Create(backend_, kRecordBytes, options);
    ASSERT_TRUE(made.has_value()) << made.error().ToString();
    serve_ = std::move(*made);
    const Status staged = serve_->StageAll();
    ASSERT_TRUE(staged.has_value()) << staged.error().ToString();
    sink_ = serve_->MakeSink();
  }

  std::shared_ptr<StreamSession> Open(const ServeFixture::Ask& ask = {}) {
    auto session = serve_->Open(ask, *sink_);
    EXPECT_TRUE(session.has_value()) << (session ? "" : session.error().ToString());
    return session ? *session : nullptr;
  }

  // Pulls a whole epoch with as many credits as there are, releasing as it goes.
  void PullEpoch(StreamSession& session, std::uint32_t epoch) {
    const std::size_t before = sink_->batches().size();
    for (std::uint64_t step = 0; step < session.spec().plan.steps(); ++step) {
      ASSERT_TRUE(session.Pull({.first = {.epoch = EpochId(epoch), .step = StepId(step)}})
                      .has_value());
      ASSERT_TRUE(sink_->WaitFor(before + step + 1));
      ASSERT_TRUE(sink_->errors().empty()) << sink_->errors().front().ToString();
      const std::uint64_t id = sink_->batches().back().id;
      ASSERT_TRUE(session.Release({&id, 1}).has_value());
    }
  }

  void ExpectRightBytes() {
    for (const CollectingSink::Taken& batch : sink_->batches()) {
      ASSERT_EQ(batch.payload.size(), batch.sample_ids.size());
      for (std::size_t i = 0; i < batch.sample_ids.size(); ++i) {
        ASSERT_EQ(batch.payload[i], ServeFixture::RecordOf(batch.sample_ids[i], kRecordBytes))
            << "sample " << batch.sample_ids[i];
      }
    }
  }

  io::MemoryBackend backend_;
  std::unique_ptr<CollectingSink> sink_;
  std::unique_ptr<ServeFixture> serve_;
};

TEST_F(StreamSessionTest, DeliversTheOrderExactlyOnceInBothDeliveries) {
  Start();
  for (const Delivery delivery : {Delivery::kContiguous, Delivery::kViews}) {
    sink_ = serve_->MakeSink();
    auto session = Open({.delivery = delivery});
    PullEpoch(*session, 3);
    ExpectRightBytes();
    const Order order(session->spec().order, EpochId(3));
    std::set<std::uint64_t> seen;
    for (const CollectingSink::Taken& batch : sink_->batches()) {
      EXPECT_EQ(batch.views, delivery == Delivery::kViews);
      for (std::size_t i = 0; i < batch.sample_ids.size(); ++i) {
        EXPECT_EQ(batch.sample_ids[i],
                  order.Forward(Position(batch.name.step.value() * 8 + i)));
        EXPECT_TRUE(seen.insert(batch.sample_ids[i]).second);
      }
    }
    EXPECT_EQ(seen.size(), kSamples);
    session->Close();
  }
}

TEST_F(StreamSessionTest, ServesTheSameBytesFromSsd) {
  Start({.ram_bytes = 384 << 10, .ssd_bytes = 64 << 20});
  ASSERT_GT(serve_->cache().stats(tier::TierKind::kSsd).extents, 0u) << "nothing went to SSD";
  for (const Delivery delivery : {Delivery::kContiguous, Delivery::kViews}) {
    sink_ = serve_->MakeSink();
    auto session = Open({.delivery = delivery});
    PullEpoch(*session, 0);
    ExpectRightBytes();
    EXPECT_EQ(sink_->batches().size(), kSamples / 8);
    session->Close();
  }
  EXPECT_EQ(serve_->slots().used_bytes(), 0u) << "slot memory leaked";
}

TEST_F(StreamSessionTest, RanksShareTheGlobalOrder) {
  Start();
  auto first = Open({.batch = 16, .ranks = 2, .rank = 0});
  auto second = Open({.batch = 16, .ranks = 2, .rank = 1});
  ASSERT_TRUE(first->Pull({.first = {.step = StepId(5)}}).has_value());
  ASSERT_TRUE(sink_->WaitFor(1));
  ASSERT_TRUE(second->Pull({.first = {.step = StepId(5)}}).has_value());
  ASSERT_TRUE(sink_->WaitFor(2));
  std::vector<std::uint64_t> together = sink_->batches()[0].sample_ids;
  const auto rest = sink_->batches()[1].sample_ids;
  together.insert(together.end(), rest.begin(), rest.end());
  auto micro = Open({.batch = 16, .ranks = 2, .rank = 0});
  ASSERT_TRUE(micro->Pull({.first = {.step = StepId(5), .micro_size = 16, .micro_index = 0}})
                  .has_value());
  ASSERT_TRUE(sink_->WaitFor(3));
  EXPECT_EQ(sink_->batches()[2].sample_ids, together) << "a micro-batch is a slice of the step";
  first->Close();
  second->Close();
  micro->Close();
}

// The bytes at each position of the order are those that one rank gets, for any number of ranks.
TEST_F(StreamSessionTest, APartialOrderIsTheSameForAnyNumberOfRanks) {
  Start();
  const auto bytes_by_position = [&](std::uint32_t ranks) {
    std::map<std::uint64_t, std::string> bytes;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      sink_ = serve_->MakeSink();
      auto session = Open({.batch = 24, .mode = OrderMode::kPartial, .canonical_nodes = 12,
                           .ranks = ranks, .rank = rank, .tail = TailPolicy::kShort});
      PullEpoch(*session, 2);
      ExpectRightBytes();
      for (const CollectingSink::Taken& batch : sink_->batches()) {
        const StepSlice slice = session->spec().plan.RankSlice(batch.name.step, rank).value();
        EXPECT_EQ(batch.payload.size(), slice.count);
        for (std::size_t i = 0; i < batch.payload.size(); ++i) {
          EXPECT_TRUE(bytes.emplace(slice.first + i, batch.payload[i]).second);
        }
      }
      session->Close();
    }
    return bytes;
  };
  const auto of_one_rank = bytes_by_position(1);
  ASSERT_EQ(of_one_rank.size(), kSamples);
  EXPECT_EQ(bytes_by_position(2), of_one_rank);
  EXPECT_EQ(bytes_by_position(4), of_one_rank);
}

// A daemon ends its streams one after the other. A reader may not know it yet and still read, while
// another stream's batches are assembled.
TEST_F(StreamSessionTest, WhatAReaderHasIsNotUsedAgainWhileTheDaemonEnds) {
  Start();
  auto reader = Open({.batch = 16, .ranks = 2, .rank = 0});
  auto other = Open({.batch = 16, .ranks = 2, .rank = 1});
  ASSERT_TRUE(reader->Pull({.first = {}}).has_value());
  ASSERT_TRUE(sink_->WaitFor(1));
  const std::uint64_t used = serve_->slots().used_bytes();
  ASSERT_GT(used, 0U);
  serve_->registry().KeepWhatReadersHave();
  reader->Close();
  EXPECT_EQ(serve_->slots().used_bytes(), used);
  for (std::uint64_t step = 1; step < 4; ++step) {
    ASSERT_TRUE(other->Pull({.first = {.step = StepId(step)}}).has_value());
    ASSERT_TRUE(sink_->WaitFor(1 + step));
  }
  EXPECT_TRUE(sink_->errors().empty());
  ExpectRightBytes();
  other->Close();
  EXPECT_GT(serve_->slots().used_bytes(), used) << "all that readers had";
}

TEST_F(StreamSessionTest, PadsTheTailAndFlagsIt) {
  Start();
  auto session = Open({.batch = 100, .tail = TailPolicy::kPad});
  ASSERT_EQ(session->spec().plan.steps(), 6u);
  ASSERT_TRUE(session->Pull({.first = {.step = StepId(5)}}).has_value());
  ASSERT_TRUE(sink_->WaitFor(1));
  EXPECT_EQ(sink_->batches()[0].sample_ids.size(), 100u);
  EXPECT_EQ(sink_->batches()[0].padded, 88u);
  ExpectRightBytes();
  session->Close();
}

// With several ranks, the share of some begins behind the last sample: here of all but the first.
TEST_F(StreamSessionTest, ARankWhoseShareIsPaddingAloneGetsRepeats) {
  Start();
  constexpr std::uint32_t kRanks = 4;
  for (const std::uint32_t batch : {100U, 2048U}) {  // the second is more than the data set
    for (std::uint32_t rank = 1; rank < kRanks; ++rank) {
      sink_ = serve_->MakeSink();
      auto session =
          Open({.batch = batch, .ranks = kRanks, .rank = rank, .tail = TailPolicy::kPad});
      const StepPlan& plan = session->spec().plan;
      const StepId last(plan.steps() - 1);
      ASSERT_TRUE(session->Pull({.first = {.step = last}}).has_value());
      ASSERT_TRUE(sink_->WaitFor(1));
      const CollectingSink::Taken taken = sink_->batches()[0];
      const StepSlice slice = plan.RankSlice(last, rank).value();
      ASSERT_EQ(taken.sample_ids.size(), slice.count);
      EXPECT_EQ(taken.padded, slice.count);
      const Order order(session->spec().order, taken.name.epoch);
      for (std::uint64_t i = 0; i < slice.count; ++i) {
        ASSERT_EQ(taken.sample_ids[i], order.Forward(Position((slice.first + i) % kSamples)));
      }
      ExpectRightBytes();
      session->Close();
    }
  }
}

TEST_F(StreamSessionTest, TheSameNameGivesTheSameBatchAgain) {
  Start();
  auto session = Open();
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(session->Pull({.first = {.step = StepId(11)}}).has_value());
    ASSERT_TRUE(sink_->WaitFor(static_cast<std::size_t>(i) + 1));
  }
  EXPECT_EQ(sink_->batches()[0].sample_ids, sink_->batches()[1].sample_ids);
  session->Close();
}

TEST_F(StreamSessionTest, ViewsBeyondThePinLimitAreCopiedAndCounted) {
  Start({.view_pin_bytes = 0});
  auto session = Open({.delivery = Delivery::kViews});
  PullEpoch(*session, 0);
  ExpectRightBytes();
  EXPECT_EQ(session->stats().copied_views, kSamples);
  session->Close();
}

TEST_F(StreamSessionTest, AnExtentPinnedByAHeldBatchCostsNothingMore) {
  Start({.view_pin_bytes = kSamples * kRecordBytes});  // just what all extents have
  auto session = Open({.delivery = Delivery::kViews, .credits = 4});
  ASSERT_TRUE(session->Pull({.first = {}, .count = 4}).has_value());
  ASSERT_TRUE(sink_->WaitFor(4));
  EXPECT_EQ(session->stats().held, 4u);
  EXPECT_EQ(session->stats().copied_views, 0u);
  session->Close();
}

TEST_F(StreamSessionTest, HeldViewsPinNoMoreThanTheirLimit) {
  constexpr std::uint64_t kLimit = 2 * (64 << 10);
  Start({.workers = 1, .view_pin_bytes = kLimit});
  auto session = Open({.delivery = Delivery::kViews, .credits = 4});
  ASSERT_TRUE(session->Pull({.first = {}, .count = 4}).has_value());
  ASSERT_TRUE(sink_->WaitFor(4));
  EXPECT_GT(session->stats().copied_views, 0u);
  EXPECT_GT(serve_->cache().stats(tier::TierKind::kRam).pinned_bytes, 0u);
  EXPECT_LE(serve_->cache().stats(tier::TierKind::kRam).pinned_bytes, kLimit);
  session->Close();
  EXPECT_EQ(serve_->cache().stats(tier::TierKind::kRam).pinned_bytes, 0u);
}

// Four readers of views, each of which could pin all that the limit allows.
TEST_F(StreamSessionTest, ViewsOfAllStreamsTogetherPinNoMoreThanTheLimit) {
  constexpr std::uint64_t kLimit = 2 * (64 << 10);
  Start({.workers = 1, .view_pin_bytes = kLimit});
  std::vector<std::shared_ptr<StreamSession>> sessions;
  std::uint64_t copied = 0;
  for (const char* const name : {"a", "b", "c", "d"}) {
    auto session = Open({.delivery = Delivery::kViews, .credits = 2, .name = name});
    ASSERT_TRUE(session->Pull({.first = {}, .count = 2}).has_value());
    sessions.push_back(std::move(session));
    ASSERT_TRUE(sink_->WaitFor(2 * sessions.size()));
  }
  for (const auto& session : sessions) copied += session->stats().copied_views;
  EXPECT_GT(copied, 0U);
  EXPECT_EQ(sink_->errors().size(), 0U);
  EXPECT_LE(serve_->cache().stats(tier::TierKind::kRam).pinned_bytes, kLimit);
  ExpectRightBytes();
  for (const auto& session : sessions) session->Close();
  EXPECT_EQ(serve_->cache().stats(tier::TierKind::kRam).pinned_bytes, 0U);
}

TEST_F(StreamSessionTest, WhatIsHeldComesBackWhenTheReaderGoesAway) {
  Start();
  auto session = Open({.credits = 4});
  ASSERT_TRUE(session->Pull({.first = {}, .count = 4}).has_value());
  ASSERT_TRUE(sink_->WaitFor(4));
  EXPECT_EQ(session->stats().held, 4u);
  EXPECT_GT(serve_->slots().used_bytes(), 0u);
  session->Close();
  EXPECT_EQ(serve_->slots().used_bytes(), 0u);
  EXPECT_EQ(serve_->registry().open_count(), 0u);
}

// The second call comes while the first one ends requests to other nodes: a callback of the
// stream's stop token runs inside the first call, and makes the second one in another thread.
TEST_F(StreamSessionTest, ASecondCallOfCloseReturnsAfterTheFirst) {
  Start();
  auto session = Open();
  std::promise<std::size_t> open_streams;  // when the second call has returned
  std::future<std::size_t> returned = open_streams.get_future();
  std::jthread second;
  const std::stop_callback within_first(session->unwanted(), [&] {
    second = std::jthread([&] {
      session->Close();
      open_streams.set_value(serve_->registry().open_count());
    });
    // A second call that does not wait returns before this time is over.
    EXPECT_EQ(returned.wait_for(std::chrono::milliseconds(200)), std::future_status::timeout);
  });
  session->Close();
  ASSERT_TRUE(second.joinable()) << "the first call has not come to the callback";
  EXPECT_EQ(returned.get(), 0U);
}

TEST_F(StreamSessionTest, WhoHasLeftFreesTheNameAndKeepsWhatItHolds) {
  Start();
  auto first = Open({.batch = 16, .ranks = 2, .rank = 0});
  auto second = Open({.batch = 16, .ranks = 2, .rank = 1});
  ASSERT_TRUE(first->Pull({.first = {.step = StepId(3)}}).has_value());
  ASSERT_TRUE(sink_->WaitFor(1));
  first->Leave();
  EXPECT_FALSE(serve_->Open({.batch = 16}, *sink_).has_value()) << "rank 1 has not left";
  second->Leave();
  second->Leave();
  auto alone = Open({.batch = 16});
  ASSERT_NE(alone, nullptr);
  EXPECT_EQ(first->stats().held, 1u);
  const std::uint64_t id = sink_->batches()[0].id;
  EXPECT_TRUE(first->Release({&id, 1}).has_value());
  first->Close();
  second->Close();
  EXPECT_FALSE(serve_->Open({.batch = 16, .ranks = 2}, *sink_).has_value())
      << "their ends are no concern of who has the name now";
  alone->Close();
  EXPECT_EQ(serve_->registry().open_count(), 0u);
}

// --- every error branch -------------------------------------------------------------------

TEST_F(StreamSessionTest, RefusesMorePullsThanCredits) {
  Start();
  auto session = Open({.credits = 2});
  const Status pulled = session->Pull({.first = {}, .count = 3});
  ASSERT_FALSE(pulled.has_value());
  EXPECT_EQ(pulled.error().code(), ErrorCode::kResourceExhausted);
  EXPECT_THAT(pulled.error().message(), HasSubstr("credits"));
  session->Close();
}

TEST_F(StreamSessionTest, RefusesBatchesOfViewsThatOneMessageCannotAnnounce) {
  constexpr std::uint64_t kTiny = 65'536;  // samples, of one byte in each of three fields
  catalog::DatasetSource tiny;
  tiny.format = catalog::Format::kRaw;
  tiny.settings.SetTexts("files", {"a=a.bin", "b=b.bin", "c=c.bin"});
  tiny.settings.SetNumbers("shape", {1});
  for (const char* path : {"/gfs/a.bin", "/gfs/b.bin", "/gfs/c.bin"}) {
    ASSERT_TRUE(backend_.AddFile(path, std::vector<std::byte>(kTiny)).has_value());
  }
  Start({.source = tiny});
  const auto views = [&](std::uint32_t batch) {
    return serve_->Open({.batch = batch, .delivery = Delivery::kViews}, *sink_);
  };
  const auto refused = views(kTiny);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kOutOfRange);
  EXPECT_THAT(refused.error().message(), HasSubstr("at most 51609 samples"));
  const auto smaller = views(kTiny / 2);
  ASSERT_TRUE(smaller.has_value()) << smaller.error().ToString();
  (*smaller)->Close();
  auto contiguous = Open({.batch = kTiny});
  ASSERT_NE(contiguous, nullptr);
  contiguous->Close();
}

TEST_F(StreamSessionTest, RefusesPullsOfNoSteps) {
  Start();
  auto session = Open();
  EXPECT_EQ(session->Pull({.first = {}, .count = 0}).error().code(), ErrorCode::kOutOfRange);
  EXPECT_EQ(session->Pull({.first = {}, .count = 65}).error().code(), ErrorCode::kOutOfRange);
  session->Close();
}

TEST_F(StreamSessionTest, AStepThatDoesNotExistFailsAlone) {
  Start();
  auto session = Open();
  ASSERT_TRUE(session->Pull({.first = {.step = StepId(1'000'000)}}).has_value());
  ASSERT_TRUE(sink_->WaitFor(1));
  ASSERT_EQ(sink_->errors().size(), 1u);
  EXPECT_EQ(sink_->errors()[0].code(), ErrorCode::kOutOfRange);
  EXPECT_EQ(session->stats().failed, 1U);
  ASSERT_TRUE(session->Pull({.first = {.step = StepId(0)}}).has_value());
  ASSERT_TRUE(sink_->WaitFor(2));
  EXPECT_EQ(sink_->batches().size(), 1u) << "the stream goes on";
  session->Close();
}

TEST_F(StreamSessionTest, RefusesToReleaseWhatIsNotHeld) {
  Start();
  auto session = Open();
  const std::uint64_t id = 99;
  EXPECT_EQ(session->Release({&id, 1}).error().code(), ErrorCode::kInvalidArgument);
  session->Close();
}

TEST_F(StreamSessionTest, ARankWithAnotherOrderIsToldBothSides) {
  Start();
  auto session = Open({.ranks = 2, .rank = 0});
  auto other = serve_->Open({.seed = 8, .ranks = 2, .rank = 1}, *sink_);
  ASSERT_FALSE(other.has_value());
  EXPECT_EQ(other.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(other.error().message(), HasSubstr("data/train"));
  auto elsewhere = serve_->Open({.name = "second", .seed = 8, .ranks = 2, .rank = 1}, *sink_);
  ASSERT_TRUE(elsewhere.has_value()) << "another stream may have another order";
  (*elsewhere)->Close();
  session->Close();
}

// Whose daemon is lost. Its stream may be another one of the same name.
TEST_F(StreamSessionTest, AClientOfAnotherNodeJoinsNoGroupOfThisOne) {
  Start();
  const auto open = [this](const std::string& address, std::uint64_t seed) {
    auto request = serve_->Request({.seed = seed});
    EXPECT_TRUE(request.has_value());
    request->inline_payload = true;
    request->client = {.name = address, .is_remote = true};
    auto spec = ResolveStream(serve_->dataset(), *request);
    EXPECT_TRUE(spec.has_value());
    return serve_->registry().Open(std::move(*spec), sink_.get());
  };
  auto remote = open("ipv4:10.0.0.1:5001", /*seed=*/8);
  ASSERT_TRUE(remote.has_value()) << remote.error().ToString();
  auto local = Open();
  ASSERT_NE(local, nullptr);
  auto other = open("ipv4:10.0.0.2:5001", /*seed=*/9);
  ASSERT_TRUE(other.has_value()) << other.error().ToString();
  const auto refused = open("ipv4:10.0.0.1:5001", /*seed=*/9);
  ASSERT_FALSE(refused.has_value()) << "a client has one order under a name";
  EXPECT_EQ(refused.error().code(), ErrorCode::kFailedPrecondition);
  (*other)->Close();
  local->Close();
  (*remote)->Close();
}

TEST_F(StreamSessionTest, RefusesStreamsThatSlotMemoryCannotHold) {
  Start({.slot_bytes = 1 << 20});
  auto session = serve_->Open({.batch = 512, .credits = 64}, *sink_);
  ASSERT_FALSE(session.has_value());
  EXPECT_EQ(session.error().code(), ErrorCode::kResourceExhausted);
  EXPECT_THAT(session.error().message(), HasSubstr("slots.capacity"));
}

// Slot memory for 6 batches of 64 KB, and for reading four of them at once: 64 pieces of three
// pages at most each. Any four may be first, so that the rest never lacks a run of pages.
const ServeFixture::Ask kTight = {.batch = 64, .credits = 6};
constexpr std::uint64_t kTightSlotBytes = 6 * (64 << 10) + (2900 << 10);

TEST_F(StreamSessionTest, WhatReadingFromSsdTakesIsPartOfWhatAStreamNeeds) {
  Start({.ram_bytes = 256 << 10, .slot_bytes = 400 << 10, .ssd_bytes = 64 << 20});
  auto session = serve_->Open(kTight, *sink_);
  ASSERT_FALSE(session.has_value()) << "its batches fit, but none could be read";
  EXPECT_EQ(session.error().code(), ErrorCode::kResourceExhausted);
  EXPECT_THAT(session.error().message(), HasSubstr("read from SSD"));
  auto views = Open({.batch = 64, .delivery = Delivery::kViews});
  ASSERT_NE(views, nullptr) << "what lies in RAM needs no slots";
  ASSERT_TRUE(views->Pull({.first = {}}).has_value());
  ASSERT_TRUE(sink_->WaitFor(1));
  ExpectRightBytes();
  views->Close();
}

TEST_F(StreamSessionTest, ScratchLeavesNoHoleBetweenSlots) {
  Start({.ram_bytes = 256 << 10, .ssd_bytes = 64 << 20, .workers = 1});
  auto session = Open({.batch = 64, .credits = 6});
  ASSERT_NE(session, nullptr);
  for (std::uint64_t step = 0; step < 6; ++step) {
    ASSERT_TRUE(session->Pull({.first = {.step = StepId(step)}}).has_value());
    ASSERT_TRUE(sink_->WaitFor(step + 1));
    ASSERT_TRUE(sink_->errors().empty()) << sink_->errors().front().ToString();
  }
  EXPECT_GT(session->stats().ssd_samples, 0u) << "nothing was read from SSD";
  const tier::RamArena& slots = serve_->slots();
  EXPECT_EQ(slots.used_bytes(), 6 * ((64 * kRecordBytes + 4095) / 4096 * 4096));
  EXPECT_EQ(slots.largest_free_bytes(), slots.capacity_bytes() - slots.used_bytes());
  session->Close();
}

TEST_F(StreamSessionTest, AStreamAdmittedToTheLastPageNeverLacksARunOfThem) {
  // 64 KB for each of 6 batches, and what the ledger counts for reading one of them.
  constexpr std::uint64_t kLastPage = 6 * (64 << 10) + 146 * 4096;
  Start({.ram_bytes = 256 << 10, .slot_bytes = kLastPage, .ssd_bytes = 64 << 20, .workers = 3});
  auto session = Open(kTight);
  ASSERT_NE(session, nullptr);
  EXPECT_FALSE(serve_->Open({.name = "another"}, *sink_).has_value()) << "there is room left";
  constexpr std::uint64_t kSeed = 5;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937_64 random(kSeed);
  std::vector<std::uint64_t> held;
  for (std::uint64_t round = 0; round < 200; ++round) {
    const std::size_t wanted = 1 + random() % (6 - held.size());
    for (std::size_t i = 0; i < wanted; ++i) {
      ASSERT_TRUE(session->Pull({.first = {.step = StepId(random() % 8)}}).has_value());
    }
    ASSERT_TRUE(sink_->WaitFor(wanted)) << "a batch waits for a release, round " << round;
    ASSERT_TRUE(sink_->errors().empty()) << sink_->errors().front().ToString();
    for (const CollectingSink::Taken& batch : sink_->TakeBatches()) held.push_back(batch.id);
    do {
      std::swap(held[random() % held.size()], held.back());
      ASSERT_TRUE(session->Release({&held.back(), 1}).has_value());
      held.pop_back();
    } while (held.size() == 6 || (!held.empty() && random() % 2 == 0));
  }
  EXPECT_GT(session->stats().ssd_samples, 0u) << "nothing was read from SSD";
  session->Close();
}

TEST_F(StreamSessionTest, BatchesThatWaitForScratchComeWithoutAnyRelease) {
  Start({.ram_bytes = 256 << 10, .slot_bytes = kTightSlotBytes, .ssd_bytes = 64 << 20,
         .workers = 6});
  auto session = Open(kTight);
  ASSERT_NE(session, nullptr);
  for (std::size_t round = 0; round < 200; ++round) {
    ASSERT_TRUE(session->Pull({.first = {}, .count = 6}).has_value());
    ASSERT_TRUE(sink_->WaitFor(6)) << "nobody woke a parked batch, round " << round;
    ASSERT_TRUE(sink_->errors().empty()) << sink_->errors().front().ToString();
    for (const CollectingSink::Taken& batch : sink_->TakeBatches()) {
      ASSERT_TRUE(session->Release({&batch.id, 1}).has_value());
    }
  }
  EXPECT_GT(session->stats().ssd_samples, 0u) << "nothing was read from SSD";
  session->Close();
  EXPECT_EQ(serve_->slots().used_bytes(), 0u);
}

TEST_F(StreamSessionTest, TwoReadersOfMoreThanTheyReservedTakeTurns) {
  // Micro-batches of 256 samples on streams that reserved for 4: one fits at a time.
  Start({.slot_bytes = 400 << 10, .workers = 4});
  std::unique_ptr<CollectingSink> sinks[2] = {serve_->MakeSink(), serve_->MakeSink()};
  std::vector<std::jthread> readers;
  for (std::uint32_t i = 0; i < 2; ++i) {
    readers.emplace_back([this, i, &sink = *sinks[i]] {
      auto session = serve_->Open({.batch = 256, .credits = 1,
                                   .name = i == 0 ? "first" : "second", .ranks = 64}, sink);
      ASSERT_TRUE(session.has_value()) << session.error().ToString();
      for (std::uint64_t round = 0; round < 1500; ++round) {
        ASSERT_TRUE((*session)
                        ->Pull({.first = {.step = StepId(round % 2), .micro_size = 256}})
                        .has_value());
        ASSERT_TRUE(sink.WaitFor(1)) << "nobody woke a parked batch, round " << round;
        ASSERT_TRUE(sink.errors().empty()) << sink.errors().front().ToString();
        const std::uint64_t id = sink.TakeBatches().front().id;
        ASSERT_TRUE((*session)->Release({&id, 1}).has_value());
      }
      (*session)->Close();
    });
  }
  readers.clear();
  EXPECT_EQ(serve_->slots().used_bytes(), 0u);
}

TEST_F(StreamSessionTest, WhatAClosedStreamWasStillGettingIsFreeForOthers) {
  Start({.ram_bytes = 256 << 10, .slot_bytes = 1800 << 10, .ssd_bytes = 64 << 20, .workers = 4});
  for (int round = 0; round < 100; ++round) {
    auto leaving_sink = serve_->MakeSink();
    auto leaving = serve_->Open({.batch = 256, .credits = 1, .name = "leaving", .ranks = 64},
                                *leaving_sink);
    ASSERT_TRUE(leaving.has_value()) << leaving.error().ToString();
    auto staying = Open({.batch = 256, .credits = 1, .name = "staying", .ranks = 64});
    ASSERT_NE(staying, nullptr);
    const PullRange whole{.first = {.micro_size = 256}};
    ASSERT_TRUE((*leaving)->Pull(whole).has_value());
    ASSERT_TRUE(staying->Pull(whole).has_value());
    (*leaving)->Close();
    ASSERT_TRUE(sink_->WaitFor(1)) << "nobody woke a parked batch, round " << round;
    ASSERT_TRUE(sink_->errors().empty()) << sink_->errors().front().ToString();
    sink_->TakeBatches();
    staying->Close();
  }
}

// The reservation goes at once, the memory with the end of what was on its way.
TEST_F(StreamSessionTest, ANewStreamGetsWhatAClosedOneHadReserved) {
  constexpr std::uint32_t kBatches = 4;
  Start({.slot_bytes = kBatches * (64 << 10), .workers = 4});
  const ServeFixture::Ask all = {.batch = 64, .credits = kBatches};
  for (int round = 0; round < 100; ++round) {
    auto leaving_sink = serve_->MakeSink();
    auto leaving = serve_->Open(all, *leaving_sink);
    ASSERT_TRUE(leaving.has_value()) << leaving.error().ToString();
    EXPECT_FALSE(serve_->Open({.batch = 64, .name = "other"}, *sink_).has_value());
    ASSERT_TRUE((*leaving)->Pull({.first = {}, .count = kBatches}).has_value());
    (*leaving)->Close();
    auto coming = Open(all);
    ASSERT_NE(coming, nullptr);
    ASSERT_TRUE(coming->Pull({.first = {}, .count = kBatches}).has_value());
    ASSERT_TRUE(sink_->WaitFor(kBatches)) << "nobody woke a parked batch, round " << round;
    ASSERT_TRUE(sink_->errors().empty()) << sink_->errors().front().ToString();
    ExpectRightBytes();
    sink_->TakeBatches();
    coming->Close();
  }
  EXPECT_EQ(serve_->slots().used_bytes(), 0U);
}

TEST_F(StreamSessionTest, ABatchBeyondWhatStreamsHaveLeftFailsAlone) {
  Start({.slot_bytes = 300 << 10});
  auto session = Open({.batch = 256, .credits = 16, .ranks = 64});
  auto other = Open({.batch = 8, .credits = 8, .name = "other"});
  ASSERT_TRUE(session->Pull({.first = {.micro_size = 256}}).has_value());
  ASSERT_TRUE(sink_->WaitFor(1));
  ASSERT_EQ(sink_->errors().size(), 1u);
  EXPECT_EQ(sink_->errors()[0].code(), ErrorCode::kResourceExhausted);
  EXPECT_THAT(sink_->errors()[0].message(), HasSubstr("slots.capacity"));
  ASSERT_TRUE(other->Pull({.first = {}, .count = 8}).has_value());
  ASSERT_TRUE(sink_->WaitFor(9)) << "what was promised is there";
  EXPECT_EQ(sink_->errors().size(), 1u);
  session->Close();
  other->Close();
}

TEST_F(StreamSessionTest, RefusesAGlobalOrderBeyondTheTiersWithAdvice) {
  Start({.ram_bytes = 256 << 10, .extent_bytes = 16 << 10});
  auto session = serve_->Open({}, *sink_);
  ASSERT_FALSE(session.has_value());
  EXPECT_EQ(session.error().code(), ErrorCode::kResourceExhausted);
  EXPECT_THAT(session.error().message(), HasSubstr("mode 'block'"));
  auto partial = serve_->Open({.mode = OrderMode::kPartial}, *sink_);
  ASSERT_FALSE(partial.has_value());
  EXPECT_THAT(partial.error().message(), HasSubstr("order mode 'partial' needs all of"));
  auto block = serve_->Open({.mode = OrderMode::kBlock}, *sink_);
  ASSERT_TRUE(block.has_value()) << block.error().ToString();
  PullEpoch(**block, 0);
  ExpectRightBytes();
  (*block)->Close();
}

TEST_F(StreamSessionTest, RefusesWrongWordsByName) {
  Start();
  struct Case {
    ServeFixture::Ask ask;
    const char* part;
  };
  const Case cases[] = {
      {{.batch = 0}, "global"},
      {{.credits = 0}, "credits"},
      {{.credits = 65}, "credits"},
      {{.name = ""}, "name"},
      {{.ranks = 3, .rank = 0}, ""},
      {{.ranks = 2, .rank = 2}, "rank"},
  };
  for (const Case& wrong : cases) {
    auto session = serve_->Open(wrong.ask, *sink_);
    ASSERT_FALSE(session.has_value());
    EXPECT_THAT(session.error().message(), HasSubstr(wrong.part));
  }
}

TEST_F(StreamSessionTest, RefusesAPartialOrderOfAnotherGlobalBatch) {
  Start();
  auto request = serve_->Request({.batch = 24, .mode = OrderMode::kPartial});
  ASSERT_TRUE(request.has_value());
  request->global_batch = 48;
  const auto spec = ResolveStream(serve_->dataset(), *request);
  ASSERT_FALSE(spec.has_value());
  EXPECT_THAT(spec.error().message(),
              HasSubstr("OrderSpec.global_batch is 24, but the stream's is 48"));
}

TEST_F(StreamSessionTest, AForeignFingerprintNamesBothCatalogs) {
  Start();
  auto request = serve_->Request({});
  ASSERT_TRUE(request.has_value());
  request->catalog_fingerprint = 12345;
  const auto spec = ResolveStream(serve_->dataset(), *request);
  ASSERT_FALSE(spec.has_value());
  EXPECT_EQ(spec.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(spec.error().message(), HasSubstr("0000000000003039"));
}

TEST_F(StreamSessionTest, AStalledReaderCostsItsOwnSlotsOnly) {
  Start();
  auto stalled = Open({.credits = 4, .name = "stalled"});
  ASSERT_TRUE(stalled->Pull({.first = {}, .count = 4}).has_value());
  ASSERT_TRUE(sink_->WaitFor(4));
  auto healthy_sink = serve_->MakeSink();
  auto healthy = serve_->Open({.name = "healthy"}, *healthy_sink);
  ASSERT_TRUE(healthy.has_value());
  std::swap(sink_, healthy_sink);
  PullEpoch(**healthy, 0);
  EXPECT_EQ(sink_->batches().size(), kSamples / 8);
  (*healthy)->Close();
  stalled->Close();
}

// Batches whose size nobody knows beforehand: two of every stream are promised all the same.
class VariableStreamTest : public StreamSessionTest {
 protected:
  static constexpr std::size_t kFileBytes = 4000;

  void StartFiles() {
    for (int i = 0; i < 256; ++i) {
      const std::string text = ServeFixture::RecordOf(static_cast<std::uint64_t>(i), kFileBytes);
      const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
      ASSERT_TRUE(backend_
                      .AddFile("/gfs/files/a/" + std::to_string(i) + ".bin",
                               {bytes.begin(), bytes.end()})
                      .has_value());
    }
    catalog::DatasetSource files;
    files.format = catalog::Format::kImageFolder;
    Start({.slot_bytes = 2 << 20, .source = files});
  }

  // A stream of batches of about 32 kB whose reader takes all it gets and gives nothing back.
  std::shared_ptr<StreamSession> OpenGreedy(const std::string& name, CollectingSink& sink) {
    auto opened = serve_->Open({.credits = 30, .name = name}, sink);
    EXPECT_TRUE(opened.has_value()) << opened.error().ToString();
    if (!opened.has_value()) return nullptr;
    EXPECT_TRUE((*opened)->Pull({.first = {}, .count = 30}).has_value());
    return *opened;
  }

  std::map<std::uint64_t, std::uint64_t> ids_;  // by step
};

TEST_F(VariableStreamTest, ReadersThatGiveNothingBackLeaveTwoBatchesToEveryStream) {
  StartFiles();
  auto healthy = Open({.name = "healthy"});
  std::unique_ptr<CollectingSink> sinks[3] = {serve_->MakeSink(), serve_->MakeSink(),
                                              serve_->MakeSink()};
  std::shared_ptr<StreamSession> greedy[3];
  for (std::size_t i = 0; i < 3; ++i) {
    greedy[i] = OpenGreedy("greedy" + std::to_string(i), *sinks[i]);
    ASSERT_NE(greedy[i], nullptr);
    ASSERT_TRUE(sinks[i]->WaitFor(2));
  }
  PullEpoch(*healthy, 0);
  EXPECT_EQ(sink_->batches().size(), 256U / 8);
  auto late_sink = serve_->MakeSink();
  auto late = serve_->Open({.name = "late"}, *late_sink);
  ASSERT_TRUE(late.has_value()) << late.error().ToString();
  std::swap(sink_, late_sink);
  PullEpoch(**late, 0);
  (*late)->Close();
  healthy->Close();
  for (auto& session : greedy) session->Close();
  // A batch that was being assembled gives its slot back when its thread is done with it.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (serve_->slots().used_bytes() > 0 && std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
  }
  EXPECT_EQ(serve_->slots().used_bytes(), 0U);
}

TEST_F(VariableStreamTest, BeyondItsPromiseAStreamGetsItsBatchesInTurn) {
  StartFiles();
  auto holder_sink = serve_->MakeSink();
  auto holder = OpenGreedy("holder", *holder_sink);
  ASSERT_NE(holder, nullptr);
  ASSERT_TRUE(holder_sink->WaitFor(20));
  // All credits are pulled at once; each release lets the earliest batch that waits go on.
  auto session = Open({.credits = 30});
  ASSERT_TRUE(session->Pull({.first = {}, .count = 30}).has_value());
  std::vector<bool> has_come(30, false);
  for (std::uint64_t step = 0; step < 30; ++step) {
    while (!has_come[step]) {
      ASSERT_TRUE(sink_->WaitFor(1)) << "step " << step << " waits for later ones";
      for (const CollectingSink::Taken& batch : sink_->TakeBatches()) {
        has_come[batch.name.step.value()] = true;
        ids_.emplace(batch.name.step.value(), batch.id);
      }
    }
    ASSERT_TRUE(session->Release({&ids_.at(step), 1}).has_value());  // in order, as a reader does
  }
  session->Close();
  holder->Close();
}

TEST_F(VariableStreamTest, AStreamThatCannotBePromisedTwoBatchesIsRefusedWithTheNumbers) {
  StartFiles();
  const auto large = serve_->Open({.batch = 256, .credits = 4}, *sink_);
  ASSERT_TRUE(large.has_value()) << large.error().ToString();
  const auto other = serve_->Open({.batch = 8, .credits = 4, .name = "other"}, *sink_);
  ASSERT_FALSE(other.has_value());
  EXPECT_EQ(other.error().code(), ErrorCode::kResourceExhausted);
  EXPECT_THAT(other.error().message(), HasSubstr("2 batches of"));
  EXPECT_THAT(other.error().message(), HasSubstr("slots.capacity"));
  (*large)->Close();
}

TEST_F(StreamSessionTest, AFlippedBitOnSsdIsFetchedAnew) {
  Start({.ram_bytes = 512 << 10, .ssd_bytes = 64 << 20});
  auto session = Open();
  auto directory = backend_.OpenDirectory("/ssd");
  ASSERT_TRUE(directory.has_value());
  std::size_t flipped = 0;
  const auto flip_files = [&](const std::string& folder, auto&& self) -> void {
    auto entries = (*directory)->List(folder);
    ASSERT_TRUE(entries.has_value());
    for (const io::DirectoryEntry& entry : *entries) {
      const std::string path = folder.empty() ? entry.name : folder + "/" + entry.name;
      if (entry.is_directory) {
        self(path, self);
      } else if (entry.name.find("manifest") == std::string::npos) {
        ASSERT_TRUE(backend_.FlipBit("/ssd/" + path, 8 * 10'000 + 3).has_value());
        ++flipped;
      }
    }
  };
  flip_files("", flip_files);
  ASSERT_GT(flipped, 0u) << "no segment was there to damage";
  const std::uint64_t read_before = serve_->dataset().progress().gfs_bytes;
  PullEpoch(*session, 0);
  ExpectRightBytes();
  EXPECT_GT(serve_->dataset().progress().gfs_bytes, read_before)
      << "the damage went unnoticed";
  session->Close();
}

}  // namespace forebay::stream::stream_session_test

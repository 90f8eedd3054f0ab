// Streams of data sets that are larger than the tiers: the next window is on a tier before a batch
// asks for it.
#include <chrono>
#include <memory>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "server/stream/testing/serve_fixture.h"

namespace forebay::stream::read_ahead_stream_test {

constexpr std::size_t kRecordBytes = 1000;
constexpr std::uint64_t kPerExtent = 65;
constexpr std::uint64_t kExtents = 32;
constexpr std::uint64_t kSamples = kExtents * kPerExtent;
constexpr std::uint32_t kBatch = 65;
// Windows of four extents.
const ServeFixture::Ask kAsk = {.batch = kBatch,
                                .mode = OrderMode::kBlock,
                                .block_samples = kPerExtent,
                                .window_runs = 4};

class ReadAheadStreamTest : public ::testing::Test {
 protected:
  ReadAheadStreamTest() {
    EXPECT_TRUE(backend_
                    .AddFile("/gfs/data.bin", ServeFixture::RecordFile(kSamples, kRecordBytes))
                    .has_value());
  }
  void Start(bool reads_ahead, std::uint32_t end_epoch = 0) {
    auto made = ServeFixture::Create(
        backend_, kRecordBytes, {.ram_bytes = 17 << 16, .reads_ahead = reads_ahead});
    ASSERT_TRUE(made.has_value()) << made.error().ToString();
    serve_ = std::move(*made);
    ASSERT_TRUE(serve_->StageAll().has_value());
    sink_ = serve_->MakeSink();
    ServeFixture::Ask ask = kAsk;
    ask.end_epoch = end_epoch;
    auto session = serve_->Open(ask, *sink_);
    ASSERT_TRUE(session.has_value()) << session.error().ToString();
    session_ = *session;
  }
  void TearDown() override {
    if (session_) session_->Close();
  }
  void ReadBatch(std::uint32_t epoch, std::uint64_t step) {
    ASSERT_TRUE(session_->Pull({.first = {.epoch = EpochId(epoch), .step = StepId(step)},
                                .count = 1})
                    .has_value());
    ASSERT_TRUE(sink_->WaitFor(1)) << "step " << step;
    ASSERT_TRUE(sink_->errors().empty()) << sink_->errors()[0].ToString();
    for (const CollectingSink::Taken& batch : sink_->TakeBatches()) {
      for (std::size_t i = 0; i < batch.sample_ids.size(); ++i) {
        ASSERT_EQ(batch.payload[i],
                  ServeFixture::RecordOf(batch.sample_ids[i], kRecordBytes));
      }
      const std::uint64_t id = batch.id;
      ASSERT_TRUE(session_->Release({&id, 1}).has_value());
    }
  }
  bool IsWindowOnTiers(std::uint32_t epoch, std::uint64_t window) {
    const Order order(session_->spec().order, EpochId(epoch));
    for (std::uint64_t i = 0; i < 4 * kPerExtent; ++i) {
      const std::uint64_t sample = order.Forward(Position(window * 4 * kPerExtent + i));
      const ExtentId extent(static_cast<std::uint32_t>(sample / kPerExtent));
      if (!serve_->cache().Holds(serve_->dataset().key(extent))) return false;
    }
    return true;
  }
  // For 20 s at most.
  bool AwaitWindow(std::uint32_t epoch, std::uint64_t window) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!IsWindowOnTiers(epoch, window)) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::yield();
    }
    return true;
  }

  io::MemoryBackend backend_;
  std::unique_ptr<ServeFixture> serve_;
  std::unique_ptr<CollectingSink> sink_;
  std::shared_ptr<StreamSession> session_;
};

TEST_F(ReadAheadStreamTest, NoBatchOfALaterWindowWaitsForTheGfs) {
  Start(/*reads_ahead=*/true);
  ASSERT_GT(serve_->dataset().bytes_without_home(), kSamples * kRecordBytes / 3);
  for (std::uint32_t epoch = 0; epoch < 2; ++epoch) {
    for (std::uint64_t window = 0; window < kExtents / 4; ++window) {
      for (std::uint64_t step = 0; step < 4; ++step) {
        const std::uint64_t waited = session_->stats().waited_samples;
        ReadBatch(epoch, window * 4 + step);
        if (window > 0) {
          ASSERT_EQ(session_->stats().waited_samples, waited)
              << "epoch " << epoch << ", window " << window << ", step " << step;
        }
      }
      if (window + 1 == kExtents / 4) continue;
      ASSERT_TRUE(AwaitWindow(epoch, window + 1)) << "epoch " << epoch << ", window " << window;
    }
  }
}

TEST_F(ReadAheadStreamTest, TheFirstWindowOfTheNextEpochDoesNotWaitForTheGfsEither) {
  Start(/*reads_ahead=*/true, /*end_epoch=*/4);
  for (std::uint32_t epoch = 0; epoch < 4; ++epoch) {
    for (std::uint64_t step = 0; step < kSamples / kBatch; ++step) {
      const std::uint64_t waited = session_->stats().waited_samples;
      ReadBatch(epoch, step);
      if (epoch > 0 && step < 4) {
        ASSERT_EQ(session_->stats().waited_samples, waited) << "epoch " << epoch;
      }
    }
    if (epoch < 3) {
      ASSERT_TRUE(AwaitWindow(epoch + 1, 0)) << "epoch " << epoch;
    }
  }
}

TEST_F(ReadAheadStreamTest, TheLastEpochThatHasANumberIsReadLikeAnyOther) {
  Start(/*reads_ahead=*/true);
  const std::uint32_t last = ~std::uint32_t{0};
  for (std::uint64_t step = 0; step < kSamples / kBatch; ++step) ReadBatch(last, step);
  // The threads that read ahead are still there.
  ReadBatch(0, 0);
  EXPECT_TRUE(AwaitWindow(0, 0));
}

// Validation reads one epoch again and again.
TEST_F(ReadAheadStreamTest, AnEpochThatIsReadAgainIsReadAheadAgain) {
  Start(/*reads_ahead=*/true);
  for (int pass = 0; pass < 3; ++pass) {
    for (std::uint64_t window = 0; window + 1 < kExtents / 4; ++window) {
      for (std::uint64_t step = 0; step < 4; ++step) ReadBatch(5, window * 4 + step);
      ASSERT_TRUE(AwaitWindow(5, window + 1)) << "pass " << pass << ", window " << window;
    }
  }
}

TEST_F(ReadAheadStreamTest, AStreamThatHasNotAskedForABatchNeedsNothing) {
  Start(/*reads_ahead=*/true);
  FutureUse future(serve_->arena().memory_signal());
  int told = 0;
  future.SetReadAhead([&] { ++told; });
  const auto stream = future.Add(std::make_shared<const StreamSpec>(session_->spec()));
  EXPECT_FALSE(future.Take());
  stream->Asked(EpochId(3), 8 * kBatch);
  EXPECT_EQ(told, 1);
  const auto first = future.Take();
  ASSERT_TRUE(first.has_value());
  const Order order(session_->spec().order, EpochId(3));
  EXPECT_EQ(first->extent.value(), order.Forward(Position(8 * kBatch)) / kPerExtent);
  // Take returns an extent that was put back when the reader has read on.
  future.PutBack(*first);
  EXPECT_FALSE(future.Take());
  stream->Asked(EpochId(3), 9 * kBatch);
  stream->Answered(EpochId(3), 8 * kBatch, 9 * kBatch);
  EXPECT_EQ(told, 2);
  std::set<std::uint32_t> taken;
  while (const auto next = future.Take()) taken.insert(next->extent.value());
  EXPECT_TRUE(taken.contains(first->extent.value()));
  future.Remove(stream.get());
  future.PutBack(*first);
  EXPECT_FALSE(future.Take());
}

TEST_F(ReadAheadStreamTest, WithoutItBatchesWait) {
  Start(/*reads_ahead=*/false);
  for (std::uint64_t step = 0; step < kSamples / kBatch; ++step) ReadBatch(0, step);
  EXPECT_GT(session_->stats().waited_samples, 0U);
}

// The GFS is read for what is on no tier, and hardly more: once a window, four extents of 17 are
// there for the window after it, and not for a later epoch.
TEST_F(ReadAheadStreamTest, AnEpochReadsWhatTheTiersDoNotHold) {
  std::uint64_t bytes[2] = {};
  for (const bool reads_ahead : {false, true}) {
    Start(reads_ahead);
    const std::uint64_t before = serve_->dataset().progress().gfs_bytes;
    for (std::uint32_t epoch = 0; epoch < 4; ++epoch) {
      for (std::uint64_t step = 0; step < kSamples / kBatch; ++step) ReadBatch(epoch, step);
    }
    session_->Close();
    bytes[reads_ahead] = serve_->dataset().progress().gfs_bytes - before;
  }
  const std::uint64_t ahead = 4 * 4 * kPerExtent * kRecordBytes;
  const std::uint64_t pieces = kSamples * kRecordBytes / 10;
  EXPECT_LE(bytes[1], bytes[0] * 13 / 10 + ahead + pieces)
      << "without reading ahead " << bytes[0];
  EXPECT_LT(bytes[1], 4 * kSamples * kRecordBytes) << "less than everything in each epoch";
}

}  // namespace forebay::stream::read_ahead_stream_test

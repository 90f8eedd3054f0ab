// Several streams whose batches do not fit in the RAM tier together: each of them gets all of its
// batches, with the right bytes, each sample once.
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "server/io/testing/memory_backend.h"
#include "server/stream/testing/serve_fixture.h"

namespace forebay::stream::crowded_tier_test {

constexpr std::size_t kRecordBytes = 1000;
constexpr std::uint64_t kSamples = 1024;  // 16 extents
constexpr std::uint32_t kStreams = 4;
constexpr std::uint32_t kCredits = 8;
constexpr std::uint32_t kBatch = 8;

// Reads an epoch, and checks every sample of it.
void ReadEpoch(ServeFixture& serve, std::uint32_t number) {
  const std::unique_ptr<CollectingSink> sink = serve.MakeSink();
  // A batch needs four extents, and a stream needs each extent four times.
  const auto session = serve.Open({.batch = kBatch,
                                   .credits = kCredits,
                                   .name = "s" + std::to_string(number),
                                   .mode = OrderMode::kBlock,
                                   .block_samples = 16,
                                   .window_runs = 4,
                                   .seed = number},
                                  *sink);
  ASSERT_TRUE(session.has_value()) << session.error().ToString();
  std::vector<int> seen(kSamples);
  std::size_t asked_again = 0;
  for (std::uint64_t step = 0; step < kSamples / kBatch; step += kCredits) {
    ASSERT_TRUE((*session)->Pull({.first = {.step = StepId(step)}, .count = kCredits}).has_value());
    ASSERT_TRUE(sink->WaitFor(kCredits + asked_again)) << "step " << step;
    // The free memory may be in pieces between pinned extents; clients ask again then.
    while (sink->failed().size() > asked_again) {
      ASSERT_EQ(sink->errors()[asked_again].code(), ErrorCode::kUnavailable);
      ASSERT_TRUE((*session)->Pull({.first = sink->failed()[asked_again++]}).has_value());
      ASSERT_TRUE(sink->WaitFor(kCredits + asked_again)) << "step " << step;
    }
    std::vector<std::uint64_t> ids;
    for (const CollectingSink::Taken& batch : sink->TakeBatches()) {
      ids.push_back(batch.id);
      for (std::size_t i = 0; i < batch.sample_ids.size(); ++i) {
        ++seen[batch.sample_ids[i]];
        ASSERT_EQ(batch.payload[i], ServeFixture::RecordOf(batch.sample_ids[i], kRecordBytes));
      }
    }
    ASSERT_TRUE((*session)->Release(ids).has_value());
  }
  EXPECT_EQ(seen, std::vector<int>(kSamples, 1));
  (*session)->Close();
}

class CrowdedTierTest : public ::testing::TestWithParam<stage::Compression> {};

INSTANTIATE_TEST_SUITE_P(Compression, CrowdedTierTest,
                         ::testing::Values(stage::Compression::kOff, stage::Compression::kFast));

// All first batches together need up to 16 extents, and RAM has 14 at most. FetcherTest has the
// cases in which streams that keep what they have got would wait for ever.
TEST_P(CrowdedTierTest, StreamsTakeTurnsAndAllOfThemEnd) {
  io::MemoryBackend memory;
  const std::vector<std::byte> records = ServeFixture::RecordFile(kSamples, kRecordBytes);
  ASSERT_TRUE(memory.AddFile("/gfs/data.bin", records).has_value());
  auto made = ServeFixture::Create(memory, kRecordBytes,
                                   {.ram_bytes = 1024 << 10,
                                    .readers = 4,
                                    .decoded_bytes = 64 << 10,
                                    .compression = GetParam(),
                                    .ram_plan = plan::RamPlan{.capacity_bytes = 1024 << 10,
                                                              .largest_extent_bytes = 64 << 10,
                                                              .has_passing_extents = true}});
  ASSERT_TRUE(made.has_value()) << made.error().ToString();
  ASSERT_TRUE((*made)->StageAll().has_value());
  std::vector<std::jthread> readers;
  for (std::uint32_t i = 0; i < kStreams; ++i) {
    readers.emplace_back([&serve = **made, i] { ReadEpoch(serve, i); });
  }
  readers.clear();
  EXPECT_EQ((*made)->fetcher().waiting(), 0U);
  EXPECT_EQ((*made)->registry().open_count(), 0U);
}

}  // namespace forebay::stream::crowded_tier_test

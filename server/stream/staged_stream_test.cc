// Streams over data sets that are compressed at staging: the bytes of the GFS from every tier in
// every order, more of the data set on the tiers, and what damage and restarts do.
#include <algorithm>
#include <cstring>
#include <future>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/catalog/testing/record_text.h"
#include "server/stage/packed/packed_form.h"
#include "server/stream/testing/serve_fixture.h"
#include "server/tier/scrubber.h"

namespace forebay::stream::staged_stream_test {

using stage::Compression;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::size_t kRows = 32, kColumns = 48;
constexpr std::size_t kPixels = kRows * kColumns;
constexpr std::uint64_t kSamples = 1001;  // ends within a chunk

std::string Picture(std::uint64_t sample) {
  std::string picture(kPixels, '\0');
  for (std::size_t i = 0; i < kPixels; ++i) {
    picture[i] = static_cast<char>(i / kColumns * 3 + i % kColumns * 2 + sample +
                                   (i * (sample + 1)) % 5);
  }
  return picture;
}

std::string Label(std::uint64_t sample) { return std::string(1, static_cast<char>(sample % 10)); }

class StagedStreamTest : public ::testing::Test {
 protected:
  StagedStreamTest() { EXPECT_TRUE(backend_.AddDirectory("/ssd").has_value()); }

  void AddPictures(std::uint64_t samples = kSamples) {
    std::string pictures, labels;
    for (std::uint64_t s = 0; s < samples; ++s) {
      pictures += picture_(s);
      labels += Label(s);
    }
    const auto count = static_cast<std::uint32_t>(samples);
    Add("/gfs/images-idx3-ubyte", catalog::IdxText(0x08, {count, kRows, kColumns}, pictures));
    Add("/gfs/labels-idx1-ubyte", catalog::IdxText(0x08, {count}, labels));
  }
  void Add(const std::string& path, const std::string& text) {
    ASSERT_TRUE(backend_.AddFile(path, std::as_bytes(std::span(text))).has_value());
  }

  // Serves the pictures, as a daemon of its own; the one before ends.
  void Serve(Compression compression, ServeOptions options = {}) {
    Begin(compression, std::move(options));
    const Status staged = serve_->StageAll();
    ASSERT_TRUE(staged.has_value()) << staged.error().ToString();
  }
  void Begin(Compression compression, ServeOptions options) {
    sink_.reset();
    serve_.reset();
    options.source = catalog::DatasetSource();
    options.source->format = catalog::Format::kIdx;
    options.compression = compression;
    auto made = ServeFixture::Create(backend_, 0, options);
    ASSERT_TRUE(made.has_value()) << made.error().ToString();
    serve_ = std::move(*made);
    room_ = serve_->stager().space_left();
    sink_ = serve_->MakeSink();
  }

  // An epoch of the order; every sample must come with the right bytes.
  void ExpectRightEpoch(const ServeFixture::Ask& ask) {
    sink_ = serve_->MakeSink();
    auto opened = serve_->Open(ask, *sink_);
    ASSERT_TRUE(opened.has_value()) << opened.error().ToString();
    StreamSession& session = **opened;
    std::set<std::uint64_t> seen;
    for (std::uint64_t step = 0; step < session.spec().plan.steps(); ++step) {
      ASSERT_TRUE(session.Pull({.first = {.epoch = EpochId(1), .step = StepId(step)}})
                      .has_value());
      ASSERT_TRUE(sink_->WaitFor(1));
      ASSERT_TRUE(sink_->errors().empty()) << sink_->errors().front().ToString();
      const CollectingSink::Taken batch = sink_->TakeBatches().front();
      ASSERT_EQ(batch.fields.size(), 2U);
      for (std::size_t i = 0; i < batch.sample_ids.size(); ++i) {
        const std::uint64_t sample = batch.sample_ids[i];
        seen.insert(sample);
        EXPECT_EQ(batch.fields[0][i], picture_(sample)) << "sample " << sample;
        EXPECT_EQ(batch.fields[1][i], Label(sample)) << "sample " << sample;
      }
      decoded_.Add(batch.decode);
      ASSERT_TRUE(session.Release({&batch.id, 1}).has_value());
    }
    EXPECT_EQ(seen.size(), serve_->dataset().catalog()->sample_count());
    stats_ = session.stats();
    session.Close();
  }

  // Of extents that were all loaded once: each has taken, where its home is, what it has there.
  void ExpectExactAccount() {
    plan::TierSpace taken;
    for (std::uint32_t i = 0; i < serve_->dataset().catalog()->extent_count(); ++i) {
      const stage::Dataset& dataset = serve_->dataset();
      const plan::Footprint footprint =
          dataset.FootprintOf(ExtentId(i), dataset.StoredBytes(ExtentId(i)));
      const plan::HomeTier home = dataset.home(ExtentId(i));
      if (home == plan::HomeTier::kRam) taken.ram_bytes += footprint.ram_bytes;
      if (home == plan::HomeTier::kSsd) taken.ssd_bytes += footprint.ssd_bytes;
    }
    EXPECT_EQ(serve_->stager().space_left().ram_bytes, room_.ram_bytes - taken.ram_bytes);
    EXPECT_EQ(serve_->stager().space_left().ssd_bytes, room_.ssd_bytes - taken.ssd_bytes);
  }

  std::string StoredForm() const { return serve_->dataset().progress().stored_form; }

  std::string (*picture_)(std::uint64_t) = Picture;
  io::MemoryBackend backend_;
  std::unique_ptr<ServeFixture> serve_;
  std::unique_ptr<CollectingSink> sink_;
  plan::TierSpace room_;  // before staging
  DecodeCounts decoded_;
  SessionStats stats_;
};

TEST_F(StagedStreamTest, TheBytesOfTheGfsInEveryOrderAndDelivery) {
  AddPictures();
  Serve(Compression::kBalanced);
  EXPECT_THAT(StoredForm(), StartsWith("packed (balanced, "));
  const tier::ExtentCache::TierStats ram = serve_->cache().stats(tier::TierKind::kRam);
  EXPECT_LT(ram.used_bytes, kSamples * kPixels / 2);
  EXPECT_GE(serve_->dataset().progress().gfs_bytes, kSamples * (kPixels + 1));
  for (const Delivery delivery : {Delivery::kContiguous, Delivery::kViews}) {
    for (const OrderMode mode :
         {OrderMode::kSequential, OrderMode::kBlock, OrderMode::kGlobal, OrderMode::kPartial}) {
      ExpectRightEpoch({.batch = 48, .delivery = delivery, .mode = mode,
                        .tail = TailPolicy::kShort});
    }
  }
  EXPECT_GT(decoded_.chunks, 0U);
  EXPECT_EQ(serve_->slots().used_bytes(), 0U) << "slot memory leaked";
}

TEST_F(StagedStreamTest, ReadsFromTheGfsWhatRawStagingReads) {
  AddPictures();
  Serve(Compression::kOff);
  const stage::DatasetProgress raw = serve_->dataset().progress();
  EXPECT_EQ(raw.stored_form, "raw");
  Serve(Compression::kFast);
  const stage::DatasetProgress packed = serve_->dataset().progress();
  EXPECT_EQ(packed.gfs_bytes, raw.gfs_bytes);
  EXPECT_EQ(packed.staged_bytes, raw.staged_bytes);
  EXPECT_EQ(packed.total_bytes, raw.total_bytes);
  EXPECT_EQ(serve_->dataset().bytes_without_home(), 0U);
}

TEST_F(StagedStreamTest, FromSsdWithAndWithoutAnythingKept) {
  AddPictures();
  for (const std::uint64_t decoded_bytes : {0U, 1U << 20}) {
    Serve(Compression::kBalanced,
          {.ram_bytes = 256 << 10, .ssd_bytes = 64 << 20, .decoded_bytes = decoded_bytes});
    ASSERT_GT(serve_->cache().stats(tier::TierKind::kSsd).extents, 0U) << "nothing is on SSD";
    ExpectRightEpoch({.batch = 50, .tail = TailPolicy::kShort});
    EXPECT_GT(stats_.ssd_bytes, 0U);
  }
}

TEST_F(StagedStreamTest, MoreFits) {
  AddPictures();
  // Of 1.5 MB half would fit.
  const ServeOptions options{.ram_bytes = 512 << 10, .ssd_bytes = 0, .extent_bytes = 32 << 10};
  Serve(Compression::kOff, options);
  EXPECT_GT(serve_->dataset().bytes_without_home(), kSamples * kPixels / 2);
  sink_ = serve_->MakeSink();
  EXPECT_FALSE(serve_->Open({.batch = 50}, *sink_).has_value()) << "a global order was opened";
  Serve(Compression::kBalanced, options);
  EXPECT_EQ(serve_->dataset().bytes_without_home(), 0U);
  const std::uint64_t read = serve_->dataset().progress().gfs_bytes;
  ExpectRightEpoch({.batch = 50, .tail = TailPolicy::kShort});
  EXPECT_EQ(serve_->dataset().progress().gfs_bytes, read) << "the GFS was read again";
}

// The extent that is tried says that all fit in RAM, which the others then do not.
TEST_F(StagedStreamTest, ExtentsThatTurnOutLargerGoWhereThereIsRoom) {
  picture_ = [](std::uint64_t sample) {
    return sample < 100 ? std::string(kPixels, '\7') : ServeFixture::RecordOf(sample, kPixels);
  };
  AddPictures(500);
  Serve(Compression::kBalanced,
        {.ram_bytes = 384 << 10, .ssd_bytes = 64 << 20, .extent_bytes = 32 << 10});
  EXPECT_EQ(serve_->dataset().bytes_without_home(), 0U);
  EXPECT_GT(serve_->cache().stats(tier::TierKind::kSsd).extents, 5U);
  const std::uint64_t read = serve_->dataset().progress().gfs_bytes;
  ExpectRightEpoch({.batch = 50});
  EXPECT_EQ(serve_->dataset().progress().gfs_bytes, read) << "something had been evicted";
}

// The extent that is tried says that half will not fit, which the others then do.
TEST_F(StagedStreamTest, ExtentsBeyondTheTiersComeInWhereOthersTurnOutSmaller) {
  picture_ = [](std::uint64_t sample) {
    return sample < 21 ? ServeFixture::RecordOf(sample, kPixels) : std::string(kPixels, '\7');
  };
  AddPictures(500);
  const ServeOptions options{.ram_bytes = 384 << 10, .extent_bytes = 32 << 10};
  Serve(Compression::kOff, options);
  EXPECT_GT(serve_->dataset().bytes_without_home(), 256U << 10);
  Serve(Compression::kBalanced, options);
  EXPECT_EQ(serve_->dataset().bytes_without_home(), 0U);
  const std::uint64_t read = serve_->dataset().progress().gfs_bytes;
  EXPECT_EQ(read, 500 * (kPixels + 1)) << "something is missing, or was read twice";
  ExpectRightEpoch({.batch = 50});
  EXPECT_EQ(serve_->dataset().progress().gfs_bytes, read) << "something had been evicted";
  ExpectExactAccount();
}

// Sizes that differ from planned ones, loads that go elsewhere than planned, evictions and loads
// again: what is taken of the tiers is the sum of what has a home there.
TEST_F(StagedStreamTest, TheAccountStaysExact) {
  picture_ = [](std::uint64_t sample) {
    return sample % 100 < 30 ? ServeFixture::RecordOf(sample, kPixels) : Picture(sample);
  };
  AddPictures(500);
  Begin(Compression::kBalanced,
        {.ram_bytes = 256 << 10, .ssd_bytes = 512 << 10, .extent_bytes = 32 << 10});
  // As soon as there are homes, and before any size is known, those on SSD are asked for in RAM.
  std::uint32_t elsewhere = 0;
  serve_->dataset().WhenCatalogued([&](const Status& status) {
    ASSERT_TRUE(status.has_value());
    for (std::uint32_t i = 0; i < serve_->dataset().catalog()->extent_count(); ++i) {
      if (serve_->dataset().home(ExtentId(i)) != plan::HomeTier::kSsd) continue;
      ++elsewhere;
      serve_->stager().Demand(serve_->dataset(), ExtentId(i), [](const Status&) {},
                               stage::Stager::Access::kInRam);
    }
  });
  const Status staged = serve_->StageAll();
  ASSERT_TRUE(staged.has_value()) << staged.error().ToString();
  EXPECT_GE(elsewhere, 3U);
  const std::uint32_t extents = serve_->dataset().catalog()->extent_count();
  using Access = stage::Stager::Access;
  for (const Access access : {Access::kOnTier, Access::kInRam, Access::kOnTier}) {
    for (std::uint32_t i = 0; i < extents; ++i) {
      const tier::ExtentKey& key = serve_->dataset().key(ExtentId(i));
      static_cast<void>(serve_->cache().Evict(key, std::nullopt));
      std::promise<Status> told;
      serve_->stager().Demand(serve_->dataset(), ExtentId(i),
                              [&](const Status& status) { told.set_value(status); }, access);
      const Status loaded = told.get_future().get();
      ASSERT_TRUE(loaded.has_value()) << loaded.error().ToString();
    }
    ExpectExactAccount();
  }
  ExpectRightEpoch({.batch = 50});
}

TEST_F(StagedStreamTest, TheScrubberFindsDamageOfPackedExtents) {
  AddPictures();
  Serve(Compression::kBalanced);
  io::SteadyClock clock;
  auto scrubber = tier::Scrubber::Create(serve_->cache(), clock, nullptr, {});
  ASSERT_TRUE(scrubber.has_value());
  const auto queue = backend_.CreateQueue({.depth = 2});
  ASSERT_TRUE(queue.has_value());
  const tier::ExtentRef extent =
      serve_->cache().FindOn(serve_->dataset().key(ExtentId(0)), tier::TierKind::kRam);
  ASSERT_TRUE(extent);
  EXPECT_TRUE(scrubber->ScrubExtent(extent, **queue).has_value());
  extent->block.bytes()[6] ^= std::byte{1};
  const Status found = scrubber->ScrubExtent(extent, **queue);
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error().code(), ErrorCode::kDataLoss);
}

TEST_F(StagedStreamTest, ARestartFindsWhatWasPackedAndReadsNoGfs) {
  AddPictures();
  const ServeOptions options{.ssd_bytes = 64 << 20, .persist = true};
  Serve(Compression::kBalanced, options);
  const std::string form = StoredForm();
  Serve(Compression::kBalanced, options);
  EXPECT_EQ(serve_->dataset().progress().gfs_bytes, 0U);
  EXPECT_EQ(StoredForm(), form);
  ExpectRightEpoch({.batch = 50, .tail = TailPolicy::kShort});
  EXPECT_EQ(serve_->dataset().progress().gfs_bytes, 0U);
  // A job that wants raw, or another profile, finds none of it.
  for (const Compression other : {Compression::kOff, Compression::kFast}) {
    Serve(other, options);
    EXPECT_GE(serve_->dataset().progress().gfs_bytes, kSamples * kPixels);
    ExpectRightEpoch({.batch = 50, .tail = TailPolicy::kShort});
  }
}

// In directories and in records.
TEST_F(StagedStreamTest, AFlippedBitOnSsdIsFetchedAnew) {
  AddPictures(480);
  for (const std::uint64_t byte : {3U, 20U, 60U, 100U, 200U, 1000U, 3000U}) {
    Serve(Compression::kBalanced,
          {.ram_bytes = 192 << 10, .ssd_bytes = 64 << 20, .decoded_bytes = 0});
    const auto on_ssd = serve_->cache().Resident(tier::TierKind::kSsd);
    // Of an extent that is in RAM too, the copy on SSD would not be read.
    const auto found = std::ranges::find_if(on_ssd, [&](const tier::ExtentKey& each) {
      return serve_->cache().FindOn(each, tier::TierKind::kRam) == nullptr;
    });
    ASSERT_NE(found, on_ssd.end());
    const tier::ExtentKey key = *found;
    ASSERT_TRUE(backend_.FlipBit("/ssd/" + tier::KeyText(key) + ".seg", byte * 8).has_value());
    ExpectRightEpoch({.batch = 40, .mode = OrderMode::kSequential});
    EXPECT_EQ(serve_->cache().stats(tier::TierKind::kSsd).bad_extents, 1U) << "byte " << byte;
  }
}

TEST_F(StagedStreamTest, ADamagedCopyInRamIsReplaced) {
  AddPictures(160);
  for (const std::uint64_t byte : {9U, 30U, 200U, 2000U}) {
    Serve(Compression::kBalanced, {.decoded_bytes = 0});
    {
      const tier::ExtentRef extent =
          serve_->cache().FindOn(serve_->dataset().key(ExtentId(0)), tier::TierKind::kRam);
      ASSERT_TRUE(extent);
      ASSERT_GT(extent->image_bytes, byte);
      extent->block.bytes()[byte] ^= std::byte{4};
    }
    ExpectRightEpoch({.batch = 40, .mode = OrderMode::kSequential});
    EXPECT_EQ(serve_->cache().stats(tier::TierKind::kRam).bad_extents, 1U) << "byte " << byte;
  }
}

// Homes are planned for the largest that an image may get; what proves smaller makes room.
TEST_F(StagedStreamTest, WhatWouldNotFitRawFitsCompressed) {
  AddPictures();
  Serve(Compression::kBalanced,
        {.ram_bytes = 512 << 10, .ssd_bytes = 0, .extent_bytes = 32 << 10});
  EXPECT_THAT(StoredForm(), StartsWith("packed (balanced, "));
  EXPECT_EQ(serve_->dataset().progress().gfs_bytes, kSamples * (kPixels + 1));
  EXPECT_EQ(serve_->dataset().bytes_without_home(), 0U);
  ExpectRightEpoch({.batch = 50, .tail = TailPolicy::kShort});
}

TEST_F(StagedStreamTest, TheNextDaemonFindsWhatAnEarlierOneCompressed) {
  AddPictures();
  const ServeOptions options{.ssd_bytes = 64 << 20, .persist = true};
  Serve(Compression::kBalanced, options);
  Serve(Compression::kBalanced, options);
  EXPECT_EQ(serve_->dataset().progress().gfs_bytes, 0U);
  ExpectRightEpoch({.batch = 50, .tail = TailPolicy::kShort});
}

TEST_F(StagedStreamTest, WhatCannotBePackedStaysRawAndSaysSo) {
  AddPictures(100);
  Serve(Compression::kBalanced, {.extent_bytes = 1000});  // a picture takes two extents
  EXPECT_THAT(StoredForm(), HasSubstr("raw (compress: "));
  EXPECT_THAT(StoredForm(), HasSubstr("larger than an extent"));
  ExpectRightEpoch({.batch = 10});
  EXPECT_EQ(decoded_.chunks, 0U);
}

}  // namespace forebay::stream::staged_stream_test

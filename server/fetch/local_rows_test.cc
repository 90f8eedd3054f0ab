// LocalRows answers another node with the bytes of the objects, verified, from whichever tier holds
// them, and refuses requests that do not fit its catalog.
#include "server/fetch/local_rows.h"

#include <array>
#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/catalog/testing/catalog_test_fixture.h"
#include "server/catalog/testing/record_text.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/manual_clock.h"
#include "server/io/testing/memory_backend.h"
#include "server/stage/testing/stage_rig.h"
#include "server/tier/ssd/segment_format.h"

namespace forebay::fetch {
namespace {

using io::testing::Pattern;
using io::testing::Take;
using stage::RigOptions;
using ::testing::HasSubstr;

constexpr std::uint64_t kRecords = 512;
constexpr std::uint64_t kRecordBytes = 1000;
constexpr std::uint64_t kDecodedBytesMax = 8 * kRecordBytes;

class LocalRowsTest : public ::testing::Test {
 protected:
  LocalRowsTest() : file_(Pattern(kRecords * kRecordBytes, 1)) {
    EXPECT_TRUE(memory_.AddDirectory("/ssd").has_value());
    EXPECT_TRUE(memory_.AddFile("/gfs/data.bin", file_).has_value());
  }
  ~LocalRowsTest() override {
    executor_.reset();
    rig_.Stop();
  }
  void Start(const stage::DatasetOptions& dataset = stage::RecordDataset(),
             const RigOptions& options = {}) {
    FOREBAY_EXPECT_OK(rig_.Start(dataset, options));
    fetcher_.emplace(rig_.cache(), rig_.stager(), nodes_);
    executor_ = Take(io::ThreadExecutor::Create(rig_.backend(), 2, 4));
    local_.emplace(LocalRowsParts{.stager = rig_.stager(),
                                  .fetcher = *fetcher_,
                                  .decoded = decoded_,
                                  .executor = *executor_,
                                  .clock = rig_.clock()},
                   kDecodedBytesMax);
  }
  void StartAndStage(const RigOptions& options = {}) {
    Start(stage::RecordDataset(), options);
    FOREBAY_EXPECT_OK(rig_.StageAll());
    fingerprint_ = rig_.dataset().catalog()->fingerprint();
  }

  void StartAndStageCompressed() {
    stage::DatasetOptions dataset = stage::RecordDataset();
    dataset.compression = stage::Compression::kFast;
    Start(dataset);
    FOREBAY_EXPECT_OK(rig_.StageAll());
    fingerprint_ = rig_.dataset().catalog()->fingerprint();
  }

  Status Read(std::vector<Row> rows) {
    const auto outcome = std::make_shared<std::promise<Status>>();
    local_->Read(rig_.dataset(),
                 {.fingerprint = fingerprint_, .rows = std::move(rows), .need = need_},
                 [outcome](const Status& status) { outcome->set_value(status); });
    return outcome->get_future().get();
  }
  using Outcome = Result<std::shared_ptr<const FoundRows>>;
  std::future<Outcome> BeginFind(const std::vector<std::uint64_t>& samples,
                                 std::uint64_t bytes_max) {
    std::vector<Row> rows;
    for (const std::uint64_t sample : samples) {
      rows.push_back({.sample = SampleId(sample), .field = FieldId(0), .memory = {}});
    }
    const auto outcome = std::make_shared<std::promise<Outcome>>();
    local_->Find(rig_.dataset(),
                 {.fingerprint = fingerprint_, .rows = rows, .bytes_max = bytes_max},
                 [outcome](const Outcome& found) { outcome->set_value(found); });
    return outcome->get_future();
  }
  Outcome Find(const std::vector<std::uint64_t>& samples, std::uint64_t bytes_max) {
    return BeginFind(samples, bytes_max).get();
  }
  // Field 0 of these samples, as rows one after another.
  Result<std::vector<std::byte>> ReadRecords(const std::vector<std::uint64_t>& samples) {
    std::vector<std::byte> bytes(samples.size() * kRecordBytes);
    std::vector<Row> rows;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      rows.push_back({.sample = SampleId(samples[i]),
                      .field = FieldId(0),
                      .memory = std::span(bytes).subspan(i * kRecordBytes, kRecordBytes)});
    }
    FOREBAY_TRY(Read(std::move(rows)));
    return bytes;
  }
  void ExpectRecords(const std::vector<std::uint64_t>& samples) {
    const auto bytes = ReadRecords(samples);
    ASSERT_TRUE(bytes.has_value()) << bytes.error().ToString();
    for (std::size_t i = 0; i < samples.size(); ++i) {
      EXPECT_EQ(std::memcmp(bytes->data() + i * kRecordBytes,
                            file_.data() + samples[i] * kRecordBytes, kRecordBytes),
                0)
          << "sample " << samples[i];
    }
  }
  void ExpectRefused(Row row, ErrorCode code) {
    const Status refused = Read({row});
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code(), code) << refused.error().ToString();
  }

  const std::vector<std::byte> file_;
  io::MemoryBackend memory_;
  io::ManualClock caps_clock_;
  stage::GfsThrottle throttle_{caps_clock_};  // without caps, unless a test begins it
  stage::StageRig rig_{memory_, ""};
  plan::Membership nodes_;
  std::optional<Fetcher> fetcher_;
  std::unique_ptr<io::ThreadExecutor> executor_;
  DecodedCache decoded_{/*capacity_bytes=*/1 << 20,
                        [](const UnitSamples&) { return kNeverUsed; }};
  std::optional<LocalRows> local_;
  std::uint64_t fingerprint_ = 0;
  Need need_ = Need::kSamples;
};

TEST_F(LocalRowsTest, RowsComeFromRamInTheOrderAskedForAndMoreThanOnce) {
  StartAndStage();
  ExpectRecords({511, 0, 64, 65, 0, 300});
  EXPECT_EQ(rig_.dataset().progress().gfs_bytes, file_.size());
  ExpectRecords({});
}

TEST_F(LocalRowsTest, RowsComeFromSsdVerified) {
  StartAndStage({.ram_bytes = 512 << 10, .reserve_bytes = 480 << 10, .ssd_bytes = 8 << 20});
  const tier::ExtentRef ref = rig_.cache().Find(rig_.dataset().key(ExtentId(1)));
  ASSERT_EQ(ref->tier, tier::TierKind::kSsd);
  ExpectRecords({511, 0, 70, 70, 300});
  EXPECT_EQ(rig_.dataset().progress().gfs_bytes, file_.size());
  // Sample 70 is the sixth of extent 1.
  ASSERT_TRUE(memory_.FlipBit("/ssd/" + tier::SegmentName(ref->key), 5'100 * 8).has_value());
  ExpectRecords({511, 0, 70, 70, 300});
  EXPECT_EQ(rig_.dataset().progress().gfs_bytes, file_.size() + 65'000) << "fetched again";
}

TEST_F(LocalRowsTest, RowsOfExtentsWithoutAHomeComeFromTheGfs) {
  StartAndStage({.ram_bytes = 384 << 10});
  ASSERT_GT(rig_.dataset().bytes_without_home(), 0U);
  std::vector<std::uint64_t> all;
  for (std::uint64_t i = 0; i < kRecords; i += 5) all.push_back(i);
  ExpectRecords(all);
}

TEST_F(LocalRowsTest, AReaderOfRunsHasTheWholeExtentBroughtForTheRowsThatFollow) {
  StartAndStage({.ram_bytes = 384 << 10});
  const std::vector<ExtentId> without_home = rig_.dataset().ExtentsWithoutHome();
  ASSERT_FALSE(without_home.empty());
  const auto ram_has = [&](ExtentId extent) {
    return static_cast<bool>(rig_.cache().Find(rig_.dataset().key(extent)));
  };
  const auto samples = [&](std::size_t i) {
    const std::uint64_t first = without_home[i].value() * (65'000 / kRecordBytes);
    return std::vector<std::uint64_t>{first, first + 1};
  };
  ExpectRecords(samples(0));
  EXPECT_FALSE(ram_has(without_home[0])) << "single samples are read in pieces";
  need_ = Need::kRuns;
  ExpectRecords(samples(1));
  EXPECT_TRUE(ram_has(without_home[1]));
  const std::uint64_t before = rig_.dataset().progress().gfs_bytes;
  ExpectRecords(samples(1));
  EXPECT_EQ(rig_.dataset().progress().gfs_bytes, before);
}

TEST_F(LocalRowsTest, ADataSetThatNobodyHasStagedYetIsStagedForTheNodeThatAsks) {
  StartAndStage();
  rig_.Stop();
  Start();
  ExpectRecords({1, 500});
}

TEST_F(LocalRowsTest, ARowThatDoesNotExistIsRefused) {
  StartAndStage();
  std::vector<std::byte> memory(kRecordBytes + 1);
  const auto exact = std::span(memory).first(kRecordBytes);
  ExpectRefused({.sample = SampleId(kRecords), .field = FieldId(0), .memory = exact},
                ErrorCode::kInvalidArgument);
  ExpectRefused({.sample = SampleId(0), .field = FieldId(1), .memory = exact},
                ErrorCode::kInvalidArgument);
  ExpectRefused({.sample = SampleId(0), .field = FieldId(0), .memory = memory},
                ErrorCode::kInvalidArgument);
  ExpectRefused({.sample = SampleId(0), .field = FieldId(0), .memory = exact.first(999)},
                ErrorCode::kInvalidArgument);
}

TEST_F(LocalRowsTest, FoundRowsLieWhereTheyAreAndStayThere) {
  StartAndStage();
  const auto found = Find({511, kRecords, 0}, 2 * kRecordBytes);
  ASSERT_TRUE(found.has_value()) << found.error().ToString();
  ASSERT_EQ((*found)->count(), 3U);
  EXPECT_EQ((*found)->error(1)->code(), ErrorCode::kInvalidArgument);
  const tier::ExtentKey& key = rig_.dataset().key(ExtentId(0));
  const std::byte* const in_tier = rig_.cache().Find(key)->block.bytes().data();
  FOREBAY_EXPECT_OK(rig_.cache().Evict(key, std::nullopt));
  for (const auto& [row, sample] : {std::pair{0U, 511U}, std::pair{2U, 0U}}) {
    ASSERT_FALSE((*found)->error(row));
    ASSERT_EQ((*found)->bytes(row), kRecordBytes);
    ASSERT_EQ((*found)->runs(row).size(), 1U);
    EXPECT_EQ(std::memcmp((*found)->runs(row)[0].data(), file_.data() + sample * kRecordBytes,
                          kRecordBytes),
              0);
  }
  EXPECT_EQ((*found)->runs(2)[0].data(), in_tier) << "not copied";
}

TEST_F(LocalRowsTest, MoreBytesThanTheLimitAreRefusedUnlessItIsOneRow) {
  StartAndStage();
  EXPECT_EQ(Find({0, 1}, 2 * kRecordBytes - 1).error().code(), ErrorCode::kResourceExhausted);
  EXPECT_TRUE(Find({0}, 1).has_value());
}

// The request may be behind a thread that waits, so the node that asks must not take it for late.
TEST_F(LocalRowsTest, WhileCallsToTheGfsWaitForACapARequestSaysThatItWaits) {
  StartAndStage();
  bool has_waiters = true;
  LocalRows local(LocalRowsParts{.stager = rig_.stager(),
                                 .fetcher = *fetcher_,
                                 .decoded = decoded_,
                                 .executor = *executor_,
                                 .clock = rig_.clock(),
                                 .has_gfs_waiters = [&] { return has_waiters; }});
  const auto says_that_it_waits = [&] {
    bool says = false;
    std::promise<bool> found;
    local.Find(rig_.dataset(),
               {.fingerprint = fingerprint_,
                .rows = {{.sample = SampleId(0), .field = FieldId(0), .memory = {}}},
                .waits = [&says] { says = true; }},
               [&found](const Outcome& outcome) { found.set_value(outcome.has_value()); });
    EXPECT_TRUE(found.get_future().get());
    return says;
  };
  EXPECT_TRUE(says_that_it_waits());
  has_waiters = false;
  EXPECT_FALSE(says_that_it_waits());
}

// One of the two workers reads a piece, which the GFS does not answer. The other one waits for the
// only request that may be in flight. So a further request finds no worker.
TEST_F(LocalRowsTest, RowsInRamAreFoundWhileAllWorkersWaitForTheCapOnRequests) {
  throttle_.Begin({.requests = 1, .node_requests_max = 8});
  StartAndStage({.ram_bytes = 384 << 10, .has_request_cap = true, .throttle = &throttle_});
  LocalRows local(LocalRowsParts{.stager = rig_.stager(),
                                 .fetcher = *fetcher_,
                                 .decoded = decoded_,
                                 .executor = *executor_,
                                 .clock = rig_.clock(),
                                 .has_gfs_waiters = [this] { return throttle_.HasWaiters(); }});
  const std::uint64_t without_home =
      rig_.dataset().ExtentsWithoutHome().at(0).value() * (65'000 / kRecordBytes);
  const auto begin = [&](std::uint64_t sample, bool& waits) {
    const auto outcome = std::make_shared<std::promise<bool>>();
    local.Find(rig_.dataset(),
               {.fingerprint = fingerprint_,
                .rows = {{.sample = SampleId(sample), .field = FieldId(0), .memory = {}}},
                .waits = [&waits] { waits = true; }},
               [outcome](const Outcome& found) { outcome->set_value(found.has_value()); });
    return outcome->get_future();
  };
  std::array<bool, 4> waits = {};
  EXPECT_TRUE(begin(without_home, waits[0]).get()) << "from now on it is read in pieces";
  rig_.gfs_faults.Arm({.kind = io::FaultKind::kStall, .call = io::IoCall::kRead});
  auto stalled = begin(without_home, waits[1]);
  while (rig_.gfs_faults.candidates_seen() == 0) std::this_thread::yield();
  auto waiting = begin(without_home + 1, waits[2]);
  while (throttle_.WaitingThreads(0).empty()) std::this_thread::yield();
  auto in_ram = begin(0, waits[3]);
  EXPECT_TRUE(waits[3]) << "it says so, and is not taken for late";
  FOREBAY_EXPECT_OK(executor_->AdjustTo(throttle_.WaitingThreads(0)));
  EXPECT_TRUE(in_ram.get());
  rig_.gfs_faults.ReleaseStalls();
  EXPECT_TRUE(stalled.get());
  EXPECT_TRUE(waiting.get());
}

TEST_F(LocalRowsTest, ANodeWithAnotherCatalogIsRefused) {
  StartAndStage();
  ++fingerprint_;
  std::vector<std::byte> memory(kRecordBytes);
  ExpectRefused({.sample = SampleId(0), .field = FieldId(0), .memory = memory},
                ErrorCode::kFailedPrecondition);
}

TEST_F(LocalRowsTest, RowsThatWereCompressedAtStagingAreDecodedOnce) {
  StartAndStageCompressed();
  ExpectRecords({0, 511, 7, 7, 1, 64, 65});
  const std::uint64_t decoded = decoded_.stats().decoded;
  EXPECT_GT(decoded, 0U);
  EXPECT_LT(decoded, 6U) << "rows of one chunk are decoded together";
  // What is decoded needs no extent.
  FOREBAY_EXPECT_OK(rig_.cache().Evict(rig_.dataset().key(ExtentId(0)), std::nullopt));
  const std::uint64_t before = rig_.dataset().progress().gfs_bytes;
  ExpectRecords({0, 1, 7});
  EXPECT_EQ(decoded_.stats().decoded, decoded);
  EXPECT_EQ(rig_.dataset().progress().gfs_bytes, before);
}

TEST_F(LocalRowsTest, ARequestWaitsUntilDecodedRowsBeforeItAreLetGoOf) {
  StartAndStageCompressed();
  auto first = Find({0, 1, 2, 3, 4, 5}, kDecodedBytesMax);
  ASSERT_TRUE(first.has_value()) << first.error().ToString();
  auto second = BeginFind({6, 7, 8}, kDecodedBytesMax);
  ExpectRecords({});  // a request that needs no room passes it
  EXPECT_EQ(second.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  first = std::shared_ptr<const FoundRows>();
  const auto found = second.get();
  ASSERT_TRUE(found.has_value()) << found.error().ToString();
  EXPECT_EQ(std::memcmp((*found)->runs(2)[0].data(), file_.data() + 8 * kRecordBytes,
                        kRecordBytes),
            0);
}

TEST_F(LocalRowsTest, NothingIsDecodedForANodeThatHasGivenUp) {
  StartAndStageCompressed();
  const auto outcome = std::make_shared<std::promise<Status>>();
  local_->Find(rig_.dataset(),
               {.fingerprint = fingerprint_,
                .rows = {{.sample = SampleId(0), .field = FieldId(0), .memory = {}}},
                .is_wanted = [] { return false; }},
               [outcome](const Result<std::shared_ptr<const FoundRows>>& found) {
                 outcome->set_value(found.has_value() ? Status() : Status(found.error()));
               });
  EXPECT_FALSE(outcome->get_future().get().has_value());
  EXPECT_EQ(decoded_.stats().decoded, 0U);
}

TEST_F(LocalRowsTest, AnOwnErrorIsNotTakenForSilence) {
  StartAndStage();
  FOREBAY_EXPECT_OK(rig_.cache().Evict(rig_.dataset().key(ExtentId(0)), std::nullopt));
  rig_.gfs_faults.Arm({.call = io::IoCall::kRead, .is_persistent = true});
  const auto failed = ReadRecords({0});
  ASSERT_FALSE(failed.has_value());
  EXPECT_FALSE(stage::IsNoAnswer(failed.error())) << failed.error().ToString();
  EXPECT_THAT(failed.error().message(), HasSubstr("injected fault"));
}

// Images and labels lie in objects of their own, so that one row needs one extent of two.
class LocalDigitsTest : public LocalRowsTest {
 protected:
  static constexpr std::size_t kImageBytes = 784;
  LocalDigitsTest() {
    Add("/gfs/train-images-idx3-ubyte", images_);
    Add("/gfs/train-labels-idx1-ubyte", labels_);
    stage::DatasetOptions dataset;
    dataset.source.name = "digits";
    dataset.source.format = catalog::Format::kIdx;
    dataset.source.extent_bytes = 100'000;
    Start(dataset);
    FOREBAY_EXPECT_OK(rig_.StageAll());
    fingerprint_ = rig_.dataset().catalog()->fingerprint();
  }
  void Add(const std::string& path, const std::string& text) {
    EXPECT_TRUE(memory_.AddFile(path, std::as_bytes(std::span(text))).has_value());
  }
  // Whether `image` is that of the sample.
  bool IsImageOf(std::size_t sample, std::span<const std::byte> image) const {
    return std::memcmp(image.data(),
                       images_.data() + images_.size() - (500 - sample) * kImageBytes,
                       kImageBytes) == 0;
  }
  std::byte LabelOf(std::size_t sample) const {
    return static_cast<std::byte>(labels_[labels_.size() - (500 - sample)]);
  }

  const std::string images_ =
      catalog::IdxText(0x08, {500, 28, 28}, catalog::PatternText(500 * kImageBytes, 1));
  const std::string labels_ = catalog::IdxText(0x08, {500}, catalog::PatternText(500, 2));
};

TEST_F(LocalDigitsTest, TheRowsOfASampleMayComeInAnyOrderAndMoreThanOnce) {
  std::vector<std::byte> images(4 * kImageBytes);
  const auto image = [&](std::size_t i) {
    return std::span(images).subspan(i * kImageBytes, kImageBytes);
  };
  std::vector<std::byte> labels(2);
  FOREBAY_EXPECT_OK(Read({{.sample = SampleId(499), .field = FieldId(1), .memory = {&labels[0], 1}},
                          {.sample = SampleId(3), .field = FieldId(0), .memory = image(0)},
                          {.sample = SampleId(499), .field = FieldId(0), .memory = image(1)},
                          {.sample = SampleId(150), .field = FieldId(0), .memory = image(2)},
                          {.sample = SampleId(3), .field = FieldId(1), .memory = {&labels[1], 1}},
                          {.sample = SampleId(3), .field = FieldId(0), .memory = image(3)}}));
  EXPECT_TRUE(IsImageOf(3, image(0)));
  EXPECT_TRUE(IsImageOf(499, image(1)));
  EXPECT_TRUE(IsImageOf(150, image(2)));
  EXPECT_TRUE(IsImageOf(3, image(3)));
  EXPECT_EQ(labels[0], LabelOf(499));
  EXPECT_EQ(labels[1], LabelOf(3));
}

TEST_F(LocalDigitsTest, OnlyTheExtentsOfTheFieldsThatAreWantedAreRead) {
  const auto catalog = rig_.dataset().catalog();
  ASSERT_EQ(catalog->part_count(), 2U);
  ASSERT_EQ(catalog->fields().size(), 2U);
  std::vector<catalog::FieldLocation> where(2);
  FOREBAY_EXPECT_OK(catalog->samples()->Locate(SampleId(499), where));
  FOREBAY_EXPECT_OK(
      rig_.cache().Evict(rig_.dataset().key(where[0].range.extent), std::nullopt));
  rig_.CountGfsReads();
  std::byte label{};
  FOREBAY_EXPECT_OK(Read({{.sample = SampleId(499), .field = FieldId(1), .memory = {&label, 1}}}));
  EXPECT_EQ(label, LabelOf(499));
  EXPECT_EQ(rig_.gfs_reads(), 0U);
  std::vector<std::byte> image(kImageBytes);
  FOREBAY_EXPECT_OK(Read({{.sample = SampleId(499), .field = FieldId(0), .memory = image}}));
  EXPECT_GT(rig_.gfs_reads(), 0U);
  EXPECT_TRUE(IsImageOf(499, image));
}

}  // namespace
}  // namespace forebay::fetch

// Data sets whose format needs a scan are catalogued and staged in one pass: each byte is read
// once, each shard opened once, and every extent is published from the bytes that were scanned.
#include "server/stage/cataloguing/scan_pass.h"

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/contract/limits.h"
#include "server/catalog/testing/catalog_test_fixture.h"
#include "server/catalog/testing/tar_text.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/memory_backend.h"
#include "server/plan/membership.h"
#include "server/stage/extent_source.h"
#include "server/stage/part_source.h"
#include "server/stage/testing/stage_rig.h"

namespace forebay::stage {
namespace {

using catalog::PatternText;
using catalog::TarEndText;
using catalog::TarFileText;
using catalog::TextBytes;
using io::FaultKind;
using io::IoCall;
using ::testing::HasSubstr;

constexpr int kShards = 5;

class TarStagingTest : public ::testing::Test {
 protected:
  TarStagingTest() {
    EXPECT_TRUE(memory_.AddDirectory("/ssd").has_value());
    options_.source.name = "shards";
    options_.source.format = catalog::Format::kTar;
    options_.source.extent_bytes = 32 << 10;
    for (int i = 0; i < kShards; ++i) AddShard(i);
  }

  static std::string ShardName(int shard) { return "shard" + std::to_string(shard) + ".tar"; }
  // Samples of two members; one sample of shard 2 spans several extents.
  void AddShard(int shard) {
    std::string text;
    for (int i = 0; i < 40; ++i) {
      const int number = shard * 100 + i;
      const auto seed = static_cast<std::uint64_t>(number);
      const bool is_giant = shard == 2 && i == 17;
      const std::string key = "dir/" + std::to_string(100'000 + number);
      text += TarFileText(key + ".bin", PatternText(is_giant ? 150'000 : 500 + seed * 7, seed));
      text += TarFileText(key + ".cls", std::to_string(number));
    }
    text += TarEndText();
    Put(ShardName(shard), text);
  }
  void Put(const std::string& name, const std::string& text) {
    ASSERT_TRUE(memory_.AddFile("/gfs/" + name, TextBytes(text)).has_value());
    shards_[name] = text;
  }
  std::uint64_t TotalBytes() const {
    std::uint64_t total = 0;
    for (const auto& [name, text] : shards_) total += text.size();
    return total;
  }
  Status Stage(const RigOptions& options = {}) {
    rig_.Stop();
    FOREBAY_TRY(rig_.Start(options_, options));
    return rig_.StageAll();
  }
  // Checks that every extent is on a tier, undamaged, and has the bytes of its shard.
  void ExpectAllThere() {
    FOREBAY_EXPECT_OK(rig_.VerifyAll());
    const auto catalog = rig_.dataset().catalog();
    for (std::uint32_t i = 0; i < catalog->extent_count(); ++i) {
      const tier::ExtentRef ref = rig_.cache().Find(rig_.dataset().key(ExtentId(i)));
      ASSERT_TRUE(ref) << "extent " << i;
      if (ref->tier != tier::TierKind::kRam) continue;
      const catalog::ExtentInfo info = catalog->extent(ExtentId(i));
      const std::string& shard = shards_.at(std::string(catalog->object(info.first_object).path));
      ASSERT_EQ(std::memcmp(ref->block.bytes().data(), shard.data() + info.object_offset,
                            info.bytes),
                0)
          << "extent " << i;
    }
  }

  io::MemoryBackend memory_;
  DatasetOptions options_;
  std::map<std::string, std::string> shards_;
  StageRig rig_{memory_, ""};
};

TEST_F(TarStagingTest, OnePassReadsEachByteOnceWhateverTheRequests) {
  for (const std::uint64_t request_bytes : {4U << 10, 20'000U, 1U << 20}) {
    for (const std::uint32_t depth : {1U, 3U, 16U}) {
      rig_.CountGfsReads();
      FOREBAY_EXPECT_OK(Stage({.ram_bytes = 32 << 20, .request_bytes = request_bytes,
                               .scan_depth = depth}));
      const DatasetProgress progress = rig_.dataset().progress();
      EXPECT_EQ(progress.gfs_bytes, TotalBytes());
      EXPECT_EQ(progress.gfs_opens, static_cast<std::uint64_t>(kShards));
      EXPECT_EQ(progress.gfs_reads, rig_.gfs_reads());
      EXPECT_EQ(progress.staged_bytes, progress.total_bytes);
      EXPECT_EQ(rig_.dataset().catalog()->sample_count(), kShards * 40u);
      ExpectAllThere();
      EXPECT_EQ(memory_.open_file_count(), 0u);
    }
  }
}

// The arena holds a tenth of the bytes that pass through it.
TEST_F(TarStagingTest, LongMembersOfNoSampleTakeNoMemory) {
  Put("shard9.tar", TarFileText("a.bin", "first") +
                        TarFileText("README", std::string(80 << 20, 'x')) +
                        TarFileText("b.bin", "second") + TarEndText());
  FOREBAY_EXPECT_OK(Stage({.ram_bytes = 8 << 20}));
  EXPECT_EQ(rig_.dataset().catalog()->sample_count(), kShards * 40u + 2);
  EXPECT_EQ(rig_.dataset().progress().gfs_bytes, TotalBytes());
  ExpectAllThere();
}

// Eight requests of this size would take more than all memory.
TEST_F(TarStagingTest, RequestsAreSmallerWhereMemoryForStagingIsSmall) {
  FOREBAY_EXPECT_OK(Stage({.ram_bytes = 640 << 10, .reserve_bytes = 384 << 10,
                           .request_bytes = 1 << 20, .scan_depth = 8}));
  EXPECT_EQ(rig_.dataset().progress().gfs_bytes, TotalBytes());
  EXPECT_EQ(rig_.dataset().catalog()->sample_count(), kShards * 40u);
}

TEST_F(TarStagingTest, NamesTheObjectThatThereIsNoMemoryFor) {
  const Status staged = Stage({.ram_bytes = 64 << 10, .request_bytes = 1 << 20, .scan_depth = 8});
  ASSERT_FALSE(staged.has_value());
  EXPECT_THAT(staged.error().message(), HasSubstr("RESOURCE_EXHAUSTED"));
  EXPECT_THAT(staged.error().message(), HasSubstr("stage object 'shard0.tar'"));
  EXPECT_THAT(staged.error().message(), HasSubstr("raise tier.ram.capacity"));
}

TEST_F(TarStagingTest, ServesTheSameKeysAsACatalogBuiltElsewhere) {
  FOREBAY_EXPECT_OK(Stage());
  const std::uint64_t fingerprint = rig_.dataset().catalog()->fingerprint();
  FOREBAY_EXPECT_OK(Stage({.request_bytes = 5'000, .scan_depth = 2}));
  EXPECT_EQ(rig_.dataset().catalog()->fingerprint(), fingerprint);
}

TEST_F(TarStagingTest, SpillsToSsdAndFindsItAgain) {
  options_.persist = true;
  const RigOptions options = {.ram_bytes = 768 << 10, .reserve_bytes = 384 << 10,
                              .ssd_bytes = 8 << 20, .scan_depth = 2};
  FOREBAY_EXPECT_OK(Stage(options));
  EXPECT_GT(rig_.cache().stats(tier::TierKind::kSsd).extents, 0u);
  EXPECT_EQ(rig_.dataset().bytes_without_home(), 0u);
  ExpectAllThere();
  // Without a saved catalog the pass is repeated, because only the bytes tell which samples exist.
  FOREBAY_EXPECT_OK(Stage(options));
  EXPECT_EQ(rig_.dataset().progress().gfs_bytes, TotalBytes());
  EXPECT_EQ(rig_.dataset().bytes_without_home(), 0u);
  ExpectAllThere();
}

// Without a state directory, the copies that an earlier daemon left on SSD are the first reads.
TEST_F(TarStagingTest, ShardsAreHeldAgainstTheCopiesThatAnEarlierDaemonLeft) {
  options_.persist = true;
  const RigOptions options = {.ssd_bytes = 8 << 20};
  FOREBAY_EXPECT_OK(Stage(options));
  constexpr std::uint64_t kByte = 600;  // of the first member's data
  FOREBAY_EXPECT_OK(memory_.FlipBit("/gfs/shard0.tar", kByte * 8));
  const Status staged = Stage(options);
  ASSERT_FALSE(staged.has_value());
  EXPECT_THAT(staged.error().message(), HasSubstr("'shard0.tar', extent 0: changed since first"));
  // A rebuild accepts the new bytes, and no copy of the old ones is left on any tier.
  FOREBAY_EXPECT_OK(rig_.StageAll(/*rebuild=*/true));
  shards_["shard0.tar"][kByte] = static_cast<char>(shards_["shard0.tar"][kByte] ^ 1);
  ExpectAllThere();
  for (const tier::ExtentKey& key : rig_.cache().Resident(tier::TierKind::kRam)) {
    FOREBAY_EXPECT_OK(rig_.cache().Evict(key, tier::TierKind::kRam));
  }
  FOREBAY_EXPECT_OK(rig_.StageAll());
  ExpectAllThere();
}

TEST_F(TarStagingTest, TellsWhoWaitsForTheCatalog) {
  FOREBAY_EXPECT_OK(rig_.Start(options_));
  std::atomic<int> told = 0;
  rig_.dataset().WhenCatalogued([&](const Status& status) { told += status.has_value(); });
  FOREBAY_EXPECT_OK(rig_.StageAll());
  EXPECT_EQ(told, 1);
}

TEST_F(TarStagingTest, AShardOfNoBytesHasNoEndMarker) {
  Put("shard0.tar", "");
  const Status staged = Stage();
  ASSERT_FALSE(staged.has_value());
  EXPECT_THAT(staged.error().message(), HasSubstr("'shard0.tar'"));
}

// --- every error branch -------------------------------------------------------------------

TEST_F(TarStagingTest, ATruncatedShardIsNamed) {
  Put(ShardName(3), shards_[ShardName(3)].substr(0, 20'001));
  const Status staged = Stage();
  ASSERT_FALSE(staged.has_value());
  EXPECT_THAT(staged.error().message(), HasSubstr("'shard3.tar'"));
  EXPECT_EQ(rig_.dataset().catalog(), nullptr);
  EXPECT_EQ(memory_.open_file_count(), 0u);
}

TEST_F(TarStagingTest, AShardThatShrinksWhileItIsReadIsNamed) {
  FOREBAY_EXPECT_OK(rig_.Start(options_, {.request_bytes = 4 << 10, .scan_depth = 2}));
  rig_.gfs_faults.Arm({.kind = FaultKind::kStall, .call = IoCall::kRead});
  rig_.stager().Stage(rig_.dataset());
  while (rig_.gfs_faults.faults_injected() == 0) std::this_thread::yield();
  auto root = io::testing::Take(memory_.OpenDirectory("/gfs"));
  FOREBAY_EXPECT_OK(io::testing::Take(root->Open("shard0.tar", io::OpenMode::kAppend))
                        ->Truncate(10'000));
  rig_.gfs_faults.ReleaseStalls();
  const Status staged = AwaitPassEnd(rig_.dataset());
  ASSERT_FALSE(staged.has_value());
  EXPECT_THAT(staged.error().message(), HasSubstr("object 'shard0.tar' ended at offset 10000"));
}

// A part of its bytes may be from before, so not even what is read afterwards alike may be served.
TEST_F(TarStagingTest, AShardThatIsWrittenToWhileItIsReadIsNamed) {
  for (const std::uint64_t nth : {1U, 4U}) {
    rig_.Stop();
    FOREBAY_EXPECT_OK(rig_.Start(options_, {.request_bytes = 4 << 10, .scan_depth = 2}));
    const std::uint64_t before = rig_.gfs_faults.faults_injected();
    rig_.gfs_faults.Arm({.kind = FaultKind::kStall, .call = IoCall::kRead, .nth = nth});
    rig_.stager().Stage(rig_.dataset());
    while (rig_.gfs_faults.faults_injected() == before) std::this_thread::yield();
    auto root = io::testing::Take(memory_.OpenDirectory("/gfs"));
    // The same size and another time.
    FOREBAY_EXPECT_OK(io::testing::Take(root->Open("shard0.tar", io::OpenMode::kAppend))
                          ->Truncate(shards_["shard0.tar"].size()));
    rig_.gfs_faults.ReleaseStalls();
    const Status staged = AwaitPassEnd(rig_.dataset());
    ASSERT_FALSE(staged.has_value());
    EXPECT_THAT(staged.error().message(), HasSubstr("FAILED_PRECONDITION"));
    EXPECT_THAT(staged.error().message(), HasSubstr("'shard0.tar'"));
    EXPECT_THAT(staged.error().message(), HasSubstr("has changed"));
  }
}

TEST_F(TarStagingTest, AShardThatChangesBeforeItsTurnIsNamed) {
  FOREBAY_EXPECT_OK(rig_.Start(options_, {.request_bytes = 4 << 10, .scan_depth = 2}));
  rig_.gfs_faults.Arm({.kind = FaultKind::kStall, .call = IoCall::kRead});
  rig_.stager().Stage(rig_.dataset());
  while (rig_.gfs_faults.faults_injected() == 0) std::this_thread::yield();
  AddShard(4);  // the same bytes, another time
  rig_.gfs_faults.ReleaseStalls();
  const Status staged = AwaitPassEnd(rig_.dataset());
  ASSERT_FALSE(staged.has_value());
  EXPECT_THAT(staged.error().message(), HasSubstr("'shard4.tar'"));
  EXPECT_THAT(staged.error().message(), HasSubstr("FAILED_PRECONDITION"));
}

TEST_F(TarStagingTest, EveryGfsErrorIsNamedAndASecondPassMendsIt) {
  // RAM for one copy and the requests: the space of the failed pass must not be reserved twice.
  const RigOptions options = {.ram_bytes = 1280 << 10, .request_bytes = 16 << 10,
                              .scan_depth = 2};
  for (const FaultKind kind : {FaultKind::kEio, FaultKind::kInterrupted, FaultKind::kShort}) {
    for (const std::uint64_t nth : {1U, 20U, 40U}) {
      rig_.Stop();
      FOREBAY_EXPECT_OK(rig_.Start(options_, options));
      const std::uint64_t before = rig_.gfs_faults.faults_injected();
      rig_.gfs_faults.Arm({.kind = kind, .call = IoCall::kRead, .nth = nth});
      const Status staged = rig_.StageAll();
      ASSERT_EQ(rig_.gfs_faults.faults_injected(), before + 1);
      ASSERT_FALSE(staged.has_value());
      EXPECT_THAT(staged.error().message(), HasSubstr(".tar'"));
      EXPECT_EQ(memory_.open_file_count(), 0u);
      FOREBAY_EXPECT_OK(rig_.StageAll());
      EXPECT_EQ(rig_.dataset().bytes_without_home(), 0u);
      EXPECT_EQ(rig_.dataset().progress().staged_bytes, rig_.dataset().progress().total_bytes);
      ExpectAllThere();
    }
  }
}

// A pass that fails keeps no memory, and the next one does not reserve space a second time.
TEST_F(TarStagingTest, WhatAFailedPassHadStagedIsRoomForOthers) {
  const RigOptions options{.ram_bytes = 2 << 20, .ssd_bytes = 8 << 20};
  FOREBAY_EXPECT_OK(rig_.Start(options_, options));
  const plan::TierSpace before = rig_.stager().space_left();
  const std::string last = ShardName(kShards - 1);
  const std::string sound = shards_.at(last);
  Put(last, sound.substr(0, sound.size() - 2000));
  for (int attempt = 0; attempt < 3; ++attempt) {
    ASSERT_FALSE(rig_.StageAll().has_value());
    EXPECT_EQ(rig_.arena().used_bytes(), 0U) << "attempt " << attempt;
    EXPECT_EQ(rig_.stager().space_left().ram_bytes, before.ram_bytes);
  }
  Put(last, sound);
  AddShard(kShards);  // and the objects are others by now
  AddShard(0);
  FOREBAY_EXPECT_OK(rig_.StageAll());
  EXPECT_EQ(rig_.dataset().bytes_without_home(), 0U);
  std::uint64_t taken = 0, there = 0;
  const auto catalog = rig_.dataset().catalog();
  for (std::uint32_t i = 0; i < catalog->extent_count(); ++i) {
    taken += plan::FootprintBytes(catalog->extent(ExtentId(i)).bytes);
    there += rig_.cache().Find(rig_.dataset().key(ExtentId(i))) != nullptr ? 1 : 0;
  }
  EXPECT_EQ(there, catalog->extent_count());
  const plan::TierSpace after = rig_.stager().space_left();
  EXPECT_EQ(before.ram_bytes - after.ram_bytes + before.ssd_bytes - after.ssd_bytes, taken);
}

TEST_F(TarStagingTest, AnOpenOrStatThatFailsFailsThePass) {
  for (const IoCall call : {IoCall::kOpen, IoCall::kInfo, IoCall::kStat, IoCall::kList}) {
    rig_.Stop();
    FOREBAY_EXPECT_OK(rig_.Start(options_));
    const std::uint64_t before = rig_.gfs_faults.faults_injected();
    rig_.gfs_faults.Arm({.kind = FaultKind::kEio, .call = call});
    EXPECT_FALSE(rig_.StageAll().has_value());
    EXPECT_EQ(rig_.gfs_faults.faults_injected(), before + 1);
    FOREBAY_EXPECT_OK(rig_.StageAll());
    ExpectAllThere();
  }
}

TEST_F(TarStagingTest, ARebuildServesShardsThatWereAdded) {
  FOREBAY_EXPECT_OK(Stage());
  const std::uint64_t samples = rig_.dataset().catalog()->sample_count();
  AddShard(kShards);
  FOREBAY_EXPECT_OK(rig_.StageAll(/*rebuild=*/true));
  EXPECT_GT(rig_.dataset().catalog()->sample_count(), samples);
  ExpectAllThere();
}

TEST_F(TarStagingTest, ShutdownEndsThePass) {
  FOREBAY_EXPECT_OK(rig_.Start(options_, {.readers = 1, .request_bytes = 4 << 10}));
  rig_.gfs_faults.Arm({.kind = FaultKind::kStall, .call = IoCall::kRead});
  std::atomic<int> told = 0;
  rig_.dataset().WhenCatalogued([&](const Status&) { ++told; });
  rig_.stager().Stage(rig_.dataset());
  while (rig_.gfs_faults.faults_injected() == 0) std::this_thread::yield();
  {
    std::jthread release([this] { rig_.gfs_faults.ReleaseStalls(); });
    rig_.Stop();
  }
  EXPECT_EQ(told, 1);
  EXPECT_EQ(memory_.open_file_count(), 0u);
}

// A memory back end whose reads of `bytes` bytes have, as long as `wrong_reads` lasts, the last
// byte of `text` and the byte behind it in each other's place, like a stale page.
class SwappingBackend final : public io::IoBackend {
 public:
  SwappingBackend(io::MemoryBackend& inner, std::string text)
      : inner_(inner), text_(std::move(text)) {}

  std::string_view name() const override { return "swapping"; }
  Result<std::unique_ptr<io::Directory>> OpenDirectory(std::string_view path) override {
    return inner_.OpenDirectory(path);
  }
  Result<std::unique_ptr<io::IoQueue>> CreateQueue(const io::QueueOptions& options) override {
    FOREBAY_ASSIGN(auto queue, inner_.CreateQueue(options));
    return std::make_unique<Queue>(*this, std::move(queue));
  }

  std::size_t bytes = 0;
  std::atomic<int> wrong_reads = 0;

 private:
  class Queue final : public io::IoQueue {
   public:
    Queue(SwappingBackend& owner, std::unique_ptr<io::IoQueue> inner)
        : owner_(owner), inner_(std::move(inner)) {}
    // Operations of a memory back end are done when its Submit returns.
    Status Submit(std::span<const io::Operation> operations) override {
      FOREBAY_TRY(inner_->Submit(operations));
      for (const io::Operation& operation : operations) {
        if (operation.kind == io::OpKind::kRead) owner_.Spoil(operation.buffer);
      }
      return {};
    }
    std::size_t Wait(std::size_t count_min, std::vector<io::Completion>& completions,
                     std::optional<std::int64_t> timeout_ms) override {
      return inner_->Wait(count_min, completions, timeout_ms);
    }
    std::size_t in_flight() const override { return inner_->in_flight(); }
    std::size_t depth() const override { return inner_->depth(); }

   private:
    SwappingBackend& owner_;
    const std::unique_ptr<io::IoQueue> inner_;
  };

  void Spoil(std::span<std::byte> buffer) {
    if (buffer.size() != bytes || wrong_reads == 0) return;
    auto* const begin = reinterpret_cast<char*>(buffer.data());
    const std::size_t found = std::string_view(begin, buffer.size()).find(text_);
    if (found == std::string_view::npos) return;
    --wrong_reads;
    const std::size_t last = found + text_.size() - 1;
    std::swap(begin[last], begin[last + 1]);
  }

  io::MemoryBackend& inner_;
  const std::string text_;
};

// Two files of lines, of which an earlier daemon has left copies on SSD: so the first reads of all
// extents are known when the files are scanned again.
class JsonLinesStagingTest : public ::testing::Test {
 protected:
  JsonLinesStagingTest() {
    EXPECT_TRUE(memory_.AddDirectory("/ssd").has_value());
    options_.source.name = "lines";
    options_.source.format = catalog::Format::kJsonLines;
    options_.source.extent_bytes = 16 << 10;
    options_.persist = true;
    for (const std::string name : {"a", "b"}) {
      std::string text;
      for (int i = 0; i < 2'000; ++i) text += LineText(name, i);
      EXPECT_TRUE(memory_.AddFile("/gfs/" + name + ".jsonl", TextBytes(text)).has_value());
      backend_.bytes = text.size();  // the same for both
    }
    Start();
    FOREBAY_EXPECT_OK(rig_.StageAll());
    image_ = Image();
    EXPECT_GE(rig_.extent_count(), 4U);
    Start();
  }
  static std::string LineText(const std::string& file, int line) {
    return file + ": line " + std::to_string(line) + "\n";
  }
  // Each file is read in one request.
  void Start() {
    rig_.Stop();
    FOREBAY_EXPECT_OK(rig_.Start(options_, {.ssd_bytes = 8 << 20, .request_bytes = 1 << 20}));
  }
  std::vector<std::byte> Image() {
    const auto catalog = rig_.dataset().catalog();
    return {catalog->image().begin(), catalog->image().end()};
  }

  io::MemoryBackend memory_;
  // In the middle of the first extent of the second file.
  SwappingBackend backend_{memory_, LineText("b", 40)};
  DatasetOptions options_;
  std::vector<std::byte> image_;  // of the catalog of the right bytes
  StageRig rig_{backend_, ""};
};

TEST_F(JsonLinesStagingTest, AScanThatWasGivenWrongBytesIsRepeated) {
  backend_.wrong_reads = 1;
  FOREBAY_EXPECT_OK(rig_.StageAll());
  EXPECT_EQ(backend_.wrong_reads, 0) << "no wrong bytes were read";
  EXPECT_TRUE(Image() == image_) << "the boundaries of samples are wrong";
  EXPECT_EQ(rig_.dataset().first_reads().mismatches(), 1U);
  EXPECT_EQ(rig_.dataset().progress().gfs_opens, 4U)
      << "each file once, and the second one again for an extent and for its scan";
  FOREBAY_EXPECT_OK(rig_.VerifyAll());
}

TEST_F(JsonLinesStagingTest, AScanIsRepeatedALimitedNumberOfTimes) {
  constexpr int kMany = 100;
  backend_.wrong_reads = kMany;
  const Status staged = rig_.StageAll();
  ASSERT_FALSE(staged.has_value());
  EXPECT_THAT(staged.error().message(), HasSubstr("UNAVAILABLE"));
  EXPECT_THAT(staged.error().message(), HasSubstr("object 'b.jsonl', extent 0"));
  EXPECT_EQ(backend_.wrong_reads, kMany - limits::kObjectScansMax);
  EXPECT_EQ(rig_.dataset().catalog(), nullptr);
  backend_.wrong_reads = 0;
  FOREBAY_EXPECT_OK(rig_.StageAll());
  EXPECT_TRUE(Image() == image_);
  FOREBAY_EXPECT_OK(rig_.VerifyAll());
}

// Another node of the job, which is asked for its parts and never sends one.
class NoParts final : public PartSource {
 public:
  Result<PartAnswer> ReadPart(const PartRequest& request, catalog::TableSpool&) override {
    EXPECT_EQ(request.node, NodeRank(1));
    // First it has not scanned the object yet, then its answer makes no sense.
    if (asked_.insert(request.object).second) return PartAnswer();
    return Error(ErrorCode::kInternal, "a message is malformed");
  }
  std::size_t asked() const { return asked_.size(); }

 private:
  std::set<ObjectId> asked_;
};

TEST_F(TarStagingTest, ANodeWhoseAnswersMakeNoSenseIsReplacedAndCountsAsAlive) {
  NoParts other;
  plan::Membership nodes(NodeRank(0), {{.rank = NodeRank(0)}, {.rank = NodeRank(1)}});
  FOREBAY_EXPECT_OK(Stage({.ram_bytes = 32 << 20, .nodes = &nodes, .peer_parts = &other}));
  EXPECT_GT(other.asked(), 0U);
  EXPECT_LT(other.asked(), static_cast<std::size_t>(kShards));
  EXPECT_EQ(rig_.dataset().progress().gfs_bytes, TotalBytes());
  EXPECT_EQ(rig_.dataset().catalog()->sample_count(), kShards * 40u);
  EXPECT_TRUE(nodes.Lives(NodeRank(1)));
  rig_.Stop();  // before what it borrows goes
}

// Another node of the job. The first requests for each part are not sent in time; then it is gone.
class CrowdedParts final : public PartSource {
 public:
  explicit CrowdedParts(plan::Membership& nodes) : nodes_(nodes) {}
  Result<PartAnswer> ReadPart(const PartRequest& request, catalog::TableSpool&) override {
    ++asked_[request.object];
    if (asked_[request.object] <= kNotSent) return NotSent("others went before it");
    has_asked_again_ = true;
    EXPECT_TRUE(nodes_.Lives(NodeRank(1)));
    return Error(ErrorCode::kUnavailable, "gone");
  }
  bool has_asked_again() const { return has_asked_again_; }

 private:
  static constexpr int kNotSent = 2;
  plan::Membership& nodes_;
  std::map<ObjectId, int> asked_;
  bool has_asked_again_ = false;
};

TEST_F(TarStagingTest, APartForWhichANodeCouldNotBeAskedInTimeIsAskedForAgain) {
  plan::Membership nodes(NodeRank(0), {{.rank = NodeRank(0)}, {.rank = NodeRank(1)}});
  CrowdedParts other(nodes);
  FOREBAY_EXPECT_OK(Stage({.ram_bytes = 32 << 20, .nodes = &nodes, .peer_parts = &other}));
  EXPECT_TRUE(other.has_asked_again());
  EXPECT_FALSE(nodes.Lives(NodeRank(1))) << "it was found silent by a later request";
  const auto catalog = rig_.dataset().catalog();
  rig_.Stop();  // before what it borrows goes
  ASSERT_NE(catalog, nullptr);
  EXPECT_EQ(catalog->sample_count(), kShards * 40u);
}

}  // namespace
}  // namespace forebay::stage

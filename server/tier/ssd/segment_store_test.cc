// The store over every I/O back end: storing, reading, removing, recovery, capacity, and files that
// somebody else has damaged. Faults of the device are in tier_fault_test.cc.
#include "server/tier/ssd/segment_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <thread>
#include <utility>

#include "proto/contract/limits.h"
#include "server/io/queues/thread_backend.h"
#include "server/io/queues/uring_backend.h"
#include "server/io/testing/faulty_backend.h"
#include "server/io/testing/memory_backend.h"
#include "server/tier/ssd/segment_format.h"
#include "server/tier/testing/tier_test_fixture.h"

namespace forebay::tier::segment_store_test {

using testing::CodeOf;
using testing::KeyOfNumber;
using testing::MakeExtent;
using testing::Take;
using testing::TestExtent;

constexpr std::uint64_t kMiB = 1 << 20;

std::unique_ptr<SegmentStore> OpenStore(io::IoBackend& backend, io::Directory& directory,
                                        std::uint64_t capacity_bytes = 64 * kMiB,
                                        bool direct = true) {
  return Take(SegmentStore::Open(backend, directory, {capacity_bytes, direct}));
}

TEST(SegmentShape, FileIsImageTableFooter) {
  const SegmentShape shape = {4097, 513};
  EXPECT_EQ(shape.trailer_offset(), 8192U);
  EXPECT_EQ(shape.trailer_bytes(), 8192U + 4096);
  EXPECT_EQ(shape.file_bytes(), SegmentStore::FileBytes(4097, 513));
  EXPECT_EQ((SegmentShape{1, 0}).file_bytes(), 8192U);
}

TEST(SegmentFormat, TrailerSurvivesARoundTrip) {
  const TestExtent extent = MakeExtent(3);
  const SegmentShape shape = {extent.image_bytes,
                              static_cast<std::uint32_t>(extent.pieces.size())};
  std::vector<std::byte> trailer(shape.trailer_bytes());
  EncodeTrailer(extent.key, shape, extent.checksums, trailer);
  const ExtentChecksums sums = Take(DecodeTrailer(extent.key, shape, trailer));
  EXPECT_EQ(sums.image, extent.checksums.image);
  EXPECT_EQ(sums.pieces, extent.checksums.pieces);
  EXPECT_EQ(CodeOf(DecodeTrailer(KeyOfNumber(4), shape, trailer)), ErrorCode::kDataLoss);
  EXPECT_EQ(CodeOf(DecodeTrailer(extent.key, {shape.image_bytes + 1, shape.piece_count},
                                 trailer)),
            ErrorCode::kDataLoss);
  EXPECT_EQ(CodeOf(DecodeTrailer(extent.key, shape, std::span(trailer).first(4096))),
            ErrorCode::kDataLoss);
}

TEST(SegmentFormat, EveryFlippedBitOfATrailerIsFound) {
  const TestExtent extent = MakeExtent(3);
  const SegmentShape shape = {extent.image_bytes,
                              static_cast<std::uint32_t>(extent.pieces.size())};
  std::vector<std::byte> trailer(shape.trailer_bytes());
  EncodeTrailer(extent.key, shape, extent.checksums, trailer);
  for (std::size_t bit = 0; bit < trailer.size() * 8; ++bit) {
    trailer[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    ASSERT_EQ(CodeOf(DecodeTrailer(extent.key, shape, trailer)), ErrorCode::kDataLoss) << bit;
    trailer[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
  }
}

TEST(SegmentFormat, OnlyOurNamesAreOurs) {
  const std::string key = KeyText(KeyOfNumber(1));
  EXPECT_EQ(ClassifyName(SegmentName(KeyOfNumber(1))), NameKind::kSegment);
  EXPECT_EQ(ClassifyName(SegmentTempName(KeyOfNumber(1), 12)), NameKind::kTemp);
  EXPECT_EQ(TempAttempt(SegmentTempName(KeyOfNumber(1), 12)), 12U);
  EXPECT_EQ(ClassifyName("manifest"), NameKind::kManifest);
  EXPECT_EQ(ClassifyName("manifest.tmp"), NameKind::kTemp);
  for (const std::string& name :
       {std::string("thesis.seg"), std::string("x.tmp"), key, key + ".bak", key + "..tmp",
        key + ".1x.tmp", key + ".tmp", "G" + key.substr(1) + ".seg", std::string()}) {
    EXPECT_EQ(ClassifyName(name), NameKind::kForeign) << name;
  }
}

TEST(SegmentStore, ManifestIsCompactedWhenDeadRecordsDominate) {
  io::MemoryBackend backend;
  const auto directory = Take(backend.OpenDirectory("/"));
  const auto queue = Take(backend.CreateQueue({}));
  const auto store = OpenStore(backend, *directory);
  TestExtent kept = MakeExtent(1, 100);
  TestExtent other = MakeExtent(2, 100);
  FOREBAY_EXPECT_OK(store->Put(*queue, kept.key, kept.image(), kept.checksums));
  std::uint64_t largest = 0;
  for (int i = 0; i < 1500; ++i) {
    FOREBAY_EXPECT_OK(store->Put(*queue, other.key, other.image(), other.checksums));
    FOREBAY_EXPECT_OK(store->Remove(other.key));
    largest = std::max(largest, Take(directory->Stat("manifest")).bytes);
  }
  EXPECT_GT(largest, 200U * 64);
  EXPECT_LT(largest, 300U * 64);
  EXPECT_EQ(OpenStore(backend, *directory)->Keys(), std::vector<ExtentKey>{kept.key});
}

// One suite over every back end.
enum class Kind { kMemory, kMemoryBuffered, kThreads, kUring };

class SegmentStoreTest : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    std::string root = folder_.path();
    if (GetParam() == Kind::kThreads) {
      backend_ = Take(io::ThreadBackend::Create({.threads = 2, .resolve_method = {}}));
    } else if (GetParam() == Kind::kUring) {
      auto uring = io::UringBackend::Create();
      if (!uring.has_value()) GTEST_SKIP() << "no io_uring: " << uring.error().ToString();
      backend_ = std::move(*uring);
    } else {
      io::MemoryOptions options;
      options.has_direct = GetParam() == Kind::kMemory;
      options.completion_seed = 5;
      backend_ = std::make_unique<io::MemoryBackend>(options);
      root = "/";
    }
    directory_ = Take(backend_->OpenDirectory(root));
    queue_ = Take(backend_->CreateQueue({.depth = 4}));
  }
  std::unique_ptr<SegmentStore> Open(std::uint64_t capacity_bytes = 64 * kMiB) {
    return OpenStore(*backend_, *directory_, capacity_bytes);
  }
  Status Put(SegmentStore& store, TestExtent& extent) {
    return store.Put(*queue_, extent.key, extent.image(), extent.checksums);
  }
  Status Verify(SegmentStore& store, const TestExtent& extent) {
    FOREBAY_ASSIGN(const auto segment, store.Get(extent.key));
    if (segment->image_bytes != extent.image_bytes || segment->key != extent.key ||
        segment->checksums.image != extent.checksums.image) {
      return Error(ErrorCode::kInternal, "segment does not describe the extent");
    }
    return testing::VerifySegment(*queue_, *segment, extent.pieces);
  }

  testing::TempFolder folder_;
  std::unique_ptr<io::IoBackend> backend_;
  std::unique_ptr<io::Directory> directory_;
  std::unique_ptr<io::IoQueue> queue_;
};

TEST_P(SegmentStoreTest, PutExtentsComeBackAlsoAfterARestart) {
  std::vector<TestExtent> extents;
  for (std::uint32_t i = 0; i < 12; ++i) extents.push_back(MakeExtent(i));
  extents.push_back(MakeExtent(100, 3 * kMiB + 5));  // several transfers
  extents.push_back(MakeExtent(101, 8192));          // nothing to pad
  std::uint64_t used = 0;
  {
    const auto store = Open();
    for (TestExtent& extent : extents) FOREBAY_EXPECT_OK(Put(*store, extent));
    for (const TestExtent& extent : extents) FOREBAY_EXPECT_OK(Verify(*store, extent));
    used = store->used_bytes();
  }
  const auto store = Open();
  EXPECT_EQ(store->used_bytes(), used);
  EXPECT_EQ(store->recovery().segments, extents.size());
  EXPECT_EQ(store->recovery().dropped_records, 0U);
  EXPECT_EQ(store->recovery().removed_files, 0U);
  const std::vector<ExtentKey> keys = store->Keys();
  ASSERT_EQ(keys.size(), extents.size());
  for (std::size_t i = 0; i < keys.size(); ++i) EXPECT_EQ(keys[i], extents[i].key);
  std::uint64_t file_bytes = 0;
  for (const SegmentStore::Stored& stored : store->Contents()) file_bytes += stored.file_bytes;
  EXPECT_EQ(file_bytes, used);
  for (const TestExtent& extent : extents) FOREBAY_EXPECT_OK(Verify(*store, extent));
  EXPECT_TRUE(testing::StrayNames(*directory_).empty());
}

TEST_P(SegmentStoreTest, RemovedExtentsStayRemoved) {
  {
    const auto store = Open();
    for (std::uint32_t i = 0; i < 4; ++i) {
      TestExtent extent = MakeExtent(i);
      FOREBAY_EXPECT_OK(Put(*store, extent));
    }
    FOREBAY_EXPECT_OK(store->Remove(KeyOfNumber(1)));
    EXPECT_EQ(CodeOf(store->Get(KeyOfNumber(1))), ErrorCode::kNotFound);
    EXPECT_EQ(CodeOf(store->Remove(KeyOfNumber(1))), ErrorCode::kNotFound);
    FOREBAY_EXPECT_OK(store->Remove(KeyOfNumber(3)));
    TestExtent again = MakeExtent(3);
    FOREBAY_EXPECT_OK(Put(*store, again));
  }
  const auto store = Open();
  EXPECT_EQ(store->Keys(),
            (std::vector<ExtentKey>{KeyOfNumber(0), KeyOfNumber(2), KeyOfNumber(3)}));
  FOREBAY_EXPECT_OK(Verify(*store, MakeExtent(3)));
}

TEST_P(SegmentStoreTest, ReadersKeepARemovedSegment) {
  const auto store = Open();
  TestExtent extent = MakeExtent(7);
  FOREBAY_EXPECT_OK(Put(*store, extent));
  const auto segment = Take(store->Get(extent.key));
  EXPECT_EQ(Take(store->Get(extent.key)), segment);  // shared
  FOREBAY_EXPECT_OK(store->Remove(extent.key));
  FOREBAY_EXPECT_OK(testing::VerifySegment(*queue_, *segment, extent.pieces));
  EXPECT_EQ(store->used_bytes(), 0U);
}

TEST_P(SegmentStoreTest, PaddingIsZeroed) {
  const auto store = Open();
  TestExtent extent = MakeExtent(7, 5000);
  std::ranges::fill(extent.memory.span().subspan(5000), std::byte{0xEE});
  FOREBAY_EXPECT_OK(Put(*store, extent));
  const auto segment = Take(store->Get(extent.key));
  auto image = Take(testing::ReadImage(*queue_, *segment));
  for (std::size_t i = 5000; i < image.size(); ++i) ASSERT_EQ(image.span()[i], std::byte{0});
}

TEST_P(SegmentStoreTest, ManyMoreSegmentsThanMayBeOpen) {
  const auto store = Open();
  constexpr std::uint32_t kCount = limits::kSegmentsOpenMax + 20;
  for (std::uint32_t i = 0; i < kCount; ++i) {
    TestExtent extent = MakeExtent(i, 100);
    FOREBAY_EXPECT_OK(Put(*store, extent));
  }
  for (int round = 0; round < 2; ++round) {
    for (std::uint32_t i = 0; i < kCount; ++i) {
      FOREBAY_EXPECT_OK(Verify(*store, MakeExtent(i, 100)));
    }
  }
  if (const auto* memory = dynamic_cast<io::MemoryBackend*>(backend_.get())) {
    EXPECT_EQ(memory->open_file_count(), limits::kSegmentsOpenMax + 1);  // and the manifest
  }
}

TEST_P(SegmentStoreTest, CapacityCountsWholeFiles) {
  const std::uint64_t each = SegmentStore::FileBytes(100, 1);
  const auto store = Open(2 * each + 4095);
  std::vector<TestExtent> extents;
  for (std::uint32_t i = 0; i < 3; ++i) extents.push_back(MakeExtent(i, 100));
  FOREBAY_EXPECT_OK(Put(*store, extents[0]));
  FOREBAY_EXPECT_OK(Put(*store, extents[1]));
  EXPECT_EQ(store->used_bytes(), 2 * each);
  EXPECT_EQ(CodeOf(Put(*store, extents[2])), ErrorCode::kResourceExhausted);
  EXPECT_EQ(CodeOf(store->Get(extents[2].key)), ErrorCode::kNotFound);
  FOREBAY_EXPECT_OK(store->Remove(extents[0].key));
  FOREBAY_EXPECT_OK(Put(*store, extents[2]));
  EXPECT_TRUE(testing::StrayNames(*directory_).empty());
}

TEST_P(SegmentStoreTest, ForeignFilesAreLeftAlone) {
  FOREBAY_EXPECT_OK(directory_->MakeDirectory("photos"));
  Take(directory_->Open("thesis.seg", io::OpenMode::kCreate));
  Take(directory_->Open(SegmentTempName(KeyOfNumber(1), 3), io::OpenMode::kCreate));
  Take(directory_->Open(SegmentName(KeyOfNumber(2)), io::OpenMode::kCreate));
  const auto store = Open();
  EXPECT_EQ(store->recovery().removed_files, 2U);
  EXPECT_TRUE(directory_->Stat("thesis.seg").has_value());
  EXPECT_TRUE(directory_->Stat("photos").has_value());
  EXPECT_EQ(CodeOf(directory_->Stat(SegmentName(KeyOfNumber(2)))), ErrorCode::kNotFound);
}

TEST_P(SegmentStoreTest, RefusesWhatItCannotStore) {
  const auto store = Open();
  TestExtent extent = MakeExtent(1, 8192);
  EXPECT_EQ(CodeOf(store->Put(*queue_, extent.key, {}, {})), ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(store->Put(*queue_, extent.key, extent.image().subspan(8), {})),
            ErrorCode::kInvalidArgument);
  ExtentChecksums many;
  many.pieces.resize(limits::kSamplesPerExtentMax + 1);
  EXPECT_EQ(CodeOf(store->Put(*queue_, extent.key, extent.image(), many)),
            ErrorCode::kInvalidArgument);
  FOREBAY_EXPECT_OK(Put(*store, extent));
  EXPECT_EQ(CodeOf(Put(*store, extent)), ErrorCode::kAlreadyExists);
  EXPECT_EQ(CodeOf(store->Get(KeyOfNumber(2))), ErrorCode::kNotFound);
  EXPECT_EQ(store->used_bytes(), SegmentStore::FileBytes(8192, extent.pieces.size()));
}

TEST_P(SegmentStoreTest, ThreadsPutGetAndRemoveTogether) {
  const auto store = Open();
  std::vector<std::jthread> threads;
  for (std::uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const auto queue = Take(backend_->CreateQueue({.depth = 4}));
      for (std::uint32_t i = 0; i < 12; ++i) {
        TestExtent extent = MakeExtent(i, 100 + 1000 * i);  // all threads want the same keys
        const Status put = store->Put(*queue, extent.key, extent.image(), extent.checksums);
        EXPECT_TRUE(put.has_value() || CodeOf(put) == ErrorCode::kAlreadyExists);
        const auto segment = store->Get(extent.key);
        if (segment.has_value()) {
          FOREBAY_EXPECT_OK(testing::VerifySegment(*queue, **segment, extent.pieces));
        } else {
          EXPECT_EQ(CodeOf(segment), ErrorCode::kNotFound);
        }
        if (t == i % 4) {
          const Status removed = store->Remove(extent.key);
          EXPECT_TRUE(removed.has_value() || CodeOf(removed) == ErrorCode::kNotFound);
        }
      }
    });
  }
  threads.clear();
  std::uint64_t used = 0;
  for (const ExtentKey& key : store->Keys()) {
    const TestExtent extent = MakeExtent(key.extent.value(), 100 + 1000 * key.extent.value());
    FOREBAY_EXPECT_OK(Verify(*store, extent));
    used += SegmentStore::FileBytes(extent.image_bytes, extent.pieces.size());
  }
  EXPECT_EQ(store->used_bytes(), used);
  EXPECT_TRUE(testing::StrayNames(*directory_).empty());
}

// The cache counts data loss against the device, so a removal at the same time must not look so.
TEST(SegmentStoreRemoval, AGetThatMeetsARemovalFindsNothingAndReportsNoLoss) {
  io::MemoryBackend memory;
  io::FaultInjector injector;
  io::FaultyBackend faulty(memory, injector);
  const auto directory = Take(faulty.OpenDirectory("/"));
  const auto queue = Take(faulty.CreateQueue({}));
  const auto store = OpenStore(faulty, *directory);
  TestExtent extent = MakeExtent(1);
  for (const bool is_stored_again : {false, true}) {
    FOREBAY_EXPECT_OK(store->Put(*queue, extent.key, extent.image(), extent.checksums));
    const std::uint64_t faults = injector.faults_injected();
    injector.Arm({.kind = io::FaultKind::kStall, .call = io::IoCall::kOpen});
    std::jthread reader([&] {
      EXPECT_EQ(CodeOf(store->Get(extent.key)), ErrorCode::kNotFound);
    });
    while (injector.faults_injected() == faults) std::this_thread::yield();
    FOREBAY_EXPECT_OK(store->Remove(extent.key));
    if (is_stored_again) {
      FOREBAY_EXPECT_OK(store->Put(*queue, extent.key, extent.image(), extent.checksums));
    }
    injector.ReleaseStalls();
    reader.join();
    EXPECT_EQ(store->Contains(extent.key), is_stored_again);
  }
}

std::string KindName(const ::testing::TestParamInfo<Kind>& info) {
  switch (info.param) {
    case Kind::kMemory: return "Memory";
    case Kind::kMemoryBuffered: return "MemoryBuffered";
    case Kind::kThreads: return "Threads";
    case Kind::kUring: return "Uring";
  }
  return "";
}
INSTANTIATE_TEST_SUITE_P(Backends, SegmentStoreTest,
                         ::testing::Values(Kind::kMemory, Kind::kMemoryBuffered, Kind::kThreads,
                                           Kind::kUring),
                         KindName);

// Files that another program has damaged.
class SegmentDamage : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kCount = 6;
  SegmentDamage() : directory_(Take(backend_.OpenDirectory("/"))),
                    queue_(Take(backend_.CreateQueue({}))) {
    const auto store = OpenStore(backend_, *directory_);
    for (std::uint32_t i = 0; i < kCount; ++i) {
      TestExtent extent = MakeExtent(i);
      FOREBAY_EXPECT_OK(
          store->Put(*queue_, extent.key, extent.image(), extent.checksums));
    }
    manifest_ = Take(backend_.FileBytes("/manifest"));
  }
  static std::string PathOf(std::uint32_t number) {
    return "/" + SegmentName(KeyOfNumber(number));
  }
  io::MemoryBackend backend_;
  std::unique_ptr<io::Directory> directory_;
  std::unique_ptr<io::IoQueue> queue_;
  std::vector<std::byte> manifest_;
};

TEST_F(SegmentDamage, ManifestTornAtEveryLengthKeepsWhatPrecedes) {
  std::vector<std::vector<std::byte>> files;
  for (std::uint32_t i = 0; i < kCount; ++i) files.push_back(Take(backend_.FileBytes(PathOf(i))));
  for (std::size_t length = 0; length <= manifest_.size(); ++length) {
    for (std::uint32_t i = 0; i < kCount; ++i) {
      FOREBAY_EXPECT_OK(backend_.AddFile(PathOf(i), files[i]));
    }
    FOREBAY_EXPECT_OK(backend_.AddFile("/manifest", std::span(manifest_).first(length)));
    const std::size_t whole = length < 64 ? 0 : length / 64 - 1;
    for (int restart = 0; restart < 2; ++restart) {
      const auto store = OpenStore(backend_, *directory_);
      ASSERT_EQ(store->Keys().size(), whole) << length;
      // The first start cleans up, the second has nothing left to clean.
      EXPECT_EQ(store->recovery().removed_files, restart == 0 ? kCount - whole : 0) << length;
      EXPECT_EQ(store->recovery().has_torn_tail,
                restart == 0 && length > 64 && length % 64 != 0)
          << length;
      for (const ExtentKey& key : store->Keys()) {
        const TestExtent extent = MakeExtent(key.extent.value());
        FOREBAY_EXPECT_OK(testing::VerifySegment(*queue_, *Take(store->Get(key)),
                                                 extent.pieces));
      }
    }
  }
}

TEST_F(SegmentDamage, DamagedRecordInTheMiddleCostsItAndWhatFollows) {
  FOREBAY_EXPECT_OK(backend_.FlipBit("/manifest", (64 * 3 + 10) * 8));
  const auto store = OpenStore(backend_, *directory_);
  EXPECT_EQ(store->Keys().size(), 2U);
  EXPECT_EQ(store->recovery().dropped_records, kCount - 2);
  EXPECT_EQ(store->recovery().removed_files, kCount - 2);
  TestExtent extent = MakeExtent(5);
  FOREBAY_EXPECT_OK(store->Put(*queue_, extent.key, extent.image(), extent.checksums));
}

TEST_F(SegmentDamage, SwappedSegmentsAreFound) {
  const auto first = Take(backend_.FileBytes(PathOf(1)));
  const auto second = Take(backend_.FileBytes(PathOf(2)));
  FOREBAY_EXPECT_OK(backend_.AddFile(PathOf(1), second));
  FOREBAY_EXPECT_OK(backend_.AddFile(PathOf(2), first));
  const auto store = OpenStore(backend_, *directory_);
  EXPECT_EQ(CodeOf(store->Get(KeyOfNumber(1))), ErrorCode::kDataLoss);
  EXPECT_EQ(CodeOf(store->Get(KeyOfNumber(1))), ErrorCode::kNotFound);  // removed
  EXPECT_EQ(CodeOf(store->Get(KeyOfNumber(2))), ErrorCode::kDataLoss);
  EXPECT_EQ(CodeOf(directory_->Stat(SegmentName(KeyOfNumber(2)))), ErrorCode::kNotFound);
}

// Passes all calls on. Right after the next opening of a file for reading, it calls `after_open`:
// this is where another thread may remove the segment and store it again.
class InterleavedDirectory final : public io::Directory {
 public:
  explicit InterleavedDirectory(io::Directory& inner) : inner_(inner) {}
  Result<std::unique_ptr<io::File>> Open(std::string_view path, io::OpenMode mode) override {
    auto file = inner_.Open(path, mode);
    const bool is_read = mode == io::OpenMode::kRead || mode == io::OpenMode::kReadDirect;
    if (is_read && after_open) std::exchange(after_open, nullptr)();
    return file;
  }
  Result<io::FileInfo> Stat(std::string_view path) override { return inner_.Stat(path); }
  Result<std::vector<io::DirectoryEntry>> List(std::string_view path) override {
    return inner_.List(path);
  }
  Status MakeDirectory(std::string_view path) override { return inner_.MakeDirectory(path); }
  Status Rename(std::string_view from, std::string_view to) override {
    return inner_.Rename(from, to);
  }
  Status Unlink(std::string_view path) override { return inner_.Unlink(path); }
  Status RemoveDirectory(std::string_view path) override { return inner_.RemoveDirectory(path); }
  Status Sync(std::string_view path) override { return inner_.Sync(path); }
  Result<Space> FreeSpace() override { return inner_.FreeSpace(); }

  std::function<void()> after_open;

 private:
  io::Directory& inner_;
};

TEST_F(SegmentDamage, AReaderOfADamagedSegmentLeavesTheOneThatReplacedIt) {
  InterleavedDirectory directory(*directory_);
  const auto store = OpenStore(backend_, directory);
  TestExtent extent = MakeExtent(1);
  const std::uint64_t trailer_bit = SegmentShape::Padded(extent.image_bytes) * 8;
  FOREBAY_EXPECT_OK(backend_.FlipBit(PathOf(1), trailer_bit));
  bool was_replaced = false;
  directory.after_open = [&] {
    FOREBAY_EXPECT_OK(store->Remove(extent.key));
    FOREBAY_EXPECT_OK(store->Put(*queue_, extent.key, extent.image(), extent.checksums));
    was_replaced = true;
  };
  EXPECT_EQ(CodeOf(store->Get(extent.key)), ErrorCode::kNotFound) << "it was removed meanwhile";
  EXPECT_TRUE(was_replaced);
  const auto segment = store->Get(extent.key);
  ASSERT_TRUE(segment.has_value()) << segment.error().ToString();
  FOREBAY_EXPECT_OK(testing::VerifySegment(*queue_, **segment, extent.pieces));
}

TEST_F(SegmentDamage, SwappedSegmentsOfEqualShapeAreFound) {
  auto store = OpenStore(backend_, *directory_);
  for (const std::uint32_t number : {50U, 51U}) {
    TestExtent extent = MakeExtent(number, 5000);
    FOREBAY_EXPECT_OK(store->Put(*queue_, extent.key, extent.image(), extent.checksums));
  }
  store.reset();
  FOREBAY_EXPECT_OK(backend_.AddFile(PathOf(50), Take(backend_.FileBytes(PathOf(51)))));
  store = OpenStore(backend_, *directory_);
  const auto segment = store->Get(KeyOfNumber(50));
  ASSERT_EQ(CodeOf(segment), ErrorCode::kDataLoss);
  EXPECT_NE(segment.error().message().find("another extent"), std::string::npos);
}

TEST_F(SegmentDamage, MissingAndTruncatedFilesAreDataLossOnce) {
  FOREBAY_EXPECT_OK(directory_->Unlink(SegmentName(KeyOfNumber(0))));
  auto bytes = Take(backend_.FileBytes(PathOf(1)));
  FOREBAY_EXPECT_OK(backend_.AddFile(PathOf(1), std::span(bytes).first(bytes.size() - 4096)));
  const auto store = OpenStore(backend_, *directory_);
  EXPECT_EQ(store->recovery().dropped_records, 1U);  // nothing to serve for it
  EXPECT_EQ(CodeOf(store->Get(KeyOfNumber(0))), ErrorCode::kNotFound);
  EXPECT_EQ(CodeOf(store->Get(KeyOfNumber(1))), ErrorCode::kDataLoss);
  EXPECT_EQ(CodeOf(store->Get(KeyOfNumber(1))), ErrorCode::kNotFound);
  FOREBAY_EXPECT_OK(directory_->Unlink(SegmentName(KeyOfNumber(2))));
  EXPECT_EQ(CodeOf(store->Get(KeyOfNumber(2))), ErrorCode::kDataLoss);
}

TEST_F(SegmentDamage, AFileThatHasGrownIsDataLoss) {
  auto bytes = Take(backend_.FileBytes(PathOf(1)));
  bytes.resize(bytes.size() + 4096);
  FOREBAY_EXPECT_OK(backend_.AddFile(PathOf(1), bytes));
  const auto store = OpenStore(backend_, *directory_);
  EXPECT_EQ(CodeOf(store->Get(KeyOfNumber(1))), ErrorCode::kDataLoss)
      << "somebody else writes to it, so nothing of it can be trusted";
}

TEST_F(SegmentDamage, FlippedBitOfTableOrFooterIsFoundOnGet) {
  for (std::uint32_t i = 0; i < kCount; ++i) {
    const TestExtent extent = MakeExtent(i);
    const SegmentShape shape = {extent.image_bytes,
                                static_cast<std::uint32_t>(extent.pieces.size())};
    const std::uint64_t byte =
        shape.trailer_offset() + (i * 1031) % shape.trailer_bytes();
    FOREBAY_EXPECT_OK(backend_.FlipBit(PathOf(i), byte * 8 + i));
  }
  const auto store = OpenStore(backend_, *directory_);
  for (std::uint32_t i = 0; i < kCount; ++i) {
    EXPECT_EQ(CodeOf(store->Get(KeyOfNumber(i))), ErrorCode::kDataLoss) << i;
  }
  EXPECT_EQ(store->used_bytes(), 0U);
}

TEST_F(SegmentDamage, SmallerCapacityThanWhatIsThereServesButTakesNothing) {
  const auto store = OpenStore(backend_, *directory_, 8192);
  EXPECT_EQ(store->Keys().size(), kCount);
  TestExtent extent = MakeExtent(40, 10);
  EXPECT_EQ(CodeOf(store->Put(*queue_, extent.key, extent.image(), extent.checksums)),
            ErrorCode::kResourceExhausted);
}

}  // namespace forebay::tier::segment_store_test

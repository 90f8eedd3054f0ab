// The reader opens an object once, reads it in large requests, and names an object that differs
// from the catalog.
#include "server/stage/gfs/gfs_reader.h"

#include <cstring>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/io/aligned_buffer.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/manual_clock.h"
#include "server/io/testing/memory_backend.h"
#include "server/stage/gfs/patient_backend.h"
#include "server/stage/testing/split_backend.h"
#include "server/stage/testing/stage_rig.h"

namespace forebay::stage {
namespace {

using io::FaultKind;
using io::IoCall;
using io::testing::CodeOf;
using io::testing::Pattern;
using io::testing::Take;
using ::testing::HasSubstr;

constexpr std::uint64_t kRequestBytes = 16 << 10;

class GfsReaderTest : public ::testing::Test {
 protected:
  GfsReaderTest() {
    bytes_ = Pattern(200'000, 1);
    EXPECT_TRUE(memory_.AddFile("/gfs/data.bin", bytes_).has_value());
    queue_ = Take(backend_.CreateQueue({.depth = 3}));  // fewer than an extent's requests
  }
  void Catalogue(const DatasetOptions& options = RecordDataset()) {
    dataset_.emplace(options, backend_, Take(backend_.OpenDirectory("/gfs")));
    catalog_ = Take(
        catalog::BuildFromMetadata(backend_, dataset_->root(), options.source, nullptr));
  }
  // A folder of `count` small images of 100 + i bytes.
  void CatalogueFolder(int count) {
    for (int i = 0; i < count; ++i) {
      const std::string path = "/gfs/class/" + std::to_string(1000 + i) + ".jpg";
      ASSERT_TRUE(memory_.AddFile(path, Pattern(100 + static_cast<std::size_t>(i), 5))
                      .has_value());
    }
    DatasetOptions options;
    options.source.name = "folder";
    options.source.format = catalog::Format::kImageFolder;
    options.source.settings.SetTexts("suffixes", {".jpg"});
    options.source.extent_bytes = 64 << 10;
    Catalogue(options);
  }
  Status Read(std::uint32_t extent) {
    const std::uint64_t bytes = catalog_->extent(ExtentId(extent)).bytes;
    image_ = Take(io::AlignedBuffer::Create(bytes));
    return reader_.ReadImage(*queue_, *dataset_, *catalog_, ExtentId(extent), priority_,
                             image_.span().first(bytes));
  }
  void ExpectRange(std::uint32_t extent) {
    const catalog::ExtentInfo info = catalog_->extent(ExtentId(extent));
    EXPECT_EQ(std::memcmp(image_.data(), bytes_.data() + info.object_offset, info.bytes), 0);
  }
  std::unique_ptr<io::File> OpenForEditing() {
    return Take(Take(memory_.OpenDirectory("/gfs"))->Open("data.bin", io::OpenMode::kAppend));
  }

  // Changes a byte and the modification time of a file that may be open, and not its size.
  void RewriteInPlace(const std::string& path, std::uint64_t bytes) {
    FOREBAY_EXPECT_OK(memory_.FlipBit("/gfs/" + path, (bytes - 1) * 8));
    const auto root = Take(memory_.OpenDirectory("/gfs"));
    FOREBAY_EXPECT_OK(Take(root->Open(path, io::OpenMode::kAppend))->Truncate(bytes));
  }

  io::MemoryBackend memory_;
  io::FaultInjector faults_;
  io::FaultInjector calm_;
  SplitBackend backend_{memory_, "/gfs", faults_, calm_};
  std::vector<std::byte> bytes_;
  std::unique_ptr<io::IoQueue> queue_;
  std::optional<Dataset> dataset_;
  std::shared_ptr<const catalog::Catalog> catalog_;
  io::ManualClock clock_;
  RequestGate gate_{4, clock_};
  const Priority priority_ = 0;
  GfsReader reader_{kRequestBytes, gate_};
  io::AlignedBuffer image_;
};

TEST_F(GfsReaderTest, ReadsRangesOfALargeObjectThroughOneOpen) {
  Catalogue();
  std::uint64_t reads = 0;
  for (std::uint32_t i = 0; i < catalog_->extent_count(); ++i) {
    FOREBAY_EXPECT_OK(Read(i));
    ExpectRange(i);
    reads += (catalog_->extent(ExtentId(i)).bytes + kRequestBytes - 1) / kRequestBytes;
  }
  EXPECT_EQ(dataset_->progress().gfs_opens, 1u);
  EXPECT_EQ(dataset_->progress().gfs_bytes, bytes_.size());
  EXPECT_EQ(dataset_->progress().gfs_reads, reads) << "requests are as large as they may be";
  EXPECT_EQ(memory_.open_file_count(), 1u);
  reader_.CloseObjects(*dataset_);
  EXPECT_EQ(memory_.open_file_count(), 0u);
  FOREBAY_EXPECT_OK(Read(1));
  EXPECT_EQ(dataset_->progress().gfs_opens, 2u);
}

TEST_F(GfsReaderTest, ReadsRunsOfSmallObjectsOneAfterAnother) {
  CatalogueFolder(40);
  ASSERT_EQ(catalog_->extent_count(), 1u);
  FOREBAY_EXPECT_OK(Read(0));
  std::size_t at = 0;
  for (std::size_t i = 0; i < 40; ++i) {
    const auto file = Pattern(100 + i, 5);
    EXPECT_EQ(std::memcmp(image_.data() + at, file.data(), file.size()), 0) << i;
    at += file.size();
  }
  EXPECT_EQ(dataset_->progress().gfs_opens, 40u);
  EXPECT_EQ(dataset_->progress().gfs_bytes, at);
  EXPECT_EQ(memory_.open_file_count(), 0u) << "whole objects are closed at once";
}

TEST_F(GfsReaderTest, AnObjectThatIsOneExtentIsClosedAtOnce) {
  bytes_.resize(50'000);
  ASSERT_TRUE(memory_.AddFile("/gfs/data.bin", bytes_).has_value());
  Catalogue();
  FOREBAY_EXPECT_OK(Read(0));
  ExpectRange(0);
  EXPECT_EQ(memory_.open_file_count(), 0u);
}

TEST_F(GfsReaderTest, HoldsABoundedNumberOfObjectsOpen) {
  DatasetOptions options = RecordDataset();
  std::vector<std::string> files;
  for (int i = 0; i < 60; ++i) {  // below kFieldCountMax, in two data sets
    const std::string path = "part" + std::to_string(i) + ".bin";
    ASSERT_TRUE(memory_.AddFile("/gfs/" + path, Pattern(66'000)).has_value());
    files.push_back("f" + std::to_string(i) + "=" + path);
  }
  options.source.settings.SetTexts("files", files);
  Catalogue(options);
  Dataset twin(options, backend_, Take(backend_.OpenDirectory("/gfs")));
  for (std::uint32_t i = 0; i < catalog_->extent_count(); ++i) {
    FOREBAY_EXPECT_OK(Read(i));
    const std::uint64_t bytes = catalog_->extent(ExtentId(i)).bytes;
    FOREBAY_EXPECT_OK(reader_.ReadImage(*queue_, twin, *catalog_, ExtentId(i), priority_,
                                        image_.span().first(bytes)));
    EXPECT_LE(memory_.open_file_count(), 64u);
  }
  EXPECT_EQ(memory_.open_file_count(), 64u);
  reader_.CloseObjects(twin);
  EXPECT_LT(memory_.open_file_count(), 64u);
  EXPECT_GT(memory_.open_file_count(), 0u) << "the other data set's stay open";
}

// --- every error branch -------------------------------------------------------------------

TEST_F(GfsReaderTest, NamesAnObjectOfAnotherSizeOrTime) {
  Catalogue();
  ASSERT_TRUE(memory_.AddFile("/gfs/data.bin", bytes_).has_value());
  Status read = Read(0);
  ASSERT_EQ(CodeOf(read), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(read.error().message(), HasSubstr("'data.bin' of 'data'"));
  EXPECT_THAT(read.error().message(), HasSubstr("modification time"));
  ASSERT_TRUE(memory_.AddFile("/gfs/data.bin", Pattern(10)).has_value());
  read = Read(0);
  ASSERT_EQ(CodeOf(read), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(read.error().message(), HasSubstr("now 10 bytes, catalogued 200000"));
  EXPECT_EQ(dataset_->progress().gfs_bytes, 0u);
}

TEST_F(GfsReaderTest, NoticesAChangeInPlaceWhileTheObjectIsOpen) {
  Catalogue();
  FOREBAY_EXPECT_OK(Read(0));
  const auto file = OpenForEditing();
  auto queue = Take(memory_.CreateQueue({.depth = 1}));
  const auto more = Pattern(10);
  FOREBAY_EXPECT_OK(io::WriteFully(*queue, *file, 0, more));
  const Status read = Read(1);
  ASSERT_EQ(CodeOf(read), ErrorCode::kFailedPrecondition) << "the handle was open already";
  EXPECT_THAT(read.error().message(), HasSubstr("'data.bin'"));
}

// The first request has the old bytes, and the others have the new ones.
TEST_F(GfsReaderTest, AWholeObjectThatIsRewrittenInPlaceWhileItIsReadIsNamed) {
  bytes_.resize(50'000);  // one extent, and four requests
  ASSERT_TRUE(memory_.AddFile("/gfs/data.bin", bytes_).has_value());
  Catalogue();
  RequestGate narrow(1, clock_);  // one request at a time
  GfsReader reader(kRequestBytes, narrow);
  faults_.Arm({.kind = FaultKind::kStall, .call = IoCall::kRead});
  image_ = Take(io::AlignedBuffer::Create(bytes_.size()));
  auto read = std::async(std::launch::async, [&] {
    return reader.ReadImage(*queue_, *dataset_, *catalog_, ExtentId(0), priority_,
                            image_.span().first(bytes_.size()));
  });
  while (faults_.faults_injected() == 0) std::this_thread::yield();
  RewriteInPlace("data.bin", bytes_.size());
  faults_.ReleaseStalls();
  const Status status = read.get();
  ASSERT_EQ(CodeOf(status), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(status.error().message(), HasSubstr("'data.bin'"));
  EXPECT_THAT(status.error().message(), HasSubstr("modification time"));
  EXPECT_EQ(dataset_->progress().gfs_bytes, bytes_.size()) << "no read was short";
  EXPECT_EQ(queue_->in_flight(), 0u);
  EXPECT_EQ(memory_.open_file_count(), 0u);
}

// All other files of the run are read and closed before the last read of this one ends.
TEST_F(GfsReaderTest, AFileOfARunThatIsRewrittenInPlaceWhileItIsReadIsNamed) {
  CatalogueFolder(40);
  faults_.Arm({.kind = FaultKind::kStall, .call = IoCall::kRead, .path = "1007.jpg"});
  auto read = std::async(std::launch::async, [&] { return Read(0); });
  while (faults_.faults_injected() == 0) std::this_thread::yield();
  RewriteInPlace("class/1007.jpg", 107);
  faults_.ReleaseStalls();
  const Status status = read.get();
  ASSERT_EQ(CodeOf(status), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(status.error().message(), HasSubstr("'class/1007.jpg' of 'folder'"));
  EXPECT_EQ(memory_.open_file_count(), 0u);
}

TEST_F(GfsReaderTest, EveryFileOfARunIsCheckedOnceAfterItsRead) {
  CatalogueFolder(40);
  FOREBAY_EXPECT_OK(Read(0));
  EXPECT_EQ(dataset_->progress().gfs_stats, 40u);
  EXPECT_EQ(dataset_->progress().gfs_opens, 40u) << "through the handle that is open";
}

TEST_F(GfsReaderTest, ACheckAfterTheReadThatFailsFailsTheRead) {
  CatalogueFolder(3);
  faults_.Arm({.kind = FaultKind::kEio, .call = IoCall::kInfo, .nth = 2, .path = "1001.jpg"});
  EXPECT_EQ(CodeOf(Read(0)), ErrorCode::kDataLoss) << "the first check is made at the opening";
  EXPECT_EQ(faults_.faults_injected(), 1u);
  FOREBAY_EXPECT_OK(Read(0));
}

TEST_F(GfsReaderTest, NamesWhereATruncatedObjectEnds) {
  Catalogue();
  FOREBAY_EXPECT_OK(Read(0));
  FOREBAY_EXPECT_OK(OpenForEditing()->Truncate(70'000));
  const Status read = Read(1);
  ASSERT_EQ(CodeOf(read), ErrorCode::kDataLoss);
  EXPECT_THAT(read.error().message(), HasSubstr("'data.bin' ends at offset 70000"));
}

TEST_F(GfsReaderTest, ADeletedObjectOfARunIsNamed) {
  CatalogueFolder(40);
  FOREBAY_EXPECT_OK(Take(memory_.OpenDirectory("/gfs"))->Unlink("class/1020.jpg"));
  const Status read = Read(0);
  ASSERT_EQ(CodeOf(read), ErrorCode::kNotFound);
  EXPECT_THAT(read.error().message(), HasSubstr("'class/1020.jpg' of 'folder'"));
}

TEST_F(GfsReaderTest, AFailedReadNamesObjectAndOffsetAndTheNextOneOpensAnew) {
  Catalogue();
  for (const FaultKind kind : {FaultKind::kEio, FaultKind::kInterrupted, FaultKind::kShort}) {
    const std::uint64_t opens = dataset_->progress().gfs_opens;
    FOREBAY_EXPECT_OK(Read(0));
    faults_.Arm({.kind = kind, .call = IoCall::kRead, .nth = 2});
    const std::uint64_t before = faults_.faults_injected();
    const Status read = Read(1);
    ASSERT_EQ(faults_.faults_injected(), before + 1);
    ASSERT_FALSE(read.has_value());
    EXPECT_THAT(read.error().message(), HasSubstr("'data.bin'"));
    EXPECT_THAT(read.error().message(), HasSubstr("offset"));
    EXPECT_EQ(queue_->in_flight(), 0u);
    faults_.Disarm();
    FOREBAY_EXPECT_OK(Read(1));
    ExpectRange(1);
    EXPECT_EQ(dataset_->progress().gfs_opens, opens + (opens == 0 ? 2 : 1))
        << "a stale handle would fail for ever";
  }
}

TEST_F(GfsReaderTest, CountsWhatAFailedReadMoved) {
  Catalogue();
  FOREBAY_EXPECT_OK(Read(0));
  const std::uint64_t before = dataset_->progress().gfs_bytes;
  faults_.Arm({.kind = FaultKind::kEio, .call = IoCall::kRead, .nth = 2});
  EXPECT_FALSE(Read(1).has_value());
  EXPECT_EQ(dataset_->progress().gfs_bytes, before + 2 * kRequestBytes)
      << "three were asked for at once, and two of them came";
}

TEST_F(GfsReaderTest, AFailedOpenOrStatNamesTheObject) {
  Catalogue();
  for (const IoCall call : {IoCall::kOpen, IoCall::kInfo}) {
    faults_.Arm({.kind = FaultKind::kEio, .call = call});
    const std::uint64_t before = faults_.faults_injected();
    EXPECT_EQ(CodeOf(Read(0)), ErrorCode::kDataLoss);
    EXPECT_EQ(faults_.faults_injected(), before + 1);
    FOREBAY_EXPECT_OK(Read(0));
    reader_.CloseObjects(*dataset_);
  }
}

TEST_F(GfsReaderTest, PiecesOfManySmallObjectsOpenFewOfThemAtOnce) {
  constexpr int kFiles = 300;
  CatalogueFolder(kFiles);
  std::vector<std::vector<std::byte>> memory(kFiles);
  std::vector<tier::SourceRead> pieces;
  for (std::uint32_t i = 0; i < kFiles; ++i) {
    const catalog::Range range = Take(catalog_->samples()->SampleRange(SampleId(i), 0));
    memory[i].resize(range.length);
    pieces.push_back({.extent = range.extent, .offset = range.offset, .memory = memory[i]});
  }
  FOREBAY_EXPECT_OK(reader_.ReadPieces(*queue_, *dataset_, *catalog_, pieces, priority_));
  for (std::size_t i = 0; i < kFiles; ++i) EXPECT_EQ(memory[i], Pattern(100 + i, 5)) << i;
  EXPECT_EQ(dataset_->progress().gfs_opens, static_cast<std::uint64_t>(kFiles));
  EXPECT_LE(memory_.open_file_peak(), limits::kOpenObjectsMax * 5 / 4) << "kept, and in use";
}

TEST_F(GfsReaderTest, RequestsForPiecesAreNoLargerThanOthers) {
  Catalogue();
  std::vector<std::byte> memory(2 * kRequestBytes);
  const tier::SourceRead piece = {.extent = ExtentId(1), .offset = 0, .memory = memory};
  FOREBAY_EXPECT_OK(reader_.ReadPieces(*queue_, *dataset_, *catalog_, {&piece, 1}, priority_));
  EXPECT_EQ(dataset_->progress().gfs_reads, 2U);
}

// Otherwise the urgent one would wait behind the other, and the GFS would seem not to answer it.
TEST_F(GfsReaderTest, WhoWaitsForACapOnOpensKeepsNobodyElseFromWaitingInTurn) {
  Catalogue();
  GfsCalls calls(/*hung_after_ms=*/30'000, clock_);
  GfsPatience patience{{}};
  GfsThrottle throttle(clock_);
  throttle.Begin({.caps = {0, 25}, .node_count = 1});
  PatientBackend patient(backend_, patience, calls, throttle);
  Dataset dataset(RecordDataset(), patient, Take(patient.OpenGfsDirectory("/gfs")));
  GfsReader reader(kRequestBytes, gate_, &calls, &throttle);
  const auto read = [&](const Priority& priority) {
    const auto queue = Take(patient.CreateQueue({.depth = 3}));
    std::vector<std::byte> image(catalog_->extent(ExtentId(0)).bytes);
    EXPECT_EQ(CodeOf(reader.ReadImage(*queue, dataset, *catalog_, ExtentId(0), priority, image)),
              ErrorCode::kCancelled);
  };
  const Priority background(kBackgroundPriority + 1);
  const Priority demand(1);
  const std::jthread first([&] { read(background); });
  while (!throttle.HasWaiters()) std::this_thread::yield();
  const std::jthread second([&] { read(demand); });
  while (throttle.WaitingThreads(0).size() < 2 && calls.UnderWay().empty()) {
    std::this_thread::yield();
  }
  EXPECT_EQ(calls.UnderWay(), "");
  throttle.Stop();
}

// Others may need the permit that the first file has had.
TEST_F(GfsReaderTest, NoPermitIsHeldWhileAFileOfARunWaitsForItsOpen) {
  CatalogueFolder(3);
  GfsCalls calls(/*hung_after_ms=*/30'000, clock_);
  GfsPatience patience{{}};
  GfsThrottle throttle(clock_);
  throttle.Begin({.caps = {0, 25}, .node_count = 1});
  PatientBackend patient(backend_, patience, calls, throttle);
  Dataset dataset(dataset_->options(), patient, Take(patient.OpenGfsDirectory("/gfs")));
  GfsReader reader(kRequestBytes, gate_, &calls, &throttle);
  const std::jthread staging([&] {
    const auto queue = Take(patient.CreateQueue({.depth = 3}));
    std::vector<std::byte> image(catalog_->extent(ExtentId(0)).bytes);
    EXPECT_EQ(CodeOf(reader.ReadImage(*queue, dataset, *catalog_, ExtentId(0), priority_, image)),
              ErrorCode::kCancelled);
  });
  while (!throttle.HasWaiters()) std::this_thread::yield();
  clock_.AdvanceNs(40'000'000);  // for one open
  while (throttle.figures(Cap::kOpens).used < 1 || !throttle.HasWaiters()) {
    std::this_thread::yield();
  }
  std::vector<RequestGate::Permit> permits;
  while (const auto permit = gate_.TryAcquire(priority_, 0)) permits.push_back(*permit);
  EXPECT_EQ(permits.size(), 4U);
  for (const RequestGate::Permit permit : permits) gate_.Release(permit);
  throttle.Stop();
}

TEST_F(GfsReaderTest, AnOpenAndEachCheckOfAnOpenObjectCountForTheCapOnOpens) {
  Catalogue();
  GfsCalls calls(/*hung_after_ms=*/30'000, clock_);
  GfsPatience patience{{}};
  GfsThrottle throttle(clock_);
  throttle.Begin({.caps = {0, 1'000}, .node_count = 1});
  clock_.AdvanceNs(1'000'000'000);  // 40 are saved up
  PatientBackend patient(backend_, patience, calls, throttle);
  Dataset dataset(RecordDataset(), patient, Take(patient.OpenGfsDirectory("/gfs")));
  GfsReader reader(kRequestBytes, gate_, &calls, &throttle);
  const auto queue = Take(patient.CreateQueue({.depth = 3}));
  std::vector<std::byte> image(catalog_->extent(ExtentId(0)).bytes);
  const auto used = [&] { return throttle.figures(Cap::kOpens).used; };
  FOREBAY_EXPECT_OK(reader.ReadImage(*queue, dataset, *catalog_, ExtentId(0), priority_, image));
  EXPECT_EQ(used(), 2) << "the open, and the check after the read";
  const tier::SourceRead piece = {
      .extent = ExtentId(0), .offset = 10, .memory = std::span(image).first(100)};
  FOREBAY_EXPECT_OK(reader.ReadPieces(*queue, dataset, *catalog_, {&piece, 1}, priority_));
  EXPECT_EQ(used(), 3);
}

TEST_F(GfsReaderTest, PiecesOfAnObjectThatDoesNotAnswerOthersAreRefusedAtOnce) {
  Catalogue();
  GfsCalls calls(/*hung_after_ms=*/30'000, clock_);
  GfsReader reader(kRequestBytes, gate_, &calls);
  std::vector<std::byte> memory(100);
  const tier::SourceRead piece = {.extent = ExtentId(1), .offset = 10, .memory = memory};
  {
    const GfsCalls::Call others(calls, "read",
                                {.root = dataset_->options().root_path, .path = "data.bin"});
    FOREBAY_EXPECT_OK(reader.ReadPieces(*queue_, *dataset_, *catalog_, {&piece, 1}, priority_));
    const std::uint64_t read = dataset_->progress().gfs_reads;
    clock_.AdvanceNs(calls.hung_after_ns());
    calls.Look();
    const Status refused = reader.ReadPieces(*queue_, *dataset_, *catalog_, {&piece, 1}, priority_);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code(), ErrorCode::kUnavailable);
    EXPECT_THAT(refused.error().message(), HasSubstr("object 'data.bin'"));
    EXPECT_THAT(refused.error().message(), HasSubstr("has not answered for 30 s"));
    EXPECT_EQ(dataset_->progress().gfs_reads, read);
  }
  FOREBAY_EXPECT_OK(reader.ReadPieces(*queue_, *dataset_, *catalog_, {&piece, 1}, priority_));
  EXPECT_EQ(std::memcmp(memory.data(),
                        bytes_.data() + catalog_->extent(ExtentId(1)).object_offset + 10,
                        memory.size()),
            0);
}

}  // namespace
}  // namespace forebay::stage

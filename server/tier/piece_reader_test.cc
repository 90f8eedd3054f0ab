// No byte leaves SSD unverified: pieces that are right are delivered, each one that is not is
// named by its index, and one failure leaves the others alone.
#include "server/tier/piece_reader.h"

#include <cstring>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "server/io/aligned_buffer.h"
#include "server/io/testing/fault_injector.h"
#include "server/io/testing/faulty_backend.h"
#include "server/io/testing/io_test_fixture.h"
#include "server/io/testing/memory_backend.h"
#include "server/tier/ssd/segment_store.h"

namespace forebay::tier {
namespace {

using io::FaultKind;
using io::IoCall;
using io::testing::CodeOf;
using io::testing::Pattern;
using io::testing::Take;

constexpr std::size_t kImageBytes = 50'001;

class PieceReaderTest : public ::testing::Test {
 protected:
  PieceReaderTest() {
    EXPECT_TRUE(memory_.AddDirectory("/ssd").has_value());
    directory_ = Take(backend_.OpenDirectory("/ssd"));
    store_ = Take(SegmentStore::Open(backend_, *directory_, {.capacity_bytes = 1 << 20}));
    queue_ = Take(backend_.CreateQueue({.depth = 4}));
    image_ = Take(io::AlignedBuffer::Create(kImageBytes));
    const auto pattern = Pattern(kImageBytes, 3);
    std::memcpy(image_.data(), pattern.data(), kImageBytes);
    // Of every alignment: a block exactly, within one, across several, empty, and the odd end.
    Cut({4096, 100, 1, 10'000, 0, 4095, 8192, 777});
    extent_.key = {DatasetHash("pieces"), ExtentId(1), 42};
    extent_.tier = TierKind::kSsd;
    extent_.image_bytes = kImageBytes;
    const ExtentChecksums sums =
        ComputeChecksums(extent_.key, image_.span().first(kImageBytes), pieces_);
    FOREBAY_EXPECT_OK(
        store_->Put(*queue_, extent_.key, image_.span().first(kImageBytes), sums));
    extent_.segment = Take(store_->Get(extent_.key));
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      memory_of_.push_back(Take(io::AlignedBuffer::Create(AlignedBytes(pieces_[i]) + 1)));
      reads_.push_back({.extent = &extent_,
                        .piece = pieces_[i],
                        .checksum = extent_.sums().pieces[i],
                        .memory = memory_of_[i].span().first(AlignedBytes(pieces_[i]))});
    }
  }
  // Lengths repeat until the image is used up.
  void Cut(const std::vector<std::size_t>& lengths) {
    std::size_t offset = 0;
    for (std::size_t i = 0; offset < kImageBytes; ++i) {
      const std::size_t length = std::min(lengths[i % lengths.size()], kImageBytes - offset);
      pieces_.push_back({ExtentId(1), static_cast<std::uint32_t>(offset), length});
      offset += length;
    }
  }
  Status Read() {
    failures_.clear();
    return ReadPieces(*queue_, reads_, failures_);
  }
  void ExpectRight(std::size_t i) {
    const catalog::Range& piece = pieces_[i];
    EXPECT_EQ(std::memcmp(reads_[i].memory.data() + LeadBytes(piece),
                          image_.data() + piece.offset, piece.length),
              0)
        << "piece " << i;
  }
  void ExpectAllRight() {
    FOREBAY_EXPECT_OK(Read());
    EXPECT_TRUE(failures_.empty());
    for (std::size_t i = 0; i < pieces_.size(); ++i) ExpectRight(i);
  }

  io::MemoryBackend memory_{{.completion_seed = 5}};  // completions come in any order
  io::FaultInjector faults_;
  io::FaultyBackend backend_{memory_, faults_};
  std::unique_ptr<io::Directory> directory_;
  std::unique_ptr<SegmentStore> store_;
  std::unique_ptr<io::IoQueue> queue_;
  io::AlignedBuffer image_;
  std::vector<catalog::Range> pieces_;
  ResidentExtent extent_;
  std::vector<io::AlignedBuffer> memory_of_;
  std::vector<PieceRead> reads_;
  std::vector<PieceFailure> failures_;
};

TEST_F(PieceReaderTest, ReadsMorePiecesThanTheQueueIsDeep) {
  ASSERT_GT(pieces_.size(), 3 * queue_->depth());
  ExpectAllRight();
  EXPECT_EQ(queue_->in_flight(), 0u);
}

TEST_F(PieceReaderTest, NothingToReadIsDoneAtOnce) {
  reads_.clear();
  FOREBAY_EXPECT_OK(Read());
}

TEST_F(PieceReaderTest, AlignedBoundsCoverThePiece) {
  const auto bounds = [](std::uint32_t offset, std::uint64_t length) {
    const catalog::Range piece = {ExtentId(0), offset, length};
    return std::pair(LeadBytes(piece), AlignedBytes(piece));
  };
  EXPECT_EQ(bounds(0, 4096), std::pair(std::uint64_t{0}, std::uint64_t{4096}));
  EXPECT_EQ(bounds(0, 4097), std::pair(std::uint64_t{0}, std::uint64_t{8192}));
  EXPECT_EQ(bounds(4095, 1), std::pair(std::uint64_t{4095}, std::uint64_t{4096}));
  EXPECT_EQ(bounds(4095, 2), std::pair(std::uint64_t{4095}, std::uint64_t{8192}));
  EXPECT_EQ(bounds(8192, 0), std::pair(std::uint64_t{0}, std::uint64_t{0}));
  EXPECT_EQ(bounds(0xFFFF'FFFF, 1), std::pair(std::uint64_t{4095}, std::uint64_t{4096}));
}

// --- every error branch -------------------------------------------------------------------

TEST_F(PieceReaderTest, EveryFlippedBitOnTheDeviceIsFoundAndNamed) {
  const std::string path = "/ssd/" + KeyText(extent_.key) + ".seg";
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    if (pieces_[i].length == 0) continue;
    const std::uint64_t bit = 8 * (pieces_[i].offset + pieces_[i].length / 2) + i % 8;
    ASSERT_TRUE(memory_.FlipBit(path, bit).has_value());
    FOREBAY_EXPECT_OK(Read());
    ASSERT_EQ(failures_.size(), 1u) << "piece " << i;
    EXPECT_EQ(failures_[0].index, i);
    EXPECT_EQ(failures_[0].error.code(), ErrorCode::kDataLoss);
    for (std::size_t k = 0; k < pieces_.size(); ++k) {
      if (k != i) ExpectRight(k);
    }
    ASSERT_TRUE(memory_.FlipBit(path, bit).has_value());
  }
  ExpectAllRight();
}

TEST_F(PieceReaderTest, EveryFaultOfOneReadFailsThatPieceAlone) {
  std::uint64_t noticed = 0;
  for (const FaultKind kind : {FaultKind::kEio, FaultKind::kInterrupted, FaultKind::kShort,
                               FaultKind::kBitFlip}) {
    for (std::uint64_t nth = 1; nth <= reads_.size(); ++nth) {
      faults_.Arm({.kind = kind, .call = IoCall::kRead, .nth = nth, .seed = nth});
      const std::uint64_t before = faults_.faults_injected();
      FOREBAY_EXPECT_OK(Read());
      ASSERT_EQ(faults_.faults_injected(), before + 1);
      ASSERT_LE(failures_.size(), 1u);
      noticed += failures_.size();
      for (std::size_t i = 0; i < pieces_.size(); ++i) {
        if (failures_.empty() || failures_[0].index != i) ExpectRight(i);
      }
      EXPECT_EQ(queue_->in_flight(), 0u);
    }
  }
  // A bit beside the piece, and a short read behind it, hurt nobody; all else is noticed.
  EXPECT_GT(noticed, 2 * reads_.size());
}

TEST_F(PieceReaderTest, APersistentErrorFailsEveryPiece) {
  faults_.Arm({.kind = FaultKind::kEio, .call = IoCall::kRead, .is_persistent = true});
  FOREBAY_EXPECT_OK(Read());
  EXPECT_EQ(failures_.size(), reads_.size());
  std::set<std::size_t> indices;
  for (const PieceFailure& failure : failures_) indices.insert(failure.index);
  EXPECT_EQ(indices.size(), reads_.size()) << "each is named once";
  faults_.Disarm();
  ExpectAllRight();
}

TEST_F(PieceReaderTest, BytesOfAnotherPieceAreNotTaken) {
  // Intact bytes of another piece: the checksum covers the identity too.
  reads_[3].checksum = extent_.sums().pieces[0];
  FOREBAY_EXPECT_OK(Read());
  ASSERT_EQ(failures_.size(), 1u);
  EXPECT_EQ(failures_[0].index, 3u);
  ResidentExtent other;
  other.key = extent_.key;
  other.key.identity ^= 1;
  other.segment = extent_.segment;
  reads_[3].checksum = extent_.sums().pieces[3];
  reads_[3].extent = &other;
  FOREBAY_EXPECT_OK(Read());
  EXPECT_EQ(failures_.size(), 1u) << "the same bytes as part of another extent";
}

TEST_F(PieceReaderTest, AQueueThatRefusesIsTheCallsError) {
  reads_[0].memory = reads_[0].memory.subspan(1);  // not aligned: a caller's mistake
  EXPECT_EQ(CodeOf(Read()), ErrorCode::kInvalidArgument);
  EXPECT_EQ(queue_->in_flight(), 0u);
}

}  // namespace
}  // namespace forebay::tier

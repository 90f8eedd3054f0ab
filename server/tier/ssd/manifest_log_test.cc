// The manifest under torn and damaged records, wrong versions and failing writes.
#include "server/tier/ssd/manifest_log.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "server/io/testing/memory_backend.h"
#include "server/tier/testing/tier_test_fixture.h"

namespace forebay::tier {
namespace {

using testing::CodeOf;
using testing::KeyOfNumber;
using testing::Take;

constexpr std::uint64_t kGeneration = 7;

ManifestRecord Record(std::uint32_t number, ManifestKind kind = ManifestKind::kPublish) {
  return {kind, KeyOfNumber(number), {100 + number, number}};
}

std::vector<std::byte> Manifest(std::uint32_t records) {
  std::vector<std::byte> bytes = EncodeManifestHeader(kGeneration);
  for (std::uint32_t i = 0; i < records; ++i) {
    const auto record = EncodeManifestRecord(Record(i), kGeneration, bytes.size());
    bytes.insert(bytes.end(), record.begin(), record.end());
  }
  return bytes;
}

TEST(ParseManifest, ReadsWhatWasEncoded) {
  auto bytes = Manifest(3);
  const auto removal =
      EncodeManifestRecord(Record(1, ManifestKind::kRemove), kGeneration, bytes.size());
  bytes.insert(bytes.end(), removal.begin(), removal.end());
  const ParsedManifest manifest = Take(ParseManifest(bytes));
  EXPECT_EQ(manifest.generation, kGeneration);
  EXPECT_EQ(manifest.dropped_records, 0U);
  EXPECT_FALSE(manifest.has_torn_tail);
  ASSERT_EQ(manifest.records.size(), 4U);
  EXPECT_EQ(manifest.records[2].key, KeyOfNumber(2));
  EXPECT_EQ(manifest.records[2].shape.image_bytes, 102U);
  EXPECT_EQ(manifest.records[2].shape.piece_count, 2U);
  EXPECT_EQ(manifest.records[3].kind, ManifestKind::kRemove);
}

TEST(ParseManifest, TailTornAtEveryLengthCostsTheTornRecordOnly) {
  const auto bytes = Manifest(5);
  for (std::size_t length = kManifestRecordBytes; length <= bytes.size(); ++length) {
    const ParsedManifest manifest = Take(ParseManifest(std::span(bytes).first(length)));
    EXPECT_EQ(manifest.records.size(), length / kManifestRecordBytes - 1);
    EXPECT_EQ(manifest.has_torn_tail, length % kManifestRecordBytes != 0) << length;
    EXPECT_EQ(manifest.dropped_records, 0U);
  }
}

TEST(ParseManifest, TornHeaderIsDamage) {
  const auto bytes = Manifest(0);
  EXPECT_EQ(Take(ParseManifest({})).dropped_records, 0U);
  for (std::size_t length = 1; length < bytes.size(); ++length) {
    EXPECT_EQ(Take(ParseManifest(std::span(bytes).first(length))).dropped_records, 1U);
  }
}

TEST(ParseManifest, EveryFlippedBitIsNoticed) {
  auto bytes = Manifest(4);
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    const std::size_t slot = bit / 8 / kManifestRecordBytes;
    const ParsedManifest manifest = Take(ParseManifest(bytes));
    EXPECT_EQ(manifest.records.size(), slot == 0 ? 0 : slot - 1) << bit;
    EXPECT_EQ(manifest.dropped_records, slot == 0 ? 5 : slot == 4 ? 0 : 5 - slot) << bit;
    EXPECT_EQ(manifest.has_torn_tail, slot == 4) << bit;
    bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
  }
}

TEST(ParseManifest, RecordInAnotherPlaceIsDamage) {
  auto bytes = Manifest(4);
  std::swap_ranges(bytes.begin() + kManifestRecordBytes,
                   bytes.begin() + 2 * kManifestRecordBytes,
                   bytes.begin() + 2 * kManifestRecordBytes);
  const ParsedManifest manifest = Take(ParseManifest(bytes));
  EXPECT_EQ(manifest.records.size(), 0U);
  EXPECT_EQ(manifest.dropped_records, 4U);
}

TEST(ParseManifest, RecordOfAnOlderManifestIsDamage) {
  auto bytes = Manifest(1);
  const auto stale = EncodeManifestRecord(Record(1), kGeneration - 1, bytes.size());
  bytes.insert(bytes.end(), stale.begin(), stale.end());
  EXPECT_EQ(Take(ParseManifest(bytes)).records.size(), 1U);
}

TEST(ParseManifest, ImpossibleShapesAreDamage) {
  for (const SegmentShape shape :
       {SegmentShape{0, 1}, SegmentShape{limits::kExtentBytesMax + 1, 1},
        SegmentShape{1, limits::kSamplesPerExtentMax + 1}}) {
    auto bytes = Manifest(0);
    const auto record = EncodeManifestRecord({ManifestKind::kPublish, KeyOfNumber(0), shape},
                                             kGeneration, bytes.size());
    bytes.insert(bytes.end(), record.begin(), record.end());
    EXPECT_EQ(Take(ParseManifest(bytes)).records.size(), 0U);
  }
}

TEST(ParseManifest, UnknownKindIsDamage) {
  auto bytes = Manifest(0);
  const auto record =
      EncodeManifestRecord(Record(0, static_cast<ManifestKind>(3)), kGeneration, bytes.size());
  bytes.insert(bytes.end(), record.begin(), record.end());
  EXPECT_EQ(Take(ParseManifest(bytes)).records.size(), 0U);
}

class ManifestLogTest : public ::testing::Test {
 protected:
  ManifestLogTest() : directory_(Take(backend_.OpenDirectory("/"))),
                      queue_(Take(backend_.CreateQueue({}))) {}
  io::MemoryBackend backend_;
  std::unique_ptr<io::Directory> directory_;
  std::unique_ptr<io::IoQueue> queue_;
};

TEST_F(ManifestLogTest, AppendedRecordsAreFoundAgain) {
  {
    ManifestLog log(*directory_);
    EXPECT_EQ(Take(log.Load(*queue_)).records.size(), 0U);
    const ManifestRecord first = Record(0);
    FOREBAY_EXPECT_OK(log.Rewrite(*queue_, {&first, 1}));
    FOREBAY_EXPECT_OK(log.Append(*queue_, Record(1)));
    FOREBAY_EXPECT_OK(log.Append(*queue_, Record(0, ManifestKind::kRemove)));
    EXPECT_EQ(log.record_count(), 3U);
  }
  ManifestLog log(*directory_);
  const ParsedManifest manifest = Take(log.Load(*queue_));
  ASSERT_EQ(manifest.records.size(), 3U);
  EXPECT_EQ(manifest.records[1].key, KeyOfNumber(1));
  EXPECT_EQ(manifest.generation, 1U);
}

TEST_F(ManifestLogTest, AppendNeedsARewriteFirst) {
  ManifestLog log(*directory_);
  EXPECT_TRUE(log.needs_rewrite());
  EXPECT_EQ(CodeOf(log.Append(*queue_, Record(0))), ErrorCode::kFailedPrecondition);
}

TEST_F(ManifestLogTest, FailedAppendForcesARewriteAndOldRecordsStay) {
  ManifestLog log(*directory_);
  FOREBAY_EXPECT_OK(log.Rewrite(*queue_, {}));
  FOREBAY_EXPECT_OK(log.Append(*queue_, Record(0)));
  backend_.SetCapacity(0);
  EXPECT_EQ(CodeOf(log.Append(*queue_, Record(1))), ErrorCode::kResourceExhausted);
  EXPECT_TRUE(log.needs_rewrite());
  EXPECT_EQ(CodeOf(log.Rewrite(*queue_, {})), ErrorCode::kResourceExhausted);
  EXPECT_EQ(Take(ManifestLog(*directory_).Load(*queue_)).records.size(), 1U);
  EXPECT_EQ(testing::StrayNames(*directory_).size(), 0U);
  backend_.SetCapacity(1 << 20);
  const ManifestRecord live = Record(0);
  FOREBAY_EXPECT_OK(log.Rewrite(*queue_, {&live, 1}));
  FOREBAY_EXPECT_OK(log.Append(*queue_, Record(2)));
}

// A rewrite that ends before the new file has its name leaves the old one in use.
TEST_F(ManifestLogTest, WhatIsAppendedAfterARewriteThatFailedIsFoundAgain) {
  ManifestLog log(*directory_);
  FOREBAY_EXPECT_OK(log.Rewrite(*queue_, {}));
  FOREBAY_EXPECT_OK(log.Append(*queue_, Record(0)));
  // Too little for a second manifest, and enough for a record.
  backend_.SetCapacity(4 * kManifestRecordBytes);
  const std::vector<ManifestRecord> live = {Record(0), Record(1), Record(2), Record(3)};
  EXPECT_EQ(CodeOf(log.Rewrite(*queue_, live)), ErrorCode::kResourceExhausted);
  ASSERT_FALSE(log.needs_rewrite());
  FOREBAY_EXPECT_OK(log.Append(*queue_, Record(5)));
  const ParsedManifest manifest = Take(ManifestLog(*directory_).Load(*queue_));
  EXPECT_EQ(manifest.dropped_records, 0U);
  ASSERT_EQ(manifest.records.size(), 2U);
  EXPECT_EQ(manifest.records[1].key, KeyOfNumber(5));
}

TEST_F(ManifestLogTest, AnotherVersionIsRefused) {
  auto bytes = Manifest(0);
  bytes[8] = std::byte{kManifestVersion + 1};
  const std::uint64_t sum = Checksum(
      ChecksumIdentity{0, 0x3146494E414D4246, 0, 56}, std::span(bytes).first(56));
  for (std::size_t i = 0; i < 8; ++i) {
    bytes[56 + i] = static_cast<std::byte>(sum >> (8 * i));
  }
  const auto manifest = ParseManifest(bytes);
  ASSERT_EQ(CodeOf(manifest), ErrorCode::kFailedPrecondition);
  EXPECT_NE(manifest.error().message().find("version 2"), std::string::npos);
}

TEST_F(ManifestLogTest, OversizedManifestIsRefusedUnread) {
  {
    const auto file = Take(directory_->Open("manifest", io::OpenMode::kCreate));
    FOREBAY_EXPECT_OK(file->Truncate((kManifestRecordsMax + 3) * kManifestRecordBytes));
  }
  EXPECT_EQ(CodeOf(ManifestLog(*directory_).Load(*queue_)), ErrorCode::kResourceExhausted);
}

}  // namespace
}  // namespace forebay::tier

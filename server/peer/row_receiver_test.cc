// What a receiver of rows does with chunks of every kind: those that nodes send, and those that no
// node of this version sends. Memory around the rows never changes.
#include "server/peer/row_receiver.h"

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "forebay/v1/peer.pb.h"
#include "proto/contract/limits.h"
#include "server/peer/row_checksum.h"

namespace forebay::peer {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kDataset = 77;
constexpr std::size_t kRowBytes = 100;
constexpr std::size_t kGuard = 64;

class RowReceiverTest : public ::testing::Test {
 protected:
  RowReceiverTest() : memory_(3 * kRowBytes + 2 * kGuard, std::byte{0xEE}) {
    for (std::uint64_t i = 0; i < 3; ++i) {
      rows_.push_back({.sample = SampleId(10 + i),
                       .field = FieldId(0),
                       .memory = std::span(memory_).subspan(kGuard + i * kRowBytes, kRowBytes)});
      texts_.push_back(std::string(kRowBytes, static_cast<char>('a' + i)));
    }
    receiver_.emplace(kDataset, rows_);
  }
  ~RowReceiverTest() override {
    for (std::size_t i = 0; i < kGuard; ++i) {
      EXPECT_EQ(memory_[i], std::byte{0xEE});
      EXPECT_EQ(memory_[memory_.size() - 1 - i], std::byte{0xEE});
    }
  }

  v1::RowEnd* AddEnd(v1::SamplesReply& reply, std::size_t row) {
    v1::RowEnd* end = reply.add_ends();
    end->set_bytes(kRowBytes);
    end->set_checksum(Checksum(RowIdentity(kDataset, rows_[row], kRowBytes),
                               std::as_bytes(std::span(texts_[row]))));
    return end;
  }
  // A chunk that ends the rows [begin, end), with their whole bytes.
  v1::SamplesReply Whole(std::size_t begin, std::size_t end) {
    v1::SamplesReply reply;
    for (std::size_t i = begin; i < end; ++i) {
      AddEnd(reply, i);
      *reply.mutable_payload() += texts_[i];
    }
    return reply;
  }
  // Hands over a message in slices of `slice_bytes`.
  Status TakeBytes(const std::string& message, std::size_t slice_bytes = 37) {
    std::vector<grpc::Slice> slices;
    for (std::size_t at = 0; at < message.size(); at += slice_bytes) {
      slices.emplace_back(message.substr(at, slice_bytes));
    }
    grpc::ByteBuffer buffer(slices.data(), slices.size());
    return receiver_->Take(buffer);
  }
  Status Take(const v1::SamplesReply& reply) { return TakeBytes(reply.SerializeAsString()); }
  void ExpectRefused(const v1::SamplesReply& reply, ErrorCode code, const std::string& text) {
    const Status taken = Take(reply);
    ASSERT_FALSE(taken.has_value());
    EXPECT_EQ(taken.error().code(), code);
    EXPECT_THAT(taken.error().message(), HasSubstr(text));
  }
  void ExpectRow(std::size_t row) {
    const std::span<const std::byte> bytes = rows_[row].memory;
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()),
              texts_[row]);
  }

  std::vector<std::byte> memory_;
  std::vector<fetch::Row> rows_;
  std::vector<std::string> texts_;
  std::optional<RowReceiver> receiver_;
};

TEST_F(RowReceiverTest, RowsArriveInOneChunk) {
  ASSERT_TRUE(Take(Whole(0, 3)).has_value());
  EXPECT_TRUE(receiver_->Finish().has_value());
  for (std::size_t i = 0; i < 3; ++i) ExpectRow(i);
}

// A chunk has a checksum of its own, even where it has the length of the sample's value.
TEST_F(RowReceiverTest, AValueIsNotTakenForAChunkOfItsPack) {
  const v1::SamplesReply values = Whole(0, 3);
  rows_[1].chunk = 2;
  ExpectRefused(values, ErrorCode::kDataLoss, "field 0 of sample 11, its chunk 2");
}

TEST_F(RowReceiverTest, ARowMayBeCutByChunks) {
  v1::SamplesReply first = Whole(0, 1);
  *first.mutable_payload() += texts_[1].substr(0, 30);
  v1::SamplesReply second;
  second.set_payload(texts_[1].substr(30, 69));
  v1::SamplesReply third = Whole(1, 3);
  third.set_payload(texts_[1].substr(99) + texts_[2]);
  for (const v1::SamplesReply& reply : {first, second, third}) {
    ASSERT_TRUE(Take(reply).has_value());
  }
  EXPECT_TRUE(receiver_->Finish().has_value());
  for (std::size_t i = 0; i < 3; ++i) ExpectRow(i);
}

TEST_F(RowReceiverTest, AnErrorOfOneRowLetsTheOthersArrive) {
  v1::SamplesReply reply = Whole(0, 1);
  v1::RowEnd* failed = reply.add_ends();
  failed->set_code(static_cast<std::uint32_t>(ErrorCode::kInvalidArgument));
  failed->set_message("no such\nrow");
  AddEnd(reply, 2);
  *reply.mutable_payload() += texts_[2];
  ASSERT_TRUE(Take(reply).has_value());
  const Status finished = receiver_->Finish();
  ASSERT_FALSE(finished.has_value());
  EXPECT_EQ(finished.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(finished.error().message(), HasSubstr("field 0 of sample 11: no such"));
  EXPECT_THAT(finished.error().message(), ::testing::Not(HasSubstr("\n")));
  ExpectRow(0);
  ExpectRow(2);
}

TEST_F(RowReceiverTest, AFlippedBitIsFoundAndTheSampleNamed) {
  v1::SamplesReply reply = Whole(0, 3);
  (*reply.mutable_payload())[150] ^= 1;
  ExpectRefused(reply, ErrorCode::kDataLoss, "field 0 of sample 11");
}

TEST_F(RowReceiverTest, IntactBytesOfAnotherSampleAreNotTaken) {
  std::swap(texts_[0], texts_[1]);
  v1::SamplesReply reply = Whole(0, 3);
  reply.mutable_ends()->SwapElements(0, 1);
  // The bytes and checksums of samples 11 and 10, where 10 and 11 were asked for.
  ExpectRefused(reply, ErrorCode::kDataLoss, "field 0 of sample 10");
}

TEST_F(RowReceiverTest, AnAnswerThatEndsEarlyIsNoAnswer) {
  EXPECT_FALSE(receiver_->Finish().has_value());
  ASSERT_TRUE(Take(Whole(0, 2)).has_value());
  const Status finished = receiver_->Finish();
  ASSERT_FALSE(finished.has_value());
  EXPECT_EQ(finished.error().code(), ErrorCode::kInternal);
  EXPECT_THAT(finished.error().message(), HasSubstr("after 2 of 3 rows"));
}

TEST_F(RowReceiverTest, MoreRowsThanWereAskedForAreRefused) {
  v1::SamplesReply reply = Whole(0, 3);
  AddEnd(reply, 0);
  ExpectRefused(reply, ErrorCode::kInternal, "more rows");
}

TEST_F(RowReceiverTest, BytesBeyondTheLastRowAreRefused) {
  v1::SamplesReply reply = Whole(0, 3);
  *reply.mutable_payload() += "x";
  ExpectRefused(reply, ErrorCode::kInternal, "beyond the last row");
}

TEST_F(RowReceiverTest, AChunkAfterTheLastRowIsRefused) {
  ASSERT_TRUE(Take(Whole(0, 3)).has_value());
  v1::SamplesReply more;
  more.set_payload("x");
  ExpectRefused(more, ErrorCode::kInternal, "beyond the last row");
}

TEST_F(RowReceiverTest, AWholeRowWithoutAChecksumIsRefused) {
  v1::SamplesReply reply = Whole(0, 1);
  *reply.mutable_payload() += texts_[1];
  ExpectRefused(reply, ErrorCode::kInternal, "without its checksum");
}

TEST_F(RowReceiverTest, FewerBytesThanTheRowsThatEndAreRefused) {
  v1::SamplesReply reply = Whole(0, 2);
  reply.mutable_payload()->pop_back();
  ExpectRefused(reply, ErrorCode::kInternal, "fewer bytes");
}

TEST_F(RowReceiverTest, ARowOfAnotherLengthIsRefused) {
  v1::SamplesReply reply = Whole(0, 1);
  reply.mutable_ends(0)->set_bytes(~std::uint64_t{0});
  ExpectRefused(reply, ErrorCode::kInternal, "100 bytes here");
}

TEST_F(RowReceiverTest, AnErrorInTheMiddleOfARowIsRefused) {
  v1::SamplesReply begin;
  begin.set_payload("abc");
  ASSERT_TRUE(Take(begin).has_value());
  v1::SamplesReply reply;
  reply.add_ends()->set_code(5);
  ExpectRefused(reply, ErrorCode::kInternal, "has begun");
}

TEST_F(RowReceiverTest, AnEmptyChunkIsRefused) {
  ExpectRefused({}, ErrorCode::kInternal, "empty");
}

TEST_F(RowReceiverTest, EveryTruncationOfAChunkIsRefused) {
  const std::string whole = Whole(0, 1).SerializeAsString();
  for (std::size_t bytes = 0; bytes <= whole.size(); ++bytes) {
    RowReceiver receiver(kDataset, std::span(rows_).first(1));
    const grpc::Slice slice(whole.substr(0, bytes));
    grpc::ByteBuffer buffer(&slice, 1);
    EXPECT_EQ(receiver.Take(buffer).has_value(), bytes == whole.size()) << bytes;
  }
}

TEST_F(RowReceiverTest, UnknownFieldsAndBytesAfterThePayloadAreRefused) {
  const std::string whole = Whole(0, 3).SerializeAsString();
  EXPECT_FALSE(TakeBytes(std::string("\x1A\x01x", 3) + whole).has_value());
  RowReceiver other(kDataset, rows_);
  const grpc::Slice slice(whole + std::string("\x1A\x01x", 3));
  grpc::ByteBuffer buffer(&slice, 1);
  EXPECT_FALSE(other.Take(buffer).has_value());
}

// Tests of the answer to a request whose rows a carrier brings, which has their checksums alone.
class CarriedReceiverTest : public RowReceiverTest {
 protected:
  CarriedReceiverTest() {
    receiver_.emplace(kDataset, rows_, /*may_be_carried=*/true);
    reply_ = Whole(0, 3);
    reply_.clear_payload();
    reply_.set_is_carried(true);
  }
  v1::SamplesReply reply_;
};

TEST_F(CarriedReceiverTest, RowsAreVerifiedWhereTheyHaveArrived) {
  ASSERT_TRUE(Take(reply_).has_value());
  EXPECT_TRUE(receiver_->is_carried());
  EXPECT_TRUE(receiver_->Finish().has_value());
  for (std::size_t i = 0; i < 3; ++i) {
    std::memcpy(rows_[i].memory.data(), texts_[i].data(), texts_[i].size());
  }
  EXPECT_TRUE(receiver_->VerifyCarried(0, 3).has_value());
  rows_[1].memory[5] ^= std::byte{1};
  EXPECT_TRUE(receiver_->VerifyCarried(0, 1).has_value());
  EXPECT_TRUE(receiver_->VerifyCarried(2, 3).has_value());
  const Status altered = receiver_->VerifyCarried(0, 3);
  ASSERT_FALSE(altered.has_value());
  EXPECT_EQ(altered.error().code(), ErrorCode::kDataLoss);
  EXPECT_THAT(altered.error().message(), HasSubstr("field 0 of sample 11"));
}

TEST_F(CarriedReceiverTest, AnAnswerWithPayloadIsTakenAsWell) {
  ASSERT_TRUE(Take(Whole(0, 3)).has_value());
  EXPECT_FALSE(receiver_->is_carried());
  for (std::size_t i = 0; i < 3; ++i) ExpectRow(i);
}

TEST_F(CarriedReceiverTest, AnAnswerThatNobodyHasMadeRoomForIsRefused) {
  receiver_.emplace(kDataset, rows_);
  ExpectRefused(reply_, ErrorCode::kInternal, "not asked for");
}

TEST_F(CarriedReceiverTest, ChecksumsOfSomeRowsAreRefused) {
  reply_.mutable_ends()->RemoveLast();
  ExpectRefused(reply_, ErrorCode::kInternal, "checksums of all rows");
  EXPECT_FALSE(receiver_->is_carried());
}

TEST_F(CarriedReceiverTest, AnAnswerInPartsIsRefused) {
  ASSERT_TRUE(Take(Whole(0, 1)).has_value());
  ExpectRefused(reply_, ErrorCode::kInternal, "more rows");
  reply_.mutable_ends()->DeleteSubrange(0, 1);
  ExpectRefused(reply_, ErrorCode::kInternal, "checksums of all rows");
}

TEST_F(CarriedReceiverTest, ARowWithAnErrorOrOfAnotherLengthIsRefused) {
  reply_.mutable_ends(2)->set_bytes(kRowBytes + 1);
  ExpectRefused(reply_, ErrorCode::kInternal, "100 bytes here and 101");
  reply_.mutable_ends(2)->Clear();
  reply_.mutable_ends(2)->set_code(3);
  ExpectRefused(reply_, ErrorCode::kInternal, "has an error");
}

TEST_F(RowReceiverTest, APayloadBeyondTheLimitIsRefused) {
  std::vector<std::byte> large(limits::kPeerChunkBytes + 2);
  const std::vector<fetch::Row> row = {
      {.sample = SampleId(0), .field = FieldId(0), .memory = large}};
  RowReceiver receiver(kDataset, row);
  v1::SamplesReply reply;
  reply.set_payload(std::string(limits::kPeerChunkBytes + 1, 'x'));
  const grpc::Slice slice(reply.SerializeAsString());
  grpc::ByteBuffer buffer(&slice, 1);
  const Status taken = receiver.Take(buffer);
  ASSERT_FALSE(taken.has_value());
  EXPECT_THAT(taken.error().message(), HasSubstr("too long"));
}

}  // namespace
}  // namespace forebay::peer

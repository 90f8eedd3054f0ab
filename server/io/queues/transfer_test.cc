// Transfer: every answer of the kernel to every kind of operation; texts and codes of errors.
#include "server/io/queues/transfer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <optional>

#include "proto/contract/limits.h"
#include "server/io/testing/io_test_fixture.h"

namespace forebay::io::testing {
namespace {

class TransferTest : public ::testing::Test {
 protected:
  Transfer Of(OpKind kind, bool is_direct = false) {
    Operation operation;
    operation.kind = kind;
    operation.file = is_direct ? &direct_ : &buffered_;
    operation.offset = 8'192;
    operation.buffer = buffer_;
    operation.data = buffer_;
    return TransferOf(operation);
  }

  // The outcome of an answer that ends the transfer.
  static Result<std::uint64_t> End(Transfer& transfer, std::int64_t answer) {
    std::optional<Result<std::uint64_t>> outcome = Advance(transfer, answer);
    if (!outcome) return Error(ErrorCode::kInternal, "the transfer goes on");
    return *std::move(outcome);
  }

  PosixFile buffered_{UniqueFd(), {"a\nb", false}};
  PosixFile direct_{UniqueFd(), {"d", true}};
  std::vector<std::byte> buffer_ = std::vector<std::byte>(16'384);
};

TEST_F(TransferTest, WholeTransfersEndAtOnce) {
  for (const OpKind kind : {OpKind::kRead, OpKind::kWrite}) {
    Transfer transfer = Of(kind);
    EXPECT_EQ(Take(End(transfer, 16'384)), 16'384U);
  }
  Transfer sync = Of(OpKind::kDataSync);
  EXPECT_EQ(Take(End(sync, 0)), 0U);
}

TEST_F(TransferTest, ShortTransfersGoOnWhereTheyStopped) {
  for (const OpKind kind : {OpKind::kRead, OpKind::kWrite}) {
    Transfer transfer = Of(kind);
    EXPECT_FALSE(Advance(transfer, 1));
    EXPECT_EQ(transfer.next_offset(), 8'193U);
    EXPECT_EQ(transfer.next_memory(), buffer_.data() + 1);
    EXPECT_EQ(transfer.next_bytes(), 16'383U);
    EXPECT_EQ(Take(End(transfer, 16'383)), 16'384U);
  }
}

TEST_F(TransferTest, AReadEndsAtTheEndOfTheFile) {
  Transfer transfer = Of(OpKind::kRead);
  EXPECT_FALSE(Advance(transfer, 100));
  EXPECT_EQ(Take(End(transfer, 0)), 100U);
}

TEST_F(TransferTest, ADirectReadThatEndsInsideABlockIsTheEnd) {
  Transfer transfer = Of(OpKind::kRead, true);
  EXPECT_FALSE(Advance(transfer, 4'096));
  EXPECT_EQ(Take(End(transfer, 100)), 4'196U);
}

TEST_F(TransferTest, ADirectWriteThatEndsInsideABlockFails) {
  Transfer transfer = Of(OpKind::kWrite, true);
  EXPECT_FALSE(Advance(transfer, 4'096));
  EXPECT_EQ(ErrnoOf(End(transfer, 100)), EIO);
}

TEST_F(TransferTest, AWriteThatMovesNothingFails) {
  Transfer transfer = Of(OpKind::kWrite);
  EXPECT_EQ(ErrnoOf(End(transfer, 0)), EIO);
}

TEST_F(TransferTest, InterruptionsAreResumedUpToALimit) {
  for (const OpKind kind : {OpKind::kRead, OpKind::kWrite, OpKind::kDataSync}) {
    Transfer transfer = Of(kind);
    for (int i = 0; i < limits::kInterruptMax; ++i) {
      ASSERT_FALSE(Advance(transfer, -EINTR));
    }
    EXPECT_EQ(CodeOf(End(transfer, -EINTR)), ErrorCode::kUnavailable);
  }
}

TEST_F(TransferTest, AgainIsRetriedUpToTheLimitAndAfterProgressAnew) {
  Transfer transfer = Of(OpKind::kRead);
  for (int i = 0; i < limits::kIoRetryMax; ++i) {
    ASSERT_FALSE(Advance(transfer, -EAGAIN));
  }
  EXPECT_FALSE(Advance(transfer, 10));
  for (int i = 0; i < limits::kIoRetryMax; ++i) {
    ASSERT_FALSE(Advance(transfer, -EAGAIN));
  }
  EXPECT_EQ(ErrnoOf(End(transfer, -EAGAIN)), EAGAIN);
}

TEST_F(TransferTest, AFailedSyncIsNeverRetried) {
  for (const int failure : {EIO, EAGAIN, ENOSPC}) {
    Transfer transfer = Of(OpKind::kDataSync);
    EXPECT_EQ(ErrnoOf(End(transfer, -failure)), failure);
  }
}

TEST_F(TransferTest, ErrorsNameTheOperationAndQuoteThePath) {
  Transfer transfer = Of(OpKind::kWrite);
  const Result<std::uint64_t> outcome = End(transfer, -ENOSPC);
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().message(),
            "write 16384 bytes at 8192 of 'a\\x0ab': No space left on device");
  EXPECT_EQ(CodeOf(outcome), ErrorCode::kResourceExhausted);
}

TEST_F(TransferTest, MoreBytesThanAskedForAreABrokenInvariant) {
  Transfer transfer = Of(OpKind::kRead);
  EXPECT_DEATH(static_cast<void>(Advance(transfer, 16'385)), "CHECK failed");
}

TEST(FileErrorTest, MapsWhatOnlyFilesNeed) {
  EXPECT_EQ(FileError(EBADF, "x").code(), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(FileError(ENOTEMPTY, "x").code(), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(FileError(ENXIO, "x").code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(FileError(EROFS, "x").code(), ErrorCode::kPermissionDenied);
  EXPECT_EQ(FileError(EFBIG, "x").code(), ErrorCode::kResourceExhausted);
  EXPECT_EQ(FileError(ESTALE, "x").code(), ErrorCode::kUnavailable);
  EXPECT_EQ(FileError(EIO, "x").code(), ErrorCode::kDataLoss);
  EXPECT_EQ(FileError(EIO, "x").system_errno(), EIO);
}

}  // namespace
}  // namespace forebay::io::testing

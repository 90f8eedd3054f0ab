// RemedyOf: the remedy of every errno and every code, for each source of errors.
#include "proto/contract/failure.h"

#include <cerrno>

#include <gtest/gtest.h>

namespace forebay {
namespace {

struct Row {
  int system_errno;
  Remedy gfs;
  Remedy local;
};

constexpr Row kRows[] = {
    {EIO, Remedy::kRetry, Remedy::kFetchAgain},   {ETIMEDOUT, Remedy::kRetry, Remedy::kFail},
    {EAGAIN, Remedy::kRetry, Remedy::kRetry},     {EREMOTEIO, Remedy::kRetry, Remedy::kFail},
    {EHOSTDOWN, Remedy::kRetry, Remedy::kFail},   {ESTALE, Remedy::kReopen, Remedy::kFail},
    {ENOTCONN, Remedy::kReopen, Remedy::kFail},   {ENODEV, Remedy::kReopen, Remedy::kFail},
    {ENOENT, Remedy::kFail, Remedy::kFail},       {EACCES, Remedy::kFail, Remedy::kFail},
    {EROFS, Remedy::kFail, Remedy::kFail},        {ENOSPC, Remedy::kFail, Remedy::kFail},
    {EINVAL, Remedy::kFail, Remedy::kFail},
};

TEST(FailureTest, EveryErrnoHasItsRemedyOnBothSides) {
  for (const Row& row : kRows) {
    const Error error = Error::FromErrno(row.system_errno, "read 'a'");
    EXPECT_EQ(RemedyOf(FailureSource::kGfs, error), row.gfs) << error.ToString();
    EXPECT_EQ(RemedyOf(FailureSource::kLocalSsd, error), row.local) << error.ToString();
  }
}

TEST(FailureTest, ContextDoesNotChangeTheRemedy) {
  const Error error = Error::FromErrno(EIO, "read 'a'").WithContext("object 'a' of 'train'");
  EXPECT_EQ(RemedyOf(FailureSource::kGfs, error), Remedy::kRetry);
}

TEST(FailureTest, BytesThatDoNotMatchAreALostCopyOnSsdAndFinalOnTheGfs) {
  const Error mismatch(ErrorCode::kDataLoss, "extent 3 does not match its checksum");
  EXPECT_EQ(RemedyOf(FailureSource::kLocalSsd, mismatch), Remedy::kFetchAgain);
  EXPECT_EQ(RemedyOf(FailureSource::kGfs, mismatch), Remedy::kFail);
  const Error full(ErrorCode::kResourceExhausted, "tier full");
  EXPECT_EQ(RemedyOf(FailureSource::kLocalSsd, full), Remedy::kFail);
}

TEST(FailureTest, EveryCodeOfADaemonHasItsRemedyWhateverItsErrno) {
  for (std::uint8_t number = 1; number <= 16; ++number) {
    const auto code = static_cast<ErrorCode>(number);
    const bool is_passing = code == ErrorCode::kUnavailable || code == ErrorCode::kAborted ||
                            code == ErrorCode::kDeadlineExceeded;
    for (const int system_errno : {0, EIO, ENOENT}) {
      EXPECT_EQ(RemedyOf(FailureSource::kDaemon, Error(code, "batch", system_errno)),
                is_passing ? Remedy::kRetry : Remedy::kFail)
          << ErrorCodeName(code);
    }
  }
}

}  // namespace
}  // namespace forebay

// Result, Error and their macros: what every fallible call of Forebay relies on.
#include "proto/contract/result.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <string>

namespace forebay {
namespace {

using ::testing::HasSubstr;
using testing::StartsWith;

Result<int> HalfOf(int value) {
  if (value % 2 != 0) return Error(ErrorCode::kInvalidArgument, "odd");
  return value / 2;
}

Result<int> QuarterOf(int value) {
  FOREBAY_ASSIGN(const int half, HalfOf(value));
  FOREBAY_ASSIGN(const int quarter, HalfOf(half));
  return quarter;
}

Status CheckEven(int value, int* reached) {
  FOREBAY_TRY(HalfOf(value));
  ++*reached;
  return {};
}

TEST(ResultTest, HoldsAValueOrAnError) {
  EXPECT_EQ(HalfOf(8).value(), 4);
  ASSERT_FALSE(HalfOf(7).has_value());
  EXPECT_EQ(HalfOf(7).error().code(), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(Status().has_value());
}

TEST(ResultTest, AssignPassesValuesAndReturnsTheFirstError) {
  EXPECT_EQ(QuarterOf(12).value(), 3);
  EXPECT_EQ(QuarterOf(6).error().message(), "odd");
  EXPECT_EQ(QuarterOf(5).error().message(), "odd");
}

TEST(ResultTest, TryStopsAtAnErrorOnly) {
  int reached = 0;
  EXPECT_TRUE(CheckEven(2, &reached).has_value());
  EXPECT_EQ(reached, 1);
  EXPECT_FALSE(CheckEven(3, &reached).has_value());
  EXPECT_EQ(reached, 1);
}

TEST(ResultTest, AssignMovesWhatCannotBeCopied) {
  const auto make = []() -> Result<std::unique_ptr<int>> { return std::make_unique<int>(5); };
  const auto pass = [&]() -> Result<std::unique_ptr<int>> {
    FOREBAY_ASSIGN(auto pointer, make());
    return pointer;
  };
  EXPECT_EQ(*pass().value(), 5);
}

TEST(ErrorTest, MapsEveryNamedErrnoAndKeepsIt) {
  using enum ErrorCode;
  const std::pair<int, ErrorCode> expected[] = {
      {ENOENT, kNotFound},           {ENOTDIR, kNotFound},
      {ESRCH, kNotFound},            {EEXIST, kAlreadyExists},
      {EACCES, kPermissionDenied},   {EPERM, kPermissionDenied},
      {ELOOP, kPermissionDenied},    {EXDEV, kPermissionDenied},
      {ENOSPC, kResourceExhausted},  {EDQUOT, kResourceExhausted},
      {EMFILE, kResourceExhausted},  {ENFILE, kResourceExhausted},
      {ENOMEM, kResourceExhausted},  {EINVAL, kInvalidArgument},
      {EISDIR, kInvalidArgument},    {ENAMETOOLONG, kInvalidArgument},
      {EIO, kDataLoss},              {ETIMEDOUT, kDeadlineExceeded},
      {EAGAIN, kUnavailable},        {EINTR, kUnavailable},
      {ECONNREFUSED, kUnavailable},  {ECONNRESET, kUnavailable},
      {EPIPE, kUnavailable},         {ECANCELED, kCancelled},
      {ENOSYS, kUnimplemented},      {EOPNOTSUPP, kUnimplemented},
      {EDOM, kUnknown},
  };
  for (const auto& [system_errno, code] : expected) {
    const Error error = Error::FromErrno(system_errno, "open shard-7");
    EXPECT_EQ(error.code(), code) << error.ToString();
    EXPECT_EQ(error.system_errno(), system_errno);
    EXPECT_THAT(error.message(), StartsWith("open shard-7: "));
  }
}

TEST(ErrorTest, ALinkThatLeavesItsRootIsExplained) {
  EXPECT_THAT(Error::FromErrno(EXDEV, "open a").message(),
              HasSubstr("a symbolic link leads out of the directory"));
  EXPECT_THAT(Error::FromErrno(ELOOP, "open a").message(), HasSubstr("symbolic links form a loop"));
}

TEST(ErrorTest, ContextIsPutInFrontAndKeepsCodeAndErrno) {
  const Error error = Error::FromErrno(ENOSPC, "write").WithContext("tier ssd");
  EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
  EXPECT_EQ(error.system_errno(), ENOSPC);
  EXPECT_THAT(error.message(), StartsWith("tier ssd: write: "));
  EXPECT_THAT(error.ToString(), StartsWith("RESOURCE_EXHAUSTED: tier ssd: write: "));
}

TEST(ErrorTest, OnlyUnavailableAndAbortedAreRetryable) {
  for (int number = 1; number <= 16; ++number) {
    const auto code = static_cast<ErrorCode>(number);
    const bool expected = code == ErrorCode::kUnavailable || code == ErrorCode::kAborted;
    EXPECT_EQ(Error(code, "x").retryable(), expected) << ErrorCodeName(code);
  }
}

TEST(ErrorTest, CodesHaveGrpcNumbersAndNames) {
  EXPECT_EQ(static_cast<int>(ErrorCode::kCancelled), 1);
  EXPECT_EQ(static_cast<int>(ErrorCode::kDataLoss), 15);
  EXPECT_EQ(static_cast<int>(ErrorCode::kUnauthenticated), 16);
  EXPECT_EQ(ErrorCodeName(ErrorCode::kFailedPrecondition), "FAILED_PRECONDITION");
  for (int number = 1; number <= 16; ++number) {
    if (number == 2) continue;
    EXPECT_NE(ErrorCodeName(static_cast<ErrorCode>(number)), "UNKNOWN") << number;
  }
  EXPECT_EQ(ErrorCodeName(static_cast<ErrorCode>(99)), "UNKNOWN");
}

}  // namespace
}  // namespace forebay

// Lines of the JSON log: time, level, and messages with bytes that are not valid text. What gRPC
// says.
#include "server/daemon/daemon_log.h"

#include <chrono>
#include <string>

#include <gmock/gmock.h>
#include <grpc/support/log.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

namespace forebay::daemon {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::system_clock;

TEST(JsonLogLineTest, IsOneObjectWithTimeLevelAndMessage) {
  const system_clock::time_point time(milliseconds(1'714'564'800'042));
  EXPECT_EQ(JsonLogLine(time, "info", "data set 'train': staged"),
            "{\"time\":\"2024-05-01T12:00:00.042Z\",\"level\":\"info\","
            "\"message\":\"data set 'train': staged\"}\n");
}

TEST(JsonLogLineTest, WhateverIsInANameIsEscapedAndComesBack) {
  const std::string hostile =
      "a\"b\\c\n{\"level\":\"error\"}\x1b[2J\x7f\xC2\x9B\t\xC3\xA9" + std::string(1, '\0');
  const std::string line = JsonLogLine({}, "warn", hostile);
  EXPECT_EQ(json::parse(line)["message"], hostile);
  for (const char c : line.substr(0, line.size() - 1)) {
    EXPECT_TRUE(c >= 0x20 && c < 0x7F) << line;
  }
  EXPECT_EQ(line.back(), '\n');
}

TEST(JsonLogLineTest, BytesThatAreNoUtf8AreReplaced) {
  const std::string line = JsonLogLine({}, "warn", "caf\xE9 \x9B");
  EXPECT_EQ(json::parse(line)["message"], "caf\xEF\xBF\xBD \xEF\xBF\xBD");
}

TEST(JsonLogLineTest, TimesBeforeTheEpochHaveMillisecondsToo) {
  const system_clock::time_point time(milliseconds(-1));
  EXPECT_EQ(json::parse(JsonLogLine(time, "info", ""))["time"], "1969-12-31T23:59:59.999Z");
}

// Each connection of a stranger makes gRPC say the same.
TEST(GrpcLogTest, ALineOfItsCodeIsSaidOnceAMinute) {
  const auto before = spdlog::default_logger();
  ::testing::internal::CaptureStderr();
  StartLog(DefaultConfig());
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);  // as grpc_init does
  for (int i = 0; i < 3; ++i) gpr_log(GPR_ERROR, "handshake %d failed", i);
  gpr_log(GPR_ERROR, "another line");
  gpr_log(GPR_ERROR, "error:0A000086:SSL routines::certificate verify failed.");
  spdlog::default_logger()->flush();
  const std::string said = ::testing::internal::GetCapturedStderr();
  spdlog::set_default_logger(before);
  EXPECT_THAT(said, ::testing::HasSubstr("gRPC: handshake 0 failed (daemon_log_test.cc:"));
  EXPECT_THAT(said, ::testing::Not(::testing::HasSubstr("handshake 1")));
  EXPECT_THAT(said, ::testing::ContainsRegex("another line .daemon_log_test.cc:[0-9]+.\n"));
  EXPECT_THAT(said, ::testing::ContainsRegex("verify failed.*their clocks must differ by less"));
}

}  // namespace
}  // namespace forebay::daemon

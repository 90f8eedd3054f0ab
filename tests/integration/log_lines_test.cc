// What an operator finds in the log of a real daemon, as text and as JSON.
#include <csignal>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/integration/daemon_rig.h"

namespace forebay::integration {
namespace {

using nlohmann::json;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

// A stream's name that would clear a terminal and forge a line of either format.
const std::string kHostileName =
    "train\x1b[2J\n{\"time\":\"\",\"level\":\"info\",\"message\":\"forged\"}\n2024-01-01T forged";

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// The messages of a JSON log, each line of which must be one object of these three members.
std::vector<std::string> Messages(const std::string& log) {
  std::vector<std::string> messages;
  for (const std::string& line : Lines(log)) {
    const json object = json::parse(line, nullptr, false);
    EXPECT_TRUE(object.is_object()) << line;
    if (!object.is_object()) continue;
    EXPECT_EQ(object.size(), 3U) << line;
    static const std::regex time(R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)");
    EXPECT_TRUE(std::regex_match(object.value("time", ""), time)) << line;
    EXPECT_THAT(object.value("level", ""), AnyOf("debug", "info", "warn", "error", "critical"));
    messages.push_back(object.value("message", ""));
  }
  return messages;
}

// A daemon's whole life, with a stream of the hostile name.
std::string LogOfALife(const std::vector<std::string>& settings) {
  const DaemonRig rig;
  const auto daemon = rig.Start(settings);
  {
    RawClient client(rig.socket_path());
    EXPECT_EQ(ReadEpoch(client, kHostileName).samples, 4096U);
    AwaitStaged(client);
  }
  daemon->Signal(SIGTERM);
  EXPECT_EQ(daemon->Wait(), 0);
  return rig.log();
}

// The count that leads ` extents left tier TIER ... CAUSE` in the log; 0 where there is no line.
std::uint64_t Counted(const std::string& log, const std::string& tier, const std::string& cause) {
  std::smatch match;
  const std::regex line("data set 'records': (\\d+) extents left tier " + tier +
                        " within \\d+ s " + cause);
  return std::regex_search(log, match, line) ? std::stoull(match[1]) : 0;
}

TEST(LogLinesTest, JsonIsOneObjectALineAndTellsTheLifeOfADaemon) {
  const std::string log = LogOfALife({"--set", "daemon.log_format=json"});
  const std::vector<std::string> messages = Messages(log);
  for (const char* words : {"serves job 'job-1' on unix:", "catalogued, 4096 samples",
                            "staged 16777216 of 16777216 bytes", "has ended: ", "draining",
                            "4096 samples, 16777216 bytes delivered; 16777216 bytes read from"}) {
    EXPECT_THAT(messages, Contains(HasSubstr(words)));
  }
  EXPECT_THAT(messages, Contains(HasSubstr(kHostileName))) << "the name as it was";
  EXPECT_THAT(messages, Not(Contains("forged")));
  EXPECT_THAT(log, Not(HasSubstr("\x1b")));
}

TEST(LogLinesTest, TextIsOneLineAMessageWithoutControlCharacters) {
  const std::string log = LogOfALife({});
  for (const std::string& line : Lines(log)) {
    EXPECT_TRUE(std::regex_search(
        line, std::regex(R"(^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3} (info|warning) )")))
        << line;
  }
  EXPECT_THAT(log, HasSubstr("stream 'train\\x1b[2J\\x0a{"));
  EXPECT_THAT(log, Not(HasSubstr("\x1b")));
  EXPECT_THAT(log, HasSubstr("forebayd stopped\n"));
}

TEST(LogLinesTest, TheLevelIsTheLeastThatIsSaid) {
  EXPECT_EQ(LogOfALife({"--set", "daemon.log_level=error"}), "");
  EXPECT_THAT(LogOfALife({"--set", "daemon.log_level=info"}), HasSubstr(" info "));
}

TEST(LogLinesTest, WhyADaemonDoesNotStartIsSaidInTheLogsFormatAtAnyLevel) {
  const DaemonRig rig;
  const auto first = rig.Start({"--set", "daemon.log_level=off"});
  const auto second = rig.Start({"--set", "daemon.log_format=json", "--set",
                                 "daemon.log_level=off"}, false);
  EXPECT_EQ(second->Wait(), 1);
  const std::vector<std::string> messages = Messages(rig.log());
  ASSERT_EQ(messages.size(), 1U) << rig.log();
  EXPECT_THAT(rig.log(), HasSubstr("\"level\":\"critical\""));
  EXPECT_THAT(messages[0], HasSubstr(rig.folder()));
}

TEST(LogLinesTest, WhatIsEvictedOnRequestIsCountedInOneLineATier) {
  const DaemonRig rig;
  const auto daemon = rig.Start();
  {
    RawClient client(rig.socket_path());
    AwaitStaged(client);
    v1::EvictRequest request;
    request.set_dataset(kDataset);
    v1::EvictReply reply;
    ASSERT_TRUE(client.admin().Evict(NewContext().get(), request, &reply).ok());
    EXPECT_EQ(reply.extents(), 32U) << "16 in RAM, 16 on SSD";
  }
  daemon->Signal(SIGTERM);
  EXPECT_EQ(daemon->Wait(), 0);
  EXPECT_EQ(Counted(rig.log(), "ram", "because of 'forebay evict'"), 16U) << rig.log();
  EXPECT_EQ(Counted(rig.log(), "ssd", "because of 'forebay evict'"), 16U) << rig.log();
}

TEST(LogLinesTest, ATierThatIsTooSmallSaysInOneLineWhatLeftIt) {
  const DaemonRig rig({.ram = "8MiB", .ssd = false});
  const auto daemon = rig.Start();
  std::uint64_t evictions = 0;
  {
    RawClient client(rig.socket_path());
    for (const char* name : {"first", "second", "third"}) {
      const EpochCounts counts = ReadEpoch(client, name, {.mode = OrderMode::kSequential});
      EXPECT_EQ(counts.samples, 4096U) << rig.log();
    }
    const v1::StatusReply status = client.Status();
    for (const v1::TierStatus& tier : status.tiers()) evictions += tier.evictions();
  }
  daemon->Signal(SIGTERM);
  EXPECT_EQ(daemon->Wait(), 0);
  ASSERT_GT(evictions, 1U) << "nothing was evicted: the test shows nothing";
  std::size_t lines = 0;
  for (const std::string& line : Lines(rig.log())) lines += line.find("extents left") != line.npos;
  EXPECT_EQ(lines, 1U) << rig.log();
  EXPECT_EQ(Counted(rig.log(), "ram", "to make space"), evictions) << rig.log();
}

TEST(LogLinesTest, TheReasonForTheEndIsSaid) {
  const DaemonRig rig;
  const auto daemon = rig.Start({"--exit-when-idle-s", "1"});
  EXPECT_EQ(daemon->Wait(), 0);
  EXPECT_THAT(rig.log(), HasSubstr("no client for 1 s (daemon.exit_when_idle_s): draining"));
  const auto other = rig.Start();
  {
    RawClient client(rig.socket_path());
    v1::DrainReply reply;
    ASSERT_TRUE(client.admin().Drain(NewContext().get(), {}, &reply).ok());
  }
  EXPECT_EQ(other->Wait(), 0);
  EXPECT_THAT(rig.log(), HasSubstr("draining: requested by 'forebay drain'"));
}

}  // namespace
}  // namespace forebay::integration

#include "client/delivery_log.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/testing/fake_daemon.h"
#include "forebay/client.h"

namespace forebay {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<std::string> ReadLines(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

// The line of a batch: `members`, then its sample ids.
std::string BatchLine(const std::string& members, std::span<const SampleId> ids) {
  std::string line = "{" + members + ",\"ids\":[";
  for (const SampleId id : ids) line += std::to_string(id.value()) + ",";
  line.back() = ']';
  return line + "}";
}

TEST(DeliveryLog, HasAHeaderAndALinePerBatch) {
  testing::FakeDaemon daemon;
  const std::string path = daemon.folder() + "/delivery.log";
  auto client = Client::Connect({.address = daemon.address()});
  ASSERT_TRUE(client.has_value());
  StreamOptions options;
  options.dataset = "fake";
  options.stream_name = "a \"quoted\"\n name";
  options.global_batch = 300;
  options.ranks = 2;
  options.rank = 1;
  options.tail = TailPolicy::kPad;
  options.delivery_log = path;
  auto stream = (*client)->Open(options);
  ASSERT_TRUE(stream.has_value()) << stream.error().ToString();
  std::vector<std::string> expected;
  while (true) {
    auto batch = (*stream)->Next();
    ASSERT_TRUE(batch.has_value());
    if (!*batch) break;
    const std::uint64_t step = (*batch)->step().value();
    std::string members = "\"epoch\":0,\"step\":" + std::to_string(step) +
                          ",\"position\":" + std::to_string(step * 300 + 150);
    if (step == 3) members += ",\"padded\":150";
    expected.push_back(BatchLine(members, (*batch)->sample_ids()));
    // Written before the batch is handed over: a crash now loses nothing.
    EXPECT_EQ(ReadLines(path).size(), 2 + step);
  }
  ASSERT_EQ(expected.size(), 4U);
  auto micro = (*stream)->Pull({.micro_size = 10, .micro_index = 4});
  ASSERT_TRUE(micro.has_value()) << micro.error().ToString();
  expected.push_back(
      BatchLine(R"("epoch":0,"step":0,"position":40,"micro_size":10,"micro_index":4)",
                micro->sample_ids()));
  std::vector<std::string> lines = ReadLines(path);
  ASSERT_EQ(lines.size(), 6U);
  EXPECT_THAT(lines[0],
              AllOf(StartsWith(R"({"forebay_delivery_log":1,"opened_unix_ns":)"),
                    HasSubstr(R"(,"dataset":"fake","stream":"a \"quoted\"\u000a name",)"),
                    HasSubstr(R"("global_batch":300,"ranks":2,"rank":1,)"), EndsWith("\"}")));
  const std::size_t order = lines[0].find(R"("order_spec":")");
  ASSERT_NE(order, std::string::npos);
  EXPECT_EQ(lines[0].size() - order, 14 + kOrderSpecBytes * 2 + 2);
  lines.erase(lines.begin());
  EXPECT_EQ(lines, expected);
}

TEST(DeliveryLog, AppendsToWhatIsThere) {
  testing::FakeDaemon daemon;
  const std::string path = daemon.folder() + "/delivery.log";
  const internal::DeliveryLogHeader header = {.dataset = "d", .stream = "s", .selection = "all",
                                              .order = {.sample_count = 1}};
  ASSERT_TRUE(internal::DeliveryLog::Open(path, header).has_value());
  ASSERT_TRUE(internal::DeliveryLog::Open(path, header).has_value());
  EXPECT_EQ(ReadLines(path).size(), 2U);
}

TEST(DeliveryLog, HasTheOrderSpecThatTheAuditComputesFrom) {
  testing::FakeDaemon daemon;
  const std::string path = daemon.folder() + "/delivery.log";
  const internal::DeliveryLogHeader header = {.dataset = "d", .stream = "s", .selection = "all",
                                              .order = {.seed = 77, .sample_count = 1234}};
  ASSERT_TRUE(internal::DeliveryLog::Open(path, header).has_value());
  std::string hex;
  for (const std::byte byte : header.order.Encode()) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", std::to_integer<unsigned>(byte));
    hex += digits;
  }
  EXPECT_THAT(ReadLines(path).at(0), EndsWith("\"order_spec\":\"" + hex + "\"}"));
}

// A log may lie in a folder that others can write to.
TEST(DeliveryLog, FollowsNoLinkAndIsReadByItsOwnerAlone) {
  testing::FakeDaemon daemon;
  const internal::DeliveryLogHeader header = {.dataset = "d", .stream = "s", .selection = "all",
                                              .order = {.sample_count = 1}};
  const std::string path = daemon.folder() + "/delivery.log";
  ASSERT_TRUE(internal::DeliveryLog::Open(path, header).has_value());
  EXPECT_EQ(std::filesystem::status(path).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  const std::string link = daemon.folder() + "/link.log";
  std::filesystem::create_symlink(path, link);
  EXPECT_FALSE(internal::DeliveryLog::Open(link, header).has_value());
  EXPECT_EQ(ReadLines(path).size(), 1U);
}

// A run that was killed while it wrote, or that met a full disk, and the run after it.
TEST(DeliveryLog, AHeaderBehindHalfALineBeginsANewOne) {
  testing::FakeDaemon daemon;
  const internal::DeliveryLogHeader header = {.dataset = "d", .stream = "s", .selection = "all",
                                              .order = {.sample_count = 1}};
  const std::string path = daemon.folder() + "/delivery.log";
  ASSERT_TRUE(internal::DeliveryLog::Open(path, header).has_value());
  std::ofstream(path, std::ios::app) << "{\"epoch\":0,\"st";
  ASSERT_TRUE(internal::DeliveryLog::Open(path, header).has_value());
  ASSERT_TRUE(internal::DeliveryLog::Open(path, header).has_value());
  const std::vector<std::string> lines = ReadLines(path);
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines[1], "{\"epoch\":0,\"st");
  EXPECT_EQ(lines[2], lines[0]);
  EXPECT_EQ(lines[3], lines[0]);
}

TEST(DeliveryLog, FailsWhereTheFileCannotBe) {
  testing::FakeDaemon daemon;
  auto client = Client::Connect({.address = daemon.address()});
  ASSERT_TRUE(client.has_value());
  StreamOptions options;
  options.dataset = "fake";
  options.delivery_log = daemon.folder() + "/none/delivery.log";
  EXPECT_EQ((*client)->Open(options).error().code(), ErrorCode::kNotFound);
}

TEST(DeliveryLog, AFullDiskEndsTheStream) {
  testing::FakeDaemon daemon;
  auto client = Client::Connect({.address = daemon.address()});
  ASSERT_TRUE(client.has_value());
  StreamOptions options;
  options.dataset = "fake";
  options.delivery_log = "/dev/full";
  EXPECT_EQ((*client)->Open(options).error().code(), ErrorCode::kResourceExhausted);
}

}  // namespace
}  // namespace forebay

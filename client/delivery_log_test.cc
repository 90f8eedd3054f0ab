#include "client/delivery_log.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "client/client.h"
#include "client/testing/fake_daemon.h"

namespace forebay {
namespace {

using nlohmann::json;

std::vector<json> ReadLines(const std::string& path) {
  std::ifstream file(path);
  std::vector<json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
  return lines;
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
  std::vector<std::uint64_t> ids;
  while (true) {
    auto batch = (*stream)->Next();
    ASSERT_TRUE(batch.has_value());
    if (!*batch) break;
    for (const SampleId id : (*batch)->sample_ids()) ids.push_back(id.value());
    // Written before the batch is handed over: a crash now loses nothing.
    EXPECT_EQ(ReadLines(path).size(), 2 + (*batch)->step().value());
  }
  ASSERT_TRUE((*stream)->Pull({.micro_size = 10, .micro_index = 4}).has_value());
  const std::vector<json> lines = ReadLines(path);
  ASSERT_EQ(lines.size(), 6U);
  EXPECT_EQ(lines[0]["forebay_delivery_log"], 1);
  EXPECT_EQ(lines[0]["stream"], options.stream_name);
  EXPECT_EQ(lines[0]["rank"], 1);
  EXPECT_EQ(lines[0]["order_spec"].get<std::string>().size(), kOrderSpecBytes * 2);
  std::vector<std::uint64_t> logged;
  for (std::size_t i = 1; i <= 4; ++i) {
    EXPECT_EQ(lines[i]["step"], i - 1);
    EXPECT_EQ(lines[i]["position"], (i - 1) * 300 + 150);
    for (const json& id : lines[i]["ids"]) logged.push_back(id);
  }
  EXPECT_EQ(logged, ids);
  EXPECT_EQ(lines[4]["padded"], 150);
  EXPECT_FALSE(lines[3].contains("padded"));
  EXPECT_EQ(lines[5]["micro_size"], 10);
  EXPECT_EQ(lines[5]["micro_index"], 4);
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

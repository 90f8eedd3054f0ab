// What `forebayd --check` says of the room on the tiers is what the daemon finds: the capacity that
// it names is enough, and an extent less is not.
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/catalog/testing/tar_text.h"
#include "tests/integration/daemon_rig.h"

namespace forebay::integration::room_check_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr std::uint64_t kExtentMib = 4;
const RigOptions kRecords = {.records = 6144, .extent = "4MiB", .ram = "8MiB", .ssd = false};

std::vector<std::string> Set(const std::string& key, std::uint64_t mib) {
  return {"--set", key + "=" + std::to_string(mib) + "MiB"};
}

std::vector<std::string> operator+(std::vector<std::string> words,
                                   const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// The MiB that `text` says a capacity is to be set to; 0 where it says nothing.
std::uint64_t Advised(const std::string& text, const std::string& key) {
  std::smatch match;
  return std::regex_search(text, match, std::regex(key + " to (\\d+) MiB"))
             ? std::stoull(match[1])
             : 0;
}

CommandEnd Check(const DaemonRig& rig, const std::vector<std::string>& more = {}) {
  const CommandEnd end =
      RunForebayd(std::vector<std::string>{"--config", rig.folder() + "/f.toml", "--check"} + more,
                  rig.folder());
  EXPECT_EQ(end.exit_code, 0) << end.errors;
  EXPECT_THAT(end.output, HasSubstr("configuration is valid: 1 data sets\n"));
  return end;
}

// How it is once staged, and whether a stream of order `global` opens.
struct Found {
  std::string state;
  std::string reason;
  bool opens_global = false;
};

Found Stage(const DaemonRig& rig, const std::vector<std::string>& more) {
  const auto daemon = rig.Start(more);
  RawClient client(rig.socket_path());
  const v1::DatasetStatus status = AwaitStaged(client);
  Found found{.state = status.state(), .reason = status.unstaged_reason()};
  RawStream stream(client);
  v1::StreamRequest open = GoodOpen(client.Describe(kDataset), 64);
  open.mutable_open()->set_delivery(static_cast<std::uint32_t>(Delivery::kViews));
  stream.Write(open);
  const auto reply = stream.Read();
  found.opens_global = reply && reply->has_opened();
  return found;
}

void ExpectStaged(const Found& found) {
  EXPECT_EQ(found.state, "staged") << found.reason;
  EXPECT_TRUE(found.opens_global);
}

void ExpectPartlyStaged(const Found& found) {
  EXPECT_EQ(found.state, "partly staged");
  EXPECT_FALSE(found.opens_global);
}

TEST(RoomCheckTest, TheRamThatItNamesIsEnoughAndAnExtentLessIsNot) {
  const DaemonRig rig(kRecords);
  const CommandEnd small = Check(rig);
  EXPECT_THAT(small.output, HasSubstr("data set 'records': 25165824 bytes (24.0 MiB)"));
  EXPECT_THAT(small.errors,
              AllOf(HasSubstr("WARNING: the tiers do not hold the data sets: "),
                    HasSubstr("WARNING: order 'block' reads these from the GFS in every epoch"),
                    HasSubstr("(now 8 MiB)")));
  const std::uint64_t enough = Advised(small.errors, "tier.ram.capacity");
  ASSERT_GT(enough, 24U);
  ExpectStaged(Stage(rig, Set("tier.ram.capacity", enough)));
  const CommandEnd good = Check(rig, Set("tier.ram.capacity", enough));
  EXPECT_THAT(good.output, HasSubstr("the tiers hold all data sets"));
  EXPECT_THAT(good.errors, IsEmpty());

  const auto too_little = Set("tier.ram.capacity", enough - kExtentMib);
  const Found partly = Stage(rig, too_little);
  ExpectPartlyStaged(partly);
  const CommandEnd bad = Check(rig, too_little);
  EXPECT_THAT(bad.errors, HasSubstr("do not hold"));
  // The daemon and `--check` name the same.
  for (const char* key : {"tier.ram.capacity", "tier.ssd.capacity"}) {
    EXPECT_EQ(Advised(partly.reason, key), Advised(bad.errors, key)) << partly.reason;
    EXPECT_GT(Advised(partly.reason, key), 0U);
  }
}

TEST(RoomCheckTest, TheSsdThatItNamesIsEnoughAndAnExtentLessIsNot) {
  for (const std::uint64_t now_mib : {std::uint64_t{0}, std::uint64_t{6}}) {
    const DaemonRig rig(kRecords);
    const std::vector<std::string> ssd = {"--set", "tier.ssd.directory=" + rig.ssd_path()};
    const CommandEnd small =
        now_mib == 0 ? Check(rig) : Check(rig, ssd + Set("tier.ssd.capacity", now_mib));
    const std::uint64_t enough = Advised(small.errors, "tier.ssd.capacity");
    ASSERT_GT(enough, 12U) << small.errors;
    ExpectPartlyStaged(Stage(rig, ssd + Set("tier.ssd.capacity", enough - kExtentMib - 1)));
    std::filesystem::remove_all(rig.ssd_path());
    EXPECT_THAT(Check(rig, ssd + Set("tier.ssd.capacity", enough)).errors, IsEmpty());
    ExpectStaged(Stage(rig, ssd + Set("tier.ssd.capacity", enough)));
  }
}

// The size of shards is bounded from above, until they were staged once.
TEST(RoomCheckTest, TheRamThatItNamesForShardsIsEnoughAndExactOnceTheyWereStaged) {
  const DaemonRig rig(kRecords);
  std::filesystem::create_directory(rig.folder() + "/shards");
  for (const char* name : {"a", "b", "c"}) {
    std::ofstream shard(rig.folder() + "/shards/" + name + ".tar", std::ios::binary);
    // Each sample fills a good half of an extent, which are as many as can be then.
    for (int i = 0; i < 4; ++i) {
      shard << catalog::TarFileText(std::to_string(i) + ".bin", std::string(5 << 19, 'x'));
    }
    shard << catalog::TarEndText();
  }
  std::ofstream(rig.folder() + "/f.toml")
      << "[daemon]\nsocket = \"" << rig.socket_path() << "\"\nstate_dir = \"" << rig.folder()
      << "/state\"\njob_id = \"job-1\"\n[tier.ram]\ncapacity = \"8MiB\"\n"
      << "[slots]\ncapacity = \"32MiB\"\n[[dataset]]\nname = \"" << kDataset << "\"\npath = \""
      << rig.folder() << "/shards\"\nformat = \"tar\"\nextent = \"4MiB\"\n";
  const CommandEnd small = Check(rig);
  EXPECT_THAT(small.output, HasSubstr("data set 'records': at most "));
  EXPECT_THAT(small.errors, HasSubstr("WARNING: the tiers may not hold the data sets: up to "));
  const std::uint64_t enough = Advised(small.errors, "tier.ram.capacity");
  ASSERT_GT(enough, 30U);
  ExpectStaged(Stage(rig, Set("tier.ram.capacity", enough)));

  const CommandEnd known = Check(rig);
  EXPECT_THAT(known.output, Not(HasSubstr("at most")));
  EXPECT_THAT(known.errors, HasSubstr("the tiers do not hold the data sets: "));
  const std::uint64_t exact = Advised(known.errors, "tier.ram.capacity");
  EXPECT_LE(exact, enough);
  ExpectStaged(Stage(rig, Set("tier.ram.capacity", exact)));
  ExpectPartlyStaged(Stage(rig, Set("tier.ram.capacity", exact - 2 * kExtentMib)));

  std::filesystem::last_write_time(rig.folder() + "/shards/b.tar",
                                   std::filesystem::file_time_type::clock::now() +
                                       std::chrono::hours(1));
  EXPECT_THAT(Check(rig).output, AllOf(HasSubstr("at most"),
                                       HasSubstr("its saved catalog no longer matches its objects; "
                                                 "run 'forebay stage --rebuild records'")));
}

TEST(RoomCheckTest, RunsBesideADaemonAndLeavesNothing) {
  const DaemonRig rig(kRecords);
  {
    const auto daemon = rig.Start();
    Check(rig);
    daemon->Signal(SIGTERM);
    EXPECT_EQ(daemon->Wait(), 0);
  }
  std::filesystem::remove_all(rig.folder() + "/state");
  Check(rig, {"--set", "tier.ssd.directory=" + rig.ssd_path(), "--set", "tier.ssd.capacity=1%"});
  for (const char* made : {"/state", "/ssd", "/run"}) {
    EXPECT_FALSE(std::filesystem::exists(rig.folder() + made)) << made;
  }
}

}  // namespace forebay::integration::room_check_test

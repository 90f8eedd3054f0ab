// Fault rules: what is parsed, and which operation they befall.
#include <cerrno>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "bench/gfs_emu/fault_table.h"
#include "bench/gfs_emu/gfs_filesystem.h"
#include "bench/gfs_emu/gfs_presets.h"

namespace forebay::bench {
namespace {

constexpr std::int64_t kMs = 1'000'000;

FaultRule Parsed(const std::string& text) {
  Result<FaultRule> rule = FaultTable::Parse(text);
  EXPECT_TRUE(rule.has_value()) << text << ": " << rule.error().message();
  return rule ? *rule : FaultRule();
}

// A table and a clock.
class FaultTableTest : public ::testing::Test {
 protected:
  void Add(const std::string& text) { ASSERT_TRUE(table_.Add(Parsed(text), now_ns_)); }
  std::optional<Fault> Take(const std::string& path,
                            GfsOperation operation = GfsOperation::kRead, pid_t client = 7) {
    return table_.Take(path, operation, client, now_ns_);
  }

  FaultTable table_;
  std::int64_t now_ns_ = 1000 * kMs;
};

TEST_F(FaultTableTest, InjectsAfterAndCountTimes) {
  Add("eio *.tar after=2 count=3");
  int faults = 0;
  for (int i = 0; i < 10; ++i) {
    const auto fault = Take("shards/a.tar");
    EXPECT_EQ(fault.has_value(), i >= 2 && i < 5);
    faults += fault ? 1 : 0;
    EXPECT_FALSE(Take("shards/a.bin"));
  }
  EXPECT_EQ(faults, 3);
  EXPECT_EQ(table_.Snapshot().at(0).seen, 10U);
  EXPECT_EQ(table_.Snapshot().at(0).injected, 3U);
  table_.Clear();
  EXPECT_TRUE(table_.Snapshot().empty());
}

TEST_F(FaultTableTest, OneClientAloneMayHaveTheFault) {
  Add("hang * count=0 after=1 client=4711");
  EXPECT_FALSE(Take("a", GfsOperation::kRead, 4711)) << "one passes";
  EXPECT_FALSE(Take("a", GfsOperation::kRead, 4712));
  EXPECT_TRUE(Take("a", GfsOperation::kRead, 4711));
  EXPECT_FALSE(Take("a", GfsOperation::kRead, 4712));
  EXPECT_EQ(table_.Snapshot().at(0).seen, 2U);
}

TEST_F(FaultTableTest, CountZeroGoesOn) {
  Add("flip * count=0");
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(Take("x"));
}

TEST_F(FaultTableTest, AnErrnoInLowerCaseIsAKindAndBefallsReadsUnlessToldOtherwise) {
  EXPECT_EQ(Parsed("eio *").error_number, EIO);
  EXPECT_EQ(Parsed("estale *").error_number, ESTALE);
  EXPECT_EQ(Parsed("etimedout *").KindName(), "etimedout");
  Add("estale * ops=open,readdir count=0");
  EXPECT_FALSE(Take("x"));
  EXPECT_FALSE(Take("x", GfsOperation::kGetattr));
  EXPECT_FALSE(Take("x", GfsOperation::kLookup));
  EXPECT_TRUE(Take("x", GfsOperation::kOpen));
  const auto fault = Take("x", GfsOperation::kReaddir);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->kind, FaultKind::kError);
  EXPECT_EQ(fault->error_number, ESTALE);
  EXPECT_EQ(table_.Snapshot().at(0).seen, 2U) << "operations that it concerns";
}

TEST_F(FaultTableTest, AnOutageBeginsAtOnceAndEndsByItself) {
  Add("outage set* ms=300 errno=ETIMEDOUT");
  for (const GfsOperation operation :
       {GfsOperation::kRead, GfsOperation::kOpen, GfsOperation::kGetattr, GfsOperation::kLookup,
        GfsOperation::kReaddir}) {
    const auto fault = Take("set/a", operation);
    ASSERT_TRUE(fault);
    EXPECT_EQ(fault->error_number, ETIMEDOUT);
  }
  EXPECT_FALSE(Take("other"));
  now_ns_ += 300 * kMs - 1;
  EXPECT_TRUE(Take("set/a"));
  now_ns_ += 1;
  EXPECT_FALSE(Take("set/a"));
  EXPECT_EQ(table_.Snapshot().at(0).injected, 6U);
  EXPECT_EQ(table_.Snapshot().at(0).seen, 7U);
}

TEST_F(FaultTableTest, AnOutageAfterSomeOperationsBeginsWithTheNext) {
  Add("outage * ms=300 after=2 ops=read");
  now_ns_ += 1000 * kMs;
  EXPECT_FALSE(Take("a"));
  EXPECT_FALSE(Take("a", GfsOperation::kOpen));
  EXPECT_FALSE(Take("a"));
  now_ns_ += 1000 * kMs;
  EXPECT_EQ(Take("a")->error_number, EIO);
  EXPECT_FALSE(Take("a", GfsOperation::kOpen));
  now_ns_ += 299 * kMs;
  EXPECT_TRUE(Take("a"));
  now_ns_ += kMs;
  EXPECT_FALSE(Take("a"));
}

TEST_F(FaultTableTest, OneOperationMeetsOneFault) {
  Add("hang a");
  Add("eio a");
  EXPECT_EQ(Take("a")->kind, FaultKind::kHang);
  EXPECT_EQ(Take("a")->kind, FaultKind::kError);
  EXPECT_FALSE(Take("a"));
  EXPECT_EQ(table_.Snapshot().at(1).seen, 3U);
}

TEST_F(FaultTableTest, RefusesWhatItDoesNotKnow) {
  for (const char* text :
       {"", "eio", "melt *", "eio * after", "eio * when=3", "eio * after=x", "eio * after=-1",
        "eio * count=99999999999999999999", "EIO *", "eio * ms=3", "eio * errno=EIO",
        "eio * ops=", "eio * ops=write", "eio * ops=read,", "eio * ops=read,all",
        "short * ops=open", "flip * ops=all", "flip * ms=3", "stall * errno=EIO", "hang * ms=3",
        "outage *", "outage * errno=EIO", "outage * ms=3 count=2", "outage * ms=3 errno=eio",
        "outage * ms=3 errno=EBADF", "remount", "remount * count=1"}) {
    const auto rule = FaultTable::Parse(text);
    ASSERT_FALSE(rule) << text;
    EXPECT_EQ(rule.error().code(), ErrorCode::kInvalidArgument);
  }
  EXPECT_NE(FaultTable::Parse("eio * ops=write").error().message().find("\"write\""),
            std::string::npos);
}

TEST_F(FaultTableTest, IsBounded) {
  for (std::size_t i = 0; i < FaultTable::kRulesMax; ++i) Add("eio *");
  const auto status = table_.Add(Parsed("eio *"), now_ns_);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code(), ErrorCode::kResourceExhausted);
}

// The file system's side, without a mount.
class GfsFilesystemFaultTest : public ::testing::Test {
 protected:
  std::optional<Fault> Take(std::uint64_t number, const std::string& path,
                            GfsOperation operation) {
    return filesystem_.TakeFault(
        {.thread_id = 0, .operation = operation, .number = number, .path = path});
  }
  nlohmann::json Counters() const { return nlohmann::json::parse(filesystem_.CountersJson()); }

  GfsFilesystem filesystem_{UniqueFd(), *FindGfsProfile("unlimited")};
};

TEST_F(GfsFilesystemFaultTest, ARemountGivesNewNumbersAndTheOldOnesAreStaleForEver) {
  const std::uint64_t folder = filesystem_.NumberOf("set");
  const std::uint64_t old = filesystem_.NumberOf("set/a");
  ++filesystem_.object(old).opens;
  ASSERT_TRUE(filesystem_.Control("fault remount set*"));
  const auto fault = Take(old, "set/a", GfsOperation::kRead);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->error_number, ESTALE);
  EXPECT_TRUE(Take(folder, "set/b", GfsOperation::kLookup)) << "by way of a stale folder";
  const std::uint64_t fresh = filesystem_.NumberOf("set/a");
  EXPECT_NE(fresh, old);
  EXPECT_FALSE(Take(fresh, "set/a", GfsOperation::kRead));
  EXPECT_EQ(&filesystem_.object(fresh), &filesystem_.object(old)) << "one object, one count";
  ASSERT_TRUE(filesystem_.Control("clear"));
  EXPECT_TRUE(Take(old, "set/a", GfsOperation::kRead));
  EXPECT_FALSE(Take(fresh, "set/a", GfsOperation::kRead));
}

TEST_F(GfsFilesystemFaultTest, TheWayToTheControlFileStaysOpen) {
  ASSERT_TRUE(filesystem_.Control("fault remount *\nfault outage * ms=3600000"));
  constexpr std::uint64_t kRoot = GfsFilesystem::kRootNumber;
  EXPECT_EQ(filesystem_.NumberOf("."), kRoot);
  EXPECT_FALSE(Take(kRoot, ".", GfsOperation::kGetattr));
  EXPECT_TRUE(Take(kRoot, ".", GfsOperation::kReaddir));
  EXPECT_TRUE(Take(kRoot, "a", GfsOperation::kLookup));
}

TEST_F(GfsFilesystemFaultTest, CountsByRuleAndWhatFailedAmongTheOperations) {
  const std::uint64_t number = filesystem_.NumberOf("a");
  ASSERT_TRUE(filesystem_.Control("fault eio a ops=read,open count=0\nfault remount b"));
  EXPECT_TRUE(Take(number, "a", GfsOperation::kRead));
  EXPECT_TRUE(Take(number, "a", GfsOperation::kOpen));
  EXPECT_TRUE(Take(number, "a", GfsOperation::kOpen));
  const nlohmann::json counters = Counters();
  EXPECT_EQ(counters["total"]["faults"], 3);
  EXPECT_EQ(counters["total"]["reads"], 1);
  EXPECT_EQ(counters["total"]["opens"], 2);
  EXPECT_EQ(counters["faults"].at(0)["kind"], "eio");
  EXPECT_EQ(counters["faults"].at(0)["injected"], 3);
  EXPECT_EQ(counters["faults"].at(0)["ops"], nlohmann::json({"read", "open"}));
  EXPECT_EQ(counters["faults"].at(1)["injected"], 0);
}

TEST_F(GfsFilesystemFaultTest, ClearsAreCountedForThoseWhoWaitForThem) {
  EXPECT_EQ(filesystem_.clear_count(), 0U);
  ASSERT_TRUE(filesystem_.Control("fault hang *\nclear"));
  EXPECT_EQ(filesystem_.clear_count(), 1U);
  EXPECT_FALSE(Take(filesystem_.NumberOf("a"), "a", GfsOperation::kRead));
}

}  // namespace
}  // namespace forebay::bench

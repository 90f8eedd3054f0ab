// `forebay audit` over delivery logs of real streams, and over ones that were tampered with.
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/cli/testing/daemon_command_test.h"
#include "client/cli/testing/forebay_run.h"
#include "forebay/client.h"

namespace forebay::cli {
namespace {

using ::testing::HasSubstr;

// Delivery logs of real streams, and what becomes of the audit when they are tampered with.
class AuditTest : public CliTest {
 protected:
  struct Part {
    std::uint32_t ranks = 1;
    std::uint32_t rank = 0;
    std::uint64_t batches = ~0ULL;
    std::optional<PositionToken> resume = {};
    std::uint32_t epochs = 2;
    std::uint32_t first_epoch = 0;
    OrderMode mode = OrderMode::kGlobal;
  };

  // Consumes a stream and returns where it stopped.
  PositionToken Consume(const std::string& log, const Part& part) {
    auto client = Client::Connect({.address = daemon_.address()});
    StreamOptions options;
    options.dataset = "fake";
    options.global_batch = 8;
    options.tail = TailPolicy::kShort;
    options.epochs = part.epochs;
    options.first_epoch = part.first_epoch;
    options.ranks = part.ranks;
    options.rank = part.rank;
    options.resume = part.resume;
    options.mode = part.mode;
    options.canonical_nodes = 4;
    options.delivery_log = Path(log);
    auto stream = (*client)->Open(options);
    EXPECT_TRUE(stream.has_value()) << stream.error().ToString();
    for (std::uint64_t i = 0; i < part.batches; ++i) {
      auto batch = (*stream)->Next();
      EXPECT_TRUE(batch.has_value());
      if (!*batch) break;
    }
    return (*stream)->token();
  }

  std::string Path(const std::string& log) const { return daemon_.folder() + "/" + log; }

  std::vector<std::string> Lines(const std::string& log) const {
    std::ifstream file(Path(log));
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }

  void Write(const std::string& log, const std::vector<std::string>& lines) const {
    std::ofstream file(Path(log), std::ios::trunc);
    for (const std::string& line : lines) file << line << '\n';
  }

  ForebayRun Audit(std::vector<std::string> logs, bool complete = false) const {
    std::vector<std::string> arguments = {"audit", "--json"};
    if (complete) arguments.push_back("--complete");
    for (const std::string& log : logs) arguments.push_back(Path(log));
    return Forebay(arguments);
  }
};

TEST_F(AuditTest, WholeEpochsPass) {
  Consume("a", {});
  const ForebayRun run = Audit({"a"}, true);
  EXPECT_EQ(run.code, 0) << run.out;
  const Json stream = run.lines()[0]["streams"][0];
  ASSERT_EQ(stream["epochs"].size(), 2U);
  EXPECT_EQ(stream["epochs"][1]["consumed"], 100);
  EXPECT_THAT(Forebay({"audit", Path("a")}).out, HasSubstr("every sample exactly once"));
}

TEST_F(AuditTest, HalfALineThatAHeaderFollowsIsPassedOver) {
  const PositionToken checkpoint = Consume("a", {.batches = 5});
  std::ofstream(Path("a"), std::ios::app) << "{\"epoch\":0,\"st";
  Consume("a", {.resume = checkpoint});
  const ForebayRun run = Audit({"a"}, true);
  EXPECT_EQ(run.code, 0) << run.out;
  // In any other place it may be a line that was tampered with.
  std::vector<std::string> lines = Lines("a");
  std::swap(lines[1], lines[6]);
  Write("a", lines);
  EXPECT_NE(Audit({"a"}, true).code, 0);
}

TEST_F(AuditTest, RanksAreOneHistory) {
  Consume("a", {.ranks = 4, .rank = 0});
  Consume("b", {.ranks = 4, .rank = 1});
  Consume("c", {.ranks = 4, .rank = 2});
  EXPECT_EQ(Audit({"a", "b", "c"}).code, 3) << "rank 3 is missing";
  Consume("d", {.ranks = 4, .rank = 3});
  EXPECT_EQ(Audit({"a", "b", "c", "d"}, true).code, 0);
}

TEST_F(AuditTest, PartialOrdersAreCheckedAndBelongToTheirGlobalBatch) {
  Consume("a", {.ranks = 2, .rank = 0, .mode = OrderMode::kPartial});
  Consume("b", {.ranks = 2, .rank = 1, .mode = OrderMode::kPartial});
  const ForebayRun run = Audit({"a", "b"}, true);
  EXPECT_EQ(run.code, 0) << run.out;
  EXPECT_EQ(run.lines()[0]["streams"][0]["wrong_ids"], 0);
  std::vector<std::string> lines = Lines("a");
  Json header = Json::parse(lines[0]);
  header["global_batch"] = 16;
  lines[0] = header.dump();
  Write("a", lines);
  const ForebayRun refused = Audit({"a"});
  EXPECT_NE(refused.code, 0);
  EXPECT_THAT(refused.out + refused.err, HasSubstr("is 8, but the stream's is 16"));
}

TEST_F(AuditTest, RestoresTakeBackWhatTheyRepeat) {
  const PositionToken checkpoint = Consume("first", {.batches = 15});
  Consume("lost", {.batches = 10, .resume = checkpoint});
  Consume("b0", {.ranks = 2, .rank = 0, .resume = checkpoint});
  Consume("b1", {.ranks = 2, .rank = 1, .resume = checkpoint});
  const ForebayRun run = Audit({"lost", "b1", "first", "b0"}, true);
  EXPECT_EQ(run.code, 0) << run.out;
  EXPECT_EQ(run.lines()[0]["streams"][0]["superseded_batches"], 10);
  EXPECT_EQ(Audit({"first", "b0"}, true).code, 3);
  EXPECT_EQ(Audit({"b0", "b1"}, true).code, 3) << "the beginning is missing";
}

TEST_F(AuditTest, ARankThatIsRestartedAloneTakesBackItsOwnBatches) {
  Consume("r0", {.ranks = 2, .rank = 0});
  const PositionToken checkpoint = Consume("r1", {.ranks = 2, .rank = 1, .batches = 15});
  Consume("r1", {.ranks = 2, .rank = 1, .batches = 3, .resume = checkpoint});
  Consume("r1", {.ranks = 2, .rank = 1, .resume = checkpoint});
  const ForebayRun run = Audit({"r0", "r1"}, true);
  EXPECT_EQ(run.code, 0) << run.out;
  EXPECT_EQ(run.lines()[0]["streams"][0]["superseded_batches"], 3);
}

TEST_F(AuditTest, AnUnfinishedEpochIsNoViolationUnlessItMustBeWhole) {
  Consume("a", {.batches = 20});
  const ForebayRun run = Audit({"a"});
  EXPECT_EQ(run.code, 0) << run.out;
  EXPECT_EQ(run.lines()[0]["streams"][0]["epochs"][1]["unfinished"], 100 - 7 * 8);
  EXPECT_EQ(Audit({"a"}, true).code, 3);
}

TEST_F(AuditTest, AStreamThatBeginsAtALaterEpochEndsWithItsLast) {
  Consume("whole", {.first_epoch = 3});
  EXPECT_EQ(Audit({"whole"}, true).code, 0);
  Consume("part", {.batches = 13, .first_epoch = 3});
  const ForebayRun run = Audit({"part"}, true);
  EXPECT_EQ(run.code, 3);
  EXPECT_EQ(run.lines()[0]["streams"][0]["epochs"][1]["epoch"], 4);
  EXPECT_EQ(run.lines()[0]["streams"][0]["epochs"][1]["missing"], 100);
}

TEST_F(AuditTest, RefusesEpochsThatTheHeaderDoesNotHave) {
  Consume("a", {});
  std::vector<std::string> lines = Lines("a");
  ASSERT_EQ(lines.size(), 1U + 2 * 13);
  Json header = Json::parse(lines[0]);
  header["epochs"] = 1;
  lines[0] = header.dump();
  Write("a", lines);
  const ForebayRun run = Audit({"a"});
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.out, HasSubstr("a:15: epoch 1 does not exist: its header says that the stream "
                                 "ends before epoch 1"));
}

TEST_F(AuditTest, ASeededGapIsFound) {
  Consume("a", {});
  std::vector<std::string> lines = Lines("a");
  lines.erase(lines.begin() + 5);
  Write("a", lines);
  const ForebayRun run = Audit({"a"});
  EXPECT_EQ(run.code, 3);
  EXPECT_EQ(run.lines()[0]["streams"][0]["epochs"][0]["missing"], 8);
  EXPECT_THAT(run.out, HasSubstr("positions 32 to 39 were not consumed"));
}

TEST_F(AuditTest, AGapInTheLastEpochIsFoundToo) {
  Consume("a", {.epochs = 1});
  std::vector<std::string> lines = Lines("a");
  lines.erase(lines.begin() + 5);
  Write("a", lines);
  EXPECT_EQ(Audit({"a"}).code, 3);
}

TEST_F(AuditTest, ASeededDuplicateIsFound) {
  Consume("a", {});
  std::vector<std::string> lines = Lines("a");
  lines.insert(lines.begin() + 9, lines[4]);
  Write("a", lines);
  const ForebayRun run = Audit({"a"});
  EXPECT_EQ(run.code, 3);
  EXPECT_EQ(run.lines()[0]["streams"][0]["epochs"][0]["duplicates"], 8);
}

TEST_F(AuditTest, AForeignSampleIsFound) {
  Consume("a", {});
  std::vector<std::string> lines = Lines("a");
  Json line = Json::parse(lines[3]);
  line["ids"][2] = line["ids"][1];
  lines[3] = line.dump();
  Write("a", lines);
  const ForebayRun run = Audit({"a"});
  EXPECT_EQ(run.code, 3);
  EXPECT_EQ(run.lines()[0]["streams"][0]["wrong_ids"], 1);
  EXPECT_THAT(run.out, HasSubstr("stands where the order has"));
}

TEST_F(AuditTest, RefusesBatchesThatThePlanDoesNotHave) {
  // 100 samples in steps of 8: the last of the 13 steps is short. Behind them the order begins
  // again, so the ids below are what the order has at their positions, modulo 100.
  Consume("a", {.epochs = 1});
  const std::vector<std::string> lines = Lines("a");
  Json extra = Json::parse(lines[13]);
  std::vector<Json> ids = extra["ids"];
  ASSERT_EQ(ids.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) ids.push_back(Json::parse(lines[1])["ids"][i]);
  extra["ids"] = ids;
  std::vector<std::string> changed = lines;
  changed[13] = extra.dump();
  Write("long", changed);
  const ForebayRun longer = Audit({"long"});
  EXPECT_EQ(longer.code, 2);
  EXPECT_THAT(longer.out, HasSubstr("long:14: the batch does not lie in its step"));
  extra["step"] = 13;
  extra["position"] = 104;
  ids = Json::parse(lines[1])["ids"];
  const std::vector<Json> next = Json::parse(lines[2])["ids"];
  ids.insert(ids.end(), next.begin(), next.end());
  extra["ids"] = std::vector<Json>(ids.begin() + 4, ids.begin() + 12);
  changed = lines;
  changed.push_back(extra.dump());
  Write("more", changed);
  const ForebayRun more = Audit({"more"});
  EXPECT_EQ(more.code, 2);
  EXPECT_THAT(more.out, HasSubstr("more:15: step 13 does not exist: an epoch has 13 steps"));
}

TEST_F(AuditTest, ATornLastLineIsLeftOut) {
  Consume("a", {.batches = 5});
  std::ofstream(Path("a"), std::ios::app) << "{\"epoch\":0,\"st";
  EXPECT_EQ(Audit({"a"}).code, 0);
  // A stream's own header, of which the end is missing.
  std::ofstream(Path("torn")) << Lines("a")[0].substr(0, 60);
  EXPECT_THAT(Audit({"torn"}).out, HasSubstr("logs_without_header\":[\"" + Path("torn")));
}

TEST_F(AuditTest, RefusesWhatIsNoLog) {
  EXPECT_EQ(Audit({"none"}).code, 5);
  Consume("a", {.batches = 5});
  const std::vector<std::string> lines = Lines("a");
  const auto with = [&](std::vector<std::string> changed) {
    Write("bad", changed);
    const ForebayRun run = Audit({"bad"});
    EXPECT_EQ(run.code, 2) << run.out;
    return run.out;
  };
  EXPECT_THAT(with({"[]", lines[0]}), HasSubstr("bad:1: is not a JSON object"));
  EXPECT_THAT(with({lines[1]}), HasSubstr("before any header"));
  EXPECT_THAT(with({lines[0], "{\"epoch\":0}", lines[1]}), HasSubstr("bad:2: the batch lacks"));
  EXPECT_THAT(with({lines[0], "{\"epoch\":0,\"step\":0,\"position\":9,\"ids\":[1]}", lines[1]}),
              HasSubstr("does not lie in its step"));
  EXPECT_THAT(with({lines[0], "{\"epoch\":0,\"step\":0,\"position\":0,\"ids\":[-1]}", lines[1]}),
              HasSubstr("an id is not a number"));
  Json header = Json::parse(lines[0]);
  header["forebay_delivery_log"] = 2;
  EXPECT_THAT(with({header.dump(), lines[1]}), HasSubstr("version 2"));
  header = Json::parse(lines[0]);
  header["order_spec"] = "zz";
  EXPECT_THAT(with({header.dump(), lines[1]}), HasSubstr("order_spec"));
  header.erase("order_spec");
  EXPECT_THAT(with({header.dump(), lines[1]}), HasSubstr("lacks a member"));
  header = Json::parse(lines[0]);
  header["ranks"] = 3;
  with({header.dump(), lines[1]});
}

}  // namespace
}  // namespace forebay::cli

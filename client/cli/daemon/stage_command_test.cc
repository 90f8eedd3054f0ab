// The commands that have a daemon stage, check, give up and hand over data.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/cli/testing/daemon_command_test.h"
#include "client/cli/testing/forebay_run.h"

namespace forebay::cli {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(CliTest, DatasetsAreListed) {
  *admin_.status.add_datasets() = Progress("idle", 0, false).dataset();
  EXPECT_THAT(Forebay(With({"datasets"})).out, HasSubstr("fake"));
  const ForebayRun json = Forebay(With({"--json", "datasets"}));
  EXPECT_EQ(json.lines()[0]["datasets"][0]["state"], "idle");
}

TEST_F(CliTest, StagePrintsPlainLinesWithoutATerminal) {
  admin_.stage = {Progress("staging", 500, false), Progress("staged", 1000, true)};
  const ForebayRun run = Forebay(With({"stage", "fake"}));
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("fake:  50 %"));
  EXPECT_THAT(run.out, HasSubstr("fake: staged, 1,281,167 samples"));
  EXPECT_THAT(run.out, Not(HasSubstr("\r")));
  EXPECT_TRUE(admin_.stage_request.wait());
  EXPECT_EQ(admin_.stage_request.datasets(0), "fake");
}

TEST_F(CliTest, StageDrawsABarOnATerminal) {
  admin_.stage = {Progress("staging", 500, false), Progress("staged", 1000, true)};
  EXPECT_THAT(Forebay(With({"stage"}), true).out, HasSubstr("fake [############............]"));
}

TEST_F(CliTest, StageEventsAreOneObjectPerLine) {
  admin_.stage = {Progress("staging", 500, false), Progress("staged", 1000, true)};
  const ForebayRun run = Forebay(With({"stage", "--json"}));
  ASSERT_EQ(run.lines().size(), 2U);
  EXPECT_EQ(run.lines()[0]["schema"], "forebay.stage.v1");
  EXPECT_EQ(run.lines()[0]["event"], "progress");
  EXPECT_EQ(run.lines()[1]["event"], "done");
}

TEST_F(CliTest, StageReportsWhatCouldNotBeStaged) {
  admin_.stage = {Progress("failed", 500, true)};
  const ForebayRun run = Forebay(With({"stage"}));
  EXPECT_EQ(run.code, 3);
  EXPECT_THAT(run.out, HasSubstr("failed: object 7 has changed"));
  admin_.stage = {Progress("staging", 500, false)};
  EXPECT_EQ(Forebay(With({"stage"})).code, 3) << "the stream ended before everything was staged";
  EXPECT_EQ(Forebay(With({"stage", "--no-wait"})).code, 0);
  EXPECT_FALSE(admin_.stage_request.wait());
}

TEST_F(CliTest, StageTellsPartlyStagedFromStaged) {
  admin_.stage = {Progress("partly staged", 1000, true)};
  v1::DatasetStatus& dataset = *admin_.stage[0].mutable_dataset();
  dataset.set_unstaged_bytes(400);
  dataset.set_unstaged_reason("400 bytes fit on no tier: set tier.ram.capacity to 160 MiB");
  const ForebayRun run = Forebay(With({"stage"}));
  EXPECT_EQ(run.code, 3);
  EXPECT_THAT(run.out, AllOf(HasSubstr("partly staged"), HasSubstr("400 B"),
                             HasSubstr("set tier.ram.capacity to 160 MiB")));
  const ForebayRun json = Forebay(With({"stage", "--json"}));
  EXPECT_EQ(json.code, 3);
  EXPECT_THAT(json.out, AllOf(HasSubstr("\"state\":\"partly staged\""),
                              HasSubstr("\"unstaged_bytes\":400"),
                              HasSubstr("\"unstaged_reason\":\"400 bytes fit on no tier")));
}

TEST_F(CliTest, DamagedExtentsAreCountedByStatusAndReport) {
  v1::TierStatus& tier = *admin_.status.add_tiers();
  tier.set_name("ssd");
  EXPECT_THAT(Forebay(With({"status"})).out, Not(HasSubstr("damaged")));
  EXPECT_THAT(Forebay(With({"report"})).out, Not(HasSubstr("damaged")));
  tier.set_bad_extents(3);
  EXPECT_THAT(Forebay(With({"status"})).out, HasSubstr("ssd: 3 damaged extents"));
  EXPECT_EQ(Forebay(With({"status", "--json"})).lines()[0]["tiers"][0]["bad_extents"], 3);
  EXPECT_THAT(Forebay(With({"report"})).out, ContainsRegex("damaged extents in ssd +3 "));
  EXPECT_EQ(Forebay(With({"report", "--json"})).lines()[0]["bad_extents"]["ssd"], 3);
}

TEST_F(CliTest, UnknownDataSetsHaveACodeOfTheirOwn) {
  const ForebayRun run = Forebay(With({"stage", "none"}));
  EXPECT_EQ(run.code, 5);
  EXPECT_THAT(run.err, HasSubstr("no data set 'none'"));
  const ForebayRun json = Forebay(With({"stage", "none", "--json"}));
  EXPECT_EQ(json.lines()[0]["schema"], "forebay.error.v1");
  EXPECT_EQ(json.lines()[0]["code"], "NOT_FOUND");
}

TEST_F(CliTest, VerifyFindsDamage) {
  v1::VerifyProgress progress;
  progress.set_extents_total(4);
  progress.set_extents_done(4);
  progress.set_done(true);
  admin_.verify = {progress};
  EXPECT_EQ(Forebay(With({"verify"})).code, 0);
  admin_.verify[0].set_extents_bad(1);
  admin_.verify[0].add_errors("extent 3 does not match its checksum");
  const ForebayRun run = Forebay(With({"verify"}));
  EXPECT_EQ(run.code, 3);
  EXPECT_THAT(run.err, HasSubstr("extent 3"));
  EXPECT_EQ(Forebay(With({"verify", "--json"})).lines()[0]["extents_bad"], 1);
  admin_.verify.clear();
  EXPECT_EQ(Forebay(With({"verify"})).code, 3) << "an unfinished verification proves nothing";
}

TEST_F(CliTest, EvictAndDrain) {
  admin_.evict.set_extents(12);
  EXPECT_THAT(Forebay(With({"evict", "fake", "--tier", "ssd"})).out, HasSubstr("12 extents"));
  EXPECT_EQ(admin_.evict_request.tier(), "ssd");
  EXPECT_EQ(Forebay(With({"evict", "fake", "--tier", "tape"})).code, 2);
  EXPECT_EQ(Forebay(With({"drain"})).code, 0);
  EXPECT_EQ(admin_.drains, 1);
  EXPECT_EQ(Forebay(With({"drain", "--after-all"})).code, 0);
  EXPECT_EQ(admin_.drains, 1);
  EXPECT_EQ(admin_.drains_after_all, 1);
  EXPECT_EQ(admin_.drain_request.node(), "");
}

TEST_F(CliTest, DrainHasANodeLeave) {
  EXPECT_THAT(Forebay(With({"drain", "--node", "3"})).out, HasSubstr("node '3' hands over"));
  EXPECT_EQ(admin_.drain_request.node(), "3");
  EXPECT_EQ(admin_.drain_request.hand_over_s(), 300U);
  EXPECT_FALSE(admin_.drain_request.after_all());
  const ForebayRun run =
      Forebay(With({"drain", "--node", "node17", "--hand-over-s", "20", "--json"}));
  EXPECT_EQ(run.lines()[0]["node"], "node17");
  EXPECT_EQ(admin_.drain_request.hand_over_s(), 20U);
  const int drains = admin_.drains;
  EXPECT_EQ(Forebay(With({"drain", "--node", "3", "--after-all"})).code, 2);
  EXPECT_EQ(Forebay(With({"drain", "--node", "3", "--hand-over-s", "0"})).code, 2);
  EXPECT_EQ(admin_.drains, drains) << "the daemon was not asked";
}

}  // namespace
}  // namespace forebay::cli

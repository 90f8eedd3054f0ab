// `forebay tune` against a daemon from memory, and without one.
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/cli/exit_code.h"
#include "client/cli/testing/forebay_run.h"
#include "client/testing/fake_admin_service.h"
#include "client/testing/fake_daemon.h"
#include "client/testing/fake_dataset.h"

namespace forebay::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using forebay::testing::FakeAdminService;
using forebay::testing::FakeDaemon;

std::vector<std::string> PlannedTune(std::vector<std::string> more = {}) {
  std::vector<std::string> arguments = {"tune", "--samples", "1000000", "--bytes", "100GiB"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

Json Recommendation(const ForebayRun& run) {
  EXPECT_EQ(run.code, 0) << run.out << run.err;
  const Json last = run.last();
  EXPECT_EQ(last["schema"], "forebay.tune.v1");
  EXPECT_EQ(last["event"], "recommendation");
  return last;
}

TEST(TunePlanTest, WhereTheSetFitsIntoRamGlobalIsBest) {
  const ForebayRun run = Forebay(PlannedTune({"--ram", "200GiB"}));
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, AllOf(HasSubstr("1,000,000 samples"), HasSubstr("100.0 GiB"),
                             HasSubstr("10 (assumed, stored sorted by class)"),
                             HasSubstr("RAM 200.0 GiB (given)"), HasSubstr("(assumed)"),
                             HasSubstr("recommended: global"),
                             HasSubstr("forebay-train --order-mode global")));
  EXPECT_THAT(run.out, Not(HasSubstr("partial"))) << "there is one node";
}

TEST(TunePlanTest, WhereTheSetFitsNowhereALargeWindowIsCheaper) {
  const Json answer = Recommendation(Forebay({"tune", "--samples", "10000000", "--bytes", "1TiB",
                                              "--ram", "256GiB", "--classes", "10", "--json"}));
  EXPECT_EQ(answer["order_mode"], "block");
  EXPECT_TRUE(answer["within_tolerance"]);
  EXPECT_LE(answer["batch_entropy_loss"], answer["tolerance"]);
  EXPECT_LE(answer["part_entropy_loss"], answer["part_tolerance"]);
  EXPECT_THAT(answer["reason"].get<std::string>(), HasSubstr("limited by its GFS"));
  EXPECT_THAT(answer["trainer_flags"].get<std::string>(), HasSubstr("--window-runs"));
}

const std::vector<std::string> kBeyondTheTiers = {
    "tune",    "--samples", "200000", "--bytes", "1TiB",
    "--nodes", "4",         "--ram",  "64GiB",   "--global-batch", "256"};

TEST(TunePlanTest, ModesThatTheDaemonRefusesAreNeverRecommended) {
  const ForebayRun text = Forebay(kBeyondTheTiers);
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("global (refused)"), HasSubstr("partial(1) (refused)"),
                              HasSubstr("of a node's share of 256.0 GiB fit on none"),
                              HasSubstr("recommended: block"),
                              HasSubstr("a daemon refuses global")));
  std::vector<std::string> arguments = kBeyondTheTiers;
  arguments.push_back("--json");
  const ForebayRun run = Forebay(arguments);
  const Json answer = Recommendation(run);
  EXPECT_EQ(answer["order_mode"], "block");
  EXPECT_EQ(answer["is_recommended"], true);
  EXPECT_EQ(answer["is_refused"], false);
  for (const Json& line : run.lines()) {
    if (line["event"] != "mode") continue;
    EXPECT_EQ(line["is_refused"], line["order_mode"] != "block") << line;
    EXPECT_EQ(line["refusal"] != "", line["is_refused"]) << line;
  }
}

TEST(TunePlanTest, SaysIfNoModeThatRunsMixesWellEnough) {
  std::vector<std::string> arguments = kBeyondTheTiers;
  arguments.insert(arguments.end(), {"--tolerance", "0"});
  EXPECT_THAT(Forebay(arguments).out,
              AllOf(HasSubstr("none is recommended; cheapest: block"),
                    HasSubstr("no mode that a daemon accepts mixes well enough"),
                    HasSubstr("with larger tiers or more nodes, a daemon accepts global")));
  arguments.push_back("--json");
  const Json answer = Recommendation(Forebay(arguments));
  EXPECT_EQ(answer["is_recommended"], false);
  EXPECT_EQ(answer["within_tolerance"], false);
  EXPECT_GT(answer["batch_entropy_loss"], 0);
}

TEST(TunePlanTest, ASetOfFewExtentsBeyondTheTiersIsReadInTheOrderOfStorage) {
  const Json answer = Recommendation(Forebay({"tune", "--samples", "1000", "--bytes", "320MiB",
                                              "--ram", "64MiB", "--json"}));
  EXPECT_EQ(answer["mode"], "sequential");
  EXPECT_EQ(answer["is_recommended"], false);
}

TEST(TunePlanTest, JsonHasEveryModeAndTheOriginOfEachFigure) {
  const ForebayRun run = Forebay(PlannedTune({"--nodes", "4", "--link-gbps", "100", "--json"}));
  ASSERT_EQ(run.code, 0) << run.err;
  const std::vector<Json> lines = run.lines();
  EXPECT_EQ(lines[0]["event"], "figures");
  EXPECT_EQ(lines[0]["nodes"]["value"], 4);
  EXPECT_EQ(lines[0]["nodes"]["origin"], "given");
  EXPECT_EQ(lines[0]["rates"]["link_bytes_per_s"]["value"], 12.5e9);
  EXPECT_EQ(lines[0]["rates"]["link_bytes_per_s"]["origin"], "given");
  EXPECT_EQ(lines[0]["rates"]["gfs_bytes_per_s"]["origin"], "assumed");
  for (std::size_t i = 1; i + 1 < lines.size(); ++i) {
    EXPECT_EQ(lines[i]["event"], "mode");
    for (const char* member : {"seconds", "link_bytes", "gfs_reads", "displacement",
                               "batch_entropy", "part_entropy", "repeated_neighbours",
                               "batch_entropy_loss", "part_entropy_loss"}) {
      EXPECT_TRUE(lines[i][member].is_number()) << i << " " << member;
    }
  }
  EXPECT_EQ(lines[1]["mode"], "global");
  EXPECT_EQ(lines[2]["mode"], "partial(1)");
}

TEST(TunePlanTest, PartialSavesBytesOnlyWhereHomeSharesAreKept) {
  const std::vector<std::string> four = {"--nodes", "4", "--classes", "2", "--tolerance", "0.9"};
  std::vector<std::string> arguments = PlannedTune(four);
  EXPECT_THAT(Forebay(arguments).out, AllOf(HasSubstr("recommended: global"),
                                            HasSubstr("partial saves no bytes unless")));
  arguments.push_back("--keep-home-shares");
  EXPECT_THAT(Forebay(arguments).out, HasSubstr("recommended: partial(0.2)"))
      << "with less exchange it takes as long, because RAM is the slowest then";
}

TEST(TunePlanTest, ComparesTheModesThatAreAskedFor) {
  const ForebayRun run = Forebay(
      PlannedTune({"--mode", "block:77:3", "--mode", "sequential", "--mode", "global", "--json"}));
  ASSERT_EQ(run.code, 0) << run.err;
  int asked = 0, globals = 0;
  for (const Json& line : run.lines()) {
    if (line["event"] != "mode") continue;
    if (line["mode"] == "block(77, 3)" || line["mode"] == "sequential") ++asked;
    if (line["mode"] == "global") ++globals;
  }
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(globals, 1) << "a usual mode is not repeated";
}

TEST(TunePlanTest, RefusesWhatMakesNoSense) {
  struct Case {
    std::vector<std::string> arguments;
    const char* words;
  };
  for (const Case& one : std::vector<Case>{
           {{"tune"}, "--dataset"},
           {{"tune", "--dataset", "fake", "--samples", "5", "--bytes", "5"}, "--dataset"},
           {{"tune", "--samples", "5"}, "go together"},
           {{"tune", "--bytes", "5"}, "go together"},
           {{"tune", "--samples", "0", "--bytes", "5"}, "not in [1, 2^40]"},
           {{"tune", "--samples", "5", "--bytes", "4"}, "below one per sample"},
           {{"tune", "--samples", "5", "--bytes", "500"}, "do not fill a global batch"},
           {PlannedTune({"--label-field", "x"}), "--label-field"},
           {PlannedTune({"--nodes", "3"}), "3"},
           {PlannedTune({"--mode", "block:1"}), "'block:1' is no mode"},
           {PlannedTune({"--mode", "block:0:4"}), "block_samples"},
           {PlannedTune({"--tolerance", "2"}), "--tolerance"},
           {{"tune", "--samples", "64", "--bytes", "640", "--classes", "65"}, "--classes"}}) {
    const ForebayRun run = Forebay(one.arguments);
    EXPECT_EQ(run.code, static_cast<int>(ExitCode::kUsage)) << run.out << run.err;
    EXPECT_THAT(run.err, HasSubstr(one.words));
  }
}

class TuneDaemonTest : public ::testing::Test {
 protected:
  ForebayRun Tune(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"tune",      "--dataset", "fake",
                                          "--seconds", "0.05",      "--global-batch", "10",
                                          "--address", daemon_.address()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Forebay(arguments);
  }
  Json Figures(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = more;
    arguments.push_back("--json");
    const ForebayRun run = Tune(arguments);
    EXPECT_EQ(run.code, 0) << run.out << run.err;
    return run.code == 0 ? run.lines().front() : Json();
  }

  FakeAdminService admin_;
  FakeDaemon daemon_{{.samples = 100, .admin = admin_.service(), .socket_path = {}}};
};

TEST_F(TuneDaemonTest, ReadsClassesAndCapacitiesFromTheDaemon) {
  v1::TierStatus& ram = *admin_.status.add_tiers();
  ram.set_name("ram");
  ram.set_capacity_bytes(1 << 30);
  v1::DatasetStatus& dataset = *admin_.status.add_datasets();
  dataset.set_name("fake");
  dataset.set_extents(5);
  dataset.set_gfs_bytes(64 << 20);
  dataset.set_staging_ms(500);
  dataset.set_copied_bytes(4096);
  const Json figures = Figures({});
  EXPECT_EQ(figures["samples"], 100);
  EXPECT_EQ(figures["extents"], 5);
  EXPECT_EQ(figures["classes"], 10);
  EXPECT_EQ(figures["classes_origin"], "measured, field 'label'");
  EXPECT_EQ(figures["ram_bytes"]["value"], 1 << 30);
  EXPECT_EQ(figures["ram_bytes"]["origin"], "measured");
  EXPECT_EQ(figures["copies_bytes"]["value"], 4096);
  EXPECT_EQ(figures["rates"]["gfs_bytes_per_s"]["value"], 2.0 * (64 << 20));
  EXPECT_EQ(figures["rates"]["gfs_bytes_per_s"]["origin"], "measured");
  EXPECT_EQ(figures["rates"]["ram_bytes_per_s"]["origin"], "assumed")
      << "the daemon counts no hits of this stream";
}

TEST_F(TuneDaemonTest, TheRateOfAStreamIsThatOfTheTierWhichSuppliedIt) {
  v1::StreamStatus& stream = *admin_.status.add_streams();
  stream.set_name("tune");
  stream.set_samples(100);
  stream.set_hit_ssd_samples(96);
  const Json figures = Figures({});
  EXPECT_EQ(figures["rates"]["ssd_bytes_per_s"]["origin"], "measured");
  EXPECT_GT(figures["rates"]["ssd_bytes_per_s"]["value"], 0);
  EXPECT_EQ(figures["rates"]["ram_bytes_per_s"]["origin"], "assumed");
}

TEST_F(TuneDaemonTest, NodesAndLinksAreThoseOfTheJob) {
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    v1::NodeStatus& node = *admin_.nodes.add_nodes();
    node.set_rank(rank);
    node.set_received_bytes(rank * 100'000'000);
    node.set_busy_ns(rank * 500'000'000);
  }
  const Json figures = Figures({});
  EXPECT_EQ(figures["nodes"]["value"], 2);
  EXPECT_EQ(figures["nodes"]["origin"], "measured");
  EXPECT_EQ(figures["rates"]["link_bytes_per_s"]["value"], 2e8);
  EXPECT_EQ(Figures({"--nodes", "5"})["nodes"]["origin"], "given");
}

TEST_F(TuneDaemonTest, WhatTheDaemonRefusesIsNotRecommended) {
  daemon_.faults.refuse_open = [](const OrderSpec& order) -> std::optional<Error> {
    if (!NeedsWholeSet(order.shape.mode)) return std::nullopt;
    return Error(ErrorCode::kResourceExhausted, "the tiers are too small");
  };
  const ForebayRun run = Tune({"--classes", "4", "--json"});
  const Json answer = Recommendation(run);
  EXPECT_EQ(answer["is_refused"], false);
  EXPECT_NE(answer["order_mode"], "global");
  EXPECT_THAT(run.lines()[1]["refusal"].get<std::string>(), HasSubstr("the tiers are too small"));
  // Another job is computed from its figures: this one has tiers for the set.
  const Json planned = Recommendation(Tune({"--classes", "4", "--ram", "1GiB", "--json"}));
  EXPECT_EQ(planned["order_mode"], "global");
}

TEST_F(TuneDaemonTest, ClassesThatAreGivenAreNotRead) {
  EXPECT_EQ(Figures({"--classes", "4"})["classes_origin"], "given, stored sorted by class");
}

TEST_F(TuneDaemonTest, RefusesFieldsThatAreNoClass) {
  EXPECT_EQ(Tune({"--label-field", "weight"}).code, static_cast<int>(ExitCode::kUsage));
  EXPECT_EQ(Tune({"--label-field", "image"}).code, static_cast<int>(ExitCode::kUsage));
  const ForebayRun absent = Tune({"--label-field", "colour"});
  EXPECT_EQ(absent.code, static_cast<int>(ExitCode::kNotFound));
  EXPECT_THAT(absent.err, HasSubstr("has no field 'colour'"));
}

TEST_F(TuneDaemonTest, ADataSetWithoutACatalogHasToBeStagedFirst) {
  daemon_.dataset().set_fingerprint(0);
  const ForebayRun run = Tune({});
  EXPECT_EQ(run.code, static_cast<int>(ExitCode::kNoDaemon));
  EXPECT_THAT(run.err, HasSubstr("forebay stage fake"));
}

TEST_F(TuneDaemonTest, AnUnknownDataSetAndAMissingDaemonHaveTheirExitCodes) {
  EXPECT_EQ(Forebay({"tune", "--dataset", "none", "--address", daemon_.address()}).code,
            static_cast<int>(ExitCode::kNotFound));
  EXPECT_EQ(Forebay({"tune", "--dataset", "fake", "--address", "unix:/nowhere/x.sock",
                     "--timeout-ms", "50"})
                .code,
            static_cast<int>(ExitCode::kNoDaemon));
}

}  // namespace
}  // namespace forebay::cli

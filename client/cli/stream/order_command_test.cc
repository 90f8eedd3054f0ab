// `forebay order` and `forebay bench`.
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/cli/testing/daemon_command_test.h"
#include "client/cli/testing/forebay_run.h"

namespace forebay::cli {
namespace {

using ::testing::HasSubstr;

TEST_F(CliTest, OrderAndItsInverseAgree) {
  const ForebayRun steps = Forebay(With({"order", "fake", "--global-batch", "10", "--ranks", "2",
                                  "--seed", "3", "--epoch", "4", "--steps", "100", "--json"}));
  ASSERT_EQ(steps.code, 0) << steps.err;
  const std::vector<Json> lines = steps.lines();
  ASSERT_EQ(lines.size(), 20U);
  for (const Json& line : lines) {
    const std::string id = std::to_string(line["ids"][2].get<std::uint64_t>());
    const ForebayRun inverse =
        Forebay(With({"order", "fake", "--global-batch", "10", "--ranks", "2", "--seed", "3",
                      "--epoch", "4", "--sample", id, "--json"}));
    ASSERT_EQ(inverse.code, 0) << inverse.err << inverse.out;
    EXPECT_EQ(inverse.lines()[0]["step"], line["step"]);
    EXPECT_EQ(inverse.lines()[0]["rank"], line["rank"]);
    EXPECT_EQ(inverse.lines()[0]["position"], line["position"].get<std::uint64_t>() + 2);
  }
}

TEST_F(CliTest, PartialOrderHasFixedSharesAndNeedsTheirNumber) {
  const auto order = [&](const std::string& exchange, const std::string& epoch) {
    return Forebay(With({"order", "fake", "--global-batch", "10", "--ranks", "2", "--mode",
                         "partial", "--canonical-nodes", "2", "--block-samples", "1",
                         "--exchange-fraction", exchange, "--epoch", epoch, "--steps", "100",
                         "--json"}));
  };
  const auto samples_of_rank_0 = [](const ForebayRun& run) {
    EXPECT_EQ(run.code, 0) << run.err;
    std::set<std::uint64_t> samples;
    for (const Json& line : run.lines()) {
      if (line["rank"] != 0) continue;
      for (const Json& id : line["ids"]) samples.insert(id.get<std::uint64_t>());
    }
    return samples;
  };
  const std::set<std::uint64_t> share = samples_of_rank_0(order("0", "0"));
  EXPECT_EQ(share.size(), 50U);
  EXPECT_EQ(samples_of_rank_0(order("0", "1")), share);
  EXPECT_NE(order("0", "1").out, order("0", "0").out);
  EXPECT_NE(samples_of_rank_0(order("0.2", "1")), share);
  EXPECT_EQ(order("1.2", "0").code, 2);
  EXPECT_THAT(Forebay(With({"order", "fake", "--mode", "partial"})).err,
              HasSubstr("canonical_nodes is 0"));
}

TEST_F(CliTest, OrderOfASelectionNamesItsSampleIds) {
  for (std::uint64_t i = 0; i < 100; ++i) admin_.selected_ids.push_back(1000 + i);
  const ForebayRun run = Forebay(With({"order", "fake", "--selection", "hash:0.1", "--mode",
                                "sequential", "--global-batch", "4"}));
  EXPECT_EQ(run.out, "epoch 0 step 0 rank 0: 1000 1001 1002 1003\n");
  EXPECT_THAT(Forebay(With({"order", "fake", "--selection", "hash:0.1", "--sample", "1007"})).out,
              HasSubstr("sample 1007 is at position"));
  EXPECT_EQ(Forebay(With({"order", "fake", "--selection", "h", "--sample", "7"})).code, 5);
  EXPECT_EQ(Forebay(With({"order", "fake", "--sample", "100"})).code, 5);
  EXPECT_EQ(Forebay(With({"order", "fake", "--mode", "spiral"})).code, 2);
}

TEST_F(CliTest, BenchReadsEveryByte) {
  const ForebayRun run = Forebay(With({"bench", "fake", "--global-batch", "10", "--seconds", "0.05",
                                "--json"}));
  ASSERT_EQ(run.code, 0) << run.err << run.out;
  const Json line = run.lines()[0];
  EXPECT_GT(line["samples"], 0);
  EXPECT_GT(line["bytes"], line["samples"].get<std::uint64_t>() * 100);
  EXPECT_EQ(Forebay(With({"bench", "fake", "--seconds", "0.02", "--delivery", "views"})).code, 0);
  EXPECT_EQ(Forebay(With({"bench", "fake", "--seconds", "0.02", "--inline"})).code, 0);
}

}  // namespace
}  // namespace forebay::cli

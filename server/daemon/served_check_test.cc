// A program whose configuration names other data than the daemon serves is refused, with the key
// that differs.
#include "server/daemon/served_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/daemon/config/config.h"

namespace forebay::daemon {
namespace {

using ::testing::HasSubstr;

constexpr const char* kServed = R"(
[[dataset]]
name = "faces"
path = "/data/faces"
format = "raw"
shape = [4, 4]
[dataset.splits]
train = "train.txt"
[[dataset]]
name = "cells"
path = "/data/cells"
)";

Status CheckWanted(std::string_view wanted) {
  Config config = DefaultConfig();
  EXPECT_TRUE(LoadConfigText(kServed, "served", config).has_value());
  return CheckServes(config.datasets, wanted);
}

TEST(ServedCheckTest, TheSameDataHoweverStagedIsServed) {
  EXPECT_TRUE(CheckWanted(kServed).has_value());
  EXPECT_TRUE(CheckWanted("").has_value()) << "who wants nothing gets it";
  EXPECT_TRUE(CheckWanted("[[dataset]]\nname = \"cells\"\npath = \"/data/cells\"\n"
                    "persist = true\nextent = \"1MiB\"\n")
                  .has_value());
}

TEST(ServedCheckTest, EveryDifferenceIsNamedWithBothValues) {
  struct Case {
    const char* wanted;
    std::vector<const char*> words;
  };
  const Case cases[] = {
      {"[[dataset]]\nname = \"cells\"\npath = \"/other\"\n",
       {"'cells'", "path", "/data/cells", "/other", "FOREBAY_JOB_ID"}},
      {"[[dataset]]\nname = \"cells\"\npath = \"/data/cells\"\nformat = \"tar\"\n",
       {"format", "detected", "'tar'"}},
      {"[[dataset]]\nname = \"cells\"\npath = \"/data/cells\"\nsuffixes = [\".png\"]\n",
       {"suffixes", "[.png]"}},
      {"[[dataset]]\nname = \"cells\"\npath = \"/data/cells\"\n[dataset.splits]\na = \"b\"\n",
       {"splits", "a=b"}},
      {"[[dataset]]\nname = \"faces\"\npath = \"/data/faces\"\nformat = \"raw\"\nshape = [8, 4]\n"
       "[dataset.splits]\ntrain = \"train.txt\"\n",
       {"shape", "[4, 4]", "[8, 4]"}},
      {"[[dataset]]\nname = \"faces\"\npath = \"/data/faces\"\nformat = \"raw\"\nshape = [4, 4]\n"
       "dtype = \"f32\"\n[dataset.splits]\ntrain = \"train.txt\"\n",
       {"dtype", "f32"}},
      {"[[dataset]]\nname = \"absent\"\npath = \"/data\"\n", {"'absent' is not served"}},
  };
  for (const Case& c : cases) {
    const Status checked = CheckWanted(c.wanted);
    ASSERT_FALSE(checked.has_value()) << c.wanted;
    EXPECT_EQ(checked.error().code(), ErrorCode::kFailedPrecondition);
    for (const char* word : c.words) EXPECT_THAT(checked.error().message(), HasSubstr(word));
  }
}

std::uint64_t DigestOf(const std::string& text) {
  Config config = DefaultConfig();
  EXPECT_TRUE(LoadConfigText(text, "config", config).has_value());
  return ContentDigest(config.datasets);
}

TEST(ContentDigestTest, DependsOnWhatTheNodesOfAJobExchange) {
  const std::string a = "[[dataset]]\nname = \"a\"\npath = \"/gfs/a\"\n";
  const std::string b = "[[dataset]]\nname = \"b\"\npath = \"/gfs/b\"\n";
  const std::uint64_t digest = DigestOf(a + b);
  EXPECT_EQ(DigestOf(b + a), digest) << "the order of the tables does not matter";
  EXPECT_EQ(DigestOf(a + "extent = \"32MiB\"\n" + b), digest) << "nor does a default that is given";
  EXPECT_EQ(DigestOf(a + "persist = true\n" + b), digest) << "each node stores as it likes";
  for (const char* line : {"extent = \"1MiB\"\n", "compress = \"fast\"\n", "format = \"tar\"\n",
                           "suffixes = [\".png\"]\n", "splits = {x = \"x.txt\"}\n"}) {
    EXPECT_NE(DigestOf(a + line + b), digest) << line;
  }
  EXPECT_NE(DigestOf(a), digest);
}

TEST(ServedCheckTest, WhatIsNoConfigurationIsRefused) {
  EXPECT_EQ(CheckWanted("[[dataset]]\nname = ").error().code(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace forebay::daemon

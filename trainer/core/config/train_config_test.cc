// The table of keys: TOML, --set and flags set the same values in their order of precedence, what
// is printed reads back, and every refusal names its key.
#include "trainer/core/config/train_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "proto/contract/limits.h"
#include "trainer/testing/temp_folder.h"

namespace forebay::train::train_config_test {

using ::testing::HasSubstr;

Result<CommandLine> Parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "forebay-train");
  return ParseCommandLine(static_cast<int>(arguments.size()), arguments.data());
}

TEST(TrainConfig, TomlSetsEveryKindOfKey) {
  TrainConfig config;
  const Status applied = ApplyToml(config,
                                   "[train]\nepochs = 7\nlearning_rate = 0.25\n"
                                   "schedule = \"constant\"\nmomentum = 0\n"
                                   "[run]\nforce_slow_blas = true\n",
                                   "a.toml");
  ASSERT_TRUE(applied.has_value()) << applied.error().ToString();
  EXPECT_EQ(config.train.epochs, 7);
  EXPECT_EQ(config.train.learning_rate, 0.25);
  EXPECT_EQ(config.train.schedule, "constant");
  EXPECT_EQ(config.train.momentum, 0.0);
  EXPECT_TRUE(config.run.force_slow_blas);
}

TEST(TrainConfig, PrintedTomlReadsBackTheSame) {
  TrainConfig config;
  config.data.address = "unix:/a \"quoted\" \\ path\n\r\t\x01\x1b\x1f\x7f \u00e9";
  config.train.learning_rate = 0.1;
  TrainConfig again;
  const Status applied = ApplyToml(again, ToToml(config), "printed");
  ASSERT_TRUE(applied.has_value()) << applied.error().ToString();
  EXPECT_EQ(again.data.address, config.data.address);
  EXPECT_EQ(ToToml(again), ToToml(config));
}

TEST(TrainConfig, ListsAreNumbersOrOneNumber) {
  using ::testing::ElementsAre;
  TrainConfig config;
  ASSERT_TRUE(ApplyToml(config, "[model]\ninput_mean = [0.5, 1, -2.5]\ninput_stddev = 0.25\n", "a")
                  .has_value());
  EXPECT_THAT(config.model.input_mean, ElementsAre(0.5, 1, -2.5));
  EXPECT_THAT(config.model.input_stddev, ElementsAre(0.25));
  ASSERT_TRUE(SetConfigValue(config, "model.input_stddev", "0.1,2").has_value());
  EXPECT_THAT(config.model.input_stddev, ElementsAre(0.1, 2));
  for (const char* const text : {"", "0.1,", "0.1;2", "0,1", "0.1,nan", "0.1,1e7"}) {
    const Status set = SetConfigValue(config, "model.input_stddev", text);
    ASSERT_FALSE(set.has_value()) << text;
    EXPECT_THAT(set.error().message(), HasSubstr("model.input_stddev"));
  }
  EXPECT_FALSE(ApplyToml(config, "[model]\ninput_mean = []\n", "a").has_value());
  EXPECT_FALSE(ApplyToml(config, "[model]\ninput_mean = [\"0.5\"]\n", "a").has_value());
  EXPECT_THAT(config.model.input_mean, ElementsAre(0.5, 1, -2.5));
}

TEST(TrainConfig, FlagsAndDefaultsAreUniqueAndValid) {
  TrainConfig config;
  std::set<std::string> flags;
  for (const ConfigKey& key : ConfigKeys(config)) {
    EXPECT_TRUE(flags.insert(key.Flag()).second) << key.name;
    EXPECT_FALSE(key.help.empty()) << key.name;
  }
  TrainConfig defaults;
  EXPECT_TRUE(ApplyToml(defaults, ToToml(config), "defaults").has_value());
}

TEST(TrainConfig, FlagBeatsSetBeatsFile) {
  const testing::TempFolder folder;
  const std::string path = folder.path() / "train.toml";
  std::ofstream(path) << "[train]\nepochs = 2\nglobal_batch = 32\nseed = 9\n";
  const auto line = Parse({"--epochs", "4", "--config", path.c_str(), "--set", "train.epochs=3",
                           "--set", "train.global_batch=128", "--force-slow-blas"});
  ASSERT_TRUE(line.has_value()) << line.error().ToString();
  EXPECT_EQ(line->config.train.epochs, 4);
  EXPECT_EQ(line->config.train.global_batch, 128);
  EXPECT_EQ(line->config.train.seed, 9);
  EXPECT_TRUE(line->config.run.force_slow_blas);
  EXPECT_TRUE(line->text.empty());
}

TEST(TrainConfig, HelpNamesEveryFlagAndTheExitCodes) {
  const auto line = Parse({"--help"});
  ASSERT_TRUE(line.has_value());
  TrainConfig config;
  for (const ConfigKey& key : ConfigKeys(config)) EXPECT_THAT(line->text, HasSubstr(key.Flag()));
  EXPECT_THAT(line->text, HasSubstr("85"));
}

TEST(TrainConfig, ListOfModelsIsAskedForByAFlag) {
  EXPECT_TRUE(Parse({"--list-models"})->lists_models);
  EXPECT_FALSE(Parse({"--architecture", "anything"})->lists_models);
}

TEST(TrainConfig, PrintConfigShowsTheResult) {
  const auto line = Parse({"--print-config", "--epochs", "11"});
  ASSERT_TRUE(line.has_value());
  EXPECT_THAT(line->text, HasSubstr("epochs = 11\n"));
}

TEST(TrainConfig, BoundsAreInclusive) {
  TrainConfig config;
  EXPECT_TRUE(SetConfigValue(config, "train.epochs", "1").has_value());
  EXPECT_FALSE(SetConfigValue(config, "train.epochs", "0").has_value());
  const std::string most = std::to_string(limits::kGlobalBatchMax);
  EXPECT_TRUE(SetConfigValue(config, "train.global_batch", most).has_value());
  EXPECT_FALSE(SetConfigValue(config, "train.global_batch", most + "0").has_value());
}

struct Wrong {
  const char* document;
  const char* key;
};

TEST(TrainConfig, ErrorsNameTheKey) {
  for (const Wrong& wrong : {Wrong{"[train]\nepochs = 0\n", "train.epochs"},
                             Wrong{"[train]\nepochs = 1.5\n", "train.epochs"},
                             Wrong{"[train]\nepochs = \"3\"\n", "train.epochs"},
                             Wrong{"[train]\nlearning_rate = nan\n", "train.learning_rate"},
                             Wrong{"[train]\nschedule = \"linear\"\n", "train.schedule"},
                             Wrong{"[train]\nschedule = 3\n", "train.schedule"},
                             Wrong{"[train]\nepoch = 3\n", "train.epoch: no such key"},
                             Wrong{"[tarin]\nepochs = 3\n", "tarin.epochs: no such key"},
                             Wrong{"epochs = 3\n", "epochs"},
                             Wrong{"[run]\nforce_slow_blas = 1\n", "run.force_slow_blas"}}) {
    TrainConfig config;
    const Status applied = ApplyToml(config, wrong.document, "bad.toml");
    ASSERT_FALSE(applied.has_value()) << wrong.document;
    EXPECT_EQ(applied.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(applied.error().message(), HasSubstr(wrong.key));
    EXPECT_THAT(applied.error().message(), HasSubstr("bad.toml"));
  }
}

TEST(TrainConfig, SyntaxErrorNamesTheLine) {
  TrainConfig config;
  const Status applied = ApplyToml(config, "[train]\nepochs = = 3\n", "bad.toml");
  ASSERT_FALSE(applied.has_value());
  EXPECT_THAT(applied.error().message(), HasSubstr("line 2"));
}

TEST(TrainConfig, WrongCommandLinesAreRefused) {
  for (const std::vector<const char*>& arguments :
       {std::vector<const char*>{"--no-such-flag"}, {"--set", "train.epochs"},
        {"--set", "train.nothing=1"}, {"--epochs", "many"}, {"--epochs", "3x"},
        {"--config", "/nonexistent/train.toml"}}) {
    EXPECT_FALSE(Parse(arguments).has_value()) << arguments[0];
  }
}

TEST(TrainConfig, OversizedFileIsRefused) {
  const testing::TempFolder folder;
  const std::string path = folder.path() / "huge.toml";
  std::ofstream(path) << std::string(limits::kConfigFileBytesMax + 1, '#');
  TrainConfig config;
  const Status applied = ApplyTomlFile(config, path);
  ASSERT_FALSE(applied.has_value());
  EXPECT_EQ(applied.error().code(), ErrorCode::kResourceExhausted);
}

}  // namespace forebay::train::train_config_test

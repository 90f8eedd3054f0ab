// Sets of packs on the command line, and `forebay verify` of files.
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/cli/inspect/pack_verify.h"
#include "client/cli/testing/pack_command_test_folder.h"
#include "client/testing/fake_daemon.h"

namespace forebay::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

using PackSetCommandTest = PackCommandTest;

TEST_F(PackSetCommandTest, ShardsAppendedComeBackAsOne) {
  const std::string pixels = MakeImages(20);
  const std::string set = Path("train.fbset");
  const ForebayRun first = Forebay({"pack", "--images", Path("in"), set, "--shard-size", "10kB"});
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_THAT(first.out, HasSubstr("generation 1"));
  const ForebayRun second =
      Forebay({"pack", "--images", Path("in"), set, "--append", "--limit", "7", "--json"});
  ASSERT_EQ(second.code, 0) << second.out;
  EXPECT_EQ(second.last()["generation"], 2);
  EXPECT_EQ(second.last()["samples"], 27);
  EXPECT_EQ(second.last()["samples_added"], 7);
  EXPECT_EQ(second.last()["shards_added"], 1);
  ASSERT_TRUE(fs::exists(Path("train-g0002-00000.fbp")));
  ASSERT_EQ(Forebay({"unpack", set, "--to", Path("all")}).code, 0);
  const std::size_t sample = pixels.size() / 20;
  EXPECT_EQ(Elements("all/image.npy"), pixels + pixels.substr(0, 7 * sample));
  ASSERT_EQ(Forebay({"unpack", set, "--to", Path("part"), "--range", "13:22"}).code, 0);
  EXPECT_EQ(Elements("part/image.npy"),
            pixels.substr(13 * sample) + pixels.substr(0, 2 * sample));
  EXPECT_EQ(Elements("part/label.npy").size(), 9U * 4);
}

// All shards have one bound, although the images that are added have another range.
TEST_F(PackSetCommandTest, ShardsAppendedKeepTheRangeOfARelativeBound) {
  MakeImages(20);
  const std::string set = Path("b.fbset");
  const auto append = [&](const std::string& bound, const char* limit) {
    return Forebay({"pack", "--images", Path("in"), set, "--append", "--limit", limit, "--bound",
                    bound});
  };
  ASSERT_EQ(append("rel:0.02", "20").code, 0);
  const ForebayRun second = append("rel:0.02", "1");
  ASSERT_EQ(second.code, 0) << second.err;
  EXPECT_THAT(Forebay({"inspect", set}).out, HasSubstr("(rel 0.02 of the field's range, "));
  const ForebayRun other = append("rel:0.03", "1");
  EXPECT_NE(other.code, 0);
}

TEST_F(PackSetCommandTest, ABoundThatIsNotTheSetsIsNamedBesideIt) {
  MakeImages(4);
  const std::string set = Path("s.fbset");
  ASSERT_EQ(Forebay({"pack", "--images", Path("in"), set, "--append", "--bound", "chunk-rel:0.1"})
                .code, 0);
  const ForebayRun other =
      Forebay({"pack", "--images", Path("in"), set, "--append", "--bound", "rel:0.1"});
  EXPECT_EQ(other.code, static_cast<int>(ExitCode::kRefused));
  EXPECT_THAT(other.err, HasSubstr("chunk-rel 0.1"));
  EXPECT_THAT(other.err, HasSubstr("earlier versions"));
  EXPECT_EQ(Forebay({"pack", "--images", Path("in"), set, "--append", "--bound", "chunk-rel:0.1"})
                .code, 0);
}

TEST_F(PackSetCommandTest, InspectShowsShardsAndTheirSum) {
  MakeImages(20);
  const std::string set = Path("s.fbset");
  ASSERT_EQ(Forebay({"pack", "--images", Path("in"), set, "--shard-size", "15KB"}).code, 0);
  const ForebayRun table = Forebay({"inspect", set, "--chunks"});
  ASSERT_EQ(table.code, 0) << table.err;
  for (const char* words : {"s-g0001-00000.fbp", "s-g0001-00001.fbp", "20 samples",
                            "generation 1", "image"}) {
    EXPECT_THAT(table.out, HasSubstr(words));
  }
  const Json json = Forebay({"inspect", set, "--json", "--verify"}).last();
  EXPECT_EQ(json["generation"], 1);
  EXPECT_GT(json["shards"].size(), 1U);
  EXPECT_EQ(json["fields"][0]["raw_bytes"], 20 * kRows * kColumns * 3);
  std::uint64_t bytes = 0;
  for (const auto& shard : json["shards"]) bytes += shard["file_bytes"].get<std::uint64_t>();
  EXPECT_EQ(json["file_bytes"], bytes);
  EXPECT_EQ(Forebay({"inspect", set, "--recover"}).code, 2);
}

TEST_F(PackSetCommandTest, OtherClassesAndOtherLayoutsAreRefused) {
  MakeImages(8);
  const std::string set = Path("s.fbset");
  ASSERT_EQ(Forebay({"pack", "--images", Path("in"), set, "--append"}).code, 0);
  const ForebayRun layout = Forebay(
      {"pack", "--images", Path("in"), set, "--append", "--samples-per-chunk", "4"});
  EXPECT_EQ(layout.code, 6);
  EXPECT_THAT(layout.err, HasSubstr("another schema"));
  EXPECT_EQ(Forebay({"pack", "--images", Path("in"), set, "--shard-size", "1MB"}).code, 1)
      << "it exists";
  fs::rename(Path("in/dog"), Path("in/bird"));
  const ForebayRun classes = Forebay({"pack", "--images", Path("in"), set, "--append"});
  EXPECT_EQ(classes.code, 6);
  EXPECT_THAT(classes.err, HasSubstr("other classes"));
  EXPECT_EQ(Forebay({"inspect", set, "--json"}).last()["samples"], 8);
  EXPECT_EQ(Forebay({"pack", "--images", Path("in"), set, "--shard-size", "many"}).code, 2);
}

TEST_F(PackSetCommandTest, AResumedRunEndsAsAnUninterruptedOne) {
  MakeImages(20);
  const auto arguments = [this](const std::string& set) {
    return std::vector<std::string>{"pack", "--images", Path("in"), Path(set), "--shard-size",
                                    "10kB", "--id", "00112233445566778899aabbccddeeff"};
  };
  ASSERT_EQ(Forebay(arguments("a.fbset")).code, 0);
  // A run that broke off: one of its images is damaged, and repaired before the run is resumed.
  const std::string broken = "in/dog/115.ppm";
  const std::string image = Read(broken);
  Write(broken, image.substr(0, 40));
  EXPECT_NE(Forebay(arguments("b.fbset")).code, 0);
  EXPECT_FALSE(fs::exists(Path("b.fbset")));
  Write(broken, image);
  const std::vector<std::string> again = arguments("b.fbset");
  EXPECT_THAT(Forebay(again).err, HasSubstr("resume it or remove"));
  auto resume = again;
  resume.push_back("--resume");
  const ForebayRun run = Forebay(resume);
  ASSERT_EQ(run.code, 0) << run.err;
  const auto uninterrupted = Forebay({"inspect", Path("a.fbset"), "--json"}).last();
  ASSERT_FALSE(uninterrupted["shards"].empty());
  for (const auto& shard : uninterrupted["shards"]) {
    std::string name = shard["name"];
    const std::string expected = Read(name);
    name[0] = 'b';
    EXPECT_TRUE(Read(name) == expected) << name;
  }
}

TEST_F(PackSetCommandTest, VerifyNamesWhatIsDamaged) {
  MakeImages(20);
  const std::string set = Path("s.fbset");
  const std::string pack = Path("p.fbp");
  ASSERT_EQ(Forebay({"pack", "--images", Path("in"), set, "--shard-size", "10kB"}).code, 0);
  ASSERT_EQ(Forebay({"pack", "--images", Path("in"), pack}).code, 0);
  const ForebayRun sound = Forebay({"verify", set, pack});
  EXPECT_EQ(sound.code, 0) << sound.err;
  EXPECT_THAT(sound.out, HasSubstr("s.fbset: verified 20 samples"));
  EXPECT_THAT(sound.out, HasSubstr("p.fbp: verified 20 samples"));
  Flip("s-g0001-00001.fbp", fs::file_size(Path("s-g0001-00001.fbp")) / 2);
  fs::remove(Path("s-g0001-00002.fbp"));
  const ForebayRun damaged = Forebay({"verify", set, pack});
  EXPECT_EQ(damaged.code, 3);
  EXPECT_THAT(damaged.err, HasSubstr("s-g0001-00001.fbp"));
  EXPECT_THAT(damaged.err, HasSubstr("s-g0001-00002.fbp"));
  EXPECT_THAT(damaged.out, HasSubstr("p.fbp: verified 20 samples"));
  const Json json = Forebay({"verify", set, "--json"}).last();
  EXPECT_EQ(json["schema"], "forebay.verify_pack.v1");
  EXPECT_GE(json["damage"].size(), 2U);
  EXPECT_EQ(Forebay({"verify", Path("none.fbp"), pack}).code, 5);
  EXPECT_THAT(Forebay({"verify", Path("none.fbp"), pack}).out, HasSubstr("p.fbp: verified"));
}

TEST_F(PackSetCommandTest, VerifyTakesDataSetsByNameAndPacksByPath) {
  for (const char* path : {"./a", "a.fbp", "b/a.fbset", "a.fbset", "/a"}) {
    EXPECT_TRUE(IsPackPath(path)) << path;
  }
  for (const char* name : {"a", "imagenet", "a.fbp2", "fbp"}) EXPECT_FALSE(IsPackPath(name));
  MakeImages(4);
  const std::string pack = Path("p.fbp");
  ASSERT_EQ(Forebay({"pack", "--images", Path("in"), pack}).code, 0);
  // Both at once: the pack is verified, and the data set asked for of a daemon that is not there.
  const ForebayRun both = Forebay({"verify", pack, "mnist", "--address", "unix:/nonexistent/s"});
  EXPECT_EQ(both.code, 4);
  EXPECT_THAT(both.out, HasSubstr("p.fbp: verified 4 samples"));
}

TEST_F(PackSetCommandTest, StatisticsAreShownAndVerified) {
  const std::string pixels = MakeImages(12);
  const std::string set = Path("s.fbset");
  const std::string pack = Path("p.fbp");
  ASSERT_EQ(Forebay({"pack", "--images", Path("in"), set, "--shard-size", "10kB"}).code, 0);
  ASSERT_EQ(Forebay({"pack", "--images", Path("in"), pack}).code, 0);
  double sum = 0;
  for (const char pixel : pixels) sum += static_cast<unsigned char>(pixel);
  for (const std::string& path : {set, pack}) {
    const Json image = Forebay({"inspect", path, "--json"}).last()["fields"][0]["statistics"];
    EXPECT_EQ(image["values"], pixels.size());
    EXPECT_EQ(image["valid"], pixels.size());
    EXPECT_NEAR(image["mean"].get<double>(), sum / static_cast<double>(pixels.size()), 1e-9);
    EXPECT_GT(image["deviation"], 1.0);
    EXPECT_EQ(image["positive_infinities"], 0);
  }
  // Those of packs of both versions are verified, bit by bit.
  const std::string golden = std::string(FOREBAY_GOLDEN_FOLDER) + "/good/";
  for (const char* name : {"statistics.fbp", "statistics_v2.fbp", "pressures_v2.fbp"}) {
    const ForebayRun run = Forebay({"verify", golden + name});
    EXPECT_EQ(run.code, 0) << run.err;
  }
  // What format 1 does not know is null, not 0.
  const ForebayRun old = Forebay({"inspect", golden + "statistics.fbp"});
  EXPECT_THAT(old.out, HasSubstr("statistics of format 1"));
  const Json before =
      Forebay({"inspect", golden + "statistics.fbp", "--json"}).last()["fields"][0]["statistics"];
  EXPECT_TRUE(before["positive_infinities"].is_null());
  EXPECT_EQ(before["approximate"], true);
  // Integers are shown as such, also beyond what an f64 can tell.
  const Json time =
      Forebay({"inspect", golden + "times_v2.fbp", "--json"}).last()["fields"][0]["statistics"];
  EXPECT_TRUE(time["min"].is_number_integer());
  EXPECT_EQ(time["approximate"], false);
  const Json air =
      Forebay({"inspect", golden + "pressures_v2.fbp", "--json"}).last()["fields"][0]["statistics"];
  EXPECT_EQ(air["negative_infinities"], 1);
  EXPECT_NEAR(air["deviation"].get<double>(), 0.01, 1e-4);
  const Json label = Forebay({"inspect", pack, "--json"}).last()["fields"][1]["statistics"];
  EXPECT_EQ(label["min"], 0);
  EXPECT_EQ(label["max"], 1);
  EXPECT_EQ(label["mean"], 0.5);
  EXPECT_EQ(label["zeros"], 6);
  EXPECT_THAT(Forebay({"inspect", pack}).out, HasSubstr("deviation"));
  // Their record damaged: the footer says where it is.
  const std::string bytes = Read("p.fbp");
  std::uint64_t at = 0;
  for (std::size_t i = 8; i-- > 0;) {
    at = at << 8 | static_cast<unsigned char>(bytes[bytes.size() - 64 + 32 + i]);
  }
  Flip("p.fbp", at + 60);
  const ForebayRun shown = Forebay({"inspect", pack});
  EXPECT_EQ(shown.code, 3);
  EXPECT_THAT(shown.err, HasSubstr("statistics"));
  EXPECT_THAT(shown.out, Not(HasSubstr("deviation")));
  EXPECT_EQ(Forebay({"verify", pack}).code, 3);
  EXPECT_EQ(Forebay({"unpack", pack, "--to", Path("all")}).code, 0) << "the rest can be read";
}

}  // namespace
}  // namespace forebay::cli

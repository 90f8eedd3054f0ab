// `forebay pack`, `unpack` and `inspect`, from images and data sets to files and back.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/cli/testing/pack_command_test_folder.h"
#include "client/testing/fake_daemon.h"
#include "client/testing/fake_dataset.h"
#include "compress/encode/pack/pack_writer.h"
#include "compress/format/pack/pack_format.h"

namespace forebay::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::ContainsRegex;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using forebay::testing::FakeDaemon;
using forebay::testing::FakeDataset;

TEST_F(PackCommandTest, ImagesComeBackBitForBit) {
  const std::string pixels = MakeImages(21);
  for (const std::string profile : {"fast", "balanced", "dense"}) {
    const std::string pack = Path(profile + ".fbp");
    const ForebayRun packed = Forebay({"pack", "--images", Path("in"), pack, "--profile", profile,
                                    "--threads", "2", "--json"});
    ASSERT_EQ(packed.code, 0) << packed.out;
    EXPECT_EQ(packed.last()["schema"], "forebay.pack.v1");
    EXPECT_EQ(packed.last()["event"], "done");
    EXPECT_EQ(packed.last()["samples"], 21);
    EXPECT_EQ(packed.last()["raw_bytes"], pixels.size() + 21 * 4);
    EXPECT_EQ(packed.last()["file_bytes"], fs::file_size(pack));
    EXPECT_GT(packed.last()["ratio"], 1.2);
    const ForebayRun unpacked = Forebay({"unpack", pack, "--to", Path(profile)});
    ASSERT_EQ(unpacked.code, 0) << unpacked.err;
    EXPECT_EQ(Elements(profile + "/image.npy"), pixels);
    EXPECT_THAT(Read(profile + "/image.npy"), HasSubstr("'|u1'"));
    EXPECT_THAT(Read(profile + "/image.npy"), HasSubstr("(21, 20, 24, 3)"));
    std::string labels;
    for (int i = 0; i < 21; ++i) labels += std::string(1, i < 10 ? '\0' : '\1') + std::string(3, 0);
    EXPECT_EQ(Elements(profile + "/label.npy"), labels);
    EXPECT_EQ(Forebay({"inspect", pack, "--verify"}).code, 0);
  }
}

TEST_F(PackCommandTest, AnyNumberOfThreadsAndAResumedRunGiveOneFile) {
  MakeImages(20);
  const std::string id = "00112233445566778899aabbccddeeff";
  const std::vector<std::string> options = {"--tile", "8x16", "--sequence-length", "3",
                                            "--align", "--samples-per-chunk", "4", "--id", id};
  const auto pack = [&](const std::string& name, std::vector<std::string> more) {
    std::vector<std::string> arguments = {"pack", "--images", Path("in"), Path(name)};
    arguments.insert(arguments.end(), options.begin(), options.end());
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Forebay(std::move(arguments));
  };
  ASSERT_EQ(pack("one.fbp", {"--threads", "1"}).code, 0);
  ASSERT_EQ(pack("many.fbp", {"--threads", "3"}).code, 0);
  EXPECT_EQ(Read("one.fbp"), Read("many.fbp"));
  // The last image breaks the first run; the second finds it mended.
  const std::string last = Read("in/dog/119.ppm");
  Write("in/dog/119.ppm", last.substr(0, 100));
  const ForebayRun broken = pack("again.fbp", {});
  EXPECT_EQ(broken.code, 3);
  EXPECT_THAT(broken.err, HasSubstr("119.ppm: is cut off"));
  EXPECT_THAT(broken.err, HasSubstr("--resume"));
  EXPECT_FALSE(fs::exists(Path("again.fbp")));
  const ForebayRun left = Forebay({"inspect", "--recover", "--json", Path("again.fbp.part")});
  EXPECT_EQ(left.code, 0) << left.out;
  EXPECT_TRUE(left.last()["recovered"]);
  Write("in/dog/119.ppm", last);
  EXPECT_THAT(pack("again.fbp", {}).err, HasSubstr("unfinished pack"));
  EXPECT_EQ(pack("again.fbp", {"--resume", "--sequence-length", "4"}).code, 2)
      << "an option given twice";
  const ForebayRun resumed = pack("again.fbp", {"--resume"});
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(Read("one.fbp"), Read("again.fbp"));
}

TEST_F(PackCommandTest, ARunThatWasKilledBeforeItsFirstByteIsResumed) {
  MakeImages(4);
  Write("a.fbp.part", "");
  const ForebayRun run = Forebay({"pack", "--images", Path("in"), Path("a.fbp"), "--resume"});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(Forebay({"verify", Path("a.fbp")}).code, 0);
}

TEST_F(PackCommandTest, IdsAreRandomUnlessGivenAndShown) {
  MakeImages(4);
  const std::string id = "00112233445566778899aabbccddeeff";
  const auto pack = [&](const std::string& name, std::vector<std::string> more) {
    std::vector<std::string> arguments = {"pack", "--images", Path("in"), Path(name)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Forebay(std::move(arguments));
  };
  const auto shown = [&](const std::string& name) {
    return Forebay({"inspect", Path(name), "--json"}).last();
  };
  ASSERT_EQ(pack("a.fbp", {}).code, 0);
  ASSERT_EQ(pack("b.fbp", {}).code, 0);
  EXPECT_NE(Read("a.fbp"), Read("b.fbp"));
  EXPECT_NE(shown("a.fbp")["id"], shown("b.fbp")["id"]);
  EXPECT_EQ(shown("a.fbp")["format"], "2.0");
  ASSERT_EQ(pack("c.fbp", {"--id", id}).code, 0);
  ASSERT_EQ(pack("d.fbp", {"--id", id}).code, 0);
  EXPECT_EQ(Read("c.fbp"), Read("d.fbp"));
  EXPECT_EQ(shown("c.fbp")["id"], id);
  EXPECT_THAT(Forebay({"inspect", Path("c.fbp")}).out, HasSubstr("format 2.0, id " + id));
  const ForebayRun refused = pack("e.fbp", {"--id", id.substr(1)});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("--id: '" + id.substr(1) + "' is no id of a pack"));
  // Of a set, shards have ids of their own, the same in every run.
  ASSERT_EQ(pack("e.fbset", {"--id", id, "--shard-size", "3KiB"}).code, 0);
  ASSERT_EQ(pack("f.fbset", {"--id", id, "--shard-size", "3KiB"}).code, 0);
  const Json one = shown("e.fbset")["shards"], other = shown("f.fbset")["shards"];
  ASSERT_GE(one.size(), 2U);
  for (std::size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i]["id"], other[i]["id"]);
    EXPECT_NE(one[i]["id"], i == 0 ? Json(id) : one[i - 1]["id"]);
  }
  const ForebayRun old =
      Forebay({"inspect", std::string(FOREBAY_GOLDEN_FOLDER) + "/good/keys.fbp"});
  EXPECT_THAT(old.out, HasSubstr("format 1.0, without an id"));
}

TEST_F(PackCommandTest, DamageIsFoundAndNamed) {
  MakeImages(16, 1);
  const std::string pack = Path("p.fbp");
  ASSERT_EQ(Forebay({"pack", "--images", Path("in"), pack}).code, 0);
  const ForebayRun chunks = Forebay({"inspect", pack, "--chunks", "--json"});
  ASSERT_EQ(chunks.code, 0);
  const Json first = Json::parse(chunks.out.substr(0, chunks.out.find('\n')));
  EXPECT_EQ(first["schema"], "forebay.inspect_chunk.v1");
  EXPECT_EQ(first["samples"], 8);
  const auto offset = first["offset"].get<std::uint64_t>();
  // In the payload: the head is sound, so only --verify finds it.
  Flip("p.fbp", offset + first["stored_bytes"].get<std::uint64_t>() - 9);
  EXPECT_EQ(Forebay({"inspect", pack}).code, 0);
  const ForebayRun verified = Forebay({"inspect", pack, "--verify"});
  EXPECT_EQ(verified.code, 3);
  EXPECT_THAT(verified.err, HasSubstr("chunk of field image, samples 0 to 7, at byte " +
                                      std::to_string(offset)));
  EXPECT_THAT(verified.out, ContainsRegex("verified [0-9]+ chunks: 1 damaged"));
  const Json json = Forebay({"inspect", pack, "--verify", "--json"}).last();
  EXPECT_EQ(json["damage"].size(), 1U);
  const ForebayRun unpacked = Forebay({"unpack", pack, "--to", Path("out")});
  EXPECT_EQ(unpacked.code, 3);
  EXPECT_FALSE(fs::exists(Path("out/image.npy"))) << "what is not whole does not stay";
  EXPECT_EQ(Forebay({"unpack", pack, "--to", Path("out"), "--range", "8:"}).code, 0);
  // In the head: found without decoding.
  Flip("p.fbp", offset + 45);
  const ForebayRun heads = Forebay({"inspect", pack});
  EXPECT_EQ(heads.code, 3);
  EXPECT_THAT(heads.err, HasSubstr("heads of 1 chunks are damaged"));
  EXPECT_THAT(Forebay({"inspect", pack, "--chunks"}).out, HasSubstr("damaged"));
}

TEST_F(PackCommandTest, InspectShowsFieldsAndProvenance) {
  MakeImages(12);
  const std::string pack = Path("p.fbp");
  ASSERT_EQ(Forebay({"pack", "--images", Path("in"), pack, "--limit", "9"}).code, 0);
  const ForebayRun table = Forebay({"inspect", pack, "--chunks"});
  for (const char* words : {"9 samples", "20x24x3", "class.label.1: dog", "writer: forebay",
                            "lossless", "scalar"}) {
    EXPECT_THAT(table.out, HasSubstr(words));
  }
  const Json json = Forebay({"inspect", pack, "--json"}).last();
  EXPECT_EQ(json["schema"], "forebay.inspect.v1");
  EXPECT_EQ(json["provenance"]["class.label.0"], "cat");
  EXPECT_EQ(json["fields"][0]["chunks"], 2);
  EXPECT_THAT(table.out, HasSubstr("0:6")) << "a chunk ends where the next class begins";
  std::uint64_t raw = 0;
  for (const auto& bytes : json["fields"][0]["raw_bytes_of_codec"]) {
    raw += bytes.get<std::uint64_t>();
  }
  EXPECT_EQ(raw, json["fields"][0]["raw_bytes"]);
}

TEST_F(PackCommandTest, AFileWithoutItsEndIsRecovered) {
  MakeImages(16);
  const std::string pack = Path("p.fbp");
  ASSERT_EQ(Forebay({"pack", "--images", Path("in"), pack}).code, 0);
  fs::resize_file(pack, fs::file_size(pack) - 10);
  const ForebayRun run = Forebay({"inspect", pack});
  EXPECT_EQ(run.code, 3);
  EXPECT_THAT(run.err, HasSubstr("p.fbp"));
  EXPECT_THAT(run.err, HasSubstr("--recover"));
  const ForebayRun recovered = Forebay({"inspect", pack, "--recover"});
  EXPECT_EQ(recovered.code, 0) << recovered.err;
  EXPECT_THAT(recovered.out, HasSubstr("16 samples complete"));
  EXPECT_EQ(Forebay({"inspect", pack, "--recover", "--verify"}).code, 0);
  EXPECT_EQ(Forebay({"inspect", Path("none")}).code, 5);
  Write("text", std::string(200, 'x'));
  EXPECT_EQ(Forebay({"inspect", Path("text")}).code, 2);
}

TEST_F(PackCommandTest, BoundsAreKept) {
  const std::string pixels = MakeImages(16, 1);
  const std::string pack = Path("p.fbp");
  const ForebayRun run = Forebay({"pack", "--images", Path("in"), pack, "--bound", "abs:2"});
  ASSERT_EQ(run.code, 0) << run.err;
  ASSERT_EQ(Forebay({"unpack", pack, "--to", Path("out"), "--field", "image"}).code, 0);
  const std::string decoded = Elements("out/image.npy");
  ASSERT_EQ(decoded.size(), pixels.size());
  int largest = 0;
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<unsigned char>(pixels[i]) -
                                         static_cast<unsigned char>(decoded[i])));
  }
  EXPECT_LE(largest, 2);
  EXPECT_GT(largest, 0) << "the bound was not used";
  EXPECT_THAT(Forebay({"inspect", pack}).out, HasSubstr("abs 2"));
  EXPECT_FALSE(fs::exists(Path("out/label.npy")));
}

// Four samples whose values lie within 1, and four within 100, each a chunk: a bound relative to
// the field is the same for all, one relative to chunks a hundred times as small for the first.
TEST_F(PackCommandTest, RelativeBoundsAreOfTheFieldUnlessSaidToBeOfChunks) {
  constexpr int kSamples = 8, kValues = 64 * 64;
  std::mt19937 random(kSeed);
  std::vector<float> values;
  for (int i = 0; i < kSamples * kValues; ++i) {
    const float scale = i < kSamples * kValues / 2 ? 1.0F : 100.0F;
    values.push_back(scale * (static_cast<float>(random() % 10'001) / 10'000.0F));
  }
  values[0] = 0;
  values.back() = 100;
  Write("raw", std::string(reinterpret_cast<const char*>(values.data()), values.size() * 4));
  // The largest error among the first samples, and among all.
  const auto errors = [&](const std::string& bound, const std::string& name) {
    const ForebayRun run = Forebay({"pack", "--from", Path("raw"), "--dtype", "f32", "--shape",
                                 "64x64", Path(name), "--samples-per-chunk", "1", "--bound",
                                 bound});
    EXPECT_EQ(run.code, 0) << run.err;
    EXPECT_EQ(Forebay({"unpack", Path(name), "--to", Path(name + ".out")}).code, 0);
    const std::string decoded = Elements(name + ".out/data.npy");
    EXPECT_EQ(decoded.size(), values.size() * 4);
    double first = 0, all = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      float value = 0;
      std::memcpy(&value, decoded.data() + 4 * i, 4);
      const double error = std::fabs(static_cast<double>(value) - values[i]);
      all = std::max(all, error);
      if (i < values.size() / 2) first = std::max(first, error);
    }
    return std::pair(first, all);
  };
  const auto of_field = errors("rel:1e-3", "field.fbp");
  EXPECT_LE(of_field.second, 0.1);
  EXPECT_GT(of_field.first, 0.01) << "bounded by a chunk's own range";
  const auto of_chunk = errors("chunk-rel:1e-3", "chunk.fbp");
  EXPECT_LE(of_chunk.first, 0.001);
  EXPECT_GT(of_chunk.first, 0) << "the bound was not used";
  EXPECT_LE(of_chunk.second, 0.1);
  const auto of_given = errors("rel:1e-3,0,10", "given.fbp");
  EXPECT_LE(of_given.second, 0.01);
  EXPECT_GT(of_given.first, 0.001) << "the given range was not used";
  // The range that was given is compared with what came.
  const ForebayRun beyond = Forebay({"pack", "--from", Path("raw"), "--dtype", "f32", "--shape",
                                  "64x64", Path("beyond.fbp"), "--bound", "rel:1e-3,0,10"});
  EXPECT_THAT(beyond.err, AllOf(HasSubstr("warning: field data: values lie from"),
                                HasSubstr("beyond the range that --bound gave, 0 to 10")));
  const auto bound = [&](const char* name) {
    return Forebay({"inspect", Path(name), "--json"}).last()["fields"][0]["bound"];
  };
  EXPECT_EQ(bound("field.fbp"), "abs 0.1 (rel 0.001 of the field's range, 0 to 100)");
  EXPECT_EQ(bound("chunk.fbp"), "chunk-rel 0.001");
  EXPECT_EQ(bound("given.fbp"), "abs 0.01 (rel 0.001 of the field's range, 0 to 10)");
  EXPECT_THAT(Forebay({"inspect", Path("field.fbp")}).out,
              AllOf(HasSubstr("bound.data: rel:0.001,0,100"),
                    HasSubstr("bound-range.data: found")));
  // Packed anew under another bound, nothing is said of the one before.
  ASSERT_EQ(Forebay({"pack", "--from", Path("field.fbp"), Path("again.fbp"), "--bound", "abs:1"})
                .code, 0);
  EXPECT_EQ(bound("again.fbp"), "abs 1");
}

TEST_F(PackCommandTest, WhatIsAskedForWrongly) {
  MakeImages(4);
  const auto with = [&](std::vector<std::string> more, const std::string& words, int code = 2) {
    std::vector<std::string> arguments = {"pack", "--images", Path("in"), Path("x.fbp")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ForebayRun run = Forebay(arguments);
    EXPECT_EQ(run.code, code) << run.err;
    EXPECT_THAT(run.err, HasSubstr(words));
    EXPECT_FALSE(fs::exists(Path("x.fbp.part"))) << words;
  };
  with({"--bound", "abs"}, "wanted is abs:X");
  with({"--bound", "abs:1", "--bound", "abs:2"}, "say of which field");
  with({"--bound", "abs:1", "--field", "image", "--field", "label"}, "2 times --field and 1");
  with({"--bound", "abs:1", "--field", "picture"}, "there are: image, label", 5);
  with({"--bound", "pw:0.1"}, "pw is for floating point");
  with({"--tile", "8"}, "rows and columns");
  with({"--tile", "20x24", "--samples-per-chunk", "60000"}, "would fit");
  with({"--selection", "hash:0.5"}, "are for data sets");
  with({"--profile", "best"}, "--profile");
  EXPECT_EQ(Forebay({"pack", Path("x.fbp")}).code, 2);
  EXPECT_EQ(Forebay({"pack", "--images", Path("none"), Path("x.fbp")}).code, 5);
  Write("there.fbp", "");
  EXPECT_THAT(Forebay({"pack", "--images", Path("in"), Path("there.fbp")}).err,
              AllOf(HasSubstr("exists already"), HasSubstr("--force")));
  EXPECT_EQ(Forebay({"--timeout-ms", "50", "pack", "set", Path("y.fbp"), "--address",
                     "unix:/nonexistent/s"})
                .code,
            4);
}

TEST_F(PackCommandTest, UnpackOverwritesNothing) {
  MakeImages(4);
  const std::string pack = Path("p.fbp");
  ASSERT_EQ(Forebay({"pack", "--images", Path("in"), pack}).code, 0);
  Write("out/image.npy", "mine");
  const ForebayRun run = Forebay({"unpack", pack, "--to", Path("out")});
  EXPECT_EQ(run.code, 1);
  EXPECT_THAT(run.err, HasSubstr("out/image.npy: exists already"));
  EXPECT_EQ(Read("out/image.npy"), "mine");
  EXPECT_EQ(Forebay({"unpack", pack, "--to", Path("b"), "--field", "depth"}).code, 5);
  EXPECT_EQ(Forebay({"unpack", pack, "--to", Path("b"), "--range", "0:5"}).code, 2);
  EXPECT_EQ(Forebay({"unpack", pack, "--to", Path("no/such"), "--range", "0:2"}).code, 5);
  const ForebayRun range = Forebay({"unpack", pack, "--to", Path("c"), "--range", "1:3", "--json"});
  EXPECT_EQ(range.last()["samples"], 2);
  EXPECT_EQ(range.last()["files"], 2);
  EXPECT_THAT(Read("c/label.npy"), HasSubstr("(2,)"));
}

// A pack with one variable field, whose samples have these keys.
std::vector<std::string> WriteStrings(const std::string& path, const std::string& field,
                                      const std::vector<std::string>& keys,
                                      std::size_t first_bytes) {
  compress::PackSchema schema;
  schema.keyed = !keys.front().empty();
  schema.fields = {{.name = field, .bound = {}, .samples_per_chunk = 2}};
  auto writer = compress::PackWriter::Create(path, schema, {});
  EXPECT_TRUE(writer.has_value());
  std::vector<std::string> values;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    values.push_back(std::string(i == 0 ? first_bytes : i, static_cast<char>('a' + i)));
    const std::vector<std::span<const std::byte>> fields = {
        std::as_bytes(std::span<const char>(values.back()))};
    EXPECT_TRUE((*writer)->Add(fields, keys[i]).has_value());
  }
  EXPECT_TRUE((*writer)->Finish().has_value());
  return values;
}

TEST_F(PackCommandTest, TextIsNotBounded) {
  WriteStrings(Path("text.fbp"), "text", {"a", "b"}, 20);
  const ForebayRun run = Forebay({"pack", "--from", Path("text.fbp"), Path("x.fbp"), "--bound",
                               "abs:20", "--field", "text"});
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, AllOf(HasSubstr("--bound abs:20"), HasSubstr("field text: an error bound"),
                             HasSubstr("leave this one lossless")));
  EXPECT_FALSE(fs::exists(Path("x.fbp.part")));
}

TEST_F(PackCommandTest, TextThatAnEarlierVersionBoundedIsPackedAgainAsItIs) {
  const std::string old = std::string(FOREBAY_GOLDEN_FOLDER) + "/good/bounded_text.fbp";
  ASSERT_EQ(Forebay({"inspect", old, "--json"}).last()["fields"][0]["bound"], "abs 20");
  const ForebayRun run = Forebay({"pack", "--from", old, Path("new.fbp")});
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("note: field text was packed with an error bound, which may have "
                                 "changed its bytes"));
  EXPECT_EQ(Forebay({"inspect", Path("new.fbp"), "--json"}).last()["fields"][0]["bound"],
            "lossless");
  ASSERT_EQ(Forebay({"unpack", old, "--to", Path("before")}).code, 0);
  ASSERT_EQ(Forebay({"unpack", Path("new.fbp"), "--to", Path("after")}).code, 0);
  const std::string text = Read("before/text/fox");
  EXPECT_EQ(text.size(), 704U);
  EXPECT_TRUE(Read("after/text/fox") == text);
}

TEST_F(PackCommandTest, StringsBecomeFilesByKey) {
  // The first is longer than a chunk and comes in parts.
  const auto values = WriteStrings(Path("s.fbp"), "text", {"x/long", "x/b", "c"}, 9'000'001);
  const ForebayRun run = Forebay({"unpack", Path("s.fbp"), "--to", Path("out"), "--json"});
  ASSERT_EQ(run.code, 0) << run.out;
  EXPECT_EQ(run.last()["files"], 3);
  EXPECT_TRUE(Read("out/text/x/long") == values[0]);
  EXPECT_EQ(Read("out/text/x/b"), values[1]);
  EXPECT_EQ(Read("out/text/c"), values[2]);
  WriteStrings(Path("n.fbp"), "text", {"", ""}, 3);
  ASSERT_EQ(Forebay({"unpack", Path("n.fbp"), "--to", Path("numbers")}).code, 0);
  EXPECT_EQ(Read("numbers/text/000000000001"), "b");
}

TEST_F(PackCommandTest, KeysThatLeadElsewhereAreRefused) {
  WriteStrings(Path("evil.fbp"), "text", {"a", "../../evil"}, 3);
  const ForebayRun run = Forebay({"unpack", Path("evil.fbp"), "--to", Path("out")});
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr("key of sample 1: '../../evil'"));
  EXPECT_FALSE(fs::exists(Path("evil")));
  WriteStrings(Path("twice.fbp"), "text", {"a", "a"}, 3);
  EXPECT_EQ(Forebay({"unpack", Path("twice.fbp"), "--to", Path("twice")}).code, 1);
  WriteStrings(Path("name.fbp"), "../text", {"a"}, 3);
  EXPECT_EQ(Forebay({"unpack", Path("name.fbp"), "--to", Path("name")}).code, 2);
  WriteStrings(Path("slash.fbp"), "a/text", {"a"}, 3);
  EXPECT_THAT(Forebay({"unpack", Path("slash.fbp"), "--to", Path("slash")}).err,
              HasSubstr("its name has '/'"));
}

TEST_F(PackCommandTest, ProgressIsABarOnATerminalAndLinesElsewhere) {
  MakeImages(20);
  const ForebayRun plain = Forebay({"pack", "--images", Path("in"), Path("a.fbp")});
  EXPECT_THAT(plain.out, HasSubstr("of 20 samples"));
  EXPECT_THAT(plain.out, HasSubstr("20 samples, raw"));
  EXPECT_THAT(plain.out, Not(HasSubstr("\r")));
  const ForebayRun bar = Forebay({"pack", "--images", Path("in"), Path("b.fbp")}, true);
  EXPECT_THAT(bar.out, HasSubstr("\r\x1b[K"));
}

TEST_F(PackCommandTest, DataSetsComeThroughTheDaemon) {
  FakeDaemon daemon({.samples = 150, .socket_path = {}});
  const ForebayRun run = Forebay({"pack", "fake", Path("d.fbp"), "--address", daemon.address()});
  ASSERT_EQ(run.code, 0) << run.err;
  ASSERT_EQ(Forebay({"unpack", Path("d.fbp"), "--to", Path("out")}).code, 0);
  std::string images;
  std::string weights;
  std::string labels;
  for (std::uint64_t s = 0; s < 150; ++s) {
    for (std::uint64_t i = 0; i < 100; ++i) {
      images += std::to_integer<char>(FakeDataset::ImageByte(s, i));
    }
    const float weight = FakeDataset::Weight(s);
    weights.append(reinterpret_cast<const char*>(&weight), 4);
    const std::int64_t label = FakeDataset::Label(s);
    labels.append(reinterpret_cast<const char*>(&label), 8);
    const std::string number = std::to_string(s);
    EXPECT_EQ(Read("out/text/" + std::string(12 - number.size(), '0') + number),
              FakeDataset::HasText(s) ? FakeDataset::Text(s) : "");
  }
  EXPECT_EQ(Elements("out/image.npy"), images) << "in the catalog's order";
  EXPECT_EQ(Elements("out/weight.npy"), weights);
  EXPECT_EQ(Elements("out/label.npy"), labels);
  const Json json = Forebay({"inspect", Path("d.fbp"), "--verify", "--json"}).last();
  EXPECT_EQ(json["provenance"]["source"], "data set fake");
  EXPECT_EQ(json["provenance"]["class.label.0"], "zero");
  EXPECT_EQ(json["fields"][3]["kind"], "label");
  EXPECT_EQ(Forebay({"pack", "none", Path("e.fbp"), "--address", daemon.address()}).code, 5);
  // Its samples come once.
  const ForebayRun relative = Forebay({"pack", "fake", Path("e.fbp"), "--address", daemon.address(),
                                    "--field", "weight", "--bound", "rel:0.01"});
  EXPECT_EQ(relative.code, 2) << relative.err;
  EXPECT_THAT(relative.err, HasSubstr("give the range, as in rel:0.01,LOW,HIGH"));
}

}  // namespace
}  // namespace forebay::cli

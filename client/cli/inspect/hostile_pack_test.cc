// Packs whose names and keys were made to harm who looks at them: what `forebay` prints of them is
// text on lines of its own, and what it writes lies beneath the folder it was told.
#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/cli/inspect/pack_survey.h"
#include "client/cli/testing/pack_command_test_folder.h"
#include "compress/encode/pack/pack_writer.h"
#include "compress/format/pack/pack_format.h"
#include "compress/format/pack/pack_manifest.h"

namespace forebay::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// What terminals obey: a title, a wiped screen, ESC [ as one character and as one byte, a bell, a
// line that looks like forebay's own, a turn of the direction of reading.
const std::vector<std::string> kHarm = {
    "\x1b]0;owned\x07",
    "\x1b[2J\x1b[H",
    "\xC2\x9B" "31m",
    "\x9B" "31m",
    "\r\b\x7f",
    "x\nforged: verified 99 chunks: 0 damaged\ny",
    "tab\tstop",
    "gpj.\xE2\x80\xAE" "exe",
};
// Names that lead elsewhere, or nowhere.
const std::vector<std::string> kAstray = {
    "..", ".", "../up", "../../evil", "a/../../evil", "/evil", "a//b", "a/", std::string("a\0b", 3),
};

// No control byte but the ends of lines, and no line that a name made up.
void ExpectHarmless(const ForebayRun& run, const std::string& what) {
  for (const std::string* text : {&run.out, &run.err}) {
    for (std::size_t i = 0; i < text->size(); ++i) {
      const auto byte = static_cast<unsigned char>((*text)[i]);
      const auto before = static_cast<unsigned char>(i == 0 ? 0 : (*text)[i - 1]);
      EXPECT_FALSE((byte < 0x20 && byte != '\n') || byte == 0x7F) << what << ": " << *text;
      EXPECT_FALSE(byte >= 0x80 && byte < 0xA0 && (before < 0x80 || before == 0xC2)) << what;
    }
    EXPECT_THAT(*text, Not(AnyOf(StartsWith("forged"), HasSubstr("\nforged"),
                                 HasSubstr("\xE2\x80\xAE"))))
        << what;
  }
}

class HostilePackTest : public PackCommandTest {
 protected:
  struct Contents {
    std::vector<std::string> fields;  // of any length, but the first: a scalar
    std::vector<std::string> keys;
    std::vector<std::pair<std::string, std::string>> provenance;
  };

  void WritePack(const std::string& name, const Contents& contents) {
    compress::PackSchema schema;
    schema.keyed = true;
    schema.provenance = contents.provenance;
    for (const std::string& field : contents.fields) {
      schema.fields.push_back({.name = field, .bound = {}, .samples_per_chunk = 2});
    }
    auto writer = compress::PackWriter::Create(Path(name), schema, {.statistics = true});
    ASSERT_TRUE(writer.has_value()) << writer.error().ToString();
    const std::string value = "a value";
    const std::vector<std::span<const std::byte>> values(
        contents.fields.size(), std::as_bytes(std::span<const char>(value)));
    for (const std::string& key : contents.keys) {
      ASSERT_TRUE((*writer)->Add(values, key).has_value());
    }
    ASSERT_TRUE((*writer)->Finish().has_value());
  }

  // Every path in the test's folder, as bytes.
  std::set<std::string> All() const {
    std::set<std::string> paths;
    for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
      paths.insert(entry.path().string().substr(folder_.size() + 1));
    }
    return paths;
  }

  // Unpacks into the folder `to`, and looks at what is there afterwards.
  ForebayRun Unpack(const std::string& pack, const std::string& to,
                 std::vector<std::string> more = {}) {
    const std::set<std::string> before = All();
    std::vector<std::string> arguments = {"unpack", Path(pack), "--to", Path(to)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    ForebayRun run = Forebay(arguments);
    ExpectHarmless(run, pack);
    for (const std::string& path : All()) {
      if (before.contains(path)) continue;
      EXPECT_THAT(path + "/", StartsWith(to + "/")) << "written beside the folder";
      for (const char c : path) {
        const auto byte = static_cast<unsigned char>(c);
        EXPECT_FALSE(byte < 0x20 || byte == 0x7F) << "a control byte in the name of a file";
      }
      EXPECT_THAT(path, Not(AnyOf(HasSubstr("\xC2\x9B"), HasSubstr("\xE2\x80\xAE"))));
    }
    return run;
  }

  Contents Everything() const {
    Contents all = {.fields = kHarm, .keys = kHarm, .provenance = {}};
    all.fields.insert(all.fields.end(), kAstray.begin(), kAstray.end());
    all.keys.insert(all.keys.end(), kAstray.begin(), kAstray.end());
    for (const std::string& harm : kHarm) all.provenance.emplace_back(harm, harm);
    return all;
  }
};

TEST_F(HostilePackTest, WhatIsPrintedOfItIsText) {
  WritePack("evil.fbp", Everything());
  const std::string pack = Path("evil.fbp");
  const std::vector<std::vector<std::string>> commands = {
      {"inspect", pack},
      {"inspect", pack, "--chunks", "--streams", "--verify"},
      {"inspect", pack, "--plot", Path("p.svg"), "--plot-field", kHarm[0]},
      {"inspect", pack, "--plot", Path("p.svg"), "--plot-field", "\x1b[31mnone"},
      {"inspect", pack, "--chunks", "--streams", "--verify", "--json"},
      {"verify", pack},
      {"unpack", pack, "--to", Path("out"), "--field", "\x1b[31mnone"},
      {"compress", "bench", pack, "--profiles", "fast", "--zstd", "1", "--repeats", "1"},
      {"pack", "--from", pack, Path("again.fbp")},
  };
  for (const std::vector<std::string>& words : commands) {
    const ForebayRun run = Forebay(words);
    EXPECT_NE(run.out + run.err, "");
    ExpectHarmless(run, words[0] + " " + words.back());
  }
  const ForebayRun shown = Forebay({"inspect", pack});
  EXPECT_EQ(shown.code, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("\\x1b]0;owned\\x07: \\x1b]0;owned\\x07\n")) << "provenance";
  EXPECT_THAT(shown.out, HasSubstr("\nx\\x0aforged: verified 99 chunks: 0 damaged\\x0ay "));
  EXPECT_THAT(Read("p.svg"), Not(HasSubstr("\x1b")));
}

TEST_F(HostilePackTest, NamesInJsonAreWhatTheyWere) {
  WritePack("evil.fbp", {.fields = {kHarm[0], kHarm[5]}, .keys = {"a"}, .provenance = {}});
  const Json json = Forebay({"inspect", Path("evil.fbp"), "--json"}).last();
  EXPECT_EQ(json["fields"][0]["name"], kHarm[0]);
  EXPECT_EQ(json["fields"][1]["name"], kHarm[5]);
}

TEST_F(HostilePackTest, DamageOfItIsNamedAsText) {
  WritePack("evil.fbp", {.fields = kHarm, .keys = kHarm, .provenance = {}});
  const ForebayRun chunks = Forebay({"inspect", Path("evil.fbp"), "--chunks", "--json"});
  const Json first = Json::parse(chunks.out.substr(0, chunks.out.find('\n')));
  Flip("evil.fbp", first["offset"].get<std::uint64_t>() + 45);  // in the head of the first chunk
  for (const char* command : {"inspect", "verify"}) {
    std::vector<std::string> words = {command, Path("evil.fbp")};
    if (words[0] == "inspect") words.insert(words.end(), {"--verify", "--chunks", "--streams"});
    const ForebayRun run = Forebay(words);
    EXPECT_EQ(run.code, 3) << "the damage was not found";
    EXPECT_THAT(run.err, HasSubstr("\\x1b]0;owned\\x07"));
    ExpectHarmless(run, command);
  }
  const ForebayRun unpacked = Unpack("evil.fbp", "out");
  EXPECT_EQ(unpacked.code, 3);
  EXPECT_THAT(unpacked.err, HasSubstr("\\x1b]0;owned\\x07"));
}

TEST_F(HostilePackTest, ATerminalGetsTheLineOfProgressAndNothingElse) {
  WritePack("evil.fbp", {.fields = kHarm, .keys = {"a"}, .provenance = {}});
  ForebayRun run = Forebay({"unpack", Path("evil.fbp"), "--to", Path("out")}, true);
  EXPECT_EQ(run.code, 0) << run.err;
  constexpr std::string_view kErase = "\r\x1b[K";
  std::size_t erased = 0;
  for (std::size_t at = run.out.find(kErase); at != std::string::npos; at = run.out.find(kErase)) {
    run.out.erase(at, kErase.size());
    ++erased;
  }
  EXPECT_GE(erased, kHarm.size()) << "the terminal's way was not taken";
  ExpectHarmless(run, "on a terminal");
}

TEST_F(HostilePackTest, NamesWithControlsBecomeFilesWithoutThem) {
  WritePack("evil.fbp", {.fields = kHarm, .keys = kHarm, .provenance = {}});
  const ForebayRun run = Unpack("evil.fbp", "out");
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(Read("out/\\x1b]0;owned\\x07/x\\x0aforged: verified 99 chunks: 0 damaged\\x0ay"),
            "a value");
  std::size_t files = 0;
  for (const std::string& path : All()) files += fs::is_regular_file(Path(path)) ? 1 : 0;
  EXPECT_EQ(files, kHarm.size() * kHarm.size() + 1) << "each by a name of its own, and the pack";
}

TEST_F(HostilePackTest, NothingIsWrittenBesideTheFolder) {
  Write("deep/er/there", "");
  for (std::size_t i = 0; i < kAstray.size(); ++i) {
    const std::string by_field = "field" + std::to_string(i) + ".fbp";
    WritePack(by_field, {.fields = {kAstray[i]}, .keys = {"k"}, .provenance = {}});
    EXPECT_EQ(Unpack(by_field, "deep/er/f" + std::to_string(i)).code, 2) << kAstray[i];
    const std::string by_key = "key" + std::to_string(i) + ".fbp";
    WritePack(by_key, {.fields = {"text"}, .keys = {"ok", kAstray[i]}, .provenance = {}});
    const ForebayRun run = Unpack(by_key, "deep/er/k" + std::to_string(i));
    EXPECT_EQ(run.code, 2) << kAstray[i];
    EXPECT_THAT(run.err, HasSubstr("key of sample 1"));
  }
}

TEST_F(HostilePackTest, LinksInTheFolderAreNotFollowed) {
  Write("outside/mine", "mine");
  WritePack("p.fbp", {.fields = {"text"}, .keys = {"mine", "d/mine"}, .provenance = {}});
  fs::create_directory(Path("a"));
  fs::create_directory_symlink(Path("outside"), Path("a/text"));
  EXPECT_NE(Unpack("p.fbp", "a").code, 0) << "the field's folder is a link";
  fs::create_directories(Path("b/text"));
  fs::create_symlink(Path("outside/new"), Path("b/text/mine"));
  EXPECT_NE(Unpack("p.fbp", "b").code, 0) << "the file is a link";
  fs::create_directories(Path("c/text"));
  fs::create_directory_symlink(Path("outside"), Path("c/text/d"));
  EXPECT_NE(Unpack("p.fbp", "c", {"--range", "1:2"}).code, 0) << "a folder of the key is a link";
  EXPECT_EQ(Read("outside/mine"), "mine");
  EXPECT_FALSE(fs::exists(Path("outside/new")));
}

TEST_F(HostilePackTest, ShardsOfASetAreShownAsText) {
  const std::string shard = "s\x1b[2J\nforged.fbp";
  WritePack(shard, {.fields = kHarm, .keys = {"a"}, .provenance = {}});
  const Result<OpenedPack> pack = OpenPack(Path(shard), false);
  ASSERT_TRUE(pack.has_value()) << pack.error().ToString();
  const compress::PackManifest manifest = {
      .generation = 1,
      .schema_fingerprint = pack->file->schema_fingerprint(),
      .shards = {{.name = shard,
                  .file_bytes = fs::file_size(Path(shard)),
                  .samples = 1,
                  .root = pack->file->root()}}};
  const std::vector<std::byte> bytes = compress::WritePackManifest(manifest);
  Write("s.fbset", std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  const ForebayRun run = Forebay({"inspect", Path("s.fbset"), "--verify", "--chunks"});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("s\\x1b[2J\\x0aforged.fbp"));
  ExpectHarmless(run, "a set");
  fs::remove(Path(shard));
  const ForebayRun lost = Forebay({"verify", Path("s.fbset")});
  EXPECT_EQ(lost.code, 3);
  EXPECT_THAT(lost.err, HasSubstr("s\\x1b[2J\\x0aforged.fbp"));
  ExpectHarmless(lost, "a set without its shard");
}

}  // namespace
}  // namespace forebay::cli

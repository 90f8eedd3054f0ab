// The golden set is read forever; broken manifests are refused with the same words; no damaged
// bit and no cut goes unnoticed.
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "compress/decode/pack/byte_source.h"
#include "compress/decode/pack/pack_set.h"
#include "compress/encode/pack/pack_set_writer.h"
#include "compress/encode/testing/pack_test_model.h"
#include "compress/golden/golden_manifests.h"
#include "proto/contract/byte_cursor.h"
#include "proto/contract/checksum.h"

namespace forebay::compress {
namespace {

constexpr std::uint64_t kSetHash = 0x2C63E214D8F4D1EE;  // of all that the golden set holds

std::string Path(const char* part, const std::string& name) {
  return (std::filesystem::path(FOREBAY_GOLDEN_FOLDER) / part / (name + ".fbset")).string();
}

TEST(GoldenManifests, TheSetIsReadAsItWasWritten) {
  const auto set = PackSet::Open(Path("good", "pictures"));
  ASSERT_TRUE(set.has_value()) << set.error().message();
  EXPECT_EQ((*set)->manifest().generation, 3U);
  EXPECT_EQ((*set)->samples(), 12U);
  std::vector<std::byte> scratch(*(*set)->ScratchBytes(0, 12));
  const auto schema = (*set)->Schema();
  ASSERT_TRUE(schema.has_value());
  ByteWriter all;
  for (std::uint32_t field = 0; field < schema->fields.size(); ++field) {
    std::vector<std::byte> values(12 * schema->fields[field].sample_bytes());
    const Status read = (*set)->ReadSamples(field, 0, 12, values, scratch);
    ASSERT_TRUE(read.has_value()) << read.error().message();
    all.Bytes(values);
  }
  EXPECT_EQ(Checksum(all.bytes()), kSetHash);
}

// A set may be added to by a later version than the one that began it.
TEST(GoldenManifests, ShardsOfBothVersionsMakeASet) {
  PackManifest manifest = *ReadManifestFile(Path("good", "pictures"));
  const std::string folder = FolderOf(Path("good", "pictures"));
  const auto source = OpenByteSource(folder + "balanced_v2.fbp");
  ASSERT_TRUE(source.has_value());
  const auto later = PackFile::Open(**source);
  ASSERT_TRUE(later.has_value()) << later.error().message();
  ASSERT_EQ(later->header().major, 2);
  EXPECT_EQ(later->schema_fingerprint(), manifest.schema_fingerprint);
  manifest.shards[1] = {.name = "balanced_v2.fbp", .file_bytes = (*source)->size(),
                        .samples = later->samples(), .root = later->root()};
  const auto set = PackSet::Open(manifest, folder);
  ASSERT_TRUE(set.has_value()) << set.error().message();
  std::vector<std::byte> scratch(*(*set)->ScratchBytes(0, 12));
  const auto schema = (*set)->Schema();
  ByteWriter all;
  for (std::uint32_t field = 0; field < schema->fields.size(); ++field) {
    std::vector<std::byte> values(12 * schema->fields[field].sample_bytes());
    ASSERT_TRUE((*set)->ReadSamples(field, 0, 12, values, scratch).has_value());
    all.Bytes(values);
  }
  EXPECT_EQ(Checksum(all.bytes()), kSetHash);
}

TEST(GoldenManifests, ASetOfTheFirstVersionIsAddedTo) {
  const TestFolder folder;
  for (const char* name : {"pictures.fbset", "dense.fbp", "balanced.fbp", "fast.fbp"}) {
    std::filesystem::copy_file(FolderOf(Path("good", "pictures")) + name, folder.Path(name));
  }
  const std::string path = folder.Path("pictures.fbset");
  {
    const auto before = PackSet::Open(path);
    ASSERT_TRUE(before.has_value());
    const PackSchema schema = *(*before)->Schema();
    auto writer = PackSetWriter::Open(path, schema, {.append = true});
    ASSERT_TRUE(writer.has_value()) << writer.error().message();
    std::vector<std::vector<std::byte>> sample;
    for (const PackField& field : schema.fields) sample.emplace_back(field.sample_bytes());
    ASSERT_TRUE((*writer)->Add(std::vector<std::span<const std::byte>>(sample.begin(),
                                                                       sample.end()), "")
                    .has_value());
    ASSERT_TRUE((*writer)->Finish().has_value());
  }
  const auto set = PackSet::Open(path);
  ASSERT_TRUE(set.has_value()) << set.error().message();
  ASSERT_EQ((*set)->samples(), 13U);
  EXPECT_EQ((*(*set)->Shard(0))->file.header().major, 1);
  EXPECT_EQ((*(*set)->Shard(3))->file.header().major, 2);
  std::vector<std::byte> scratch(*(*set)->ScratchBytes(0, 13)), value(16 * 32, std::byte{1});
  ASSERT_TRUE((*set)->ReadSamples(0, 12, 1, value, scratch).has_value());
  EXPECT_EQ(value, std::vector<std::byte>(16 * 32));
}

TEST(GoldenManifests, AreWrittenAgain) {
  EXPECT_EQ(MakeGoodManifest(), ReadFile(Path("good", "pictures")));
  for (const BadManifest& bad : MakeBadManifests()) {
    EXPECT_EQ(bad.bytes, ReadFile(Path("bad", bad.name))) << bad.name;
    EXPECT_LE(bad.bytes.size(), 4096U);
  }
}

TEST(GoldenManifests, BrokenOnesAreRefusedWithCodeAndReason) {
  std::set<std::string> names, files;
  for (const BadManifest& bad : MakeBadManifests()) {
    names.insert(bad.name);
    const auto read = ReadManifestFile(Path("bad", bad.name));
    ASSERT_FALSE(read.has_value()) << bad.name;
    EXPECT_EQ(read.error().code(), bad.code) << bad.name << ": " << read.error().message();
    EXPECT_NE(read.error().message().find(bad.message), std::string::npos)
        << bad.name << ": " << read.error().message();
  }
  const auto folder = std::filesystem::path(FOREBAY_GOLDEN_FOLDER) / "bad";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".fbset") files.insert(entry.path().stem());
  }
  EXPECT_EQ(files, names);
}

TEST(GoldenManifests, EveryFlippedBitAndEveryCutIsFound) {
  auto bytes = ReadFile(Path("good", "pictures"));
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    ASSERT_FALSE(ReadPackManifest(bytes).has_value()) << "bit " << bit;
    bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
  }
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    ASSERT_FALSE(ReadPackManifest(std::span(bytes).first(length)).has_value()) << length;
  }
  EXPECT_TRUE(ReadPackManifest(bytes).has_value());
}

TEST(GoldenManifests, NamesOfShardsStayBeneathTheFolder) {
  for (const char* name : {"a", "a.fbp", "b/a.fbp", "..a", "a..", ".a"}) {
    EXPECT_TRUE(IsShardName(name)) << name;
  }
  for (const char* name : {"", "/a", "a/", "a//b", ".", "..", "a/../b", "./a"}) {
    EXPECT_FALSE(IsShardName(name)) << name;
  }
  EXPECT_FALSE(IsShardName(std::string("a\0b", 3)));
  EXPECT_FALSE(IsShardName(std::string(5000, 'a')));
}

}  // namespace
}  // namespace forebay::compress

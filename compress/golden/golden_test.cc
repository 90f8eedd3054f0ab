// Files of every version are read forever, refused ones with the same words; the generator still
// writes those of this version; no damaged bit and no cut goes unnoticed.
//
// A predictor that a pack names lies beside it.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <set>
#include <string>

#include <gtest/gtest.h>
#include <zstd.h>

#include "compress/decode/chunk/chunk_description.h"
#include "compress/decode/pack/predictor_file.h"
#include "compress/encode/testing/pack_test_model.h"
#include "compress/golden/golden_packs.h"
#include "proto/contract/check.h"

namespace forebay::compress {
namespace {

// What each good pack holds (HashPack). Never changed: a pack once written is read forever.
const std::map<std::string, std::uint64_t> kHashes = {
    // Of version 1.
    {"integers", 0x64CAD5F7C8210B0B},
    {"floats", 0xBD5AA94B40FEBE09},
    {"tiles", 0x49DEF00A41242365},
    {"four_axes", 0x3EBB491A753F0889},
    {"strings", 0x390E25BD703B8CF4},
    {"empty_strings", 0xF0174B31F14E1D0D},
    {"keys", 0x95CF23C20A61842E},
    {"sequences", 0x36955373D8D6FC98},
    {"aligned", 0x60A09FA665D68B0F},
    {"provenance", 0x4F70CCD5E42A2BEE},
    {"lossy", 0x9C5E115A2697E719},
    {"bounded_text", 0x82A5484A6CCE3170},  // by a writer that applied bounds to byte strings
    {"swappable", 0xE1670943BA55CF92},
    {"no_samples", 0xC77B3ABB6F87ACD9},
    {"fast", 0x8CC152AD6247ED80},
    {"balanced", 0x8CC152AD6247ED80},
    {"dense", 0x8CC152AD6247ED80},
    {"brisk", 0x04601D483DB2F76A},  // by an encoder that priced its tables otherwise
    {"brisk_priced", 0x04601D483DB2F76A},
    {"statistics", 0x700C0B235C1457A3},
    {"wave", 0xC2A1D9C54EBB963F},
    {"wave_wide", 0xD45AEC152856FEE8},
    {"learned", 0x35DB59E4A80BF256},
    {"learned_named", 0x35DB59E4A80BF256},
    {"unknown_record", 0x95CF23C20A61842E},
    // Of version 2.
    {"integers_v2", 0x64CAD5F7C8210B0B},
    {"floats_v2", 0xBD5AA94B40FEBE09},
    {"tiles_v2", 0x49DEF00A41242365},
    {"four_axes_v2", 0x3EBB491A753F0889},
    {"strings_v2", 0x390E25BD703B8CF4},
    {"empty_strings_v2", 0xF0174B31F14E1D0D},
    {"keys_v2", 0x95CF23C20A61842E},
    {"sequences_v2", 0x36955373D8D6FC98},
    {"aligned_v2", 0x60A09FA665D68B0F},
    {"provenance_v2", 0x4F70CCD5E42A2BEE},
    {"lossy_v2", 0x9C5E115A2697E719},
    {"swappable_v2", 0xE1670943BA55CF92},
    {"no_samples_v2", 0xC77B3ABB6F87ACD9},
    {"fast_v2", 0x8CC152AD6247ED80},
    {"balanced_v2", 0x8CC152AD6247ED80},
    {"dense_v2", 0x8CC152AD6247ED80},
    {"brisk_v2", 0x04601D483DB2F76A},
    {"statistics_v2", 0xDC4F5D63B16A6461},  // as means and moments, other than those of version 1
    {"pressures_v2", 0x6865F83BC9E4E602},
    {"times_v2", 0x378BE0E17A58009C},
    {"wave_v2", 0xC2A1D9C54EBB963F},
    {"wave_wide_v2", 0xD45AEC152856FEE8},
    {"learned_v2", 0x35DB59E4A80BF256},
    {"learned_named_v2", 0x35DB59E4A80BF256},
    {"unknown_record_v2", 0x95CF23C20A61842E},
};

// Broken packs of version 1, refused as those of the same name and version 2 are.
const std::set<std::string> kBrokenOfVersion1 = {
    "unknown_feature", "odd_alignment", "huge_schema", "wrong_magic", "header_checksum",
    "schema_checksum", "cut_in_schema", "torn_footer", "index_beside", "footer_disagrees",
    "overlapping_chunks", "missing_chunk", "keys_missing", "chunk_outside", "chunk_misplaced",
    "damaged_payload", "sample_checksum", "raw_too_large", "lengths_disagree", "unknown_codec",
    "unknown_flags", "other_samples", "stored_short", "zstd_bomb", "endless_key",
    "colour_without_planes", "dictionary_beyond_codes", "statistics_damaged", "statistics_beside",
    "statistics_outside", "statistics_of_chunk", "swapped_chunks"};

constexpr unsigned kZstdVersion = 10504;  // that compressed the files

std::filesystem::path Folder(const char* part) {
  return std::filesystem::path(FOREBAY_GOLDEN_FOLDER) / part;
}

std::set<std::string> Names(const char* part) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(Folder(part))) {
    if (entry.path().extension() == ".fbp") names.insert(entry.path().stem());
  }
  return names;
}

std::vector<std::byte> Load(const char* part, const std::string& name) {
  return ReadFile(Folder(part) / (name + ".fbp"));
}

PackReadOptions Options() {
  return {.budget = {}, .find_predictor = PredictorsIn(Folder("good"))};
}

TEST(GoldenPacks, AreReadAsTheyWereWritten) {
  std::vector<std::byte> scratch;
  std::set<std::string> expected;
  for (const auto& [name, hash] : kHashes) {
    expected.insert(name);
    const auto found = HashPack(Load("good", name), scratch, Options());
    ASSERT_TRUE(found.has_value()) << name << ": " << found.error().message();
    EXPECT_EQ(*found, hash) << name;
  }
  EXPECT_EQ(Names("good"), expected);
}

// The one plane of a pack's one chunk, as one describes it who has its predictors or has not.
StreamDescription PlaneOf(const std::string& name, bool has_predictors = true) {
  const auto bytes = Load("good", name);
  const auto source = MemorySource(bytes);
  const auto pack = PackFile::Open(*source, Options());
  FOREBAY_CHECK(pack.has_value() && pack->index().chunks.size() == 1);
  const ChunkEntry& entry = pack->index().chunks[0];
  std::vector<std::byte> scratch(pack->ScratchBytes());
  const auto loaded = pack->Load(entry, scratch);
  FOREBAY_CHECK(loaded.has_value());
  const ChunkShape shape = pack->schema().fields[0].Shape(entry.tile, entry.sample_count);
  const auto streams =
      DescribeChunk(shape, loaded->record.head.codec, loaded->record.payload,
                    has_predictors ? PredictorList(pack->schema().predictors) : PredictorList());
  FOREBAY_CHECK(streams.has_value() && streams->size() == 1);
  return streams->front();
}

TEST(GoldenPacks, HoldWavefrontPlanesWithAllKindsOfBlocks) {
  const std::vector<StreamDescription> planes = {PlaneOf("wave"), PlaneOf("wave_wide"),
                                                 PlaneOf("wave_v2"), PlaneOf("wave_wide_v2")};
  for (std::size_t i = 0; i < planes.size(); ++i) EXPECT_EQ(planes[i].bits, i % 2 == 0 ? 8U : 16U);
  for (const StreamDescription& plane : planes) {
    EXPECT_EQ(plane.coder, "wavefront");
    EXPECT_GT(plane.moved_blocks, 0U);
    for (std::size_t i = 0; i < kBlockPredictions; ++i) {
      const auto prediction = static_cast<BlockPrediction>(i);
      if (prediction == BlockPrediction::kTemporal && plane.bits == 16) continue;
      EXPECT_GT(plane.blocks[i], 0U) << BlockPredictionName(prediction);
    }
  }
}

TEST(GoldenPacks, HoldOrNameALearnedPredictor) {
  for (const char* name : {"learned", "learned_named", "learned_v2", "learned_named_v2"}) {
    const StreamDescription plane = PlaneOf(name);
    EXPECT_EQ(plane.coder, "learned") << name;
    EXPECT_GT(plane.blocks[0], 0U) << name;
    EXPECT_GT(plane.blocks[1], 0U) << name;
    const StreamDescription unseen = PlaneOf(name, false);
    EXPECT_EQ(unseen.coder, "learned") << name;
    EXPECT_EQ(unseen.block_count(), 0U) << name;
  }
  std::vector<std::byte> scratch;
  const auto refused = HashPack(Load("good", "learned_named"), scratch);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_NE(refused.error().message().find(Sha256Hex(GoldenPredictor()->id())), std::string::npos)
      << refused.error().message();
  const auto file = LoadPredictor(PredictorFileName(Folder("good"), GoldenPredictor()->id()));
  ASSERT_TRUE(file.has_value()) << file.error().message();
  EXPECT_TRUE(std::ranges::equal((*file)->bytes(), GoldenPredictor()->bytes()));
}

TEST(GoldenPacks, ANamedPredictorWithAFlippedBitIsRefused) {
  const auto pack = Load("good", "learned_named");
  const auto predictor = GoldenPredictor();
  std::vector<std::byte> record(predictor->bytes().begin(), predictor->bytes().end());
  const PackReadOptions options{
      .budget = {},
      .find_predictor = [&](const Sha256Digest&) { return Predictor::Parse(record); }};
  std::vector<std::byte> scratch;
  ASSERT_TRUE(HashPack(pack, scratch, options).has_value());
  for (std::size_t bit = 0; bit < record.size() * 8; ++bit) {
    const auto mask = static_cast<std::byte>(1U << (bit % 8));
    record[bit / 8] ^= mask;
    ASSERT_FALSE(HashPack(pack, scratch, options).has_value()) << "bit " << bit;
    record[bit / 8] ^= mask;
  }
}

TEST(GoldenPacks, AreOfBothVersionsAndOnlyTheSecondHasIds) {
  std::map<std::uint16_t, std::size_t> versions;
  std::set<PackId> ids;
  for (const auto& [name, hash] : kHashes) {
    const auto header = ReadPackHeader(Load("good", name));
    ASSERT_TRUE(header.has_value()) << name << ": " << header.error().message();
    ++versions[header->major];
    EXPECT_EQ(header->major, name.ends_with("_v2") ? 2 : 1) << name;
    EXPECT_EQ(header->id.has_value(), header->major == 2) << name;
    if (header->id.has_value()) ids.insert(*header->id);
  }
  EXPECT_EQ(versions.at(1), 25U);
  EXPECT_GE(versions.at(2), 23U);
  EXPECT_EQ(ids.size(), versions.at(2));
}

// The same values: sums of squares in one, means and moments in the other.
TEST(GoldenPacks, StatisticsOfBothVersionsAreRead) {
  const auto bytes = Load("good", "statistics"), later_bytes = Load("good", "statistics_v2");
  const auto source = MemorySource(bytes), later_source = MemorySource(later_bytes);
  const auto pack = PackFile::Open(*source), later = PackFile::Open(*later_source);
  ASSERT_TRUE(pack.has_value() && later.has_value());
  const auto found = pack->Statistics(), wanted = later->Statistics();
  ASSERT_TRUE(found.has_value() && wanted.has_value());
  ASSERT_EQ(found->size(), 7U);
  ASSERT_EQ(wanted->size(), 7U);
  EXPECT_TRUE(later->Sums()->empty());
  for (std::size_t i = 0; i < found->size(); ++i) {
    const FieldStatistics& one = found->at(i);
    const FieldStatistics& other = wanted->at(i);
    EXPECT_EQ(one.values, other.values);
    EXPECT_EQ(one.valid, other.valid);
    EXPECT_EQ(one.zeros, other.zeros);
    EXPECT_EQ(one.nans, other.nans);
    EXPECT_EQ(one.minimum_bits, other.minimum_bits);
    EXPECT_EQ(one.maximum_bits, other.maximum_bits);
    EXPECT_DOUBLE_EQ(one.mean, other.mean);
    EXPECT_NEAR(DeviationOf(one) / DeviationOf(other), 1, 1e-9);
  }
  const auto pressures_bytes = Load("good", "pressures_v2");
  const auto pressures_source = MemorySource(pressures_bytes);
  const auto pressures = PackFile::Open(*pressures_source)->Statistics();
  ASSERT_TRUE(pressures.has_value());
  EXPECT_EQ(pressures->at(0).valid, 19U);
  EXPECT_EQ(pressures->at(0).positive_infinities, 1U);
  EXPECT_EQ(pressures->at(0).negative_infinities, 1U);
  EXPECT_EQ(pressures->at(0).nans, 1U);
  EXPECT_NEAR(DeviationOf(pressures->at(0)), 0.01, 1e-4);
}

// What version 1 says of values among which one is infinite is no number, where it was a deviation
// of 0.
TEST(GoldenPacks, SumsWithAnInfinityHaveNoMeanAndNoDeviation) {
  const double infinite = std::numeric_limits<double>::infinity();
  const auto none = StatisticsOfSums({.values = 3, .valid = 3, .sum = infinite,
                                      .squares = infinite});
  EXPECT_TRUE(std::isnan(none.mean));
  EXPECT_TRUE(std::isnan(DeviationOf(none)));
  EXPECT_EQ(DeviationOf(StatisticsOfSums({.values = 2, .valid = 2, .sum = 4, .squares = 10})), 1);
}

TEST(GoldenPacks, AreRecoveredWithoutAnEnd) {
  std::vector<std::byte> scratch;
  for (const auto& [name, hash] : kHashes) {
    auto bytes = Load("good", name);
    const auto whole_source = MemorySource(bytes);
    const auto whole = PackFile::Open(*whole_source, Options());
    ASSERT_TRUE(whole.has_value()) << name;
    bytes.resize(bytes.size() - kFooterBytes);
    const auto source = MemorySource(bytes);
    const auto pack = PackFile::Recover(*source, Options());
    ASSERT_TRUE(pack.has_value()) << name << ": " << pack.error().message();
    EXPECT_EQ(pack->samples(), whole->samples()) << name;
    EXPECT_EQ(WritePackIndex(pack->index()), WritePackIndex(whole->index())) << name;
  }
}

TEST(GoldenPacks, AreWrittenAgain) {
  if (ZSTD_versionNumber() != kZstdVersion) {
    GTEST_SKIP() << "the files were written with zstd " << kZstdVersion << ", here is "
                 << ZSTD_versionNumber() << ", which may compress otherwise";
  }
  for (const GoodPack& pack : MakeGoodPacks()) {
    EXPECT_EQ(pack.bytes, Load("good", pack.name)) << pack.name;
    EXPECT_LE(pack.bytes.size(), pack.name == "aligned_v2" ? 16384U : 4096U) << pack.name;
  }
  for (const BadPack& pack : MakeBadPacks()) {
    EXPECT_EQ(pack.bytes, Load("bad", pack.name)) << pack.name;
    EXPECT_LE(pack.bytes.size(), 4096U) << pack.name;
  }
}

TEST(GoldenPacks, BrokenOnesAreRefusedWithCodeAndReason) {
  std::vector<std::byte> scratch;
  std::set<std::string> names;
  const auto expect_refused = [&](const std::string& name, const BadPack& as) {
    names.insert(name);
    const auto found = HashPack(Load("bad", name), scratch);
    ASSERT_FALSE(found.has_value()) << name;
    EXPECT_EQ(found.error().code(), as.code) << name << ": " << found.error().message();
    EXPECT_NE(found.error().message().find(as.message), std::string::npos)
        << name << ": " << found.error().message();
  };
  for (const BadPack& pack : MakeBadPacks()) {
    expect_refused(pack.name, pack);
    const std::string earlier = pack.name.substr(0, pack.name.size() - 3);
    if (kBrokenOfVersion1.contains(earlier)) expect_refused(earlier, pack);
  }
  EXPECT_TRUE(std::ranges::includes(names, kBrokenOfVersion1));
  EXPECT_EQ(Names("bad"), names);
}

void FlipEveryBit(bool of_version_1) {
  const PackReadOptions options = Options();
  std::vector<std::byte> scratch;  // as the call before left it
  std::size_t flips = 0, harmless = 0;
  for (const auto& [name, hash] : kHashes) {
    if (name.ends_with("_v2") == of_version_1) continue;
    auto bytes = Load("good", name);
    for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
      const auto mask = static_cast<std::byte>(1U << (bit % 8));
      bytes[bit / 8] ^= mask;
      const auto found = HashPack(bytes, scratch, options);
      if (found.has_value()) {
        ASSERT_EQ(*found, hash) << name << ", bit " << bit;
        if (!name.starts_with("aligned")) ++harmless;  // which is mostly zeros between records
      }
      bytes[bit / 8] ^= mask;
      ++flips;
    }
  }
  EXPECT_GT(flips, 100'000U);
  EXPECT_LT(harmless, flips / 12);  // zeros up to a multiple of 8, and records passed over
}

TEST(GoldenPacks, EveryFlippedBitIsFoundOrHarmless) { FlipEveryBit(false); }
TEST(GoldenPacks, EveryFlippedBitOfVersion1IsFoundOrHarmless) { FlipEveryBit(true); }

TEST(GoldenPacks, EveryTruncationIsFound) {
  const PackReadOptions options = Options();
  std::vector<std::byte> scratch;
  for (const auto& [name, hash] : kHashes) {
    const auto bytes = Load("good", name);
    for (std::size_t length = 0; length < bytes.size(); ++length) {
      ASSERT_FALSE(HashPack(std::span(bytes).first(length), scratch, options).has_value())
          << name << ", " << length << " bytes";
    }
  }
}

}  // namespace
}  // namespace forebay::compress

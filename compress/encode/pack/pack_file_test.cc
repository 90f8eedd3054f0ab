// Packs: what goes in comes out, by sample, by run, by region; threads, resume and recovery.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>
#include <random>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "compress/decode/pack/byte_source.h"
#include "compress/decode/pack/pack_set.h"
#include "compress/encode/pack/pack_set_writer.h"
#include "compress/encode/pack/publish_file.h"
#include "compress/encode/testing/pack_test_model.h"
#include "proto/contract/limits.h"

namespace forebay::compress::pack_file_test {

constexpr std::uint32_t kSeed = 20261121;

void ExpectHolds(const PackFile& pack, const PackModel& model, std::size_t samples) {
  ASSERT_EQ(pack.samples(), samples);
  std::vector<std::byte> scratch(pack.ScratchBytes());
  for (std::size_t s = 0; s < samples; ++s) {
    for (std::uint32_t field = 0; field < model.schema.fields.size(); ++field) {
      const auto value = ReadField(pack, field, s, scratch);
      ASSERT_TRUE(value.has_value()) << value.error().message();
      ASSERT_EQ(*value, model.samples[s][field]) << "sample " << s << ", field " << field;
    }
  }
}

TEST(PackFile, GivesBackSchemaSamplesAndKeys) {
  const TestFolder folder;
  for (const bool aligned : {false, true}) {
    const PackModel model = MakeModel(23, kSeed, aligned);
    const auto bytes = WritePack(model, folder);
    const auto source = MemorySource(bytes);
    const auto pack = PackFile::Open(*source);
    ASSERT_TRUE(pack.has_value()) << pack.error().message();
    ExpectHolds(*pack, model, 23);
    auto provenance = model.schema.provenance;
    provenance.emplace_back("profile", "balanced");
    EXPECT_EQ(pack->schema().provenance, provenance);
    EXPECT_EQ(pack->schema().fields[0].tile, model.schema.fields[0].tile);
    EXPECT_EQ(pack->schema().fields[1].fill_bits, model.schema.fields[1].fill_bits);
    const auto keys = pack->Keys(3, 18);
    ASSERT_TRUE(keys.has_value());
    EXPECT_EQ(*keys, std::vector<std::string>(model.keys.begin() + 3, model.keys.begin() + 21));
    EXPECT_EQ(*pack->FindField("text"), 4U);
    EXPECT_EQ(pack->FindField("txt").error().code(), ErrorCode::kNotFound);
    for (const ChunkEntry& entry : pack->index().chunks) {
      EXPECT_EQ((entry.offset + entry.head_bytes) % (aligned ? 4096 : 8), 0U);
    }
  }
}

TEST(PackFile, IsNotWrittenWithABoundOnByteStrings) {
  const TestFolder folder;
  PackModel model = MakeModel(3, kSeed);
  PackField& text = model.schema.fields[4];
  ASSERT_TRUE(text.variable());
  text.bound = {.mode = 1, .absolute = 20};
  const auto expect_refused = [](const auto& writer) {
    ASSERT_FALSE(writer.has_value());
    EXPECT_EQ(writer.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(writer.error().message().find("field text: an error bound"), std::string::npos);
    EXPECT_NE(writer.error().message().find("leave this one lossless"), std::string::npos);
  };
  const std::string path = folder.Path("text.fbp");
  expect_refused(PackWriter::Create(path, model.schema, {}));
  EXPECT_FALSE(std::filesystem::exists(path + ".part"));
  expect_refused(PackWriter::Resume(path, model.schema, {}));
  expect_refused(PackSetWriter::Open(folder.Path("text.fbset"), model.schema, {}));
  EXPECT_FALSE(std::filesystem::exists(folder.Path("text-g0001-00000.fbp.part")));
  // Those of one length are no numbers either.
  text.rank = 1;
  text.extent = text.tile = {16, 1, 1, 1};
  ASSERT_FALSE(text.variable());
  expect_refused(PackWriter::Create(path, model.schema, {}));
  // A bound on a field of numbers is another thing; the first is a picture of u8.
  text.bound = {};
  model.schema.fields[0].bound = {.mode = 1, .absolute = 20};
  EXPECT_TRUE(PackWriter::Create(path, model.schema, {}).has_value());
}

TEST(PackScratchTest, WhatTakesTooMuchMemoryToDecodeIsNeitherWrittenNorOpened) {
  const TestFolder folder;
  // Two frames of one chunk, so narrow that they take dozens of times their own bytes.
  PackSchema schema;
  schema.fields = {{.name = "thread", .dtype = Dtype::kU8, .rank = 2,
                    .extent = {87'381, 24, 1, 1}, .fill_bits = {}, .bound = {},
                    .samples_per_chunk = 2, .tile = {87'381, 24, 1, 1}}};
  const auto expect_refused = [](const auto& result) {
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code(), ErrorCode::kResourceExhausted);
    for (const char* words : {"field thread", "2x87381x24 u8", "134217728", "fewer samples"}) {
      EXPECT_NE(result.error().message().find(words), std::string::npos)
          << result.error().message();
    }
  };
  const auto start = [&] {
    std::vector<std::byte> bytes = WritePackStart(schema, kTestPackId);
    bytes.resize(bytes.size() + kFooterBytes);
    return bytes;
  };
  expect_refused(PackWriter::Create(folder.Path("thread.fbp"), schema, {}));
  EXPECT_FALSE(std::filesystem::exists(folder.Path("thread.fbp.part")));
  const auto bytes = start();
  expect_refused(PackFile::Open(*MemorySource(bytes)));
  expect_refused(PackFile::Recover(*MemorySource(bytes)));
  // Narrow tiles at the end of an axis are frames put upon each other, within the limit.
  schema.fields[0].extent = {64, 88, 1, 1};
  schema.fields[0].tile = {64, 64, 1, 1};
  schema.fields[0].samples_per_chunk = 1024;
  const auto wide = start();
  EXPECT_EQ(PackFile::Open(*MemorySource(wide)).error().code(), ErrorCode::kDataLoss)
      << "all that is wrong is the end";
  // One frame of one chunk is within the limit, whatever its width.
  schema.fields[0].extent = schema.fields[0].tile = {174'762, 24, 1, 1};
  schema.fields[0].samples_per_chunk = 1;
  EXPECT_TRUE(PackWriter::Create(folder.Path("thread.fbp"), schema, {}).has_value());
}

// Earlier versions wrote such packs: a program that converts them asks for more memory.
TEST(PackScratchTest, AProgramMayRaiseTheMemoryToDecodeIn) {
  const auto bytes = PackOfNarrowFrames();
  const auto source = MemorySource(bytes);
  const auto refused = PackFile::Open(*source);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kResourceExhausted);
  for (const char* words : {"forebay pack --from", "PackReadOptions::scratch_bytes_max"}) {
    EXPECT_NE(refused.error().message().find(words), std::string::npos)
        << refused.error().message();
  }
  const auto pack = PackFile::Open(*source, {.budget = {}, .find_predictor = {},
                                             .scratch_bytes_max = kConvertScratchBytesMax});
  ASSERT_TRUE(pack.has_value()) << pack.error().message();
  EXPECT_GT(pack->ScratchBytes(), limits::kChunkScratchBytesMax);
  std::vector<std::byte> scratch(pack->ScratchBytes());
  for (std::uint64_t s = 0; s < 2; ++s) {
    const auto sample = ReadField(*pack, 0, s, scratch);
    ASSERT_TRUE(sample.has_value()) << sample.error().message();
    EXPECT_EQ(sample->at(1000), static_cast<std::byte>(7000 + s));
  }
  // A set of one such shard, whose options are those of its shards.
  const TestFolder folder;
  WriteFile(folder.Path("shard.fbp"), bytes);
  PackManifest manifest{.schema_fingerprint = pack->schema_fingerprint(),
                        .shards = {{.name = "shard.fbp", .file_bytes = bytes.size(),
                                    .samples = 2, .root = pack->root()}}};
  WriteFile(folder.Path("s.fbset"), WritePackManifest(manifest));
  EXPECT_EQ((*PackSet::Open(folder.Path("s.fbset")))->Schema().error().code(),
            ErrorCode::kResourceExhausted);
  const auto set = PackSet::Open(folder.Path("s.fbset"), 64,
                                 {.budget = {}, .find_predictor = {},
                                  .scratch_bytes_max = kConvertScratchBytesMax});
  ASSERT_TRUE((*set)->Schema().has_value());
}

TEST(PackPublishTest, ReplacesNoFileThatCameToBeMeanwhile) {
  const TestFolder folder;
  const PackModel model = MakeModel(5, kSeed);
  const auto whole = WritePack(model, folder);
  const std::vector<std::byte> other(10, std::byte{'x'});
  const std::string path = folder.Path("p.fbp");
  auto writer = PackWriter::Create(path, model.schema, {.id = kTestPackId});
  ASSERT_TRUE(writer.has_value());
  ASSERT_TRUE(AddAll(model, **writer, 5).has_value());
  WriteFile(path, other);
  const auto refused = (*writer)->Finish();
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kAlreadyExists);
  EXPECT_NE(refused.error().message().find("then resume"), std::string::npos);
  EXPECT_EQ(ReadFile(path), other);
  EXPECT_EQ(ReadFile(path + ".part"), whole);
  writer->reset();
  EXPECT_EQ(PackWriter::Resume(path, model.schema, {}).error().code(),
            ErrorCode::kAlreadyExists);
  std::filesystem::remove(path);
  auto resumed = PackWriter::Resume(path, model.schema, {});
  ASSERT_TRUE(resumed.has_value()) << resumed.error().message();
  ASSERT_TRUE(AddAll(model, **resumed, 5).has_value());
  ASSERT_TRUE((*resumed)->Finish().has_value());
  EXPECT_EQ(ReadFile(path), whole);
  // Asked to, a writer replaces what is there.
  WriteFile(path, other);
  auto replacing = PackWriter::Create(path, model.schema, {.replace = true, .id = kTestPackId});
  ASSERT_TRUE(AddAll(model, **replacing, 5).has_value());
  ASSERT_TRUE((*replacing)->Finish().has_value());
  EXPECT_EQ(ReadFile(path), whole);
  EXPECT_FALSE(std::filesystem::exists(path + ".part"));
}

template <int number>
int Refuse(const char* /*from*/, const char* /*to*/) {
  errno = number;
  return -1;
}

// Each way by which a file gets its name, and each word of a file system that has no such call.
TEST(PackPublishTest, AFileIsNamedWhateverItsFileSystemCannotDo) {
  const TestFolder folder;
  const std::string part = folder.Path("a.part"), path = folder.Path("a");
  const std::vector<std::byte> bytes(10, std::byte{1}), other(10, std::byte{2});
  for (const NamingCalls& calls :
       {NamingCalls{.rename_new = Refuse<EINVAL>, .link = ::link},
        NamingCalls{.rename_new = Refuse<EPERM>, .link = ::link},
        NamingCalls{.rename_new = Refuse<ENOSYS>, .link = Refuse<EPERM>},
        NamingCalls{.rename_new = Refuse<EPERM>, .link = Refuse<ENOSYS>},
        NamingCalls{.rename_new = Refuse<EOPNOTSUPP>, .link = Refuse<EOPNOTSUPP>}}) {
    WriteFile(part, bytes);
    WriteFile(path, other);
    const Status refused = NameNewFile(part, path, calls);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code(), ErrorCode::kAlreadyExists);
    EXPECT_EQ(ReadFile(path), other);
    EXPECT_EQ(ReadFile(part), bytes);
    std::filesystem::remove(path);
    const Status named = NameNewFile(part, path, calls);
    ASSERT_TRUE(named.has_value()) << named.error().message();
    EXPECT_EQ(ReadFile(path), bytes);
    EXPECT_FALSE(std::filesystem::exists(part));
    std::filesystem::remove(path);
    // Nothing that was reserved stays where there is nothing to name.
    EXPECT_EQ(NameNewFile(part, path, {Refuse<EPERM>, Refuse<EPERM>}).error().code(),
              ErrorCode::kNotFound);
    EXPECT_FALSE(std::filesystem::exists(path));
  }
  // Other errors are not a reason to try another way.
  WriteFile(part, bytes);
  EXPECT_FALSE(NameNewFile(part, path, {Refuse<EACCES>, ::link}).has_value());
  EXPECT_FALSE(NameNewFile(part, path, {Refuse<EINVAL>, Refuse<ENOSPC>}).has_value());
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(PackPublishTest, TwoWritersOfOnePackAreNotBegun) {
  const TestFolder folder;
  const PackModel model = MakeModel(5, kSeed);
  const auto whole = WritePack(model, folder);
  const std::string path = folder.Path("p.fbp");
  auto writer = PackWriter::Create(path, model.schema, {.id = kTestPackId});
  ASSERT_TRUE(writer.has_value());
  for (const Status& refused :
       {Status(PackWriter::Discard(path)),
        Status(PackWriter::Resume(path, model.schema, {}).error())}) {
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code(), ErrorCode::kFailedPrecondition);
    EXPECT_NE(refused.error().message().find("another process is writing it"), std::string::npos);
  }
  ASSERT_TRUE(AddAll(model, **writer, 5).has_value());
  ASSERT_TRUE((*writer)->Finish().has_value());
  EXPECT_EQ(ReadFile(path), whole);
  EXPECT_TRUE(PackWriter::Discard(path).has_value()) << "there is nothing to remove";
}

TEST(PackPublishTest, AFileThatIsNotTheWritersGetsNoName) {
  const TestFolder folder;
  const PackModel model = MakeModel(5, kSeed);
  const std::string path = folder.Path("p.fbp");
  auto writer = PackWriter::Create(path, model.schema, {.id = kTestPackId});
  ASSERT_TRUE(writer.has_value());
  ASSERT_TRUE(AddAll(model, **writer, 5).has_value());
  // As on a file system without locks, where another writer has begun anew.
  std::filesystem::remove(path + ".part");
  WriteFile(path + ".part", std::vector<std::byte>(10));
  const auto refused = (*writer)->Finish();
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message().find("has removed or replaced it"), std::string::npos);
  EXPECT_EQ((*writer)->Finish().error().message(), refused.error().message());
  EXPECT_FALSE(std::filesystem::exists(path));
}

// A crash between a second name and the end of the first leaves both.
TEST(PackPublishTest, AFinishedPackThatHasBothNamesIsNotTruncated) {
  const TestFolder folder;
  const PackModel model = MakeModel(9, kSeed);
  const auto whole = WritePack(model, folder);
  const std::string path = folder.Path("p.fbp"), part = path + ".part";
  WriteFile(part, whole);
  std::filesystem::create_hard_link(part, path);
  auto resumed = PackWriter::Resume(path, model.schema, {.replace = true, .id = kTestPackId});
  ASSERT_TRUE(resumed.has_value()) << resumed.error().message();
  EXPECT_EQ(ReadFile(path), whole) << "while the new one is written";
  EXPECT_EQ((*resumed)->next_sample(), 0U);
  ASSERT_TRUE(AddAll(model, **resumed, 9).has_value());
  ASSERT_TRUE((*resumed)->Finish().has_value());
  EXPECT_EQ(ReadFile(path), whole);
  EXPECT_FALSE(std::filesystem::exists(part));
}

TEST(PackFile, AnEmptyRegionIsEmptyWhereverItBegins) {
  const TestFolder folder;
  const PackModel model = MakeModel(23, kSeed);
  const auto bytes = WritePack(model, folder);
  const auto source = MemorySource(bytes);
  const auto pack = PackFile::Open(*source);
  ASSERT_TRUE(pack.has_value());
  std::vector<std::byte> scratch(pack->ScratchBytes());
  const PackField& image = pack->schema().fields[0];
  for (std::size_t axis = 0; axis < 3; ++axis) {
    for (std::uint32_t origin = 0; origin <= image.extent[axis]; ++origin) {
      PackRegion region = pack->WholeRegion(0);
      region.origin[axis] = origin;
      region.extent[axis] = 0;
      const StridedOutput nothing{.sample_stride = 0, .axis_stride = {0, 0, 0, 0}};
      for (const std::uint64_t first : {0U, 1U, 2U}) {
        const Status read = pack->Read(0, first, 3, region, nothing, scratch);
        ASSERT_TRUE(read.has_value()) << origin << ": " << read.error().message();
      }
    }
  }
  const TileRequest none{.first_sample = 1, .count = 0, .region = pack->WholeRegion(0), .out = {}};
  EXPECT_FALSE(Intersects(pack->schema(), none, pack->index().chunks[0]));
}

TEST(PackFile, KnowsWhereSequencesBegin) {
  const TestFolder folder;
  const PackModel model = MakeModel(23, kSeed);
  auto bytes = WritePack(model, folder);
  const auto source = MemorySource(bytes);
  const auto pack = PackFile::Open(*source);
  ASSERT_TRUE(pack.has_value());
  std::vector<std::uint64_t> expected = {0};
  for (const std::size_t begin : model.sequences) {
    if (begin > 0) expected.push_back(begin);
  }
  ASSERT_GT(expected.size(), 2U);
  EXPECT_EQ(*pack->SequenceStarts(), expected);
  // A head that is damaged.
  const ChunkEntry& entry = pack->Chunks(0, 22, 1).front();
  bytes[static_cast<std::size_t>(entry.offset) + 60] ^= std::byte{1};
  EXPECT_EQ(pack->SequenceStarts().error().code(), ErrorCode::kDataLoss);
  // Fields of fewer axes run on through sequences.
  PackModel labels;
  labels.schema.fields = {{.name = "label", .dtype = Dtype::kU8, .fill_bits = {}, .bound = {}}};
  labels.samples.assign(5, {{std::byte{7}}});
  labels.sequences = {2};
  const auto flat = WritePack(labels, folder);
  const auto flat_source = MemorySource(flat);
  EXPECT_EQ(*PackFile::Open(*flat_source)->SequenceStarts(), std::vector<std::uint64_t>{0});
  labels.samples.clear();
  const auto none = WritePack(labels, folder);
  const auto none_source = MemorySource(none);
  EXPECT_TRUE(PackFile::Open(*none_source)->SequenceStarts()->empty());
}

TEST(PackFile, ReadsRunsAndRegionsIntoStridedMemory) {
  const TestFolder folder;
  const PackModel model = MakeModel(23, kSeed);
  const auto bytes = WritePack(model, folder);
  const auto source = MemorySource(bytes);
  const auto pack = PackFile::Open(*source);
  ASSERT_TRUE(pack.has_value());
  std::vector<std::byte> scratch(pack->ScratchBytes());
  std::mt19937 random(kSeed);
  const PackField& image = pack->schema().fields[0];
  for (int round = 0; round < 200; ++round) {
    const std::size_t first = random() % 23;
    const std::size_t count = 1 + random() % (23 - first);
    PackRegion region;
    for (std::size_t axis = 0; axis < 3; ++axis) {
      region.origin[axis] = static_cast<std::uint32_t>(random() % image.extent[axis]);
      region.extent[axis] =
          static_cast<std::uint32_t>(1 + random() % (image.extent[axis] - region.origin[axis]));
    }
    // Rows one after the other with gaps, samples in reverse nesting.
    const std::size_t row = region.extent[1] * region.extent[2] + 5;
    StridedOutput out{.sample_stride = row * region.extent[0] + 11,
                      .axis_stride = {row, region.extent[2], 1, 1}};
    std::vector<std::byte> memory(out.sample_stride * count, std::byte{0x77});
    out.memory = memory;
    ASSERT_TRUE(pack->Read(0, first, count, region, out, scratch).has_value());
    std::size_t touched = 0;
    for (std::size_t s = 0; s < count; ++s) {
      for (std::uint32_t y = 0; y < region.extent[0]; ++y) {
        for (std::uint32_t x = 0; x < region.extent[1]; ++x) {
          for (std::uint32_t c = 0; c < region.extent[2]; ++c) {
            const std::size_t from = ((region.origin[0] + y) * 30 + region.origin[1] + x) * 3 +
                                     region.origin[2] + c;
            ASSERT_EQ(memory[s * out.sample_stride + y * row + x * region.extent[2] + c],
                      model.samples[first + s][0][from]) << "round " << round << ", seed " << kSeed;
            ++touched;
          }
        }
      }
    }
    EXPECT_GE(static_cast<std::size_t>(std::ranges::count(memory, std::byte{0x77})) + touched,
              memory.size());
  }
}

TEST(PackFile, IsTheSameForAnyNumberOfThreads) {
  const TestFolder folder;
  const PackModel model = MakeModel(40, kSeed);
  const auto one = WritePack(model, folder, {.profile = Profile::kDense, .threads = 1});
  for (unsigned threads : {2U, 5U}) {
    EXPECT_EQ(WritePack(model, folder, {.profile = Profile::kDense, .threads = threads}), one);
  }
}

TEST(PackFile, ResumedRunsGiveTheFileOfAnUninterruptedOne) {
  const TestFolder folder;
  const PackModel model = MakeModel(40, kSeed);
  const auto whole = WritePack(model, folder);
  std::mt19937 random(kSeed);
  std::size_t resumed_late = 0;
  for (int round = 0; round < 60; ++round) {
    const std::string path = folder.Path("killed.fbp");
    const std::size_t cut = random() % whole.size();
    WriteFile(path + ".part", std::span(whole).first(cut));
    auto writer = PackWriter::Resume(path, model.schema, {});
    ASSERT_TRUE(writer.has_value()) << writer.error().message();
    resumed_late += (*writer)->next_sample() > 0 ? 1 : 0;
    ASSERT_TRUE(AddAll(model, **writer, model.samples.size()).has_value());
    ASSERT_TRUE((*writer)->Finish().has_value());
    ASSERT_EQ(ReadFile(path), whole) << "cut at " << cut << ", seed " << kSeed;
    std::filesystem::remove(path);
  }
  EXPECT_GT(resumed_late, 0U);
}

// The id that a finished pack has.
std::optional<PackId> IdOf(const std::string& path) {
  const auto source = OpenByteSource(path);
  const auto pack = source.has_value() ? PackFile::Open(**source)
                                       : Result<PackFile>(source.error());
  return pack.has_value() ? pack->header().id : std::nullopt;
}

TEST(PackIdTest, IsRandomUnlessGivenAndStaysWhenResumed) {
  const TestFolder folder;
  const PackModel model = MakeModel(6, kSeed);
  std::set<std::optional<PackId>> ids;
  for (int i = 0; i < 8; ++i) {
    const std::string path = folder.Path("p" + std::to_string(i));
    auto writer = PackWriter::Create(path, model.schema, {});
    ASSERT_TRUE(writer.has_value()) << writer.error().message();
    ASSERT_TRUE(AddAll(model, **writer, 6).has_value());
    ASSERT_TRUE((*writer)->Finish().has_value());
    ids.insert(IdOf(path));
  }
  EXPECT_EQ(ids.size(), 8U);
  EXPECT_EQ(ids.count(std::nullopt), 0U);
  // Resumed with the id that is there, or with none said.
  const auto whole = WritePack(model, folder, {.id = PackId{std::byte{5}}});
  const std::string path = folder.Path("killed.fbp");
  const auto resume = [&](std::size_t cut, std::optional<PackId> id) {
    WriteFile(path + ".part", std::span(whole).first(cut));
    return PackWriter::Resume(path, model.schema, {.id = id});
  };
  for (const std::optional<PackId> id : {std::optional<PackId>(), {PackId{std::byte{5}}}}) {
    auto writer = resume(whole.size() / 2, id);
    ASSERT_TRUE(writer.has_value()) << writer.error().message();
    ASSERT_TRUE(AddAll(model, **writer, 6).has_value());
    ASSERT_TRUE((*writer)->Finish().has_value());
    EXPECT_EQ(ReadFile(path), whole);
    std::filesystem::remove(path);
  }
  const auto refused = resume(whole.size() / 2, PackId{std::byte{6}});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_NE(refused.error().message().find("with the id 0500"), std::string::npos)
      << refused.error().message();
  // Those of version 1 are read and not gone on with.
  const auto old = WriteSchema(SchemaAsWritten(model.schema, {}));
  WriteFile(path + ".part", old);
  const auto earlier = PackWriter::Resume(path, model.schema, {});
  ASSERT_FALSE(earlier.has_value());
  EXPECT_EQ(earlier.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_NE(earlier.error().message().find("by an earlier version, in format 1.0; remove it"),
            std::string::npos) << earlier.error().message();
  EXPECT_EQ(ReadFile(path + ".part"), old);
  // Cut off within the header, it has no id yet.
  for (std::size_t cut = 0; cut < kPackHeaderBytes; ++cut) {
    auto writer = resume(cut, PackId{std::byte{5}});
    ASSERT_TRUE(writer.has_value()) << cut << ": " << writer.error().message();
  }
}

TEST(PackIdTest, IsReadFromHexadecimalDigits) {
  const std::string hex = "00112233445566778899aabbccddeeff";
  const auto id = ParsePackId("00112233445566778899AABBccddeeff");
  ASSERT_TRUE(id.has_value());
  EXPECT_EQ(PackIdHex(*id), hex);
  for (const std::string& text : {std::string(), hex.substr(1), hex + "0", hex.substr(1) + "g"}) {
    const auto refused = ParsePackId(text);
    ASSERT_FALSE(refused.has_value()) << text;
    EXPECT_EQ(refused.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(refused.error().message().find("32 hexadecimal digits"), std::string::npos);
  }
}

TEST(PackFile, RecoversWhatIsCompleteWithoutAnIndex) {
  const TestFolder folder;
  const PackModel model = MakeModel(40, kSeed);
  const auto whole = WritePack(model, folder);
  std::uint64_t most = 0;
  for (std::size_t bytes = 0; bytes <= whole.size(); bytes += 97) {
    const auto source = MemorySource(std::span(whole).first(bytes));
    const auto pack = PackFile::Recover(*source);
    if (!pack.has_value()) continue;
    EXPECT_GE(pack->samples(), most);
    most = pack->samples();
    ExpectHolds(*pack, model, static_cast<std::size_t>(most));
  }
  EXPECT_EQ(most, 40U);
}

TEST(PackFile, HoldsByteStringsLongerThanAChunk) {
  const TestFolder folder;
  PackModel model;
  model.schema.fields = {{.name = "record", .fill_bits = {}, .bound = {},
                          .samples_per_chunk = 100}};
  for (const std::size_t bytes : {std::size_t{3}, std::size_t{9'000'000}, std::size_t{0},
                                  static_cast<std::size_t>(limits::kChunkBytesMax),
                                  static_cast<std::size_t>(limits::kChunkBytesMax) + 1}) {
    auto& value = model.samples.emplace_back().emplace_back(bytes);
    for (std::size_t i = 0; i < bytes; ++i) value[i] = static_cast<std::byte>(i * i / 4096 & 0xFF);
  }
  const auto bytes = WritePack(model, folder);
  const auto source = MemorySource(bytes);
  const auto pack = PackFile::Open(*source);
  ASSERT_TRUE(pack.has_value()) << pack.error().message();
  ExpectHolds(*pack, model, 5);
  const auto recovered = PackFile::Recover(*source);
  ASSERT_TRUE(recovered.has_value());
  ExpectHolds(*recovered, model, 5);
}

// Both decode aside: a tile at the edge may need more scratch memory than the first one.
TEST(PackFile, ReadsTilesOfOddShapes) {
  const TestFolder folder;
  PackModel model;
  model.schema.fields = {{.name = "wide", .kind = FieldKind::kImage, .dtype = Dtype::kU8,
                          .rank = 2, .extent = {7, 1611, 1, 1}, .fill_bits = {}, .bound = {},
                          .samples_per_chunk = 2, .tile = {7, 608, 1, 1}}};
  for (std::size_t s = 0; s < 3; ++s) {
    auto& value = model.samples.emplace_back().emplace_back(7 * 1611);
    for (std::size_t i = 0; i < value.size(); ++i) value[i] = static_cast<std::byte>(i / 9 + s);
  }
  const auto bytes = WritePack(model, folder);
  const auto source = MemorySource(bytes);
  const auto pack = PackFile::Open(*source);
  ASSERT_TRUE(pack.has_value());
  ExpectHolds(*pack, model, 3);
}

TEST(PackFile, KeepsLossyFieldsWithinTheirBound) {
  const TestFolder folder;
  PackModel model;
  model.schema.fields = {{.name = "wind", .kind = FieldKind::kImage, .dtype = Dtype::kF32,
                          .rank = 2, .extent = {40, 60, 1, 1}, .fill_bits = {},
                          .bound = {.mode = 1, .absolute = 0.01}, .samples_per_chunk = 4,
                          .tile = {40, 60, 1, 1}}};
  std::vector<std::vector<float>> values;
  for (int s = 0; s < 6; ++s) {
    auto& field = values.emplace_back();
    for (int i = 0; i < 2400; ++i) {
      field.push_back(static_cast<float>(i % 60) * 0.37F + static_cast<float>(i / 60 + s) * 1.1F);
    }
    const auto raw = std::as_bytes(std::span(field));
    model.samples.emplace_back().emplace_back(raw.begin(), raw.end());
  }
  const auto bytes = WritePack(model, folder);
  EXPECT_LT(bytes.size(), 6U * 2400 * 4 / 4);
  const auto source = MemorySource(bytes);
  const auto pack = PackFile::Open(*source);
  ASSERT_TRUE(pack.has_value());
  std::vector<std::byte> scratch(pack->ScratchBytes());
  for (std::size_t s = 0; s < 6; ++s) {
    const auto value = ReadField(*pack, 0, s, scratch);
    ASSERT_TRUE(value.has_value()) << value.error().message();
    for (std::size_t i = 0; i < 2400; ++i) {
      float got = 0;
      std::memcpy(&got, value->data() + i * sizeof(float), sizeof(float));
      ASSERT_LE(std::abs(double{got} - double{values[s][i]}), 0.01);
    }
  }
}

TEST(PackFile, ResumesBehindAByteStringOfSeveralChunks) {
  const TestFolder folder;
  PackModel model;
  model.schema.fields = {{.name = "record", .fill_bits = {}, .bound = {},
                          .samples_per_chunk = 2}};
  for (const std::size_t bytes : {std::size_t{5'000'000}, std::size_t{10}, std::size_t{20}}) {
    model.samples.emplace_back().emplace_back(bytes, std::byte{7});
  }
  const auto whole = WritePack(model, folder);
  const auto source = MemorySource(whole);
  const auto pack = PackFile::Open(*source);
  ASSERT_TRUE(pack.has_value());
  for (const ChunkEntry& entry : pack->index().chunks) {
    const std::string path = folder.Path("killed.fbp");
    WriteFile(path + ".part", std::span(whole).first(static_cast<std::size_t>(entry.offset)));
    auto writer = PackWriter::Resume(path, model.schema, {});
    ASSERT_TRUE(writer.has_value());
    ASSERT_TRUE(AddAll(model, **writer, 3).has_value());
    ASSERT_TRUE((*writer)->Finish().has_value());
    ASSERT_EQ(ReadFile(path), whole) << "cut at " << entry.offset;
    std::filesystem::remove(path);
  }
}

TEST(PackFile, ExpandsNoiseByLessThanAThousandth) {
  const TestFolder folder;
  PackModel model;
  model.schema.fields = {{.name = "noise", .kind = FieldKind::kImage, .dtype = Dtype::kU8,
                          .rank = 2, .extent = {512, 512, 1, 1}, .fill_bits = {}, .bound = {},
                          .samples_per_chunk = 8, .tile = {512, 512, 1, 1}}};
  std::mt19937 random(kSeed);
  for (int s = 0; s < 8; ++s) {
    auto& value = model.samples.emplace_back().emplace_back(512 * 512);
    for (std::byte& byte : value) byte = static_cast<std::byte>(random());
  }
  for (const Profile profile : {Profile::kFast, Profile::kBalanced, Profile::kDense}) {
    EXPECT_LE(WritePack(model, folder, {.profile = profile}).size(),
              8 * 512 * 512 * 1001 / 1000);
  }
}

TEST(PackFile, AnEmptyPackIsAPack) {
  const TestFolder folder;
  const auto bytes = WritePack(MakeModel(0, kSeed), folder);
  const auto source = MemorySource(bytes);
  const auto pack = PackFile::Open(*source);
  ASSERT_TRUE(pack.has_value()) << pack.error().message();
  EXPECT_EQ(pack->samples(), 0U);
}

TEST(PackWriter, RefusesWhatDoesNotFit) {
  const TestFolder folder;
  const PackModel model = MakeModel(3, kSeed);
  const std::string path = folder.Path("x.fbp");
  auto writer = PackWriter::Create(path, model.schema, {});
  ASSERT_TRUE(writer.has_value());
  std::vector<std::span<const std::byte>> fields(model.samples[0].begin(),
                                                 model.samples[0].end());
  EXPECT_EQ((*writer)->Add(std::span(fields).first(2), "a").error().code(),
            ErrorCode::kInvalidArgument);
  auto shorter = fields;
  shorter[1] = shorter[1].first(4);
  EXPECT_EQ((*writer)->Add(shorter, "a").error().code(), ErrorCode::kInvalidArgument);
  ASSERT_TRUE((*writer)->Add(fields, "a").has_value());
  EXPECT_EQ((*writer)->Add(fields, "").error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(PackWriter::Create(path, model.schema, {}).error().code(),
            ErrorCode::kAlreadyExists);
  PackSchema other = model.schema;
  other.fields[0].name = "picture";
  EXPECT_EQ(PackWriter::Resume(path, other, {}).error().code(),
            ErrorCode::kFailedPrecondition);
  EXPECT_EQ(PackWriter::Resume(path, model.schema, {.profile = Profile::kDense}).error().code(),
            ErrorCode::kFailedPrecondition);
  EXPECT_EQ(PackWriter::Resume(folder.Path("none"), other, {}).error().code(),
            ErrorCode::kNotFound);
  ASSERT_TRUE((*writer)->Finish().has_value());
  EXPECT_EQ((*writer)->Add(fields, "b").error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(PackWriter::Create(path, model.schema, {}).error().code(),
            ErrorCode::kAlreadyExists);
}

TEST(PackSchema, RefusesWhatMakesNoSense) {
  const PackModel model = MakeModel(0, kSeed);
  EXPECT_TRUE(CheckSchema(model.schema).has_value());
  const auto refused = [&](auto&& change) {
    PackSchema schema = model.schema;
    change(schema);
    return !CheckSchema(schema).has_value();
  };
  EXPECT_TRUE(refused([](PackSchema& s) { s.fields.clear(); }));
  EXPECT_TRUE(refused([](PackSchema& s) { s.fields[1].name = "image"; }));
  EXPECT_TRUE(refused([](PackSchema& s) { s.fields[0].name = ""; }));
  EXPECT_TRUE(refused([](PackSchema& s) { s.fields[0].extent[0] = 0; }));
  EXPECT_TRUE(refused([](PackSchema& s) { s.fields[0].tile[0] = 21; }));
  EXPECT_TRUE(refused([](PackSchema& s) { s.fields[0].rank = 5; }));
  EXPECT_TRUE(refused([](PackSchema& s) { s.fields[0].channel_axis = 3; }));
  EXPECT_TRUE(refused([](PackSchema& s) { s.fields[0].samples_per_chunk = 0; }));
  EXPECT_TRUE(refused([](PackSchema& s) { s.fields[0].samples_per_chunk = 1 << 16; }));
  EXPECT_TRUE(refused([](PackSchema& s) { s.fields[1].valid_bits = 17; }));
  EXPECT_TRUE(refused([](PackSchema& s) { s.fields[3].bound.mode = 6; }));
  EXPECT_TRUE(refused([](PackSchema& s) { s.provenance.resize(257); }));
}

}  // namespace forebay::compress::pack_file_test

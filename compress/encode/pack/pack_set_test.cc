// Sets of packs: shards look like one sequence; appending is atomic and resumes; what is not the
// file that the manifest names is refused by name.
#include <algorithm>
#include <filesystem>
#include <thread>

#include <gtest/gtest.h>

#include "compress/decode/pack/pack_set.h"
#include "compress/encode/pack/pack_set_writer.h"
#include "compress/encode/testing/pack_test_model.h"

namespace forebay::compress::pack_set_test {

namespace fs = std::filesystem;

constexpr std::uint32_t kSeed = 7;

// Adds samples [from, to) of the model that the writer lacks.
Status AddRange(const PackModel& model, PackSetWriter& writer, std::size_t from, std::size_t to) {
  for (std::size_t s = from + writer.next_sample(); s < to; ++s) {
    if (std::ranges::count(model.sequences, s) > 0) FOREBAY_TRY(writer.BeginSequence());
    std::vector<std::span<const std::byte>> fields(model.samples[s].begin(),
                                                   model.samples[s].end());
    FOREBAY_TRY(writer.Add(fields, model.keys[s]));
  }
  return {};
}

Result<PackSetSummary> Write(const std::string& path, const PackModel& model, std::size_t from,
                             std::size_t to, const PackSetWriterOptions& options) {
  FOREBAY_ASSIGN(const auto writer, PackSetWriter::Open(path, model.schema, options));
  FOREBAY_TRY(AddRange(model, *writer, from, to));
  return writer->Finish();
}

std::uint64_t RawBytes(const PackModel& model, std::size_t sample) {
  std::uint64_t bytes = 0;
  for (const auto& field : model.samples[sample]) bytes += field.size();
  return bytes;
}

// The same field of the same sample through the set's calls.
Result<std::vector<std::byte>> ReadOne(const PackSet& set, std::uint32_t field,
                                       std::uint64_t sample, std::span<std::byte> scratch) {
  FOREBAY_ASSIGN(const std::uint64_t bytes, set.SampleBytes(field, sample, scratch));
  std::vector<std::byte> value(static_cast<std::size_t>(bytes));
  FOREBAY_ASSIGN(const PackSchema schema, set.Schema());
  FOREBAY_TRY(schema.fields[field].variable()
                  ? set.ReadBytes(field, sample, value, scratch)
                  : set.ReadSamples(field, sample, 1, value, scratch));
  return value;
}

void ExpectHolds(const PackSet& set, const PackModel& model, std::size_t samples) {
  ASSERT_EQ(set.samples(), samples);
  const auto scratch_bytes = set.ScratchBytes(0, samples);
  ASSERT_TRUE(scratch_bytes.has_value()) << scratch_bytes.error().message();
  std::vector<std::byte> scratch(*scratch_bytes);
  for (std::size_t s = 0; s < samples; ++s) {
    for (std::uint32_t field = 0; field < model.schema.fields.size(); ++field) {
      const auto value = ReadOne(set, field, s, scratch);
      ASSERT_TRUE(value.has_value()) << value.error().message();
      ASSERT_EQ(*value, model.samples[s][field]) << "sample " << s << ", field " << field;
    }
  }
  const auto keys = set.Keys(0, samples);
  ASSERT_TRUE(keys.has_value());
  EXPECT_EQ(*keys, std::vector<std::string>(model.keys.begin(),
                                            model.keys.begin() + static_cast<long>(samples)));
}

TEST(PackSet, ShardsLookLikeOneSequence) {
  const TestFolder folder;
  const PackModel model = MakeModel(23, kSeed);
  const std::string path = folder.Path("train.fbset");
  const auto written =
      Write(path, model, 0, 23, {.shard_raw_bytes = RawBytes(model, 0) * 5});
  ASSERT_TRUE(written.has_value()) << written.error().message();
  EXPECT_EQ(written->samples, 23U);
  EXPECT_GE(written->shards, 4U);
  EXPECT_EQ(written->generation, 1U);
  for (const std::size_t open_max : {std::size_t{1}, std::size_t{64}}) {
    const auto set = PackSet::Open(path, open_max);
    ASSERT_TRUE(set.has_value()) << set.error().message();
    ASSERT_EQ((*set)->manifest().shards.size(), written->shards);
    EXPECT_EQ((*set)->manifest().shards[0].name, "train-g0001-00000.fbp");
    ExpectHolds(**set, model, 23);
  }
  EXPECT_FALSE(fs::exists(path + ".lock"));
  EXPECT_FALSE(fs::exists(path + ".part"));
}

TEST(PackSet, RunsAndRegionsCrossShards) {
  const TestFolder folder;
  const PackModel model = MakeModel(23, kSeed);
  const std::string path = folder.Path("a.fbset");
  ASSERT_TRUE(Write(path, model, 0, 23, {.shard_raw_bytes = RawBytes(model, 0) * 4}).has_value());
  const auto set = PackSet::Open(path);
  ASSERT_TRUE(set.has_value());
  std::vector<std::byte> scratch(*(*set)->ScratchBytes(0, 23));
  const std::size_t label = 2;
  const std::size_t bytes = model.samples[0][label].size();
  std::vector<std::byte> run(20 * bytes);
  ASSERT_TRUE((*set)->ReadSamples(label, 2, 20, run, scratch).has_value());
  // Every second row of a buffer twice as high, samples far apart.
  const PackField& image = model.schema.fields[0];
  PackRegion region{.origin = {1, 2, 0, 0}, .extent = {3, 4, image.extent[2], 1}};
  const std::size_t row = region.extent[1] * region.extent[2];
  StridedOutput out{.sample_stride = row * 8, .axis_stride = {row * 2, region.extent[2], 1, 1}};
  std::vector<std::byte> box(out.sample_stride * 20, std::byte{0x55});
  out.memory = box;
  ASSERT_TRUE((*set)->Read(0, 2, 20, region, out, scratch).has_value());
  for (std::size_t s = 0; s < 20; ++s) {
    EXPECT_TRUE(std::ranges::equal(std::span(run).subspan(s * bytes, bytes),
                                   model.samples[s + 2][label]));
    for (std::size_t y = 0; y < 3; ++y) {
      const std::size_t at = ((y + 1) * image.extent[1] + 2) * image.extent[2];
      EXPECT_TRUE(std::ranges::equal(
          std::span(box).subspan(s * out.sample_stride + y * row * 2, row),
          std::span(model.samples[s + 2][0]).subspan(at, row)));
      EXPECT_EQ(box[s * out.sample_stride + y * row * 2 + row], std::byte{0x55});
    }
  }
  EXPECT_EQ((*set)->Read(0, 2, 22, region, out, scratch).error().code(), ErrorCode::kOutOfRange);
  EXPECT_EQ((*set)->ReadSamples(label, 2, 20, std::span(run).first(5 * bytes), scratch)
                .error().code(),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ((*set)->ReadSamples(99, 2, 2, run, scratch).error().code(),
            ErrorCode::kInvalidArgument);
  out.memory = std::span(box).first(out.sample_stride * 2);
  EXPECT_EQ((*set)->Read(0, 2, 20, region, out, scratch).error().code(),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ((*set)->Find(23).error().code(), ErrorCode::kOutOfRange);
  EXPECT_EQ((*set)->Shard(99).error().code(), ErrorCode::kOutOfRange);
}

TEST(PackSet, AppendingAddsShardsAndAGeneration) {
  const TestFolder folder;
  const PackModel model = MakeModel(23, kSeed);
  const std::string path = folder.Path("a.fbset");
  ASSERT_TRUE(Write(path, model, 0, 10, {.append = true}).has_value()) << "there was none yet";
  const auto before = PackSet::Open(path);
  ASSERT_TRUE(before.has_value());
  const auto added = Write(path, model, 10, 23, {.append = true});
  ASSERT_TRUE(added.has_value()) << added.error().message();
  EXPECT_EQ(added->generation, 2U);
  EXPECT_EQ(added->shards_added, 1U);
  EXPECT_EQ(added->samples_added, 13U);
  EXPECT_EQ(added->samples, 23U);
  EXPECT_GT(added->file_bytes_added, 0U);
  const auto after = PackSet::Open(path);
  ASSERT_TRUE(after.has_value());
  ExpectHolds(**after, model, 23);
  ExpectHolds(**before, model, 10);
  const auto nothing = Write(path, model, 0, 0, {.append = true});
  ASSERT_TRUE(nothing.has_value());
  EXPECT_EQ(nothing->generation, 2U);
  EXPECT_EQ(Write(path, model, 0, 2, {}).error().code(), ErrorCode::kAlreadyExists);
  PackModel other = model;
  other.schema.fields[1].samples_per_chunk += 1;
  const auto refused = Write(path, other, 0, 2, {.append = true});
  EXPECT_EQ(refused.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_NE(refused.error().message().find("a.fbset"), std::string::npos);
  // Another profile is another provenance, and no other schema.
  ASSERT_TRUE(Write(path, model, 0, 2, {.pack = {.profile = Profile::kFast}, .append = true})
                  .has_value());
}

TEST(PackSet, NoSamplesMakeAShardOfNone) {
  const TestFolder folder;
  const PackModel model = MakeModel(4, kSeed);
  const std::string path = folder.Path("a.fbset");
  ASSERT_TRUE(Write(path, model, 0, 0, {}).has_value());
  ASSERT_TRUE(Write(path, model, 0, 4, {.append = true}).has_value());
  const auto set = PackSet::Open(path);
  ASSERT_TRUE(set.has_value());
  EXPECT_EQ((*set)->manifest().shards.size(), 2U);
  EXPECT_EQ((*set)->Find(0)->shard, 1U) << "the empty shard has no first sample";
  ExpectHolds(**set, model, 4);
}

TEST(PackSet, AKilledRunIsResumedToTheSameFiles) {
  const TestFolder folder;
  const PackModel model = MakeModel(23, kSeed);
  const PackSetWriterOptions options{.pack = {.id = kTestPackId},
                                     .shard_raw_bytes = RawBytes(model, 0) * 6};
  const std::string whole = folder.Path("whole/a.fbset");
  fs::create_directory(folder.Path("whole"));
  ASSERT_TRUE(Write(whole, model, 0, 23, options).has_value());
  std::size_t between = 0;
  for (std::size_t killed_at = 0; killed_at <= 23; ++killed_at) {
    const std::string name = "run" + std::to_string(killed_at);
    fs::create_directory(folder.Path(name));
    const std::string path = folder.Path(name + "/a.fbset");
    {
      const auto writer = PackSetWriter::Open(path, model.schema, options);
      ASSERT_TRUE(writer.has_value());
      ASSERT_TRUE(AddRange(model, **writer, 0, killed_at).has_value());
    }
    EXPECT_FALSE(fs::exists(path));
    auto resume = options;
    if (killed_at > 0) {
      const auto refused = Write(path, model, 0, 23, options);
      ASSERT_EQ(refused.error().code(), ErrorCode::kAlreadyExists);
    }
    resume.resume = true;
    const auto writer = PackSetWriter::Open(path, model.schema, resume);
    ASSERT_TRUE(writer.has_value()) << writer.error().message();
    between += (*writer)->next_sample() > 0 ? 1 : 0;
    ASSERT_TRUE(AddRange(model, **writer, 0, 23).has_value());
    ASSERT_TRUE((*writer)->Finish().has_value());
    EXPECT_EQ(ReadFile(path), ReadFile(whole)) << killed_at;
    const auto manifest = ReadManifestFile(path);
    ASSERT_TRUE(manifest.has_value());
    for (const ShardEntry& shard : manifest->shards) {
      EXPECT_EQ(ReadFile(folder.Path(name + "/" + shard.name)),
                ReadFile(folder.Path("whole/" + shard.name)));
    }
  }
  EXPECT_GT(between, 10U) << "finished shards were gone on with";
}

TEST(PackSet, ARunThatEndsBeforeAKilledOneIsRefused) {
  const TestFolder folder;
  const PackModel model = MakeModel(23, kSeed);
  const std::string path = folder.Path("a.fbset");
  {
    const auto writer = PackSetWriter::Open(path, model.schema, {});
    ASSERT_TRUE(AddRange(model, **writer, 0, 23).has_value());
  }
  const auto shorter = Write(path, model, 0, 1, {.resume = true});
  EXPECT_EQ(shorter.error().code(), ErrorCode::kFailedPrecondition) << "of 23";
}

TEST(PackSet, OneWriterAtATime) {
  const TestFolder folder;
  const PackModel model = MakeModel(4, kSeed);
  const std::string path = folder.Path("a.fbset");
  {
    const auto first = PackSetWriter::Open(path, model.schema, {});
    ASSERT_TRUE(first.has_value());
    const auto second = PackSetWriter::Open(path, model.schema, {});
    EXPECT_EQ(second.error().code(), ErrorCode::kFailedPrecondition);
    EXPECT_NE(second.error().message().find("another process"), std::string::npos);
    EXPECT_TRUE(fs::exists(path + ".lock")) << "the second did not take the first's lock away";
  }
  WriteFile(path + ".lock", {});  // of a writer that was killed
  EXPECT_TRUE(Write(path, model, 0, 4, {}).has_value());
  EXPECT_EQ(PackSetWriter::Open(folder.Path(""), model.schema, {}).error().code(),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(PackSetWriter::Open(folder.Path("b.fbset"), {}, {}).error().code(),
            ErrorCode::kInvalidArgument);
}

class PackSetDamage : public ::testing::Test {
 protected:
  PackSetDamage() : model_(MakeModel(12, kSeed)), path_(folder_.Path("a.fbset")) {
    EXPECT_TRUE(Write(path_, model_, 0, 6, {}).has_value());
    EXPECT_TRUE(Write(path_, model_, 6, 12, {.append = true}).has_value());
  }

  std::string Second() const { return folder_.Path("a-g0002-00000.fbp"); }

  // Samples of the first shard can be had, those of the second cannot.
  void ExpectRefused(ErrorCode code, const std::string& words) {
    const auto set = PackSet::Open(path_);
    ASSERT_TRUE(set.has_value()) << "the manifest alone is read";
    ASSERT_TRUE((*set)->Shard(0).has_value());
    const auto shard = (*set)->Shard(1);
    ASSERT_FALSE(shard.has_value());
    EXPECT_EQ(shard.error().code(), code) << shard.error().message();
    EXPECT_NE(shard.error().message().find("a-g0002-00000.fbp"), std::string::npos);
    EXPECT_NE(shard.error().message().find(words), std::string::npos)
        << shard.error().message();
    std::vector<std::byte> scratch(*(*set)->ScratchBytes(0, 6));
    EXPECT_TRUE(ReadOne(**set, 2, 5, scratch).has_value());
    EXPECT_EQ((*set)->SampleBytes(2, 6, scratch).error().code(), code);
    EXPECT_EQ((*set)->Keys(0, 12).error().code(), code);
  }

  const TestFolder folder_;
  PackModel model_;
  const std::string path_;
};

TEST_F(PackSetDamage, AMissingShardIsNamed) {
  fs::remove(Second());
  ExpectRefused(ErrorCode::kNotFound, "opening");
}

TEST_F(PackSetDamage, AShardOfAnotherSizeIsNamed) {
  fs::resize_file(Second(), fs::file_size(Second()) - 1);
  ExpectRefused(ErrorCode::kDataLoss, "bytes, wanted are");
}

TEST_F(PackSetDamage, ADamagedShardIsNamed) {
  auto bytes = ReadFile(Second());
  bytes[bytes.size() - 20] ^= std::byte{1};
  WriteFile(Second(), bytes);
  ExpectRefused(ErrorCode::kDataLoss, "pack:");
}

TEST_F(PackSetDamage, AShardOfOtherContentIsNamed) {
  // The same number of bytes and samples: another value in one element of noise.
  PackModel noise;
  noise.schema.fields = {{.name = "x", .dtype = Dtype::kU8, .rank = 1, .extent = {4, 1, 1, 1},
                          .fill_bits = {}, .bound = {}, .tile = {4, 1, 1, 1}}};
  noise.samples = {{{std::byte{1}, std::byte{7}, std::byte{200}, std::byte{90}}}};
  noise.keys = {""};
  const std::string path = folder_.Path("n.fbset");
  ASSERT_TRUE(Write(path, noise, 0, 1, {}).has_value());
  noise.samples[0][0][1] = std::byte{9};
  ASSERT_TRUE(Write(folder_.Path("m.fbset"), noise, 0, 1, {}).has_value());
  ASSERT_EQ(fs::file_size(folder_.Path("m-g0001-00000.fbp")),
            fs::file_size(folder_.Path("n-g0001-00000.fbp")));
  fs::rename(folder_.Path("m-g0001-00000.fbp"), folder_.Path("n-g0001-00000.fbp"));
  const auto set = PackSet::Open(path);
  const auto shard = (*set)->Shard(0);
  ASSERT_FALSE(shard.has_value());
  EXPECT_EQ(shard.error().code(), ErrorCode::kDataLoss);
  EXPECT_NE(shard.error().message().find("n-g0001-00000.fbp: not the file"), std::string::npos)
      << shard.error().message();
}

TEST_F(PackSetDamage, AShardOfAnotherSchemaIsNamed) {
  PackManifest manifest = *ReadManifestFile(path_);
  ++manifest.schema_fingerprint;
  const auto set = PackSet::Open(manifest, FolderOf(path_));
  ASSERT_TRUE(set.has_value());
  const auto shard = (*set)->Shard(0);
  EXPECT_EQ(shard.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_NE(shard.error().message().find("a-g0001-00000.fbp"), std::string::npos);
}

TEST_F(PackSetDamage, ADamagedManifestIsNamed) {
  auto bytes = ReadFile(path_);
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    bytes[at] ^= std::byte{4};
    WriteFile(path_, bytes);
    const auto set = PackSet::Open(path_);
    ASSERT_FALSE(set.has_value()) << at;
    ASSERT_NE(set.error().message().find("a.fbset"), std::string::npos);
    bytes[at] ^= std::byte{4};
  }
  bytes.resize(30);
  WriteFile(path_, bytes);
  EXPECT_EQ(PackSet::Open(path_).error().code(), ErrorCode::kDataLoss);
  EXPECT_EQ(PackSet::Open(folder_.Path("none")).error().code(), ErrorCode::kNotFound);
  EXPECT_TRUE(*IsManifestFile(path_));
  EXPECT_FALSE(*IsManifestFile(Second()));
  PackManifest none;
  EXPECT_EQ(PackSet::Open(none, "").error().code(), ErrorCode::kInvalidArgument);
}

TEST(PackSet, ThreadsShareIt) {
  const TestFolder folder;
  const PackModel model = MakeModel(24, kSeed);
  const std::string path = folder.Path("a.fbset");
  ASSERT_TRUE(Write(path, model, 0, 24, {.shard_raw_bytes = RawBytes(model, 0) * 3}).has_value());
  const auto set = PackSet::Open(path, 2);
  ASSERT_TRUE(set.has_value());
  const std::size_t scratch_bytes = *(*set)->ScratchBytes(0, 24);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (std::size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      std::vector<std::byte> scratch(scratch_bytes);
      for (std::size_t i = 0; i < 96; ++i) {
        const std::size_t s = (i * (t * 2 + 5)) % 24;
        const auto value = ReadOne(**set, 0, s, scratch);
        if (!value.has_value() || *value != model.samples[s][0]) ++wrong[t];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

}  // namespace forebay::compress::pack_set_test

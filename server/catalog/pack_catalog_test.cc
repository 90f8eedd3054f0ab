// Catalogs of packs: what they say about real packs, and what they refuse.
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>

#include "compress/decode/pack_file.h"
#include "compress/encode/pack_test_model.h"
#include "compress/format/pack_manifest.h"
#include "server/catalog/catalog_test_fixture.h"
#include "proto/contract/unique_fd.h"
#include "server/catalog/object_source.h"
#include "server/catalog/pack_catalog.h"
#include "server/catalog/pack_image_checker.h"
#include "server/catalog/pack_image_probe.h"
#include "server/catalog/pack_table.h"
#include "server/io/thread_backend.h"

namespace forebay::catalog {
namespace {

using compress::ChunkEntry;
using compress::PackFile;
using compress::PackModel;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

auto Facts(const ChunkEntry& entry) {
  return std::tuple(entry.field, entry.tile, entry.first_sample, entry.sample_count,
                    entry.head_bytes, entry.offset, entry.payload_bytes, entry.part_offset,
                    entry.sample_bytes, entry.head_checksum);
}

// A pack in memory, as it was written.
struct WrittenPack {
  std::string path;
  PackModel model;
  std::vector<std::byte> bytes;
  std::unique_ptr<compress::ByteSource> source;
  std::optional<PackFile> file;
};

class PackCatalogTest : public CatalogFixture {
 protected:
  void AddPack(const std::string& path, PackModel model) {
    WrittenPack& pack = packs_.emplace_back();
    pack.path = path;
    pack.model = std::move(model);
    pack.bytes = compress::WritePack(pack.model, folder_, {.profile = compress::Profile::kFast});
    pack.source = compress::MemorySource(pack.bytes);
    auto opened = PackFile::Open(*pack.source);
    ASSERT_TRUE(opened.has_value());
    pack.file.emplace(std::move(*opened));
    AddFile(path, BytesText(pack.bytes));
  }

  // Adds a pack's bytes after a change; `change` gets them.
  template <typename Change>
  void AddDamaged(const std::string& path, Change change) {
    std::vector<std::byte> bytes = compress::WritePack(compress::MakeModel(4, 9), folder_);
    change(bytes);
    AddFile(path, BytesText(bytes));
  }

  std::shared_ptr<const Catalog> MustBuild() {
    auto built = Build();
    EXPECT_TRUE(built.has_value()) << built.error().ToString();
    return built.has_value() ? *built : nullptr;
  }

  // Three packs of 12, 1 and 9 samples, the last with byte strings in several chunks.
  void AddThree() {
    AddPack("a.pack", compress::MakeModel(12, 1));
    AddPack("b.pack", compress::MakeModel(1, 2));
    PackModel model = compress::MakeModel(9, 3);
    model.samples[4].back().assign(9 * limits::kMiB, std::byte{7});
    model.samples[6].back().assign(5 * limits::kMiB, std::byte{8});
    AddPack("c.pack", std::move(model));
  }

  void ExpectChunk(const Catalog& catalog, const PackChunk& chunk, const WrittenPack& pack);
  void ExpectSample(const Catalog& catalog, std::uint64_t base, std::uint64_t local,
                    const WrittenPack& pack);
  void ExpectExtents(const Catalog& catalog);

  compress::TestFolder folder_;
  std::vector<WrittenPack> packs_;
};

// The record lies where the catalog says, and is the file's own.
void PackCatalogTest::ExpectChunk(const Catalog& catalog, const PackChunk& chunk,
                                  const WrittenPack& pack) {
  EXPECT_EQ(chunk.identity, pack.file->identity());
  const std::string image = ExtentText(catalog, chunk.extent);
  ASSERT_LE(chunk.image_offset + chunk.bytes(), image.size());
  const std::vector<std::byte> record =
      TextBytes(std::string_view(image).substr(chunk.image_offset, chunk.bytes()));
  const auto prefix = compress::ReadRecordPrefix(record);
  ASSERT_TRUE(prefix.has_value());
  EXPECT_EQ(prefix->type, compress::RecordType::kChunk);
  EXPECT_EQ(prefix->head_checksum, chunk.entry.head_checksum);
  const std::span<const std::byte> head = std::span(record).first(chunk.entry.head_bytes);
  EXPECT_TRUE(compress::CheckRecordHead(chunk.identity, chunk.entry.offset, head).has_value());
  EXPECT_EQ(compress::PayloadChecksum(chunk.identity, compress::RecordType::kChunk,
                                      chunk.entry.offset,
                                      std::span(record).subspan(chunk.entry.head_bytes)),
            prefix->payload_checksum);
  std::vector<Range> pieces;
  ASSERT_TRUE(catalog.Pieces(chunk.extent, pieces).has_value());
  ASSERT_LT(chunk.piece, pieces.size());
  EXPECT_EQ(pieces[chunk.piece].offset, chunk.image_offset);
  EXPECT_EQ(pieces[chunk.piece].length, chunk.bytes());
}

// Every field's chunks are those that the pack itself would read.
void PackCatalogTest::ExpectSample(const Catalog& catalog, std::uint64_t base,
                                   std::uint64_t local, const WrittenPack& pack) {
  const PackTable& table = *catalog.packs();
  for (std::uint32_t field = 0; field < table.schema().fields.size(); ++field) {
    const std::span<const ChunkEntry> expected = pack.file->Chunks(field, local, 1);
    const ChunkGroup group = table.GroupOf(field, SampleId(base + local));
    ASSERT_EQ(group.count, expected.size()) << "field " << field << " sample " << local;
    for (std::uint32_t i = 0; i < group.count; ++i) {
      const PackChunk chunk = table.chunk(group.first + i);
      EXPECT_EQ(Facts(chunk.entry), Facts(expected[i]));
      EXPECT_EQ(chunk.sample_base, base);
      EXPECT_EQ(chunk.first_sample(), base + expected[i].first_sample);
      ExpectChunk(catalog, chunk, pack);
    }
  }
  const auto key = catalog.SampleKey(SampleId(base + local));
  ASSERT_TRUE(key.has_value());
  const auto& keys = pack.model.keys;
  EXPECT_EQ(*key, keys.empty() ? std::to_string(base + local) : keys[local]);
}

// Extents hold each chunk once, and name the samples of theirs.
void PackCatalogTest::ExpectExtents(const Catalog& catalog) {
  const PackTable& table = *catalog.packs();
  std::vector<std::uint64_t> begins(catalog.extent_count(), ~std::uint64_t{0});
  std::vector<std::uint64_t> ends(catalog.extent_count(), 0);
  std::vector<std::uint32_t> counts(catalog.extent_count(), 0);
  for (std::uint64_t i = 0; i < table.chunk_count(); ++i) {
    const PackChunk chunk = table.chunk(i);
    const std::uint32_t extent = chunk.extent.value();
    begins[extent] = std::min(begins[extent], chunk.first_sample());
    ends[extent] = std::max(ends[extent], chunk.first_sample() + chunk.entry.sample_count);
    ++counts[extent];
  }
  std::uint64_t total = 0;
  for (std::uint32_t i = 0; i < catalog.extent_count(); ++i) {
    const ExtentInfo info = catalog.extent(ExtentId(i));
    std::vector<Range> pieces;
    ASSERT_TRUE(catalog.Pieces(ExtentId(i), pieces).has_value());
    EXPECT_EQ(pieces.size(), counts[i]);
    EXPECT_TRUE(pieces.size() == 1 || info.bytes <= source_.extent_bytes);
    EXPECT_EQ(info.object_count, 1U);
    EXPECT_EQ(info.part, 0U);
    EXPECT_EQ(info.first_sample.value(), begins[i]);
    EXPECT_EQ(info.first_sample.value() + info.sample_count, ends[i]);
    total += info.bytes;
  }
  EXPECT_EQ(total, catalog.total_bytes());
  EXPECT_TRUE(AnswersWithinBounds(catalog));
}

TEST_F(PackCatalogTest, FindsEveryChunkOfEverySample) {
  AddThree();
  for (const std::uint64_t extent_bytes :
       {std::uint64_t{1}, std::uint64_t{2000}, 32 * limits::kKiB, limits::kExtentBytesDefault}) {
    SCOPED_TRACE(extent_bytes);
    source_.extent_bytes = extent_bytes;
    const auto catalog = MustBuild();
    ASSERT_NE(catalog, nullptr);
    EXPECT_EQ(catalog->format(), Format::kPack);
    ASSERT_EQ(catalog->sample_count(), 22U);
    ASSERT_EQ(catalog->object_count(), 3U);
    EXPECT_EQ(catalog->packs()->schema().fields.size(), 5U);
    EXPECT_TRUE(catalog->packs()->schema().provenance.empty());
    ExpectExtents(*catalog);
    std::uint64_t base = 0;
    for (const WrittenPack& pack : packs_) {
      for (std::uint64_t s = 0; s < pack.file->samples(); ++s) {
        ExpectSample(*catalog, base, s, pack);
      }
      base += pack.file->samples();
    }
  }
  EXPECT_EQ(packs_[2].file->Chunks(4, 4, 1).size(), 3U) << "no long byte string was looked for";
  EXPECT_EQ(packs_[0].file->Chunks(0, 0, 1).size(), 4U) << "no tiles were looked for";
}

TEST_F(PackCatalogTest, FieldsAreThoseOfThePack) {
  AddPack("a.pack", compress::MakeModel(3, 1));
  const auto catalog = MustBuild();
  ASSERT_NE(catalog, nullptr);
  ASSERT_EQ(catalog->fields().size(), 5U);
  const FieldSpec& image = catalog->fields()[0];
  EXPECT_EQ(image.name, "image");
  EXPECT_EQ(image.dtype, Dtype::kU8);
  EXPECT_EQ(image.source, FieldSource::kExtent);
  EXPECT_FALSE(image.big_endian);
  EXPECT_THAT(image.shape, ElementsAre(20, 30, 3));
  const FieldSpec& label = catalog->fields()[2];
  EXPECT_TRUE(label.is_fixed());
  EXPECT_TRUE(label.shape.empty());
  EXPECT_FALSE(catalog->fields()[4].is_fixed());
  for (std::uint32_t i = 0; i < 5; ++i) {
    EXPECT_EQ(catalog->PartOf(FieldId(i)), 0U);
    EXPECT_TRUE(catalog->ConstantNames(FieldId(i)).empty());
  }
  EXPECT_EQ(catalog->part_count(), 1U);
}

TEST_F(PackCatalogTest, SamplesHaveNoByteRanges) {
  AddPack("a.pack", compress::MakeModel(3, 1));
  const auto catalog = MustBuild();
  ASSERT_NE(catalog, nullptr);
  std::vector<FieldLocation> locations(5);
  const Status located = catalog->Locate(SampleId(0), locations);
  ASSERT_FALSE(located.has_value());
  EXPECT_EQ(located.error().code(), ErrorCode::kUnimplemented);
  EXPECT_THAT(located.error().message(), HasSubstr("compressed chunks"));
  EXPECT_EQ(catalog->SampleRange(SampleId(0), 0).error().code(), ErrorCode::kUnimplemented);
  EXPECT_EQ(catalog->SampleKey(SampleId(3)).error().code(), ErrorCode::kOutOfRange);
}

TEST_F(PackCatalogTest, PacksWithoutKeysNumberTheirSamples) {
  PackModel model = compress::MakeModel(20, 4);
  model.schema.keyed = false;
  model.keys.clear();
  AddPack("a.pack", model);
  AddPack("b.pack", model);
  const auto catalog = MustBuild();
  ASSERT_NE(catalog, nullptr);
  EXPECT_EQ(*catalog->SampleKey(SampleId(21)), "21");
  ExpectSample(*catalog, 20, 7, packs_[1]);
}

TEST_F(PackCatalogTest, EmptyPacksAreSkippedButMustFit) {
  AddPack("a.pack", compress::MakeModel(0, 1));
  EXPECT_THAT(BuildError(), HasSubstr("data set 'test' has no samples"));
  AddPack("b.pack", compress::MakeModel(5, 2));
  const auto catalog = MustBuild();
  ASSERT_NE(catalog, nullptr);
  EXPECT_EQ(catalog->object_count(), 1U);
  EXPECT_EQ(catalog->object(ObjectId(0)).path, "b.pack");
  PackModel other = compress::MakeModel(0, 1);
  other.schema.fields.pop_back();
  AddPack("c.pack", other);
  EXPECT_THAT(BuildError(), HasSubstr("'a.pack' and 'c.pack'"));
}

TEST_F(PackCatalogTest, NamedFilesKeepTheirOrder) {
  AddPack("x/late.bin", compress::MakeModel(2, 1));
  AddPack("early.pack", compress::MakeModel(3, 2));
  source_.format = Format::kPack;
  source_.files = {{.field = "", .path = "x/late.bin"}, {.field = "", .path = "early.pack"}};
  const auto catalog = MustBuild();
  ASSERT_NE(catalog, nullptr);
  ASSERT_EQ(catalog->object_count(), 2U);
  EXPECT_EQ(catalog->object(ObjectId(0)).path, "x/late.bin");
  ExpectSample(*catalog, 2, 1, packs_[1]);
  source_.files[0].field = "image";
  EXPECT_THAT(BuildError(), HasSubstr("names a field for 'x/late.bin'"));
  source_.files[0] = source_.files[1];
  EXPECT_THAT(BuildError(), HasSubstr("has 'early.pack' twice"));
  source_.files[0].path = "gone.pack";
  EXPECT_THAT(BuildError(), HasSubstr("gone.pack"));
}

TEST_F(PackCatalogTest, FingerprintFollowsNamesBytesAndExtents) {
  AddPack("a.pack", compress::MakeModel(6, 1));
  const auto first = MustBuild();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(MustBuild()->fingerprint(), first->fingerprint());
  source_.extent_bytes = 1000;
  EXPECT_NE(MustBuild()->fingerprint(), first->fingerprint());
  source_.extent_bytes = limits::kExtentBytesDefault;
  source_.name = "other";
  EXPECT_NE(MustBuild()->fingerprint(), first->fingerprint());
}

TEST_F(PackCatalogTest, SavedCatalogMapsBack) {
  AddPack("a.pack", compress::MakeModel(12, 1));
  AddPack("b.pack", compress::MakeModel(3, 2));
  const auto catalog = MustBuild();
  ASSERT_NE(catalog, nullptr);
  const auto backend = io::ThreadBackend::Create();
  ASSERT_TRUE(backend.has_value());
  auto directory = (*backend)->OpenDirectory(
      std::filesystem::path(folder_.Path("x")).parent_path().string());
  ASSERT_TRUE(directory.has_value());
  ASSERT_TRUE(SaveCatalog(*catalog, **backend, **directory, "x").has_value());
  const auto mapped = Catalog::Map(folder_.Path("x"));
  ASSERT_TRUE(mapped.has_value()) << mapped.error().ToString();
  EXPECT_EQ((*mapped)->fingerprint(), catalog->fingerprint());
  EXPECT_EQ((*mapped)->name(), "test");
  ExpectExtents(**mapped);
  ExpectSample(**mapped, 12, 2, packs_[1]);
  ASSERT_TRUE(VerifyObjects(**mapped, *root_).has_value());
  AddFile("b.pack", "other");
  const Status changed = VerifyObjects(**mapped, *root_);
  ASSERT_FALSE(changed.has_value());
  EXPECT_THAT(changed.error().message(), HasSubstr("'b.pack' changed"));
}

TEST_F(PackCatalogTest, TablesBeyondMemoryGoToScratchFiles) {
  AddPack("a.pack", compress::MakeModel(40, 1));
  AddPack("b.pack", compress::MakeModel(30, 2));
  const auto in_memory = MustBuild();
  ASSERT_NE(in_memory, nullptr);
  const BuildScratch scratch{
      .directory = std::filesystem::path(folder_.Path("x")).parent_path().string(),
      .table_bytes = 100};
  const auto spilled = BuildFromMetadata(backend_, *root_, source_, nullptr, nullptr, scratch);
  ASSERT_TRUE(spilled.has_value()) << spilled.error().ToString();
  EXPECT_EQ(BytesText((*spilled)->image()), BytesText(in_memory->image()));
}

TEST_F(PackCatalogTest, RefusesPacksOfOtherFields) {
  AddPack("a.pack", compress::MakeModel(4, 1));
  using Change = void (*)(compress::PackSchema&);
  const std::vector<std::pair<Change, const char*>> changes = {
      {[](auto& schema) { schema.fields[0].name = "picture"; }, "another name"},
      {[](auto& schema) { schema.fields[1].kind = compress::FieldKind::kMask; }, "another kind"},
      {[](auto& schema) { schema.fields[3].dtype = Dtype::kI32; }, "another element type"},
      {[](auto& schema) { schema.fields[3].extent[0] = 8; }, "another shape"},
      {[](auto& schema) { schema.fields[0].channel_axis = -1; }, "another channel axis"},
      {[](auto& schema) { schema.fields[1].valid_bits = 13; }, "another number of valid bits"},
      {[](auto& schema) { schema.fields[1].fill_bits = 1; }, "another fill value"},
      {[](auto& schema) { schema.fields[3].bound = {.mode = 1, .absolute = 0.5}; },
       "another error bound"},
      {[](auto& schema) { schema.fields[2].samples_per_chunk = 4; }, "samples per chunk"},
      {[](auto& schema) { schema.fields[0].tile[0] = 10; }, "another tile"},
      {[](auto& schema) { schema.fields.pop_back(); }, "5 and 4 fields"},
      {[](auto& schema) { schema.keyed = false; }, "only one of them has keys"}};
  for (const auto& [change, named] : changes) {
    PackModel model = compress::MakeModel(0, 1);
    change(model.schema);
    AddPack("b.pack", model);
    EXPECT_THAT(BuildError(),
                AllOf(HasSubstr("'a.pack' and 'b.pack' do not belong"), HasSubstr(named)));
  }
  PackModel elsewhere = compress::MakeModel(4, 1);
  elsewhere.schema.provenance = {{"source", "another"}};
  elsewhere.schema.aligned = true;
  AddPack("b.pack", elsewhere);
  EXPECT_TRUE(Build().has_value()) << "where they come from may differ";
}

TEST_F(PackCatalogTest, RefusesWhatIsNoSoundPack) {
  AddFile("a.pack", "not a pack");
  EXPECT_THAT(BuildError(), AllOf(HasSubstr("'a.pack'"), HasSubstr("not a pack file")));
  AddDamaged("a.pack", [](auto& bytes) { bytes.resize(bytes.size() / 2); });
  EXPECT_THAT(BuildError(), AllOf(HasSubstr("'a.pack'"), HasSubstr("footer")));
  AddDamaged("a.pack", [](auto& bytes) { bytes[bytes.size() - 40] ^= std::byte{1}; });
  EXPECT_THAT(BuildError(), AllOf(HasSubstr("'a.pack'"), HasSubstr("footer")));
  AddDamaged("a.pack", [](auto& bytes) { bytes[bytes.size() - 100] ^= std::byte{1}; });
  EXPECT_THAT(BuildError(), AllOf(HasSubstr("'a.pack'"), HasSubstr("checksum")));
  AddDamaged("a.pack", [](auto& bytes) { bytes[70] ^= std::byte{1}; });
  EXPECT_THAT(BuildError(), AllOf(HasSubstr("'a.pack'"), HasSubstr("schema")));
  AddDamaged("a.pack", [](auto& bytes) {
    const std::string text = BytesText(bytes);
    bytes[text.find("sample/14")] ^= std::byte{1};
  });
  EXPECT_THAT(BuildError(), AllOf(HasSubstr("'a.pack'"), HasSubstr("checksum")));
}

TEST_F(PackCatalogTest, RefusesDirectoriesAndEmptyRoots) {
  source_.format = Format::kPack;
  AddFile("other.txt", "x");
  EXPECT_THAT(BuildError(), HasSubstr("has no packs (*.fbset, *.fbp, *.pack) at the top"));
  source_.files = {{.field = "", .path = "folder"}};
  ASSERT_TRUE(backend_.AddDirectory("/data/folder").has_value());
  EXPECT_THAT(BuildError(), HasSubstr("'folder' is not a file"));
  source_.files.clear();
  source_.extent_bytes = 0;
  EXPECT_THAT(BuildError(), HasSubstr("extent_bytes"));
  source_.extent_bytes = 1000;
  source_.name = "";
  EXPECT_THAT(BuildError(), HasSubstr("kNameBytesMax"));
}

TEST_F(PackCatalogTest, SourcesNoticeFilesThatChangeAndReadsBeyondThem) {
  AddFile("a.pack", "0123456789");
  auto queue = backend_.CreateQueue({.depth = 1});
  const auto source = ObjectSource::Open(*root_, **queue, "a.pack");
  ASSERT_TRUE(source.has_value());
  std::vector<std::byte> bytes(4);
  ASSERT_TRUE((*source)->ReadAt(6, bytes).has_value());
  EXPECT_EQ(BytesText(bytes), "6789");
  EXPECT_TRUE((*source)->CheckUnchanged().has_value());
  const Status beyond = (*source)->ReadAt(7, bytes);
  ASSERT_FALSE(beyond.has_value());
  EXPECT_EQ(beyond.error().code(), ErrorCode::kDataLoss);
  EXPECT_THAT(beyond.error().message(), HasSubstr("'a.pack' at offset 7"));
  auto writer = root_->Open("a.pack", io::OpenMode::kAppend);
  ASSERT_TRUE(writer.has_value());
  ASSERT_TRUE(io::WriteFully(**queue, **writer, 0, bytes).has_value());
  const Status changed = (*source)->CheckUnchanged();
  ASSERT_FALSE(changed.has_value());
  EXPECT_EQ(changed.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(changed.error().message(), HasSubstr("'a.pack' changed while"));
}

TEST_F(PackCatalogTest, DetectsPacksBesideOtherFilesButNotOtherData) {
  AddPack("a.pack", compress::MakeModel(2, 1));
  AddFile("README", "x");
  AddFile(".hidden.pack", "x");
  EXPECT_EQ(*DetectFormat(*root_, source_), Format::kPack);
  AddFile("b.tar", "x");
  EXPECT_THAT(DetectFormat(*root_, source_).error().message(), HasSubstr("tar pack"));
}

class PackSetCatalogTest : public PackCatalogTest {
 protected:
  // sets/s.fbset of sets/2.fbp and sets/x/1.fbp, and one file that no manifest names.
  PackSetCatalogTest() {
    AddPack("sets/2.fbp", compress::MakeModel(5, 1));
    AddPack("sets/x/1.fbp", compress::MakeModel(3, 2));
    AddFile("sets/3.fbp", "left by a run that was killed");
    for (const WrittenPack& pack : packs_) {
      manifest_.shards.push_back({.name = pack.path.substr(5),
                                  .file_bytes = pack.bytes.size(),
                                  .samples = pack.file->samples(),
                                  .root = pack.file->root()});
    }
    manifest_.schema_fingerprint = packs_[0].file->schema_fingerprint();
    Publish();
    source_.format = Format::kPack;
    source_.files = {{.field = "", .path = "sets/s.fbset"}};
  }
  void Publish() { AddFile("sets/s.fbset", BytesText(compress::WritePackManifest(manifest_))); }

  compress::PackManifest manifest_;
};

TEST_F(PackSetCatalogTest, HasTheShardsOfTheManifestInItsOrder) {
  const auto catalog = MustBuild();
  ASSERT_NE(catalog, nullptr);
  ASSERT_EQ(catalog->object_count(), 2U);
  EXPECT_EQ(catalog->object(ObjectId(0)).path, "sets/2.fbp");
  EXPECT_EQ(catalog->object(ObjectId(1)).path, "sets/x/1.fbp");
  ExpectSample(*catalog, 5, 2, packs_[1]);
}

TEST_F(PackSetCatalogTest, TheOneSetAtTheTopIsFound) {
  for (const char* name : {"2.fbp", "x/1.fbp", "3.fbp", "s.fbset"}) {
    AddFile(std::string("top/") + name, FileText(std::string("sets/") + name));
  }
  root_ = *backend_.OpenDirectory("/data/top");
  source_.files.clear();
  const auto catalog = MustBuild();
  ASSERT_NE(catalog, nullptr);
  EXPECT_EQ(catalog->sample_count(), 8U);
  EXPECT_EQ(catalog->object(ObjectId(1)).path, "x/1.fbp");
  AddFile("top/t.fbset", FileText("sets/s.fbset"));
  EXPECT_THAT(BuildError(), HasSubstr("several sets of packs, 's.fbset' and 't.fbset'"));
}

TEST_F(PackSetCatalogTest, RefusesShardsThatTheManifestDoesNotMean) {
  const compress::PackManifest sound = manifest_;
  const auto refusal = [&](auto change) {
    manifest_ = sound;
    change(manifest_);
    Publish();
    return BuildError();
  };
  EXPECT_THAT(refusal([](auto& set) { set.shards[1].file_bytes += 1; }),
              AllOf(HasSubstr("'sets/x/1.fbp'"), HasSubstr("'sets/s.fbset' names: it has")));
  EXPECT_THAT(refusal([](auto& set) { set.shards[0].root ^= 1; }), HasSubstr("its index"));
  EXPECT_THAT(refusal([](auto& set) { set.shards[0].samples -= 1; }), HasSubstr("its index"));
  EXPECT_THAT(refusal([](auto& set) { set.schema_fingerprint ^= 1; }), HasSubstr("its schema"));
  EXPECT_THAT(refusal([](auto& set) { set.shards[1].name = "gone.fbp"; }), HasSubstr("gone.fbp"));
  EXPECT_THAT(refusal([](auto& set) { set.shards[1].name = "../a.fbp"; }), HasSubstr("beneath"));
  source_.files.push_back({.field = "", .path = "sets/2.fbp"});
  EXPECT_THAT(refusal([](auto&) {}), HasSubstr("has 'sets/2.fbp' twice"));
  source_.files.pop_back();
  std::string text = FileText("sets/s.fbset");
  AddFile("sets/s.fbset", text.substr(0, 20));
  EXPECT_THAT(BuildError(), HasSubstr("impossible size"));
  AddFile("sets/s.fbset", text.substr(0, text.size() - 1));
  EXPECT_THAT(BuildError(), AllOf(HasSubstr("'sets/s.fbset'"), HasSubstr("its header says")));
  text.back() = static_cast<char>(text.back() ^ 1);
  AddFile("sets/s.fbset", text);
  EXPECT_THAT(BuildError(), AllOf(HasSubstr("'sets/s.fbset'"), HasSubstr("checksum")));
}

class PackImageTest : public PackCatalogTest {
 protected:
  // The image of a small catalog of two packs, in several extents.
  std::vector<std::byte> SmallImage() {
    AddPack("a.pack", compress::MakeModel(5, 1));
    AddPack("b.pack", compress::MakeModel(2, 2));
    source_.extent_bytes = 3000;
    const auto catalog = MustBuild();
    EXPECT_GT(catalog->extent_count(), 2U);
    return {catalog->image().begin(), catalog->image().end()};
  }

  static std::string Refusal(std::vector<std::byte> image) {
    const auto opened = Catalog::FromBytes(std::move(image));
    return opened.has_value() ? "(opened)" : opened.error().ToString();
  }
};

TEST_F(PackImageTest, EveryDamagedByteIsNoticed) {
  const std::vector<std::byte> image = SmallImage();
  for (std::size_t at = 0; at < image.size(); ++at) {
    std::vector<std::byte> damaged = image;
    damaged[at] ^= std::byte{0x10};
    const auto opened = Catalog::FromBytes(std::move(damaged));
    // Only the zeros between sections carry no meaning.
    if (opened.has_value()) {
      EXPECT_EQ(image[at], std::byte{0}) << at;
    } else {
      EXPECT_EQ(opened.error().code(), ErrorCode::kDataLoss) << at;
    }
  }
}

TEST_F(PackImageTest, EveryTruncationIsNoticed) {
  const std::vector<std::byte> image = SmallImage();
  for (std::size_t size = 0; size < image.size(); ++size) {
    std::vector<std::byte> cut(image.begin(), image.begin() + static_cast<std::ptrdiff_t>(size));
    ASSERT_NE(Refusal(cut), "(opened)") << size;
    SealPackImage(cut);
    ASSERT_NE(Refusal(std::move(cut)), "(opened)") << size << ", sealed";
  }
}

TEST_F(PackImageTest, NoForgedByteLeadsOutOfBounds) {
  const std::vector<std::byte> image = SmallImage();
  std::size_t refused = 0;
  for (std::size_t at = 0; at < image.size(); ++at) {
    for (const int flip : {0x01, 0x80, 0xFF}) {
      std::vector<std::byte> forged = image;
      forged[at] ^= static_cast<std::byte>(flip);
      SealPackImage(forged);
      const auto opened = Catalog::FromBytes(std::move(forged));
      refused += opened.has_value() ? 0 : 1;
      if (opened.has_value()) {
        ASSERT_TRUE(AnswersWithinBounds(**opened)) << "byte " << at << " flip " << flip;
      } else {
        ASSERT_EQ(opened.error().code(), ErrorCode::kDataLoss) << opened.error().ToString();
      }
    }
  }
  EXPECT_GT(refused, image.size()) << "hardly any forgery was noticed";
}

TEST_F(PackImageTest, AnotherVersionIsNamed) {
  std::vector<std::byte> image = SmallImage();
  auto header = LoadAt<PackHeaderRow>(image, 0);
  header.version = 2;
  header.hash = HashOf(header);
  std::memcpy(image.data(), &header, sizeof header);
  const auto opened = Catalog::FromBytes(std::move(image));
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(opened.error().message(), HasSubstr("version 2, this build reads 1"));
}

// Changes one row of a table, seals the image and returns why it is refused.
template <typename Row, typename Change>
std::string RefusalOf(std::vector<std::byte> image, PackSection section, std::size_t number,
                      Change change) {
  const auto header = LoadAt<PackHeaderRow>(image, 0);
  const std::size_t at = header.section(section).offset + number * sizeof(Row);
  Row row = LoadAt<Row>(image, at);
  change(row);
  std::memcpy(&image[at], &row, sizeof row);
  SealPackImage(image);
  const auto opened = Catalog::FromBytes(std::move(image));
  return opened.has_value() ? "(opened)" : opened.error().message();
}

std::uint32_t PieceOf(const std::vector<std::byte>& image, std::uint64_t chunk) {
  const auto header = LoadAt<PackHeaderRow>(image, 0);
  const std::size_t at = header.section(PackSection::kChunks).offset;
  return LoadAt<PackChunkRow>(image, at + chunk * sizeof(PackChunkRow)).piece;
}

TEST_F(PackImageTest, ForgedExtentsAreRefused) {
  const std::vector<std::byte> image = SmallImage();
  const auto refusal = [&](auto change) {
    return RefusalOf<PackExtentRow>(image, PackSection::kExtents, 1, change);
  };
  EXPECT_THAT(refusal([](auto& row) { row.object = 9; }), HasSubstr("has no object"));
  EXPECT_THAT(refusal([](auto& row) { row.bytes = 1U << 31; }), HasSubstr("past the end"));
  EXPECT_THAT(refusal([](auto& row) { row.bytes = 0; }), HasSubstr("past the end"));
  EXPECT_THAT(refusal([](auto& row) { row.object_offset = ~0ULL; }), HasSubstr("past the end"));
  EXPECT_THAT(refusal([](auto& row) { row.object_offset = 0; }), HasSubstr("before the one"));
  EXPECT_THAT(refusal([](auto& row) { row.piece_count = 0; }), HasSubstr("impossible number"));
  EXPECT_THAT(refusal([](auto& row) { row.sample_count = 0; }), HasSubstr("impossible number"));
  EXPECT_THAT(refusal([](auto& row) { row.first_piece += 1; }), HasSubstr("out of place"));
  EXPECT_THAT(refusal([](auto& row) { row.piece_count += 1; }), HasSubstr("out of place"));
  EXPECT_THAT(refusal([](auto& row) { row.first_sample += 1; }), HasSubstr("samples"));
  EXPECT_THAT(refusal([](auto& row) { row.sample_count += 1; }),
              HasSubstr("other samples than its chunks"));
}

TEST_F(PackImageTest, ForgedChunksAreRefused) {
  const std::vector<std::byte> image = SmallImage();
  const auto refusal = [&](auto change) {
    return RefusalOf<PackChunkRow>(image, PackSection::kChunks, 1, change);
  };
  EXPECT_THAT(refusal([](auto& row) { row.tile = 0; }), HasSubstr("does not follow"));
  EXPECT_THAT(refusal([](auto& row) { row.first_sample += 1; }), HasSubstr("does not follow"));
  EXPECT_THAT(refusal([](auto& row) { row.field = 1; }), HasSubstr("too early"));
  EXPECT_THAT(refusal([](auto& row) { row.extent = 1U << 20; }), HasSubstr("has no extent"));
  EXPECT_THAT(refusal([](auto& row) { row.offset = 0; }), HasSubstr("outside its extent"));
  EXPECT_THAT(refusal([](auto& row) { row.offset = ~0ULL; }), HasSubstr("outside its extent"));
  EXPECT_THAT(refusal([](auto& row) { row.payload_bytes = 4U << 20; }),
              HasSubstr("outside its extent"));
  EXPECT_THAT(refusal([](auto& row) { row.piece += 1; }), HasSubstr("not the piece"));
  EXPECT_THAT(refusal([](auto& row) { row.piece = 1U << 30; }), HasSubstr("not the piece"));
  // A chunk that is not the first of its extent may move within it, but not over another.
  const auto header = LoadAt<PackHeaderRow>(image, 0);
  std::uint64_t later = 0;
  while (later < header.chunk_count && PieceOf(image, later) == 0) ++later;
  ASSERT_LT(later, header.chunk_count);
  EXPECT_THAT(RefusalOf<PackChunkRow>(image, PackSection::kChunks, later,
                                      [](auto& row) { row.offset -= 8; }),
              HasSubstr("overlap"));
}

TEST_F(PackImageTest, ForgedObjectsPiecesAndKeysAreRefused) {
  const std::vector<std::byte> image = SmallImage();
  const auto object = [&](auto change) {
    return RefusalOf<PackObjectRow>(image, PackSection::kObjects, 0, change);
  };
  EXPECT_THAT(object([](auto& row) { row.samples = 0; }), HasSubstr("object 0"));
  EXPECT_THAT(object([](auto& row) { row.samples += 1; }), HasSubstr("object 1"));
  EXPECT_THAT(object([](auto& row) { row.name_bytes = 5000; }), HasSubstr("object 0"));
  EXPECT_THAT(object([](auto& row) { row.bytes = 10; }), HasSubstr("past the end"));
  EXPECT_THAT(RefusalOf<std::uint32_t>(image, PackSection::kPieces, 0,
                                       [](auto& piece) { piece = 1U << 30; }),
              HasSubstr("not the piece"));
  EXPECT_THAT(RefusalOf<std::uint64_t>(image, PackSection::kKeyIndex, 0,
                                       [](auto& offset) { offset = 1; }),
              HasSubstr("wrong key index"));
  EXPECT_THAT(RefusalOf<std::uint16_t>(image, PackSection::kKeys, 0,
                                       [](auto& length) { length = 2000; }),
              HasSubstr("impossible length"));
  EXPECT_THAT(RefusalOf<std::uint16_t>(image, PackSection::kKeys, 0,
                                       [](auto& length) { length += 1; }),
              ::testing::Not(HasSubstr("(opened)")));
}

// Bytes of the mapping that begins at `memory` which this process has mapped in.
std::uint64_t MappedInBytes(const void* memory) {
  std::ifstream maps("/proc/self/smaps");
  std::ostringstream wanted;
  wanted << std::hex << reinterpret_cast<std::uintptr_t>(memory) << "-";
  bool is_it = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.starts_with(wanted.str())) is_it = true;
    if (is_it && line.starts_with("Rss:")) return std::stoull(line.substr(4)) * 1024;
  }
  return ~std::uint64_t{0};
}

// A large catalog does not stay in memory for having been read: pages go back now and then.
TEST_F(PackCatalogTest, LookUpsGivePagesBack) {
  AddPack("a.pack", compress::MakeModel(12, 1));
  const auto small = MustBuild();
  ASSERT_TRUE(small);
  const std::span<const std::byte> image = small->image();
  const UniqueFd fd(::memfd_create("catalog", MFD_CLOEXEC));
  ASSERT_EQ(::write(fd.get(), image.data(), image.size()),
            static_cast<ssize_t>(image.size()));
  constexpr std::uint64_t kMuch = 8 * limits::kMiB;
  const std::uint64_t bytes = ImageBytes::kResidentBytesMax + limits::kMiB;
  ASSERT_EQ(::ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  auto mapped = ImageBytes::MapFd(fd.get(), bytes);
  ASSERT_TRUE(mapped.has_value());
  const void* const memory = mapped->bytes().data();
  auto tables = CheckPackImage(mapped->bytes().first(image.size()));
  ASSERT_TRUE(tables.has_value()) << tables.error().ToString();
  const PackCatalog catalog(std::move(*mapped), std::move(*tables));
  ASSERT_LT(MappedInBytes(memory), kMuch);
  std::size_t drops = 0;
  std::vector<Range> pieces;
  for (std::uint64_t i = 0; i < 4096; ++i) {
    static_cast<void>(catalog.GroupOf(0, SampleId(i % 12)));
    pieces.clear();
    ASSERT_TRUE(catalog.Pieces(ExtentId(0), pieces).has_value());
    EXPECT_EQ(catalog.packs()->chunk(0).entry.field, 0U);
    // Of 64 rounds, which are 1,024 stretches, the first maps more than a look-up does; it is
    // still there after the last, unless pages were given back between the two.
    for (std::uint64_t at = kMuch; i % 64 == 0 && at < 2 * kMuch; at += 4096) {
      const volatile std::byte touched = catalog.image()[at];
      static_cast<void>(touched);
    }
    if (i % 64 == 63) drops += MappedInBytes(memory) < kMuch ? 1 : 0;
  }
  EXPECT_EQ(drops, 16U);
}

}  // namespace
}  // namespace forebay::catalog

// Catalogs of packs: what they say about real packs, and which packs they refuse.
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>

#include "proto/contract/unique_fd.h"
#include "server/catalog/pack/object_source.h"
#include "server/catalog/pack/pack_catalog.h"
#include "server/catalog/pack/pack_image_checker.h"
#include "server/catalog/testing/pack_catalog_fixture.h"
#include "server/io/queues/thread_backend.h"

namespace forebay::catalog {
namespace {

using compress::PackModel;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

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

// A data set to which packs were added after an upgrade.
TEST_F(PackCatalogTest, PacksOfBothVersionsMakeADataSet) {
  const std::string good = std::string(FOREBAY_GOLDEN_FOLDER) + "/good/";
  AddWritten("a.pack", compress::ReadFile(good + "tiles.fbp"));
  AddWritten("b.pack", compress::ReadFile(good + "tiles_v2.fbp"));
  ASSERT_EQ(packs_[0].file->header().major, 1);
  ASSERT_EQ(packs_[1].file->header().major, 2);
  EXPECT_NE(packs_[0].file->identity(), packs_[1].file->identity());
  const auto catalog = MustBuild();
  ASSERT_NE(catalog, nullptr);
  ASSERT_EQ(catalog->sample_count(), 6U);
  ExpectExtents(*catalog);
  for (std::uint64_t s = 0; s < 6; ++s) ExpectSample(*catalog, s / 3 * 3, s % 3, packs_[s / 3]);
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
  EXPECT_EQ(catalog->samples(), nullptr);
  EXPECT_NE(catalog->packs(), nullptr);
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
  source_.settings.SetTexts("files", {"x/late.bin", "early.pack"});
  const auto catalog = MustBuild();
  ASSERT_NE(catalog, nullptr);
  ASSERT_EQ(catalog->object_count(), 2U);
  EXPECT_EQ(catalog->object(ObjectId(0)).path, "x/late.bin");
  ExpectSample(*catalog, 2, 1, packs_[1]);
  source_.settings.SetTexts("files", {"early.pack", "early.pack"});
  EXPECT_THAT(BuildError(), HasSubstr("has 'early.pack' twice"));
  source_.settings.SetTexts("files", {"gone.pack", "early.pack"});
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
  const auto mapped = Catalog::Load(folder_.Path("x"));
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
      {[](auto& schema) { schema.fields[0].name = "picture"; }, "in its name"},
      {[](auto& schema) { schema.fields[1].kind = compress::FieldKind::kMask; }, "in its kind"},
      {[](auto& schema) { schema.fields[3].dtype = Dtype::kI32; }, "in its element type"},
      {[](auto& schema) { schema.fields[3].extent[0] = 8; }, "in its shape"},
      {[](auto& schema) { schema.fields[0].channel_axis = -1; }, "in its channel axis"},
      {[](auto& schema) { schema.fields[1].valid_bits = 13; }, "in its number of valid bits"},
      {[](auto& schema) { schema.fields[1].fill_bits = 1; }, "in its fill value"},
      {[](auto& schema) { schema.fields[3].bound = {.mode = 1, .absolute = 0.5}; },
       "in its error bound"},
      {[](auto& schema) { schema.fields[2].samples_per_chunk = 4; }, "samples per chunk"},
      {[](auto& schema) { schema.fields[0].tile[0] = 10; }, "in its tile"},
      {[](auto& schema) { schema.fields.pop_back(); }, "5 and 4 fields"},
      {[](auto& schema) { schema.keyed = false; }, "only one of them has keys"}};
  for (const auto& [change, named] : changes) {
    PackModel model = compress::MakeModel(0, 1);
    change(model.schema);
    AddPack("b.pack", model);
    EXPECT_THAT(BuildError(),
                AllOf(HasSubstr("'a.pack' and 'b.pack' do not belong"), HasSubstr(named)));
  }
  const std::string label = packs_[0].file->schema().fields[2].name;
  const auto naming = [&](std::vector<std::string> names) {
    PackModel model = compress::MakeModel(4, 1);
    for (std::size_t i = 0; i < names.size(); ++i) {
      model.schema.provenance.emplace_back(compress::ClassKey(label, i), names[i]);
    }
    return model;
  };
  AddPack("a.pack", naming({"cat", "dog"}));
  AddPack("b.pack", naming({"cat", "cow"}));
  EXPECT_THAT(BuildError(), HasSubstr("class 1 of field 'label' is 'dog' in the one and 'cow'"));
  AddPack("b.pack", naming({"cat"}));
  EXPECT_THAT(BuildError(), HasSubstr("class 1 of field 'label' is 'dog' in the one and missing"));
  AddPack("b.pack", naming({"cat", "dog"}));
  EXPECT_THAT(MustBuild()->ConstantNames(FieldId(2)), ElementsAre("cat", "dog"));
  EXPECT_TRUE(MustBuild()->ConstantNames(FieldId(0)).empty());
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
  source_.settings.SetTexts("files", {"folder"});
  ASSERT_TRUE(backend_.AddDirectory("/data/folder").has_value());
  EXPECT_THAT(BuildError(), HasSubstr("'folder' is not a file"));
  source_.settings.Clear("files");
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

// The resident bytes of the mapping that begins at `memory`.
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

// Look-ups in a large catalog do not make it stay resident: its pages are dropped now and then.
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
    // The first of 64 rounds maps more than a look-up does; its pages are still resident after the
    // last one, unless they were dropped between the two.
    for (std::uint64_t at = kMuch; i % 64 == 0 && at < 2 * kMuch; at += 4096) {
      const volatile std::byte touched = catalog.image()[at];
      static_cast<void>(touched);
    }
    if (i % 64 == 63) drops += MappedInBytes(memory) < kMuch ? 1 : 0;
  }
  // A round counts 8 windows for each look-up, one for each field, and one each for the rows of
  // pieces and of chunks. The 4,096 rounds count 4,096 times as much, and a drop comes after every
  // 4,096 windows.
  EXPECT_EQ(drops, 2 * 8 + catalog.fields().size() + 2);
}

}  // namespace
}  // namespace forebay::catalog

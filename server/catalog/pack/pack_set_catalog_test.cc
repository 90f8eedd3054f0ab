// Catalogs of sets of packs: the shards that a manifest names, and no others.
#include <gmock/gmock.h>

#include "compress/format/pack/pack_manifest.h"
#include "server/catalog/testing/pack_catalog_fixture.h"

namespace forebay::catalog {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

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
    source_.settings.SetTexts("files", {"sets/s.fbset"});
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
  source_.settings.Clear("files");
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
  source_.settings.SetTexts("files", {"sets/s.fbset", "sets/2.fbp"});
  EXPECT_THAT(refusal([](auto&) {}), HasSubstr("has 'sets/2.fbp' twice"));
  source_.settings.SetTexts("files", {"sets/s.fbset"});
  std::string text = FileText("sets/s.fbset");
  AddFile("sets/s.fbset", text.substr(0, 20));
  EXPECT_THAT(BuildError(), HasSubstr("too short or too long"));
  AddFile("sets/s.fbset", text.substr(0, text.size() - 1));
  EXPECT_THAT(BuildError(), AllOf(HasSubstr("'sets/s.fbset'"), HasSubstr("its header says")));
  text.back() = static_cast<char>(text.back() ^ 1);
  AddFile("sets/s.fbset", text);
  EXPECT_THAT(BuildError(), AllOf(HasSubstr("'sets/s.fbset'"), HasSubstr("checksum")));
}

}  // namespace
}  // namespace forebay::catalog

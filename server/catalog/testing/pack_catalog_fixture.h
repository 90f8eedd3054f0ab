// Test support: packs in memory, a catalog of them, and the checks that it must pass.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compress/decode/pack/pack_file.h"
#include "compress/encode/testing/pack_test_model.h"
#include "server/catalog/pack/pack_table.h"
#include "server/catalog/testing/catalog_test_fixture.h"

namespace forebay::catalog {

// A pack in memory, as it was written.
struct WrittenPack {
  std::string path;
  compress::PackModel model;
  std::vector<std::byte> bytes;
  std::unique_ptr<compress::ByteSource> source;
  std::optional<compress::PackFile> file;
};

class PackCatalogTest : public CatalogFixture {
 protected:
  void AddPack(const std::string& path, compress::PackModel model) {
    auto bytes = compress::WritePack(model, folder_, {.profile = compress::Profile::kFast});
    AddWritten(path, std::move(bytes));
    packs_.back().model = std::move(model);
  }

  // A pack that was written elsewhere; its model stays empty.
  void AddWritten(const std::string& path, std::vector<std::byte> bytes) {
    WrittenPack& pack = packs_.emplace_back();
    pack.path = path;
    pack.bytes = std::move(bytes);
    pack.source = compress::MemorySource(pack.bytes);
    auto opened = compress::PackFile::Open(*pack.source);
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
    compress::PackModel model = compress::MakeModel(9, 3);
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

}  // namespace forebay::catalog

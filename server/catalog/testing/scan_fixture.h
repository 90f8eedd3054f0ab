// Test support: feeds files to a ScanBuilder and compares its cuts with the catalog.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/catalog/testing/catalog_test_fixture.h"
#include "server/catalog/testing/scan_builder.h"

namespace forebay::catalog {

// A directory of archives of these sizes, "00000.tar" and so on. It has metadata only; tests feed
// the bytes to a builder.
class ArchivesBySize final : public io::Directory {
 public:
  explicit ArchivesBySize(std::vector<std::uint64_t> bytes) : bytes_(std::move(bytes)) {}

  Result<std::unique_ptr<io::File>> Open(std::string_view, io::OpenMode) override {
    return Refusal();
  }
  Result<io::FileInfo> Stat(std::string_view path) override;
  Result<std::vector<io::DirectoryEntry>> List(std::string_view) override;
  Status MakeDirectory(std::string_view) override { return Refusal(); }
  Status Rename(std::string_view, std::string_view) override { return Refusal(); }
  Status Unlink(std::string_view) override { return Refusal(); }
  Status RemoveDirectory(std::string_view) override { return Refusal(); }
  Status Sync(std::string_view) override { return Refusal(); }
  Result<Space> FreeSpace() override { return Refusal(); }

 private:
  static Error Refusal() { return Error(ErrorCode::kUnimplemented, "not in this test"); }

  std::vector<std::uint64_t> bytes_;
};

class ScanFixture : public CatalogFixture {
 protected:
  // Scans the root as the format of source_, or as tar shards if that is not set. Files are fed in
  // pieces of `feed_bytes`. Checks that every cut lies within the bytes that NeededFrom kept.
  Result<std::shared_ptr<const Catalog>> Scan(std::size_t feed_bytes = 1 << 20);
  // Calls Scan, which must fail, and returns the error's text.
  std::string ScanError(std::size_t feed_bytes = 1 << 20);
  // Writes `text` as `file` and scans it, which must fail with the same error for two sizes of
  // pieces.
  std::string ScanErrorOf(const std::string& text, const std::string& file = "a.tar");

  // Asserts that the cuts of the last Scan are the catalog's extents and pieces.
  void ExpectCutsMatch(const Catalog& catalog) const;

  std::vector<CutExtent> cuts_;
  BuildScratch scratch_;
  std::uint64_t held_bytes_max_ = 0;  // of the last Scan: fed and still needed

 private:
  // Every extent in `cuts_` from `first` on has been fed to its last byte.
  void ExpectFed(std::size_t first, std::uint32_t object, std::uint64_t fed_bytes) const;
  void ExpectNeeded(std::size_t first, std::uint64_t needed_from) const;
};

}  // namespace forebay::catalog

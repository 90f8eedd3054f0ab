// Test support: feeds tar archives to a ScanBuilder and holds its cuts against the catalog.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/catalog/catalog_test_fixture.h"

namespace forebay::catalog {

class TarScanFixture : public CatalogFixture {
 protected:
  // Scans every *.tar of the root, fed in pieces of `feed_bytes`.
  Result<std::shared_ptr<const Catalog>> Scan(std::size_t feed_bytes = 1 << 20);
  // Scan, which must fail; the error's text.
  std::string ScanError(std::size_t feed_bytes = 1 << 20);
  // Writes `text` as the only archive, "a.tar", and scans it, which must fail.
  std::string ScanErrorOf(const std::string& text);

  // Asserts that the cuts of the last Scan are the catalog's extents and pieces.
  void ExpectCutsMatch(const Catalog& catalog) const;

  std::vector<ScanBuilder::CutExtent> cuts_;

 private:
  // Every extent in `cuts_` from `first` on has been fed to its last byte.
  void ExpectFed(std::size_t first, std::uint32_t object, std::uint64_t fed_bytes) const;
};

}  // namespace forebay::catalog

// Fuzz target: the part of a catalog, as another node sends it. A part that is accepted is encoded
// again to the same bytes, and gives a catalog that is refused or can be read.
#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "proto/contract/byte_cursor.h"
#include "proto/contract/checksum.h"
#include "server/catalog/catalog_part.h"
#include "server/catalog/format_driver.h"
#include "server/catalog/part_merger.h"

namespace forebay::catalog {
namespace {

// The format of catalog_fuzz_seeds.cc. Any other that is scanned would do.
Format ScannedFormat() { return FindDriver("tar")->format; }

// The object of catalog_fuzz_seeds.cc.
const PlannedObject kObject = {.path = "a.tar", .bytes = 12'288, .mtime_ns = 0};

void ReadAll(const Catalog& catalog) {
  std::vector<FieldLocation> fields(catalog.fields().size());
  // A forged part may claim many samples, but only as many as it has bytes for.
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(catalog.sample_count(), 100); ++i) {
    static_cast<void>(catalog.samples()->Locate(SampleId(i), fields));
    static_cast<void>(catalog.SampleKey(SampleId(i)));
  }
  if (!CatalogPartOf(catalog, ObjectId(0), {}).has_value()) return;
}

}  // namespace
}  // namespace forebay::catalog

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace forebay;
  using namespace forebay::catalog;
  std::vector<std::byte> bytes(size);
  std::ranges::copy(std::as_bytes(std::span(data, size)), bytes.begin());
  // Corrects the checksum, so that the fuzzer reaches the code behind it.
  if (size >= 8) {
    ByteWriter sum;
    sum.Le(Checksum(std::span(bytes).first(size - 8)));
    std::ranges::copy(sum.bytes(), bytes.end() - 8);
  }
  TableSpool spool({});
  if (!spool.Append(bytes).has_value()) __builtin_trap();
  const auto part = DecodePart(ScannedFormat(), kObject, {}, spool);
  if (!part.has_value()) return 0;
  MemorySink again;
  if (!EncodePart(TablesOf(ScannedFormat(), **part), again).has_value()) __builtin_trap();
  if (again.Release() != bytes) __builtin_trap();
  ScanPlan plan;
  plan.name = "fuzz";
  plan.format = ScannedFormat();
  plan.objects = {kObject};
  PartMerger merger(plan);
  if (!merger.Add(ObjectId(0), **part).has_value()) return 0;
  const auto catalog = merger.Write();
  if (catalog.has_value()) ReadAll(**catalog);
  return 0;
}

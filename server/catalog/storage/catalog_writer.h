// CatalogWriter: lays out a catalog image in one forward pass, so that a catalog larger than
// memory can go straight to a file. docs/catalog.md describes the result.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "proto/contract/tensor.h"
#include "server/catalog/catalog.h"
#include "server/catalog/storage/catalog_format.h"
#include "server/catalog/storage/image_sink.h"
#include "server/catalog/storage/table_spool.h"

namespace forebay::catalog {

// A field and where it comes from.
struct FieldPlan {
  FieldSpec spec;
  std::uint32_t part = 0;                   // source kExtent
  std::vector<std::string> constant_names;  // source kConstant
};

// One sample's byte range of one field, from the start of its first extent; kAbsentField twice
// where the sample has none.
struct MemberRange {
  std::uint32_t offset = kAbsentField;
  std::uint32_t length = kAbsentField;
};

// Use: objects and extents in order (a part's extents one after another), then Finish. Checks
// published limits; that extents and pages make sense is the caller's word, which opening the
// image verifies. Memory: 64 bytes per extent, 8 for every 16th object, and what `scratch` allows
// for the tables of objects and names. Not thread-safe; after an error only destruction is
// allowed.
class CatalogWriter {
 public:
  // `sink` must outlive the writer.
  CatalogWriter(ImageSink& sink, std::string name, Format format,
                const BuildScratch& scratch = {});

  Result<ObjectId> AddObject(std::string_view path, std::uint64_t bytes, std::int64_t mtime_ns);

  // Starts the next part; returns its number.
  Result<std::uint32_t> BeginPart(PartKind kind, std::uint32_t entry_bytes);
  // A kFixed part with all its extents, over the object added last.
  Result<std::uint32_t> AddFixedPart(std::uint64_t sample_count, std::uint64_t data_offset,
                                     std::uint64_t record_bytes, std::uint64_t extent_bytes);
  // The next extent of the part begun last. `entries` is its sample page (row.starting_count
  // entries), `keys` its key page; the page fields of `row` are set here.
  Status AddExtent(ExtentRow row, std::span<const std::byte> entries,
                   std::span<const std::byte> keys);

  // Writes the tables and the header.
  Status Finish(std::uint64_t sample_count, std::span<const FieldPlan> fields);

 private:
  Status Start();
  Status PutUnaligned(std::span<const std::byte> bytes);
  Status Put(std::span<const std::byte> bytes);
  Status PutSection(SectionKind kind, std::span<const std::byte> bytes);
  Status PutSpool(SectionKind kind, TableSpool& table);

  ImageSink& sink_;
  std::string name_;
  HeaderRow header_;
  std::uint64_t written_bytes_ = 0;
  std::vector<PartRow> parts_;
  std::vector<ExtentRow> extents_;
  TableSpool objects_;
  std::vector<std::uint64_t> name_index_;
  TableSpool names_;
};

// The key page of consecutive samples: an index entry (u32, from the end of the index) for
// every 16th key, then u16 length and bytes of each.
std::vector<std::byte> EncodeKeyPage(std::span<const std::string> keys);

}  // namespace forebay::catalog

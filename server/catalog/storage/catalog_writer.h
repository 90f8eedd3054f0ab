// CatalogWriter: lays out a catalog image in one forward pass, so that a catalog that is larger
// than memory goes straight to a file. docs/catalog.md describes the result.
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

// The byte range of one field of one sample, counted from the start of the sample's first extent.
// Both values are kAbsentField if the sample lacks the field.
struct MemberRange {
  std::uint32_t offset = kAbsentField;
  std::uint32_t length = kAbsentField;
};

// Use: add objects and extents in order (the extents of a part one after another), then call
// Finish. Checks published limits, but not that extents and pages make sense; opening the image
// verifies this. Memory: 64 bytes per extent, 8 for every 16th object, and what `scratch` allows
// for the tables of objects and names. Not thread-safe. After an error only destruction is allowed.
class CatalogWriter {
 public:
  // `sink` must outlive the writer.
  CatalogWriter(ImageSink& sink, std::string name, Format format,
                const BuildScratch& scratch = {});

  Result<ObjectId> AddObject(std::string_view path, std::uint64_t bytes, std::int64_t mtime_ns);

  // Starts the next part; returns its number.
  Result<std::uint32_t> BeginPart(PartKind kind, std::uint32_t entry_bytes);
  // Adds a kFixed part with all its extents, over the object that was added last. Returns its
  // number.
  Result<std::uint32_t> AddFixedPart(std::uint64_t sample_count, std::uint64_t data_offset,
                                     std::uint64_t record_bytes, std::uint64_t extent_bytes);
  // Adds the next extent of the part that was begun last. `entries` is its sample page
  // (row.starting_count entries), `keys` its key page. This sets the page fields of `row`.
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

// Encodes the key page of consecutive samples: for every 16th key a u32 offset, counted from the
// end of this index; then u16 length and bytes of each key.
std::vector<std::byte> EncodeKeyPage(std::span<const std::string> keys);

}  // namespace forebay::catalog

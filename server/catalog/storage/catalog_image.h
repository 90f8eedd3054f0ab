// CatalogImage: reads a catalog in place from its image. Catalog::FromBytes and Catalog::Load
// construct it, after they have run every check of image_checker.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/catalog/catalog.h"
#include "server/catalog/storage/catalog_format.h"
#include "server/catalog/storage/catalog_writer.h"
#include "server/catalog/storage/image_bytes.h"
#include "server/catalog/storage/image_section.h"

namespace forebay::catalog {

// The verified tables of an image; spans point into it.
struct ImageTables {
  HeaderRow header;
  std::string name;
  std::vector<FieldPlan> fields;
  std::vector<PartRow> parts;
  std::span<const std::byte> objects;
  IndexedStrings names;  // of objects
  std::span<const std::byte> extents;
  std::span<const std::byte> pages;

  std::uint64_t ObjectBytes(std::uint32_t object) const {
    const std::size_t at = std::size_t{object} * kObjectRowBytes;
    return LoadAt<std::uint32_t>(objects, at) |
           std::uint64_t{LoadAt<std::uint16_t>(objects, at + 4)} << 32;
  }
  ExtentRow Extent(std::uint32_t extent) const {
    return LoadAt<ExtentRow>(extents, std::size_t{extent} * sizeof(ExtentRow));
  }
  // Where the pages of `extent` end in `pages`. The pages start at Extent(extent).page_offset.
  std::uint64_t PageEnd(std::uint32_t extent) const {
    return extent + 1 < header.extent_count ? Extent(extent + 1).page_offset : pages.size();
  }
};

enum class PageCheck : std::uint8_t { kAtFirstUse, kAtOnce };

// Checks an image and makes a catalog of it. Unmaps the pages that the checks touched; look-ups get
// them from the page cache.
Result<std::shared_ptr<const Catalog>> OpenImage(ImageBytes bytes,
                                                 PageCheck check = PageCheck::kAtFirstUse);

// Thread-safe. Look-ups of a mapped image may block on the disk.
class CatalogImage final : public Catalog, public SampleTable {
 public:
  CatalogImage(ImageBytes bytes, ImageTables tables);

  std::string_view name() const override { return tables_.name; }
  Format format() const override { return static_cast<Format>(tables_.header.format); }
  std::uint64_t fingerprint() const override { return tables_.header.fingerprint; }
  std::uint64_t sample_count() const override { return tables_.header.sample_count; }
  std::uint32_t part_count() const override { return tables_.header.part_count; }
  std::span<const FieldSpec> fields() const override { return specs_; }
  std::uint32_t PartOf(FieldId field) const override;
  std::uint32_t object_count() const override { return tables_.header.object_count; }
  ObjectInfo object(ObjectId object) const override;
  std::uint32_t extent_count() const override { return tables_.header.extent_count; }
  ExtentInfo extent(ExtentId extent) const override;
  std::uint64_t total_bytes() const override { return tables_.header.total_bytes; }
  std::vector<std::string_view> ConstantNames(FieldId field) const override;
  const SampleTable* samples() const override { return this; }
  Status Locate(SampleId sample, std::span<FieldLocation> locations) const override;
  Result<Range> SampleRange(SampleId sample, std::uint32_t part) const override;
  Status Pieces(ExtentId extent, std::vector<Range>& pieces) const override;
  Result<std::string> SampleKey(SampleId sample) const override;
  std::span<const std::byte> image() const override { return bytes_.bytes(); }
  void DropResidentPages() const override { bytes_.DropResidentPages(); }
  // Verifies all sample pages and key pages. Error: kDataLoss, which names the first damaged one.
  Status VerifyPages() const;

 private:
  // A byte interval of a sample, counted from the first byte of the extent in which the sample
  // starts.
  struct Interval {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };

  void BuildSampleIndex();
  std::uint32_t FirstExtentOf(std::uint64_t sample) const;
  Range FixedRange(const PartRow& part, std::uint64_t sample) const;
  // Turns an interval into a range whose extent is the one that holds the interval's first byte.
  Range Resolve(std::uint32_t extent, const ExtentRow& row, Interval interval) const;
  std::span<const std::byte> Entries(const ExtentRow& row) const;
  std::span<const std::byte> Keys(std::uint32_t extent, const ExtentRow& row) const;
  // The windows (ImageBytes) that reading all entries of the page touches.
  std::uint64_t PageWindows(const ExtentRow& row) const;
  Interval EntryInterval(const ExtentRow& row, std::uint32_t index) const;
  Status VerifyEntries(std::uint32_t extent, const ExtentRow& row) const;
  // The bytes of `extent` and of the extents that continue its last sample.
  std::uint64_t ChainBytes(std::uint32_t extent, const ExtentRow& row) const;
  Status CheckFileEntries(std::uint32_t extent, const ExtentRow& row) const;
  Status CheckMemberEntries(std::uint32_t extent, const ExtentRow& row) const;
  Status VerifyKeys(std::uint32_t extent, const ExtentRow& row,
                    std::span<const std::byte> keys) const;
  void FixedPieces(const PartRow& part, ExtentId extent, const ExtentRow& row,
                   std::vector<Range>& pieces) const;
  bool IsVerified(std::uint32_t extent, unsigned bit) const;
  void SetVerified(std::uint32_t extent, unsigned bit) const;
  Error PageError(std::uint32_t extent, std::uint64_t page_offset, std::string reason) const;

  ImageBytes bytes_;
  ImageTables tables_;
  std::vector<FieldSpec> specs_;
  // Entry i is the extent in which sample (i << index_shift_) starts; empty for kFixed parts.
  std::vector<std::uint32_t> sample_index_;
  unsigned index_shift_ = 8;
  // Two bits per extent: sample page verified, key page verified. Two threads may verify the same
  // page at the same time; they find the same result.
  std::unique_ptr<std::atomic<std::uint64_t>[]> verified_;
};

}  // namespace forebay::catalog

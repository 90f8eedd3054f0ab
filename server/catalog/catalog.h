// Catalog: the list of a data set's objects, extents and samples. A catalog is immutable, position
// independent and checksummed. Its form in memory is its form in a file, so a saved catalog is
// mapped and not parsed (docs/catalog.md has the layout).
//
// Vocabulary. A *part* is one storage sequence that supplies one or more fields of every
// sample: an image folder or tar data set has one part, an IDX or x/y .npy pair has one part
// per file. Every extent belongs to one part. Sample s of part p lies in one extent, or, where
// it is larger than an extent, spans consecutive extents of that part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "proto/contract/tensor.h"
#include "server/catalog/format.h"
#include "server/io/io_backend.h"

namespace forebay::catalog {

class PackTable;

struct ObjectInfo {
  std::string_view path;  // beneath the data set's root; borrowed from the catalog
  std::uint64_t bytes = 0;
  std::int64_t mtime_ns = 0;
};

// The bytes of an extent, its *image*, are the object's bytes [object_offset, object_offset +
// bytes), or, where object_count > 1, the whole small objects one after another.
struct ExtentInfo {
  std::uint32_t part = 0;
  ObjectId first_object;
  std::uint32_t object_count = 1;
  std::uint64_t object_offset = 0;
  std::uint64_t bytes = 0;       // at most limits::kExtentBytesMax
  SampleId first_sample;         // the first sample with any byte in this extent
  std::uint32_t sample_count = 0;  // samples with any byte in this extent
};

// A range of the image of `extent`; where offset + length runs past the image, it continues at
// the start of the next extent of the same part.
struct Range {
  ExtentId extent;
  std::uint32_t offset = 0;
  std::uint64_t length = 0;
};

// Where one field of one sample is.
struct FieldLocation {
  bool present = false;        // false: the sample lacks the field (tar only)
  Range range;                 // where the bytes lie, if the field's source is kExtent
  std::uint64_t constant = 0;  // the value, if the field's source is kConstant
};

// Where the fields of samples lie, for formats that store fields as byte ranges. Thread-safe. It is
// part of a catalog and lives as long as that catalog.
class SampleTable {
 public:
  virtual ~SampleTable() = default;

  // Fills one location per field of fields(). Requires `sample` < sample_count() and
  // locations.size() == fields().size(). Error: kDataLoss if the sample's page is damaged.
  virtual Status Locate(SampleId sample, std::span<FieldLocation> locations) const = 0;
  // Returns the smallest range of `part` that holds all fields of `sample`: the unit of checksums.
  virtual Result<Range> SampleRange(SampleId sample, std::uint32_t part) const = 0;
};

// Thread-safe. Holds its bytes (owned or mapped) until destruction.
class Catalog {
 public:
  // Opens a catalog image. Verifies magic, version, header and all tables except the sample pages,
  // which are verified at their first use. An image of packs has no sample pages; all of it is
  // verified. Errors name the offset: kFailedPrecondition if the image has another format version,
  // kDataLoss if it is damaged.
  static Result<std::shared_ptr<const Catalog>> FromBytes(std::vector<std::byte> image);
  // Opens a saved catalog with the same checks. Up to 256 MiB are read, and verified as a whole; a
  // larger file is mapped.
  static Result<std::shared_ptr<const Catalog>> Load(const std::string& absolute_path);
  virtual ~Catalog() = default;

  virtual std::string_view name() const = 0;
  virtual Format format() const = 0;
  // A hash of everything that decides what a sample is: name, format, fields, objects (path,
  // size, mtime) and extents. Two daemons with equal fingerprints agree on every sample.
  virtual std::uint64_t fingerprint() const = 0;
  virtual std::uint64_t sample_count() const = 0;
  virtual std::uint32_t part_count() const = 0;
  virtual std::span<const FieldSpec> fields() const = 0;
  // Returns the part that supplies `field`, whose source is kExtent.
  virtual std::uint32_t PartOf(FieldId field) const = 0;
  virtual std::uint32_t object_count() const = 0;
  virtual ObjectInfo object(ObjectId object) const = 0;
  virtual std::uint32_t extent_count() const = 0;
  virtual ExtentInfo extent(ExtentId extent) const = 0;
  virtual std::uint64_t total_bytes() const = 0;  // over all extents
  // The class names of a field: its value i means name i. Empty if the field has no names.
  virtual std::vector<std::string_view> ConstantNames(FieldId field) const = 0;

  // How the bytes of samples are found. Exactly one of the two is not null: samples are either byte
  // ranges of extents, or lie in the compressed chunks of packs.
  virtual const SampleTable* samples() const { return nullptr; }
  virtual const PackTable* packs() const { return nullptr; }

  // Appends the pieces of one extent, in image order, as ranges {offset, length within the extent}.
  // Piece i is the part of sample first_sample + i that lies in the extent, so there are
  // sample_count pieces. In packs, piece i is the extent's i-th chunk record.
  virtual Status Pieces(ExtentId extent, std::vector<Range>& pieces) const = 0;
  // The number of pieces that Pieces() appends.
  virtual std::uint32_t PieceCount(ExtentId number) const { return extent(number).sample_count; }
  // The sample's key: its tar key, `path:line`, its file's path beneath the root, or its number.
  virtual Result<std::string> SampleKey(SampleId sample) const = 0;
  // The whole image, as SaveCatalog writes it.
  virtual std::span<const std::byte> image() const = 0;
  // If the image is mapped, unmaps the pages that reading image() made resident. They stay in the
  // page cache. Does nothing for an image in memory.
  virtual void DropResidentPages() const {}
};

}  // namespace forebay::catalog

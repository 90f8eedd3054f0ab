// Catalog: the list of a data set's objects, extents and samples. Immutable, position
// independent, checksummed; the in-memory form *is* the file form, so a saved catalog is
// mapped, not parsed (docs/catalog.md has the layout).
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
  bool present = false;          // a tar sample may lack a field
  Range range;                   // source kExtent
  std::uint64_t constant = 0;    // source kConstant
};

// Where the fields of samples lie, for formats that store them as byte ranges. Thread-safe; part of
// a catalog and lives as long.
class SampleTable {
 public:
  virtual ~SampleTable() = default;

  // One location per field of fields(); `sample` < sample_count(), locations.size() ==
  // fields().size(). kDataLoss where the sample's page is damaged.
  virtual Status Locate(SampleId sample, std::span<FieldLocation> locations) const = 0;
  // The smallest range of `part` that holds all fields of `sample`: the unit of checksums.
  virtual Result<Range> SampleRange(SampleId sample, std::uint32_t part) const = 0;
};

// Thread-safe. Holds its bytes (owned or mapped) until destruction.
class Catalog {
 public:
  // Takes a catalog image. Verifies magic, version, header, all tables but the sample pages
  // (each verified at its first use); errors name the offset. kFailedPrecondition: another
  // format version; kDataLoss: damaged.
  // An image of packs has no such pages: all of it is verified.
  static Result<std::shared_ptr<const Catalog>> FromBytes(std::vector<std::byte> image);
  // Maps a saved catalog; the same checks.
  static Result<std::shared_ptr<const Catalog>> Map(const std::string& absolute_path);
  virtual ~Catalog() = default;

  virtual std::string_view name() const = 0;
  virtual Format format() const = 0;
  // Hash of everything that decides what a sample is: name, format, fields, objects (path,
  // size, mtime) and extents. Two daemons with equal fingerprints agree on every sample.
  virtual std::uint64_t fingerprint() const = 0;
  virtual std::uint64_t sample_count() const = 0;
  virtual std::uint32_t part_count() const = 0;
  virtual std::span<const FieldSpec> fields() const = 0;
  // The part that supplies `field` (source kExtent).
  virtual std::uint32_t PartOf(FieldId field) const = 0;
  virtual std::uint32_t object_count() const = 0;
  virtual ObjectInfo object(ObjectId object) const = 0;
  virtual std::uint32_t extent_count() const = 0;
  virtual ExtentInfo extent(ExtentId extent) const = 0;
  virtual std::uint64_t total_bytes() const = 0;  // over all extents
  // Names of the classes that are the values of a field, from 0 on; empty where it has none.
  virtual std::vector<std::string_view> ConstantNames(FieldId field) const = 0;

  // How the bytes of samples are found: exactly one of the two is not null. Samples are byte ranges
  // of extents, or lie in the compressed chunks of packs.
  virtual const SampleTable* samples() const { return nullptr; }
  virtual const PackTable* packs() const { return nullptr; }

  // The pieces of one extent, in image order: piece i is the intersection with the extent of
  // sample first_sample + i. Appends sample_count ranges {offset, length within the extent}.
  // Packs: piece i is the extent's i-th chunk record, and there are as many as it has chunks.
  virtual Status Pieces(ExtentId extent, std::vector<Range>& pieces) const = 0;
  // How many these are.
  virtual std::uint32_t PieceCount(ExtentId number) const { return extent(number).sample_count; }
  // The sample's key (tar key, file path beneath the root, or its number).
  virtual Result<std::string> SampleKey(SampleId sample) const = 0;
  // The whole image, to be saved.
  virtual std::span<const std::byte> image() const = 0;
  // Gives what a walk through image() made resident back to the page cache, where the image is
  // mapped.
  virtual void DropResidentPages() const {}
};

}  // namespace forebay::catalog

// CatalogPart: what the scan of one object contributes to the catalog of its data set: the object's
// extents and samples, and the fields that they have. (The parts that catalog.h defines are another
// thing: a catalog of a format that is scanned has one of those.) A part has a form for messages,
// in which the nodes of a job exchange the parts of the objects that each of them has scanned.
// PartMerger makes the catalog from the parts of all objects.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "server/catalog/catalog.h"
#include "server/catalog/format.h"
#include "server/catalog/sample_records.h"
#include "server/catalog/storage/build_scratch.h"
#include "server/catalog/storage/image_sink.h"
#include "server/catalog/storage/table_spool.h"

namespace forebay::catalog {

// An object as it was listed before the scan.
struct PlannedObject {
  std::string path;
  std::uint64_t bytes = 0;
  std::int64_t mtime_ns = 0;
};
// A hash of path, size and modification time, by which two nodes compare what they have listed.
std::uint64_t HashOf(const PlannedObject& object);
PlannedObject PlannedObjectOf(const ObjectInfo& object);
// kFailedPrecondition: the object of this path has another size or modification time on another
// node, which says `theirs`.
Status CheckSameObject(const PlannedObject& ours, const PlannedObject& theirs);

// An extent whose last byte has been fed: its range of the object, and the pieces of its samples
// (offset and length within the extent). Its number counts the extents of the object, and its first
// sample the samples of the object, because those of the data set are known only after the objects
// before it were scanned.
struct CutExtent {
  ExtentId number;
  ExtentInfo info;
  std::vector<Range> pieces;
};

struct PartField {
  std::string name;
  std::uint64_t offset = 0;  // in the object, of the first header that names it
};

struct PartExtent {
  std::uint64_t object_offset = 0;
  std::uint32_t bytes = 0;
  std::uint32_t sample_count = 0;    // samples with any byte here
  std::uint32_t starting_count = 0;  // samples whose first byte is here
  // No sample begins here: the extent continues the last sample of the one before it.
  bool continues() const { return starting_count == 0; }
};

// A scanner calls AddSample for every sample and AddExtent for every extent, each in order; an
// extent may be added before the samples that begin in it. Memory: 24 bytes per extent, and what
// BuildScratch allows. Not thread-safe. Unusable after an error.
class CatalogPart {
 public:
  CatalogPart(PlannedObject object, const BuildScratch& scratch)
      : object_(std::move(object)), samples_(scratch) {}

  // Returns the number of a field for SampleField, and gives the next number to a field that is
  // new. `offset`: of the header that names it. kResourceExhausted beyond kFieldCountMax.
  Result<std::uint8_t> FieldNumber(std::string_view name, std::uint64_t offset);
  // Adds a sample whose first extent begins at `extent_start` of the object. Returns the place of
  // its record, for KeyAt.
  Result<std::uint64_t> AddSample(const SampleRecord& record, std::uint64_t extent_start);
  Result<std::string> KeyAt(std::uint64_t place) const { return samples_.KeyAt(place); }
  // Adds an extent and appends it to `cut`. `pieces` are the byte ranges of its samples.
  // kResourceExhausted beyond kExtentCountMax.
  Status AddExtent(const PartExtent& extent, std::vector<Range> pieces,
                   std::vector<CutExtent>& cut);

  const PlannedObject& object() const { return object_; }
  std::span<const PartField> fields() const { return fields_; }
  std::span<const PartExtent> extents() const { return extents_; }
  const SampleRecords& samples() const { return samples_; }

 private:
  friend class PartDecoder;

  const PlannedObject object_;
  std::vector<PartField> fields_;
  std::vector<PartExtent> extents_;
  SampleRecords samples_;
  std::uint64_t sample_count_ = 0;  // samples that begin in an extent that was added
};

// The errors of a data set that exceeds kFieldCountMax or kExtentCountMax with this field or extent
// of the object `path`.
Error TooManyFields(std::string_view path, const PartField& field);
Error TooManyExtents(std::string_view path, std::uint64_t object_offset);

// The tables that EncodePart writes: those of a part, or of one of several parts that share a table
// of samples.
struct PartTables {
  Format format = {};
  const PlannedObject& object;
  std::span<const PartField> fields;
  std::span<const PartExtent> extents;
  const SampleRecords& samples;
  RecordRange records;  // of the part, in `samples`
};
PartTables TablesOf(Format format, const CatalogPart& part);

// Writes a part in the form of docs/catalog.md, "A part of a catalog".
Status EncodePart(const PartTables& part, ImageSink& sink);

// Reads a part that another node has sent for `object` of a data set of this format. Nothing in it
// is believed without a check: a part that is returned describes extents and samples within the
// object. kDataLoss: the bytes are damaged, or no such part. kFailedPrecondition: they are of
// another format version, or the other node has seen another object under this path. Memory: as
// CatalogPart, however large the bytes claim to be.
Result<std::unique_ptr<CatalogPart>> DecodePart(Format format, const PlannedObject& object,
                                                const BuildScratch& scratch,
                                                const TableSpool& bytes);

// Makes the part of an object from a catalog, whose format is one that is scanned. kDataLoss: a
// page of the catalog is damaged.
Result<std::unique_ptr<CatalogPart>> CatalogPartOf(const Catalog& catalog, ObjectId object,
                                                   const BuildScratch& scratch);

}  // namespace forebay::catalog

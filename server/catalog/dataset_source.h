// DatasetSource: what the configuration says about a data set; functions that make its catalog.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "proto/contract/limits.h"
#include "proto/contract/result.h"
#include "server/catalog/catalog.h"
#include "server/catalog/object_stats.h"
#include "server/catalog/scan_plan.h"
#include "server/catalog/setting_value.h"
#include "server/catalog/storage/build_scratch.h"
#include "server/io/io_backend.h"

namespace forebay::catalog {

struct DatasetSource {
  std::string name;
  std::optional<Format> format;  // unset: detected by the entries at the top of the root
  FormatSettings settings;  // values of format keys; a format ignores the keys of other formats
  std::uint64_t extent_bytes = limits::kExtentBytesDefault;  // target size of an extent
};

// Detects the format of the files in `root`. kInvalidArgument if no format fits, or several do.
Result<Format> DetectFormat(io::Directory& root, const DatasetSource& source);

// True if the catalog follows from names, sizes and headers: no sample byte is read, and the number
// of samples is known at once. False if the catalog takes a pass over all bytes (ScanPlan).
bool BuildsFromMetadata(Format format);

// The first extent of `object` in a catalog of a format that is scanned: there, the extents of each
// object follow one another. If the object has none, those of the next one that has some.
ExtentId FirstExtentOf(const Catalog& catalog, ObjectId object);

// A lower estimate of the bytes of an object per sample (FormatDriver::scanned_sample_bytes). 0 for
// formats that build from metadata.
std::uint64_t ScannedSampleBytes(Format format);

// Receives each extent of whole objects as soon as it is final, so that staging begins before the
// catalog is complete. The objects are borrowed for the call. Called on the builder's thread.
using RunSink = std::function<void(ExtentId, const ExtentInfo&, std::span<const ObjectInfo>)>;

// Builds a catalog of a format for which BuildsFromMetadata is true. Opens only objects whose
// header must be read. `progress` may be null; it gets the number of objects seen so far. `stats`
// supplies the sizes and times of many small objects; null: the GFS is asked for each. Errors name
// object, offset and reason. Memory: the listing of one directory, the batches of paths that are
// asked for at the same time, and BuildScratch.
Result<std::shared_ptr<const Catalog>> BuildFromMetadata(
    io::IoBackend& backend, io::Directory& root, const DatasetSource& source,
    const std::function<void(std::uint64_t)>& progress, const RunSink& runs = nullptr,
    const BuildScratch& scratch = {}, ObjectStats* stats = nullptr);

// Lists the objects to scan. kFailedPrecondition if the format builds from metadata.
Result<ScanPlan> PlanScan(io::Directory& root, const DatasetSource& source,
                          const BuildScratch& scratch = {});

// Succeeds if each object of `catalog` beneath `root` still has its size and modification time.
// kFailedPrecondition names the first object that changed, and how.
Status VerifyObjects(const Catalog& catalog, io::Directory& root);
// The same for some of its objects; the first of them that changed is named. Keeps all their paths
// in memory.
Status VerifyObjects(const Catalog& catalog, std::span<const ObjectId> objects,
                     io::Directory& root);

// Writes the catalog to `file_name`.tmp and renames it once it is durable, so that no reader finds
// a partly written catalog. Replaces an older file.
Status SaveCatalog(const Catalog& catalog, io::IoBackend& backend, io::Directory& directory,
                   const std::string& file_name);

}  // namespace forebay::catalog

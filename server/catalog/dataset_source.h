// What configuration says about a data set, and how a catalog is made from it.
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
#include "server/catalog/scan_builder.h"
#include "server/catalog/setting_value.h"
#include "server/catalog/storage/build_scratch.h"
#include "server/io/io_backend.h"

namespace forebay::catalog {

struct DatasetSource {
  std::string name;
  std::optional<Format> format;  // unset: detected by what lies at the top of the root
  FormatSettings settings;  // the keys of formats (FormatKey); a format ignores those of others
  std::uint64_t extent_bytes = limits::kExtentBytesDefault;  // target size of an extent
};

// The format of what lies in `root`. kInvalidArgument where nothing or several fit.
Result<Format> DetectFormat(io::Directory& root, const DatasetSource& source);

// True where a catalog follows from names, sizes and headers: no sample byte is read, and the
// number of samples is known at once. False where it takes a pass over the bytes (ScanBuilder).
bool BuildsFromMetadata(Format format);

// The bytes of an object that a sample takes at least, on average, as far as the format expects
// (FormatDriver::scanned_sample_bytes). 0 for formats that build from metadata.
std::uint64_t ScannedSampleBytes(Format format);

// Told of an extent made of whole objects as soon as it is certain, long before the catalog is. The
// objects are borrowed for the call. Called on the builder's thread.
using RunSink = std::function<void(ExtentId, const ExtentInfo&, std::span<const ObjectInfo>)>;

// Builds such a catalog. Opens only objects whose header must be read. Errors name the object,
// the offset and the reason. `progress` may be null; called with objects seen so far. Memory:
// the listing of one directory, and what `scratch` says.
Result<std::shared_ptr<const Catalog>> BuildFromMetadata(
    io::IoBackend& backend, io::Directory& root, const DatasetSource& source,
    const std::function<void(std::uint64_t)>& progress, const RunSink& runs = nullptr,
    const BuildScratch& scratch = {});

// Plans a pass: the objects to read, and what makes a catalog of their bytes. kFailedPrecondition
// where the format builds from metadata.
Result<std::unique_ptr<ScanBuilder>> CreateScanBuilder(io::Directory& root,
                                                       const DatasetSource& source,
                                                       const BuildScratch& scratch = {});

// True where `catalog` still describes what lies beneath `root`: each object's size and mtime.
// kFailedPrecondition names the first object that changed, and how.
Status VerifyObjects(const Catalog& catalog, io::Directory& root);

// Saves the catalog under another name and renames it once it is durable, so that a torn catalog is
// never found.
Status SaveCatalog(const Catalog& catalog, io::IoBackend& backend, io::Directory& directory,
                   const std::string& file_name);

}  // namespace forebay::catalog

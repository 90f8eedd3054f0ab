// The functions of dataset_source.h that build: each finds the driver of the data set's format, set
// or detected, and calls it. The checks that hold for every format are here.
#include "proto/contract/printable.h"
#include "server/catalog/dataset_source.h"

#include "server/catalog/format_driver.h"

namespace forebay::catalog {
namespace {

// An extent of 0 bytes would make every build loop for ever; offsets within an extent have 32 bits.
Status CheckExtentBytes(const DatasetSource& source) {
  if (source.extent_bytes >= 1 && source.extent_bytes <= limits::kExtentBytesMax) return {};
  return Error(ErrorCode::kInvalidArgument,
               "data set " + Quoted(source.name) + ": extent_bytes must be 1 to " +
                   std::to_string(limits::kExtentBytesMax) + " (kExtentBytesMax)");
}

// Returns the driver of the format that the source sets, or that DetectFormat finds.
Result<const FormatDriver*> DriverOf(io::Directory& root, const DatasetSource& source) {
  FOREBAY_TRY(CheckExtentBytes(source));
  // A format that the user sets is not compared with what DetectFormat would find: it may be set
  // exactly because detection fails or finds several formats.
  std::optional<Format> format = source.format;
  if (!format.has_value()) {
    FOREBAY_ASSIGN(format, DetectFormat(root, source));
  }
  const FormatDriver* driver = FindDriver(*format);
  if (driver != nullptr) return driver;
  return Error(ErrorCode::kInvalidArgument,
               "data set " + Quoted(source.name) + ": no format has number " +
                   std::to_string(static_cast<unsigned>(*format)));
}

}  // namespace

Result<Format> DetectFormat(io::Directory& root, const DatasetSource& source) {
  // Only the top is listed. To walk the whole tree on the GFS could take minutes, before it is
  // known whether the format needs that.
  FOREBAY_ASSIGN(const std::vector<io::DirectoryEntry> top, root.List(""));
  // All drivers are asked. Where two formats fit, to take the first would deliver a data set that
  // the user may not mean, so the user must choose.
  std::vector<Format> found;
  std::string names, looked_for;
  for (const FormatDriver* driver : FormatDrivers()) {
    // A format such as raw has no names to be known by, so it must be set.
    if (driver->detect == nullptr) continue;
    looked_for += (looked_for.empty() ? "" : ", ") + std::string(driver->detected_by);
    FOREBAY_ASSIGN(const bool fits, driver->detect(top));
    if (!fits) continue;
    found.push_back(driver->format);
    names += " " + std::string(driver->name);
  }
  if (found.size() == 1) return found.front();
  return Error(ErrorCode::kInvalidArgument,
               "data set " + Quoted(source.name) +
                   (found.empty()
                        ? ": no format was detected, because the top of its root has no " +
                              looked_for
                        : " fits several formats:" + names) +
                   "; set its key 'format'");
}

bool BuildsFromMetadata(Format format) {
  const FormatDriver* driver = FindDriver(format);
  return driver != nullptr && driver->build != nullptr;
}

// A binary search over the extents, which are in the order of their objects.
ExtentId FirstExtentOf(const Catalog& catalog, ObjectId object) {
  std::uint32_t begin = 0;
  for (std::uint32_t end = catalog.extent_count(); begin < end;) {
    const std::uint32_t middle = begin + (end - begin) / 2;
    if (catalog.extent(ExtentId(middle)).first_object.value() < object.value()) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return ExtentId(begin);
}

Result<std::shared_ptr<const Catalog>> BuildFromMetadata(
    io::IoBackend& backend, io::Directory& root, const DatasetSource& source,
    const std::function<void(std::uint64_t)>& progress, const RunSink& runs,
    const BuildScratch& scratch, ObjectStats* stats) {
  FOREBAY_ASSIGN(const FormatDriver* driver, DriverOf(root, source));
  // The caller asks BuildsFromMetadata first. If it did not, the error names the function to call.
  if (driver->build == nullptr) {
    return Error(ErrorCode::kFailedPrecondition,
                 "data set " + Quoted(source.name) + " has format " +
                     std::string(driver->name) +
                     ": its catalog is built while it is staged (PlanScan)");
  }
  RootStats of_root(root);
  return driver->build(
      {backend, root, source, stats != nullptr ? *stats : of_root, progress, runs, scratch});
}

Result<ScanPlan> PlanScan(io::Directory& root, const DatasetSource& source,
                          const BuildScratch& scratch) {
  FOREBAY_ASSIGN(const FormatDriver* driver, DriverOf(root, source));
  if (driver->scan == nullptr) {
    return Error(ErrorCode::kFailedPrecondition,
                 "data set " + Quoted(source.name) + " of format " + std::string(driver->name) +
                     " builds from metadata (BuildFromMetadata)");
  }
  return driver->scan({root, source, scratch});
}

std::uint64_t ScannedSampleBytes(Format format) {
  const FormatDriver* driver = FindDriver(format);
  // 0 and not an estimate, so that a caller cannot plan memory for a scan that never takes place.
  return driver == nullptr || driver->scan == nullptr ? 0 : driver->scanned_sample_bytes;
}

}  // namespace forebay::catalog

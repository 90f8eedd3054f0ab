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
#include "server/catalog/storage/build_scratch.h"
#include "server/io/io_backend.h"

namespace forebay::catalog {

// One file of an IDX, .npy or raw data set and the field it supplies.
struct FieldFile {
  std::string field;  // "x"; default: the file's stem
  std::string path;   // beneath the data set's root
};

struct DatasetSource {
  std::string name;
  // Unset: detected (class directories; *.tar; *.fbset, *.fbp, *.pack; IDX
  // and .npy by name). Raw is never guessed.
  std::optional<Format> format;
  // kIdx, kNpy, kRaw; kPack: packs and manifests, in order, without field names. Empty: found by
  // suffix or magic.
  std::vector<FieldFile> files;
  // kRaw: every file is a sequence of records of this type and shape after `header_bytes`.
  Dtype raw_dtype = Dtype::kU8;
  std::vector<std::uint64_t> raw_shape;
  std::uint64_t raw_header_bytes = 0;
  // kImageFolder: suffixes taken as samples; empty: every regular file that is not hidden.
  std::vector<std::string> suffixes;
  std::uint64_t extent_bytes = limits::kExtentBytesDefault;  // target size of an extent
};

// The format of what lies in `root`. kInvalidArgument where nothing or several fit.
Result<Format> DetectFormat(io::Directory& root, const DatasetSource& source);

// True where a catalog follows from names, sizes and headers (all but kTar): no sample byte is
// read, and n is known at once.
bool BuildsFromMetadata(Format format);

// Told of an extent made of whole objects as soon as it is certain, long before the catalog is
// (kImageFolder). The objects are borrowed for the call. Called on the builder's thread.
using RunSink = std::function<void(ExtentId, const ExtentInfo&, std::span<const ObjectInfo>)>;

// Builds such a catalog. Opens only objects whose header must be read. Errors name the object,
// the offset and the reason. `progress` may be null; called with objects seen so far. Memory:
// the listing of one directory, and what `scratch` says.
Result<std::shared_ptr<const Catalog>> BuildFromMetadata(
    io::IoBackend& backend, io::Directory& root, const DatasetSource& source,
    const std::function<void(std::uint64_t)>& progress, const RunSink& runs = nullptr,
    const BuildScratch& scratch = {});

// Builds a catalog in the same sequential pass that stages (kTar). The stager feeds every
// object's bytes in order; the builder cuts extents at sample boundaries as they pass by and
// says so, so that the stager can publish each as soon as its last byte has come. Memory: the
// extent table, the samples of one extent, and what `scratch` says. Not thread-safe.
class ScanBuilder {
 public:
  virtual ~ScanBuilder() = default;

  struct PlannedObject {
    std::string path;
    std::uint64_t bytes = 0;
    std::int64_t mtime_ns = 0;
  };
  // The objects to feed, in this order.
  virtual const std::vector<PlannedObject>& objects() const = 0;

  // An extent whose last byte has been fed: its range of the current object, and the pieces
  // (offset, length within the extent) of its samples.
  struct CutExtent {
    ExtentId extent;
    ExtentInfo info;
    std::vector<Range> pieces;
  };
  // Feeds the next bytes of the current object; extents completed by them are appended to
  // `cut`. Malformed input: object, offset and reason.
  virtual Status Feed(std::span<const std::byte> bytes, std::vector<CutExtent>& cut) = 0;
  // No extent that is still to be cut has a byte of the current object before this offset: what
  // was fed of it may be dropped. At most two extents and limits::kExtentBytesMax behind the
  // end of what was fed, however long the members are that belong to no sample.
  virtual std::uint64_t NeededFrom() const = 0;
  // The current object has ended: kDataLoss where it ended within a member or short of its
  // size. The next Feed is for the next object.
  virtual Status EndObject(std::vector<CutExtent>& cut) = 0;
  // After the last object.
  virtual Result<std::shared_ptr<const Catalog>> Finish() = 0;
};
Result<std::unique_ptr<ScanBuilder>> CreateScanBuilder(io::Directory& root,
                                                       const DatasetSource& source,
                                                       const BuildScratch& scratch = {});

// True where `catalog` still describes what lies beneath `root`: each object's size and mtime.
// kFailedPrecondition names the first object that changed, and how.
Status VerifyObjects(const Catalog& catalog, io::Directory& root);

// Saves with the publish rules of design 7.2, so that a torn catalog is never found.
Status SaveCatalog(const Catalog& catalog, io::IoBackend& backend, io::Directory& directory,
                   const std::string& file_name);

}  // namespace forebay::catalog

// Sizes come from the best source that is there: the saved catalog, a catalog that is built from
// metadata and thrown away, or, for formats that need a pass, the sizes of the objects, from which
// the extents are estimated from above.
#include "server/stage/placement/dataset_size.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/limits.h"
#include "server/catalog/dataset_source.h"
#include "server/stage/cataloguing/saved_catalog.h"
#include "server/stage/packed/packed_form.h"

namespace forebay::stage {
namespace {

using CatalogPtr = std::shared_ptr<const catalog::Catalog>;

void AddExtent(DatasetSize& size, std::uint64_t image_bytes, std::uint64_t pieces) {
  size.extents.push_back(FootprintOf(image_bytes, pieces));
  size.image_bytes.push_back(image_bytes);
}

DatasetSize SizeOfCatalog(const CatalogPtr& catalog, Compression compression) {
  DatasetSize size;
  size.format = catalog->format();
  size.objects = catalog->object_count();
  size.bytes = catalog->total_bytes();
  std::shared_ptr<const PackedForm> form;
  if (compression != Compression::kOff) {
    // If the data set cannot be compressed, it is staged uncompressed, and the daemon's log says
    // why.
    auto created = PackedForm::Create(catalog, compression);
    if (created.has_value()) form = std::move(*created);
  }
  // The sizes below are those of chunks that do not compress at all, as the daemon reserves them.
  size.is_compressed = form != nullptr;
  for (std::uint32_t i = 0; i < catalog->extent_count(); ++i) {
    const ExtentId extent(i);
    if (form) {
      AddExtent(size, form->ImageBytesMax(extent), form->PieceCount(extent));
    } else {
      AddExtent(size, catalog->extent(extent).bytes, catalog->PieceCount(extent));
    }
  }
  return size;
}

// Estimates the extents of an object from above. A scan cuts extents between samples, so two
// consecutive ones have together more bytes than one of full size. So there are at most two for
// each full size, and one at the end; each may be rounded up by a page.
void AddScanned(DatasetSize& size, std::uint64_t object_bytes, std::uint64_t extent_bytes) {
  const std::uint64_t sample_bytes = catalog::ScannedSampleBytes(size.format);
  const std::uint64_t half = std::max<std::uint64_t>(1, extent_bytes / 2);
  for (std::uint64_t left = object_bytes; left > 0;) {
    const std::uint64_t bytes = std::min(half, left);
    AddExtent(size, bytes + limits::kIoAlignmentBytes, bytes / sample_bytes + 1);
    // The page that was added counts for the space that the extent takes, not for the size of the
    // data set.
    size.image_bytes.back() = bytes;
    left -= bytes;
  }
  AddExtent(size, limits::kIoAlignmentBytes, 1);
  size.image_bytes.back() = 0;
}

// The size of a data set before its pass. `source` has a format that needs one.
Result<DatasetSize> SizeBeforeScan(io::Directory& root, const catalog::DatasetSource& source) {
  FOREBAY_ASSIGN(const catalog::ScanPlan plan, catalog::PlanScan(root, source));
  DatasetSize size;
  size.format = *source.format;
  size.objects = plan.objects.size();
  size.is_at_most = true;
  for (const auto& object : plan.objects) {
    size.bytes += object.bytes;
    AddScanned(size, object.bytes, source.extent_bytes);
  }
  // One extent more: the halves above may fill a rest of RAM that a real extent does not fit.
  AddExtent(size, source.extent_bytes,
            source.extent_bytes / catalog::ScannedSampleBytes(size.format));
  size.image_bytes.back() = 0;
  return size;
}

// The saved catalog if it fits the objects, else null; `note` then says why.
CatalogPtr SavedCatalogThatFits(io::Directory& root, const DatasetOptions& options,
                                const std::string& catalog_path, std::string& note) {
  auto saved = LoadSavedCatalog(catalog_path, options.source);
  if (!saved.has_value()) {
    if (saved.error().code() != ErrorCode::kNotFound) {
      note = fmt::format("its saved catalog is not usable: {}", saved.error().message());
    }
    return nullptr;
  }
  const Status unchanged = catalog::VerifyObjects(**saved, root);
  if (unchanged.has_value()) return std::move(*saved);
  // A size that may be out of date is more useful than none; the note says so.
  if (unchanged.error().code() == ErrorCode::kDeadlineExceeded) {
    note = "the size is that of its saved catalog, which could not be compared with its objects in "
           "the time given";
    return std::move(*saved);
  }
  note = fmt::format("its saved catalog no longer matches its objects; run 'forebay stage "
                     "--rebuild {}': {}",
                     options.source.name, unchanged.error().message());
  return nullptr;
}

}  // namespace

Result<DatasetSize> SizeOf(io::IoBackend& backend, io::Directory& root,
                           const DatasetOptions& options, const std::string& catalog_path) {
  std::string note;
  CatalogPtr catalog = SavedCatalogThatFits(root, options, catalog_path, note);
  if (!catalog) {
    catalog::DatasetSource source = options.source;
    if (!source.format) {
      FOREBAY_ASSIGN(source.format, catalog::DetectFormat(root, source));
    }
    if (!catalog::BuildsFromMetadata(*source.format)) {
      FOREBAY_ASSIGN(DatasetSize scanned, SizeBeforeScan(root, source));
      scanned.note = std::move(note);
      return scanned;
    }
    // The same code as in the daemon, so the extents are cut alike.
    FOREBAY_ASSIGN(catalog, catalog::BuildFromMetadata(backend, root, source, nullptr));
  }
  DatasetSize size = SizeOfCatalog(catalog, options.compression);
  size.note = std::move(note);
  return size;
}

}  // namespace forebay::stage

// SaveCatalog and VerifyObjects (dataset_source.h). SaveCatalog writes the image to a temporary
// name and renames it when it is durable (docs/design.md, 7.2). VerifyObjects compares the size and
// the modification time of each object with the catalog; `stage` calls it before it uses a saved
// catalog.
#include <algorithm>

#include "proto/contract/printable.h"
#include "server/catalog/dataset_source.h"
#include "server/catalog/stat_many.h"

namespace forebay::catalog {
namespace {

Status WriteImage(const Catalog& catalog, io::IoBackend& backend, io::Directory& directory,
                  const std::string& path) {
  Result<std::unique_ptr<io::File>> file = directory.Open(path, io::OpenMode::kCreate);
  if (!file.has_value() && file.error().code() == ErrorCode::kAlreadyExists) {
    // An interrupted save left this file behind. It can be removed, because only one daemon at a
    // time saves catalogs in a state directory.
    FOREBAY_TRY(directory.Unlink(path));
    file = directory.Open(path, io::OpenMode::kCreate);
  }
  if (!file.has_value()) return std::move(file).error();
  FOREBAY_ASSIGN(const std::unique_ptr<io::IoQueue> queue, backend.CreateQueue({.depth = 1}));
  const std::span<const std::byte> image = catalog.image();
  // A file system that cannot reserve space reports a full device in the writes.
  if (const Status reserved = (*file)->Preallocate(image.size());
      !reserved.has_value() && reserved.error().code() != ErrorCode::kUnimplemented) {
    return reserved;
  }
  for (std::size_t offset = 0; offset < image.size(); offset += limits::kIoRequestBytesMax) {
    const std::size_t bytes =
        std::min<std::size_t>(limits::kIoRequestBytesMax, image.size() - offset);
    FOREBAY_TRY(io::WriteFully(*queue, **file, offset, image.subspan(offset, bytes)));
    // Without this, writing a mapped image of 100 GB would count as 100 GB of resident memory.
    catalog.DropResidentPages();
  }
  return io::DataSync(*queue, **file);
}

// Says how a file differs from what the catalog recorded; empty if it does not differ.
std::string Change(const io::FileInfo& now, const ObjectInfo& then) {
  if (!now.is_regular) return "is no longer a regular file";
  if (now.bytes != then.bytes) {
    return "had " + std::to_string(then.bytes) + " bytes, has " + std::to_string(now.bytes);
  }
  if (now.mtime_ns != then.mtime_ns) {
    return "was modified at " + std::to_string(then.mtime_ns) + " ns, now at " +
           std::to_string(now.mtime_ns) + " ns";
  }
  return "";
}

}  // namespace

Status VerifyObjects(const Catalog& catalog, std::span<const ObjectId> objects,
                     io::Directory& root) {
  std::vector<std::string> paths;
  paths.reserve(objects.size());
  for (const ObjectId object : objects) paths.emplace_back(catalog.object(object).path);
  const std::vector<Result<io::FileInfo>> infos = StatMany(root, paths);
  for (std::size_t i = 0; i < objects.size(); ++i) {
    const Result<io::FileInfo>& now = infos[i];
    // A missing file is a change of the data set. Any other error says nothing about the data
    // set, so it is returned as it is.
    if (!now.has_value() && now.error().code() != ErrorCode::kNotFound) {
      return now.error().WithContext(Quoted(paths[i]));
    }
    const std::string change =
        now.has_value() ? Change(*now, catalog.object(objects[i])) : "is gone";
    if (change.empty()) continue;
    return Error(ErrorCode::kFailedPrecondition,
                 Quoted(paths[i]) + " changed since the catalog of " + Quoted(catalog.name()) +
                     " was built: it " + change);
  }
  return {};
}

Status VerifyObjects(const Catalog& catalog, io::Directory& root) {
  constexpr std::uint32_t kBatch = 65'536;  // paths held at once
  std::vector<ObjectId> batch;
  for (std::uint32_t i = 0; i < catalog.object_count(); ++i) {
    batch.emplace_back(i);
    if (batch.size() < kBatch && i + 1 < catalog.object_count()) continue;
    FOREBAY_TRY(VerifyObjects(catalog, batch, root));
    batch.clear();
  }
  return {};
}

Status SaveCatalog(const Catalog& catalog, io::IoBackend& backend, io::Directory& directory,
                   const std::string& file_name) {
  const std::string temporary = file_name + ".tmp";
  const Status written = WriteImage(catalog, backend, directory, temporary);
  if (!written.has_value()) {
    // The caller needs the error of the write. If Unlink fails too, the next save removes the file.
    (void)directory.Unlink(temporary).has_value();
    return written.error().WithContext("save catalog " + Quoted(file_name));
  }
  // The image is durable before it gets its name, and the name is durable before this returns: a
  // crash leaves the old catalog or the new one, never a part of one.
  FOREBAY_TRY(directory.Rename(temporary, file_name));
  return directory.Sync("");
}

}  // namespace forebay::catalog

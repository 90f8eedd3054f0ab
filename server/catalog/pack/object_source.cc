// Reads of a pack while its catalog is built: header, schema, index and keys, none of which is
// large. The size at opening bounds every read, so a file that grows meanwhile is not read beyond
// it, and CheckUnchanged reports it.
#include "server/catalog/pack/object_source.h"

#include <algorithm>

#include "proto/contract/limits.h"
#include "proto/contract/printable.h"
#include "server/catalog/format_driver.h"
#include "server/catalog/input_error.h"

namespace forebay::catalog {

Result<std::unique_ptr<ObjectSource>> ObjectSource::Open(io::Directory& root, io::IoQueue& queue,
                                                         const std::string& path) {
  // Stat comes before open, because opening a FIFO blocks. The check after open is the one that
  // counts.
  FOREBAY_ASSIGN(const io::FileInfo before, root.Stat(path));
  if (!before.is_regular) return NotAFile(path);
  FOREBAY_ASSIGN(std::unique_ptr<io::File> file, root.Open(path, io::OpenMode::kRead));
  const Result<io::FileInfo> info = file->Info();
  if (!info.has_value()) return info.error().WithContext(Quoted(path));
  if (!info->is_regular) return NotAFile(path);
  return std::unique_ptr<ObjectSource>(new ObjectSource(queue, path, std::move(file), *info));
}

Status ObjectSource::ReadAt(std::uint64_t offset, std::span<std::byte> bytes) const {
  if (offset > info_.bytes || bytes.size() > info_.bytes - offset) {
    return InputError(ErrorCode::kDataLoss, path_, offset,
                      "the pack's index needs " + std::to_string(bytes.size()) +
                          " bytes here, but the file has only " + std::to_string(info_.bytes));
  }
  // A queue serves one thread at a time, but a source of a PackFile may be read by several.
  const MutexLock lock(mutex_);
  while (!bytes.empty()) {
    const std::size_t count =
        std::min<std::size_t>(bytes.size(), limits::kIoRequestBytesMax);
    const Status read = io::ReadFully(queue_, *file_, offset, bytes.first(count));
    if (!read.has_value()) return read.error().WithContext(Quoted(path_));
    bytes = bytes.subspan(count);
    offset += count;
  }
  return {};
}

Status ObjectSource::CheckUnchanged() const {
  const Result<io::FileInfo> now = file_->Info();
  if (!now.has_value()) return now.error().WithContext(Quoted(path_));
  if (now->bytes == info_.bytes && now->mtime_ns == info_.mtime_ns) return {};
  return Error(ErrorCode::kFailedPrecondition,
               Quoted(path_) + " changed while its catalog was built; build it again");
}

}  // namespace forebay::catalog

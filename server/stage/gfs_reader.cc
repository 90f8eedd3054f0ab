#include "server/stage/gfs_reader.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "proto/contract/check.h"
#include "proto/contract/limits.h"

namespace forebay::stage {
namespace {

// One transfer of a batch: what it reads and which object it belongs to, for its error.
struct Transfer {
  io::Operation operation;
  ObjectId object;
};

// What was moved is counted, whether or not all of it was.
Status RunTransfers(io::IoQueue& queue, Dataset& dataset, const catalog::Catalog& catalog,
                    std::span<Transfer> transfers) {
  std::vector<io::Operation> operations;
  std::vector<io::Completion> completions;
  std::size_t begin = 0;
  while (begin < transfers.size()) {
    const std::size_t count = std::min(queue.depth(), transfers.size() - begin);
    operations.clear();
    completions.clear();
    for (std::size_t i = 0; i < count; ++i) {
      transfers[begin + i].operation.tag = begin + i;
      operations.push_back(transfers[begin + i].operation);
    }
    FOREBAY_TRY(queue.Submit(operations));
    while (completions.size() < count) queue.Wait(count - completions.size(), completions);
    std::uint64_t moved = 0;
    for (const io::Completion& completion : completions) moved += completion.bytes.value_or(0);
    dataset.CountGfs(0, count, moved, 0);
    for (const io::Completion& completion : completions) {
      const Transfer& transfer = transfers[completion.tag];
      const std::string path(catalog.object(transfer.object).path);
      if (!completion.bytes.has_value()) {
        return completion.bytes.error().WithContext("reading object '" + path + "' at offset " +
                                                    std::to_string(transfer.operation.offset));
      }
      if (*completion.bytes != transfer.operation.buffer.size()) {
        return Error(ErrorCode::kDataLoss,
                     "object '" + path + "' ends at offset " +
                         std::to_string(transfer.operation.offset + *completion.bytes) +
                         ", but its catalog says " +
                         std::to_string(catalog.object(transfer.object).bytes) +
                         " bytes: it was truncated after it was catalogued");
      }
    }
    begin += count;
  }
  return {};
}

}  // namespace

Status CheckObjectUnchanged(const Dataset& dataset, const catalog::ObjectInfo& object,
                            const io::File& file) {
  FOREBAY_ASSIGN(const io::FileInfo now, file.Info());
  if (now.bytes == object.bytes && now.mtime_ns == object.mtime_ns) return {};
  const char* what = now.bytes != object.bytes ? "size" : "modification time";
  return Error(ErrorCode::kFailedPrecondition,
               "object '" + std::string(object.path) + "' of '" + dataset.name() +
                   "' has changed since it was catalogued (" + what + "; now " +
                   std::to_string(now.bytes) + " bytes, catalogued " +
                   std::to_string(object.bytes) +
                   "); run 'forebay stage --rebuild' to catalogue it anew");
}

Result<std::unique_ptr<io::File>> OpenObjectChecked(Dataset& dataset,
                                                    const catalog::ObjectInfo& object) {
  dataset.CountGfs(1, 0, 0, 0);
  auto file = dataset.root().Open(object.path, io::OpenMode::kRead);
  if (!file.has_value()) {
    return file.error().WithContext("opening object '" + std::string(object.path) + "' of '" +
                                    dataset.name() + "'");
  }
  FOREBAY_TRY(CheckObjectUnchanged(dataset, object, **file));
  return std::move(*file);
}

Result<std::shared_ptr<GfsReader::OpenObject>> GfsReader::OpenShared(
    Dataset& dataset, const catalog::Catalog& catalog, ObjectId object) {
  std::shared_ptr<OpenObject> entry;
  std::vector<std::shared_ptr<OpenObject>> closing;  // closed outside the lock
  {
    std::lock_guard lock(mutex_);
    const ObjectKey key{&dataset, object};
    std::shared_ptr<OpenObject>& slot = open_[key];
    if (!slot) {
      slot = std::make_shared<OpenObject>();
      oldest_.push_back(key);
    }
    entry = slot;
    while (oldest_.size() > limits::kOpenObjectsMax) {
      auto found = open_.find(oldest_.front());
      if (found != open_.end()) {
        closing.push_back(std::move(found->second));
        open_.erase(found);
      }
      oldest_.pop_front();
    }
  }
  std::lock_guard lock(entry->mutex);
  if (!entry->file) {
    FOREBAY_ASSIGN(entry->file, OpenObjectChecked(dataset, catalog.object(object)));
  }
  return entry;
}

void GfsReader::Forget(const ObjectKey& key, const std::shared_ptr<OpenObject>& failed) {
  std::lock_guard lock(mutex_);
  const auto found = open_.find(key);
  if (found == open_.end() || found->second != failed) return;
  open_.erase(found);
  std::erase(oldest_, key);
}

void GfsReader::CloseObjects(const Dataset& dataset) {
  std::vector<std::shared_ptr<OpenObject>> closing;
  std::lock_guard lock(mutex_);
  for (auto entry = open_.begin(); entry != open_.end();) {
    if (entry->first.dataset == &dataset) {
      closing.push_back(std::move(entry->second));
      entry = open_.erase(entry);
    } else {
      ++entry;
    }
  }
  std::erase_if(oldest_, [&](const ObjectKey& key) { return key.dataset == &dataset; });
}

Status GfsReader::ReadImage(io::IoQueue& queue, Dataset& dataset,
                            const catalog::Catalog& catalog, ExtentId extent,
                            std::span<std::byte> image) {
  const catalog::ExtentInfo info = catalog.extent(extent);
  FOREBAY_CHECK(image.size() == info.bytes);
  return info.object_count == 1 && catalog.object(info.first_object).bytes > info.bytes
             ? ReadRange(queue, dataset, catalog, info, image)
             : ReadRun(queue, dataset, catalog, info, image);
}

Status GfsReader::ReadRange(io::IoQueue& queue, Dataset& dataset,
                            const catalog::Catalog& catalog, const catalog::ExtentInfo& info,
                            std::span<std::byte> image) {
  FOREBAY_ASSIGN(const std::shared_ptr<OpenObject> object,
                 OpenShared(dataset, catalog, info.first_object));
  std::vector<Transfer> transfers;
  for (std::uint64_t done = 0; done < image.size(); done += request_bytes_) {
    const std::uint64_t length = std::min<std::uint64_t>(request_bytes_, image.size() - done);
    Transfer transfer;
    transfer.object = info.first_object;
    transfer.operation.file = object->file.get();
    transfer.operation.offset = info.object_offset + done;
    transfer.operation.buffer = image.subspan(done, length);
    transfers.push_back(transfer);
  }
  Status status = RunTransfers(queue, dataset, catalog, transfers);
  if (status.has_value()) {
    // A handle stays open for many extents: what was read through it must be from the object
    // that was catalogued, and only a look afterwards says so.
    dataset.CountGfs(0, 0, 0, 1);
    status = CheckObjectUnchanged(dataset, catalog.object(info.first_object), *object->file);
  }
  // A stale handle would fail for ever, so a later try opens anew.
  if (!status.has_value()) Forget({&dataset, info.first_object}, object);
  return status;
}

// Whole objects, one after another: opened in small groups so that the reads of a group overlap.
Status GfsReader::ReadRun(io::IoQueue& queue, Dataset& dataset,
                          const catalog::Catalog& catalog, const catalog::ExtentInfo& info,
                          std::span<std::byte> image) {
  std::uint64_t placed = 0;
  std::uint32_t next = 0;
  while (next < info.object_count) {
    std::vector<std::unique_ptr<io::File>> files;
    std::vector<Transfer> transfers;
    while (next < info.object_count && files.size() < limits::kRunFilesMax) {
      const ObjectId id(info.first_object.value() + next++);
      const catalog::ObjectInfo object = catalog.object(id);
      if (object.bytes > image.size() - placed) {
        return Error(ErrorCode::kDataLoss, "catalog of '" + dataset.name() +
                                               "': objects of an extent exceed its size");
      }
      FOREBAY_ASSIGN(files.emplace_back(), OpenObjectChecked(dataset, object));
      for (std::uint64_t done = 0; done < object.bytes; done += request_bytes_) {
        Transfer transfer;
        transfer.object = id;
        transfer.operation.file = files.back().get();
        transfer.operation.offset = done;
        transfer.operation.buffer = image.subspan(
            placed + done, std::min<std::uint64_t>(request_bytes_, object.bytes - done));
        transfers.push_back(transfer);
      }
      placed += object.bytes;
    }
    FOREBAY_TRY(RunTransfers(queue, dataset, catalog, transfers));
  }
  if (placed != image.size()) {
    return Error(ErrorCode::kDataLoss,
                 "catalog of '" + dataset.name() + "': objects of an extent fall short of it");
  }
  return {};
}

}  // namespace forebay::stage

// GfsReader: reads a data set's objects as the catalog describes them, in large requests, each
// object opened once while it is being read. An object that is not what the catalog says is an
// error that names it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "server/catalog/catalog.h"
#include "server/io/io_backend.h"
#include "server/stage/dataset.h"
#include "server/stage/gfs_calls.h"
#include "server/stage/request_gate.h"
#include "server/tier/piece_source.h"

namespace forebay::stage {

// Thread-safe; each caller brings its own queue.
class GfsReader {
 public:
  // Both are borrowed: `gate` decides which extent's requests come first; `calls` knows which
  // objects do not answer, where somebody keeps that.
  GfsReader(std::uint64_t request_bytes, RequestGate& gate, GfsCalls* calls = nullptr)
      : request_bytes_(request_bytes), gate_(gate), calls_(calls) {}

  // Fills `image` (info.bytes long) with the image of `extent`. kFailedPrecondition: an object
  // has another size or mtime, also where it changed while it was read; kDataLoss: it ended
  // early, or the device failed. After a failure the next read opens the object anew. With
  // `past_caches`, what this node may have cached of the objects is not used.
  Status ReadImage(io::IoQueue& queue, Dataset& dataset, const catalog::Catalog& catalog,
                   ExtentId extent, const Rank& rank, std::span<std::byte> image,
                   bool past_caches = false);
  // The same for a run of whole objects that no catalog has yet.
  Status ReadRun(io::IoQueue& queue, Dataset& dataset,
                 std::span<const catalog::ObjectInfo> objects, const Rank& rank,
                 std::span<std::byte> image, bool past_caches = false);
  // Fills the memory of all `reads`, ranges of extents of `catalog`, in requests of at most
  // limits::kPieceRequestBytesMax, as many at a time as `queue` and gate allow. Errors as above,
  // and kUnavailable, at once, where an object has not answered others for too long.
  Status ReadPieces(io::IoQueue& queue, Dataset& dataset, const catalog::Catalog& catalog,
                    std::span<const tier::SourceRead> reads, const Rank& rank);
  // Closes what it holds open of `dataset`, once that is staged.
  void CloseObjects(const Dataset& dataset);

 private:
  struct ObjectKey {
    const Dataset* dataset;
    ObjectId object;
    bool operator==(const ObjectKey&) const = default;
  };
  struct ObjectKeyHash {
    std::size_t operator()(const ObjectKey& key) const {
      return IdHash()(key.object) ^ reinterpret_cast<std::uintptr_t>(key.dataset);
    }
  };
  // A range of an object, and the memory that it goes to.
  struct ObjectRange {
    ObjectId object;
    std::uint64_t offset = 0;
    std::span<std::byte> memory;
  };
  // One object, opened by whoever needs it first while the others wait.
  struct OpenObject {
    std::mutex mutex;
    std::unique_ptr<io::File> file;
  };

  Result<std::shared_ptr<OpenObject>> OpenShared(Dataset& dataset,
                                                 const catalog::Catalog& catalog,
                                                 ObjectId object);
  // kUnavailable where others have waited for the object for too long.
  Status CheckAnswers(const Dataset& dataset, const catalog::Catalog& catalog,
                      ObjectId object) const;
  // Forgets a handle that failed, unless it has been replaced already.
  void Forget(const ObjectKey& key, const std::shared_ptr<OpenObject>& failed);
  static Status CutAtObjects(const catalog::Catalog& catalog, const tier::SourceRead& read,
                             std::vector<ObjectRange>& ranges);
  // Opens all objects of `ranges`, then reads them.
  Status ReadRanges(io::IoQueue& queue, Dataset& dataset, const catalog::Catalog& catalog,
                    std::span<const ObjectRange> ranges, const Rank& rank);
  Status ReadRange(io::IoQueue& queue, Dataset& dataset, const catalog::Catalog& catalog,
                   const catalog::ExtentInfo& info, const Rank& rank,
                   std::span<std::byte> image, bool past_caches);

  const std::uint64_t request_bytes_;
  RequestGate& gate_;
  GfsCalls* const calls_;
  std::mutex mutex_;
  std::unordered_map<ObjectKey, std::shared_ptr<OpenObject>, ObjectKeyHash> open_;
  std::deque<ObjectKey> oldest_;  // of open_, in the order of opening
};

// Which requests are the object's, for the gate.
RequestGate::Group GroupOf(const Dataset& dataset, std::string_view path);

// kFailedPrecondition, naming the object and the remedy, where it is not what was catalogued.
Status CheckObjectUnchanged(const Dataset& dataset, const catalog::ObjectInfo& object,
                            const io::File& file);

// Opens an object and checks that it still is what was catalogued.
Result<std::unique_ptr<io::File>> OpenObjectChecked(Dataset& dataset,
                                                    const catalog::ObjectInfo& object);

}  // namespace forebay::stage

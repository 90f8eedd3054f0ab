// An extent is supplied in the cheapest way that serves whoever asks: from the tier where it is,
// piece by piece, or whole. A whole extent comes from the first node of its ranking that answers,
// and only the first one that lives reads the GFS, for all nodes (docs/design.md, 5). Each way may
// fail for a reason of its own and falls back to the next one, which is logged.
#include "server/stage/extent_supplier.h"

#include <algorithm>
#include <utility>

#include "proto/contract/limits.h"
#include "server/io/log.h"

namespace forebay::stage {

using tier::ExtentChecksums;
using tier::ExtentKey;
using tier::ExtentRef;

// The extent is in RAM, which is all that a reader needs. Only a background load copies it home.
void ExtentSupplier::BringHome(const LoadRequest& load, const tier::ResidentExtent& found,
                               std::uint32_t successors, io::IoQueue& queue) {
  Dataset& dataset = load.dataset;
  // A demand must not make its reader wait for a copy to SSD.
  if (!load.background || dataset.is_replaced()) return;
  const DatasetVersion::Publishing publishing(dataset.version(), successors);
  if (!publishing.may_publish()) return;
  plan::HomeTier home = dataset.home(load.extent);
  if (home == plan::HomeTier::kSsd && !parts_.tiers.CopyToSsd(found, queue).has_value()) {
    home = parts_.placements.MoveOffSsd(dataset, load.extent, found.image_bytes);
  }
  if (home == plan::HomeTier::kRam) parts_.tiers.MakeAtHome(found.key, tier::TierKind::kRam);
}

Result<bool> ExtentSupplier::Load(const LoadRequest& load, io::IoQueue& queue) {
  for (;;) {
    const std::uint32_t successors = load.dataset.version().successors();
    Result<bool> loaded = LoadOnce(load, successors, queue);
    // What was read while a rebuild took over was refused, but readers of the replaced data set
    // continue while its objects are unchanged. Rebuilds are rare, and limited in number
    // (limits::kReplacedDatasetsMax), so this ends.
    if (loaded.has_value() || successors == load.dataset.version().successors()) return loaded;
  }
}

Result<bool> ExtentSupplier::IsThere(const LoadRequest& load, plan::HomeTier home,
                                     std::uint32_t successors, io::IoQueue& queue) {
  Dataset& dataset = load.dataset;
  const ExtentRef found = parts_.cache.Find(dataset.key(load.extent));
  if (!found) return false;
  if (found->tier == tier::TierKind::kRam) BringHome(load, *found, successors, queue);
  if (found->tier == tier::TierKind::kRam || home != plan::HomeTier::kRam) return true;
  const DatasetVersion::Publishing publishing(dataset.version(), successors);
  if (!publishing.may_publish()) return dataset.Outdated();
  const Status promoted = parts_.tiers.Promote(
      *found,
      // A reader is served from SSD, and does not wait for memory.
      {.is_guest = dataset.IsGuestInRam(load.extent),
       .wait_ms = load.background ? limits::kMemoryWaitMs : 0,
       .spares_homes = load.background},
      queue);
  // If memory is short or the daemon stops, the copy on SSD is still good, and is served from
  // there.
  const bool is_sound = promoted.has_value() ||
                        promoted.error().code() == ErrorCode::kResourceExhausted ||
                        promoted.error().code() == ErrorCode::kCancelled;
  if (is_sound) return true;
  log::Warn("data set '{}': {}; reading it from the GFS again", dataset.name(),
            promoted.error().ToString());
  // Removes the damaged copy, so that what is read now is stored in its place.
  parts_.cache.ReportBad(found, promoted.error(), parts_.clock.NowNs());
  return false;
}

Result<bool> ExtentSupplier::LoadOnce(const LoadRequest& load, std::uint32_t successors,
                                      io::IoQueue& queue) {
  Dataset& dataset = load.dataset;
  const ExtentId extent = load.extent;
  const plan::HomeTier home =
      load.access == Access::kInRam ? plan::HomeTier::kRam : dataset.home(extent);
  const ExtentKey& key = dataset.key(extent);
  if (dataset.is_outdated()) return dataset.Outdated();
  // 1. The extent may be on a tier already: on its home, or on another tier.
  FOREBAY_ASSIGN(const bool is_there, IsThere(load, home, successors, queue));
  if (is_there) return false;
  // A remote extent has no home here; if this node takes its owner's place, it reads the extent
  // once, whole.
  const bool has_no_home = home == plan::HomeTier::kNone && !dataset.IsRemote(extent);
  const bool in_pieces = GfsPieces::CanRead(dataset) &&
                         (load.access == Access::kPieces ||
                          (load.access == Access::kPiecesIfNoHome && has_no_home));
  // 2. Other nodes may supply it, whole. Space for homes in RAM is for stored images. Raw bytes
  // that are on their way to SSD, or are to be compressed, need working memory.
  const std::shared_ptr<const catalog::Catalog> catalog = dataset.catalog();
  const bool is_passing = home == plan::HomeTier::kSsd || dataset.form();
  // Held from when the bytes come until this function returns: by then they have left the memory
  // that staging works in.
  WorkingShare working;
  bool is_read_here = false;
  const auto allocate = [&](std::uint64_t bytes) {
    if (is_passing && working == nullptr) {
      working = parts_.tiers.AwaitWorkingMemory(catalog->extent(extent).bytes,
                                                [&load] { return load.can_wait(); });
    }
    return Allocate(load,
                    {.bytes = bytes,
                     .key = home == plan::HomeTier::kSsd ? nullptr : &key,
                     .is_passing = is_passing,
                     .is_read_here = is_read_here},
                    queue);
  };
  const ExtentRequest request{.node = {}, .dataset = dataset, .catalog = *catalog,
                              .extent = extent, .priority = load.priority};
  FOREBAY_ASSIGN(std::optional<SuppliedExtent> supplied,
                 AskOthers(request, allocate, working, queue));
  // 3. This node reads the GFS, for the whole job. A reader that needs only samples need not wait
  // for the whole extent.
  if (!supplied && in_pieces) {
    working.reset();
    // It may have been described before, by now with objects that answer again.
    if (parts_.pieces.Find(key)) return false;
    FOREBAY_TRY(parts_.pieces.Describe(dataset, catalog, extent, load.priority, queue));
    return false;
  }
  if (!supplied) {
    is_read_here = true;
    FOREBAY_ASSIGN(supplied, gfs_extents_.Read(request, allocate, queue));
    // This node may give the extent a home from now on.
    dataset.MakeLocal(extent);
  }
  return parts_.loader.StoreExtent(
      dataset,
      {.key = tier::KeyOf(*catalog, extent),
       .extent = extent,
       .image = std::move(supplied->image),
       .checksums = std::move(supplied->checksums),
       .is_packed = supplied->is_packed,
       .successors = successors},
      load.access == Access::kInRam ? std::optional(home) : std::nullopt, queue);
}

Result<tier::ArenaBlock> ExtentSupplier::Allocate(const LoadRequest& load,
                                                  const ImageMemory& image, io::IoQueue& queue) {
  const tier::ExtentKey* const key = image.key;
  const auto urgency_is = [&](Urgency urgency) {
    return !load.background && load.urgency.load() == urgency;
  };
  StagingTiers::MemoryRequest request{.bytes = image.bytes,
                                      .key = key,
                                      .is_urgent = [&] { return urgency_is(Urgency::kNow); },
                                      .spares_homes = load.background};
  const auto is_exhausted = [](const Result<tier::ArenaBlock>& block) {
    return !block.has_value() && block.error().code() == ErrorCode::kResourceExhausted;
  };
  if ((key != nullptr || load.ahead) && urgency_is(Urgency::kAhead)) {
    StagingTiers::MemoryRequest at_once = request;
    at_once.wait_ms = 0;
    // If a window does not fit into memory, no extent of it is to be evicted for another one.
    at_once.only_later = load.ahead;
    // An extent with its home on SSD only passes through RAM, so no extent loses its home for it.
    at_once.key = &load.dataset.key(load.extent);
    at_once.spares_homes = key == nullptr;
    Result<tier::ArenaBlock> block = parts_.tiers.Allocate(at_once, queue);
    // It may have become urgent meanwhile.
    if (!is_exhausted(block) || urgency_is(Urgency::kAhead)) return block;
  }
  // A load waits only briefly at first if something else can be done afterwards. The shortest wait
  // is that of a demand whose samples can be read in pieces. The others are an extent that passes
  // through RAM in the background, a demand that may take the place of what is needed sooner, and
  // an urgent one, which is tried again.
  const bool has_pieces = !load.background && GfsPieces::CanRead(load.dataset);
  const bool may_evict_homes = load.background && image.is_passing;
  // Asked again after the wait, because somebody who needs the whole extent may join this load.
  const auto may_go_first = [&] {
    if (load.background) return false;
    if (load.needs_whole.load()) return true;
    return !has_pieces && key != nullptr && urgency_is(Urgency::kSoon);
  };
  const bool is_urgent = urgency_is(Urgency::kNow);
  const bool is_short_wait = has_pieces || may_evict_homes || may_go_first() || is_urgent;
  request.wait_ms = has_pieces && (image.is_read_here || is_urgent) ? kMemoryWaitBeforePiecesMs
                    : is_short_wait                            ? limits::kShortMemoryWaitMs
                                                               : limits::kMemoryWaitMs;
  Result<tier::ArenaBlock> block = parts_.tiers.Allocate(request, queue);
  const bool is_short = is_exhausted(block);
  if (is_short && may_go_first()) {
    // A batch waits for this extent. When it is needed is an estimate of some of its samples, which
    // may say later than all others, while the reader cannot go on without it.
    request.key = nullptr;
    request.wait_ms = has_pieces ? limits::kShortMemoryWaitMs : limits::kMemoryWaitMs;
    return parts_.tiers.Allocate(request, queue);
  }
  if (!is_short || !may_evict_homes) return block;
  // In a small tier, extents at home may leave no gap that is large enough for the image. Without
  // this, the extent would stay on no tier. What is evicted for it goes to SSD too, where that has
  // space, so it is not read again.
  request.spares_homes = false;
  request.wait_ms = 0;
  return parts_.tiers.Allocate(request, queue);
}

class ExtentSupplier::AskingBehind {
 public:
  AskingBehind(ExtentSupplier& supplier, const ExtentRequest& request)
      : supplier_(supplier), load_(&request.dataset, request.extent) {
    const MutexLock lock(supplier_.mutex_);
    supplier_.asked_behind_.push_back(load_);
  }
  AskingBehind(const AskingBehind&) = delete;
  AskingBehind& operator=(const AskingBehind&) = delete;
  ~AskingBehind() {
    const MutexLock lock(supplier_.mutex_);
    supplier_.asked_behind_.erase(std::ranges::find(supplier_.asked_behind_, load_));
  }

 private:
  ExtentSupplier& supplier_;
  const std::pair<const Dataset*, ExtentId> load_;
};

bool ExtentSupplier::RefusesOthers(const Dataset& dataset, ExtentId extent) const {
  if (parts_.nodes == nullptr) return false;
  if (parts_.nodes->Yields()) return true;
  const MutexLock lock(mutex_);
  return std::ranges::count(asked_behind_, std::pair(&dataset, extent)) > 0;
}

Result<std::optional<SuppliedExtent>> ExtentSupplier::AskOthers(ExtentRequest request,
                                                                const AllocateImage& allocate,
                                                                WorkingShare& working,
                                                                io::IoQueue& queue) {
  Dataset& dataset = request.dataset;
  const ExtentId extent = request.extent;
  // A replaced data set describes the objects as they were. Other nodes have them as they are now,
  // so the last readers of a replaced data set get their extents from the GFS, if at all.
  if (parts_.nodes == nullptr || dataset.is_replaced()) return std::nullopt;
  const std::uint64_t group = dataset.group_key(extent);
  std::vector<NodeRank> asked;
  std::optional<AskingBehind> asking_behind;
  while (const std::optional<NodeRank> next = parts_.nodes->FirstSource(group, asked)) {
    const NodeRank node = *next;
    asked.push_back(node);
    if (!asking_behind && parts_.nodes->IsBehind(group, node)) {
      asking_behind.emplace(*this, request);
    }
    // The answer of the node before may have taken some, and was of no use. This load gives it
    // back while it waits: the node that is asked now may itself wait for an extent of this node,
    // which needs working memory to supply that.
    working.reset();
    request.node = node;
    // A node that is asked reads the GFS itself if all nodes before it are silent, so there is no
    // need to ask the others after an answer.
    Result<SuppliedExtent> supplied = parts_.peers->Read(request, allocate, queue);
    if (supplied.has_value()) {
      bool is_intact = false;
      Result<ExtentChecksums> verified =
          VerifySupplied(dataset, request.catalog, extent, *supplied, &is_intact);
      if (verified.has_value()) {
        supplied->checksums = std::move(*verified);
        return supplied;
      }
      // A rebuild has taken over: the bytes of any node would be refused.
      if (is_intact && verified.error().code() == ErrorCode::kFailedPrecondition) {
        return verified.error();
      }
      // Wrong bytes are no reason to think that the node is dead: only this extent is affected.
      // Nor is the node to blame for bytes that it has read itself and this node's GFS has not.
      if (!is_intact) parts_.peers->ReportWrong(node);
      log::Warn("data set '{}': from node {}: {}; the next node is asked", dataset.name(),
                node.value(), verified.error().message());
      continue;
    }
    if (IsAskNext(supplied.error())) continue;  // it has said so itself, in its log
    if (IsTooBusy(supplied.error()) || supplied.error().code() == ErrorCode::kInternal) {
      // The transport has asked, or waited for its turn, until the deadline, or the answer cannot
      // be read. The node is alive, and is asked for the next extent.
      log::Warn("data set '{}': extent {}: {}; the next node is asked", dataset.name(),
                extent.value(), supplied.error().message());
      continue;
    }
    if (!IsNoAnswer(supplied.error())) return ErrorFromOthers(supplied.error());
    if (parts_.nodes->Lives(node)) {  // logged once, not by every load that waits for it
      log::Warn("node {} does not answer; its substitutes are asked in its place: {}",
                node.value(), supplied.error().message());
    }
    // So the next extent does not wait for this node again. If the node was only slow, some
    // extents are read twice.
    parts_.nodes->SetLives(node, false);
  }
  // They are silent, were passed over or refuse, or there are none.
  return std::nullopt;
}

}  // namespace forebay::stage

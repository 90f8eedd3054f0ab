// Cataloguer: gives a data set its catalog, and its extents their homes. The catalog is loaded from
// a file that an earlier daemon saved; else it is built from metadata or, for formats that need it,
// by a pass over the bytes, which also stages them. In a job of several nodes each object is
// scanned by one of them, and the nodes exchange what they found. Called by a reader thread of
// Stager.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "proto/contract/limits.h"
#include "proto/contract/result.h"
#include "server/catalog/catalog.h"
#include "server/io/clock.h"
#include "server/io/io_backend.h"
#include "server/plan/membership.h"
#include "server/stage/cataloguing/local_stats.h"
#include "server/stage/cataloguing/object_scans.h"
#include "server/stage/cataloguing/scan_pass.h"
#include "server/stage/dataset.h"
#include "server/stage/extent_loader.h"
#include "server/stage/gfs/gfs_throttle.h"
#include "server/stage/gfs/request_gate.h"
#include "server/stage/part_source.h"
#include "server/stage/placement/placement_table.h"
#include "server/stage/placement/staging_tiers.h"
#include "server/stage/stat_source.h"

namespace forebay::stage {

struct CataloguerOptions {
  std::uint64_t request_bytes = 0;  // size of one GFS read of a scan
  std::uint32_t scan_depth = 1;     // reads in flight
  // StagerOptions::ram_working_bytes, which bounds what a scan reads ahead. 0: no bound.
  std::uint64_t working_bytes = 0;
  std::string catalog_path;         // StagerOptions::catalog_path
  std::vector<std::uint64_t> datasets = {};  // StagerOptions::datasets
  std::size_t stat_batch_paths = limits::kStatPathsMax;  // StagerOptions::stat_batch_paths
  RequestGate* gate = nullptr;  // of reads of a scan; null: they take no permits
};

// Borrowed; all outlive the cataloguer.
struct CataloguerParts {
  io::IoBackend& backend;
  io::Clock& clock;
  io::Directory* catalogs = nullptr;  // null: catalogs are not saved
  plan::Membership* nodes = nullptr;  // of the job; null: this one alone
  PartSource* peers = nullptr;        // asks them; null: likewise
  StatSource* stat_peers = nullptr;   // asks them for sizes of files; null: likewise
  LocalStats& local_stats;            // answers them
  const GfsThrottle* throttle = nullptr;  // of `backend`; null: there are no caps
  StagingTiers& tiers;
  PlacementTable& placements;
  ExtentLoader& loader;
};

// Callbacks while a catalog is being built from metadata, or a saved one is compared with its
// objects.
struct CatalogueWatch {
  // An extent of whole objects is known and can be staged, although the catalog is not there yet.
  std::function<void(ExtentId, const catalog::ExtentInfo&, std::span<const catalog::ObjectInfo>)>
      described;
  std::function<void()> ended;  // that is over, or has failed; the extents have no homes yet
};

// The data set that a rebuild replaces. No rebuild: `dataset` is null.
struct Replacement {
  Dataset* dataset = nullptr;
  // Called once, after the data set has lost its extents and homes on the tiers: from now on its
  // successor is served.
  std::function<void()> take_over;
};

// Thread-safe; at most one call at a time per data set.
class Cataloguer {
 public:
  Cataloguer(CataloguerOptions options, const CataloguerParts& parts)
      : options_(std::move(options)), parts_(parts) {}

  // Gives `dataset`, which has no catalog, its catalog. kFailedPrecondition: the objects are not
  // those of the saved catalog. With `rebuild`, the saved catalog is ignored, the checksums of
  // first reads are forgotten, and all extents of the data set on the tiers are evicted, because
  // bytes may have changed under an unchanged modification time. `replaced`: the data set of the
  // same name that `dataset` replaces. It loses its extents and homes when `dataset` takes over:
  // once the catalog is built from metadata, or before a pass over the bytes, which stores what it
  // reads. Where Run fails before that, nothing changes for it.
  //
  // Returns false if other nodes have not scanned their objects yet. Run is then to be called again
  // after ObjectScans::NextPauseNs, so that no thread waits: other nodes may wait for what this one
  // does next.
  Result<bool> Run(Dataset& dataset, bool rebuild, const Replacement& replaced,
                   const CatalogueWatch& watch, io::IoQueue& queue);
  // Call after Run has failed: frees what it has staged in RAM.
  void Abandon(const Dataset& dataset);
  // Opens the file with the checksums of first reads. With `forget`, begins a new one, and removes
  // the saved catalog. Run does that, too; another call does no harm.
  void OpenFirstReads(Dataset& dataset, bool forget);

 private:
  void TakeOver(Dataset& dataset, const Replacement& replaced);
  void DropCopies(const Dataset& dataset);
  std::uint64_t MissingBytes(const catalog::Catalog& catalog,
                             std::span<const tier::ExtentKey> keys,
                             std::span<const plan::GroupShare> groups) const;
  // Removes what the SSD has of data sets that are not configured any more, if there is not so much
  // space for this one.
  void MakeRoom(const Dataset& dataset, const std::function<std::uint64_t()>& needed_bytes);
  void EvictAll(std::span<const tier::ExtentKey> keys);
  void RemoveSaved(const Dataset& dataset);
  void Save(Dataset& dataset, const catalog::Catalog& catalog);
  // By extent of a catalog.
  struct KeyedExtents {
    std::vector<tier::ExtentKey> keys;     // under which the extents are stored
    std::vector<plan::GroupShare> groups;  // empty in a job of one node, which asks nobody
  };
  KeyedExtents KeyExtents(Dataset& dataset,
                          const std::shared_ptr<const catalog::Catalog>& catalog) const;
  std::vector<bool> OwnExtents(const catalog::Catalog& catalog,
                               const KeyedExtents& extents) const;
  Status Adopt(Dataset& dataset, std::shared_ptr<const catalog::Catalog> catalog,
               KeyedExtents extents, io::IoQueue& queue);
  void PlaceCopies(const Dataset& dataset, std::span<const tier::ExtentKey> keys,
                   const std::vector<bool>& remote, std::span<const std::uint64_t> planned,
                   std::span<plan::HomeTier> homes, const catalog::Catalog& catalog);
  static void ChooseForm(Dataset& dataset,
                         const std::shared_ptr<const catalog::Catalog>& catalog);
  Result<std::shared_ptr<const catalog::Catalog>> Build(Dataset& dataset,
                                                        const catalog::DatasetSource& source,
                                                        bool rebuild,
                                                        const catalog::RunSink& runs);
  Result<bool> Scan(Dataset& dataset, const catalog::DatasetSource& source, bool rebuild,
                    io::IoQueue& queue);
  Status ScanObjects(Dataset& dataset, ObjectScans& scans, std::span<const ObjectId> objects,
                     bool rebuild, io::IoQueue& queue);
  ScanPass::Hooks ScanHooks(Dataset& dataset, ObjectScans& scans, bool rebuild,
                            io::IoQueue& ssd_queue);
  Result<bool> Collect(Dataset& dataset, ObjectScans& scans, io::IoQueue& queue);
  bool IsFirstRead(Dataset& dataset, const tier::ExtentKey& raw,
                   const tier::ResidentExtent& found, io::IoQueue& queue);
  bool CompareCopy(Dataset& dataset, const tier::ExtentKey& raw, const tier::ExtentKey& key,
                   std::uint64_t raw_checksum);
  Status GiveFirstReads(Dataset& dataset, const catalog::Catalog& catalog,
                        std::span<const tier::ExtentKey> keys,
                        std::span<const plan::GroupShare> groups, io::IoQueue& queue);

  const CataloguerOptions options_;
  const CataloguerParts parts_;
};

}  // namespace forebay::stage

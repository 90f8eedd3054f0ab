// Cataloguer: gives a data set its catalog, and its extents their homes: of what an earlier daemon
// saved, from metadata, or by one pass over its tar shards that stages as it goes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "proto/contract/result.h"
#include "server/catalog/catalog.h"
#include "server/io/io_backend.h"
#include "server/stage/dataset.h"
#include "server/stage/extent_loader.h"
#include "server/stage/housing.h"
#include "server/stage/staging_tiers.h"

namespace forebay::stage {

struct CataloguerOptions {
  std::uint64_t request_bytes = 0;  // of one GFS read of a scan
  std::uint32_t scan_depth = 1;     // of them in flight
  std::string catalog_path;         // StagerOptions'
};

// Borrowed; all outlive the cataloguer.
struct CataloguerParts {
  io::IoBackend& backend;
  io::Directory* catalogs = nullptr;  // null: catalogs are not saved
  StagingTiers& tiers;
  Housing& housing;
  ExtentLoader& loader;
};

// Who wants to know of extents while a catalog is still being built from metadata.
struct CatalogueWatch {
  std::function<void(ExtentId, const catalog::ExtentInfo&, std::span<const catalog::ObjectInfo>)>
      described;
  std::function<void()> ended;  // before the extents have their homes
};

// Thread-safe; one call at a time for a data set.
class Cataloguer {
 public:
  Cataloguer(CataloguerOptions options, const CataloguerParts& parts)
      : options_(std::move(options)), parts_(parts) {}

  // Gives `dataset`, which has none, its catalog. With `rebuild`, a saved one is ignored and first
  // reads are forgotten. kFailedPrecondition where the objects are not those of the saved catalog.
  // Where `dataset` replaces another one, it takes over what that one has on the tiers as far as
  // the objects are the same; the rest is evicted, and all of it where bytes changed under an
  // unchanged time.
  Status Run(Dataset& dataset, bool rebuild, Dataset* replaced, const CatalogueWatch& watch,
             io::IoQueue& queue);
  // Run has failed: frees what was staged in RAM on the way.
  void Abandon(const Dataset& dataset);

 private:
  void DropCopies(const Dataset& dataset, Dataset* replaced);
  void EvictAll(std::span<const tier::ExtentKey> keys);
  void OpenFirstReads(Dataset& dataset, bool forget);
  void Save(Dataset& dataset, const catalog::Catalog& catalog);
  Status Adopt(Dataset& dataset, std::shared_ptr<const catalog::Catalog> catalog);
  static void ChooseForm(Dataset& dataset,
                         const std::shared_ptr<const catalog::Catalog>& catalog);
  Status Scan(Dataset& dataset, bool rebuild, io::IoQueue& queue);
  bool IsFirstRead(Dataset& dataset, const tier::ExtentKey& key,
                   const tier::ResidentExtent& found);

  const CataloguerOptions options_;
  const CataloguerParts parts_;
};

}  // namespace forebay::stage

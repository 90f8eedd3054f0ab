// Names, loads and verifies the catalogs that are saved in daemon.state_dir, for the next daemon.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "proto/contract/result.h"
#include "server/catalog/catalog.h"
#include "server/catalog/dataset_source.h"
#include "server/stage/dataset.h"

namespace forebay::stage {

// "<name>-<hash>.catalog". The hash covers the other keys that decide what a catalog holds, so that
// a data set whose configuration has changed does not find a catalog that does not fit it.
std::string SavedCatalogName(const catalog::DatasetSource& source);

// kNotFound: `directory_path` is empty, or holds no such catalog. Other errors: Catalog::Load's.
Result<std::shared_ptr<const catalog::Catalog>> LoadSavedCatalog(
    const std::string& directory_path, const catalog::DatasetSource& source);

// Compares objects of `catalog`, which an earlier daemon saved, with what is on the GFS. `ours`: by
// extent, whether this node reads it for the job or has it on a tier. Objects of which all
// extents are left to other nodes are not looked at: their owners do that, and whoever opens an
// object compares it again. So the nodes of a job together ask the GFS once for each object.
//
// Calls `verified` for each extent of `ours` that consists of whole objects, as soon as these are
// known to be unchanged, so that staging begins before all objects have been looked at.
// Errors: as of catalog::VerifyObjects.
Status VerifyShare(Dataset& dataset, const catalog::Catalog& catalog, const std::vector<bool>& ours,
                   const catalog::RunSink& verified);

}  // namespace forebay::stage

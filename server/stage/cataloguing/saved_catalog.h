// Names and loads the catalogs that are saved in daemon.state_dir, for the next daemon.
#pragma once

#include <memory>
#include <string>

#include "proto/contract/result.h"
#include "server/catalog/catalog.h"
#include "server/catalog/dataset_source.h"

namespace forebay::stage {

// "<name>-<hash>.catalog". The hash covers the other keys that decide what a catalog holds, so that
// a data set whose configuration has changed does not find a catalog that does not fit it.
std::string SavedCatalogName(const catalog::DatasetSource& source);

// kNotFound: `directory_path` is empty, or holds no such catalog. Other errors: Catalog::Load's.
Result<std::shared_ptr<const catalog::Catalog>> LoadSavedCatalog(
    const std::string& directory_path, const catalog::DatasetSource& source);

}  // namespace forebay::stage

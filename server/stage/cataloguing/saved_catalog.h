// Where catalogs are kept between daemons, and how they are found again.
#pragma once

#include <memory>
#include <string>

#include "proto/contract/result.h"
#include "server/catalog/catalog.h"
#include "server/catalog/dataset_source.h"

namespace forebay::stage {

// "<name>-<hash of the rest of the configuration>.catalog": a data set that is configured
// otherwise never finds a catalog that does not fit it.
std::string SavedCatalogName(const catalog::DatasetSource& source);

// kNotFound where `directory_path` is empty or holds none; otherwise Catalog::Map's errors.
Result<std::shared_ptr<const catalog::Catalog>> LoadSavedCatalog(
    const std::string& directory_path, const catalog::DatasetSource& source);

}  // namespace forebay::stage

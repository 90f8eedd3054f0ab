// DatasetStatus as JSON and as progress, shared by `status`, `stage` and `datasets`.
#pragma once

#include "client/cli/json_value.h"
#include "forebay/v1/admin.pb.h"

namespace forebay::cli {

inline JsonObject DatasetJson(const v1::DatasetStatus& dataset) {
  JsonObject json = {{"name", dataset.name()},
               {"format", dataset.format()},
               {"state", dataset.state()},
               {"catalog_fingerprint", dataset.catalog_fingerprint()},
               {"samples", dataset.samples()},
               {"objects", dataset.objects()},
               {"extents", dataset.extents()},
               {"total_bytes", dataset.total_bytes()},
               {"staged_bytes", dataset.staged_bytes()},
               {"ram_bytes", dataset.ram_bytes()},
               {"ssd_bytes", dataset.ssd_bytes()},
               {"gfs_bytes", dataset.gfs_bytes()},
               {"gfs_opens", dataset.gfs_opens()},
               {"staging_ms", dataset.staging_ms()},
               {"other_nodes_bytes", dataset.other_nodes_bytes()},
               {"copied_bytes", dataset.copied_bytes()},
               {"unstaged_bytes", dataset.unstaged_bytes()},
               {"unstaged_reason", dataset.unstaged_reason()},
               {"mismatches", dataset.mismatches()},
               {"gfs_pieces", dataset.gfs_pieces()},
               {"gfs_piece_bytes", dataset.gfs_piece_bytes()},
               {"stored_form", dataset.stored_form()}};
  if (!dataset.error().empty()) json.Add("error", dataset.error());
  return json;
}

}  // namespace forebay::cli

// Measures, with the classes of the daemon, how much memory a daemon of a large job needs for its
// tables, and how long it takes to fill them at its start.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "bench/nodes/scale_data.h"
#include "proto/contract/result.h"
#include "server/io/io_backend.h"
#include "server/stage/dataset.h"

namespace forebay::bench {

// Returns the private memory of this process (RssAnon), after malloc has given back to the kernel
// what it can.
std::uint64_t PrivateBytes();

struct NodeState {
  double wall_s = 0;
  double cpu_s = 0;
  double catalog_s = 0;  // of wall_s: opening the saved catalog
  double shares_s = 0;   // of wall_s: groups and owners of all extents
  std::uint64_t kept_bytes = 0;      // private memory when it is ready
  std::uint64_t peak_bytes = 0;      // private memory at most
  std::uint64_t resident_bytes = 0;  // when it is ready, with pages of a mapped catalog
  std::uint64_t image_bytes = 0;     // of the catalog
  std::uint64_t extents = 0;
  std::uint64_t own_extents = 0;
};

// Starts node 0 of `node_count` with the catalog at `catalog_path`, as stage::Cataloguer does when
// it finds a saved catalog and nothing on the tiers; the node's list of nodes and its prober are
// included, connections to other nodes and the tiers' own tables are not. A catalog that no daemon
// has saved yet is built first; that reads the GFS, and is not measured here. `visit` is called
// with the data set of the started node, after the measurement.
Result<NodeState> MeasureStart(const std::string& catalog_path, std::uint32_t node_count,
                               io::IoBackend& backend, const std::string& folder,
                               const std::function<Status(stage::Dataset&)>& visit);

}  // namespace forebay::bench

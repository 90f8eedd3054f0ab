// Private memory is RssAnon of /proc/self/status: what the process has allocated and touched. The
// peak is that of all resident memory, less the pages of files.
#include "bench/nodes/scale_state.h"

#include <malloc.h>

#include <fstream>
#include <memory>
#include <utility>
#include <vector>

#include "bench/nodes/scale_traffic.h"
#include "bench/peers/run_report.h"
#include "server/catalog/catalog.h"
#include "server/plan/membership.h"
#include "server/probe/prober.h"
#include "server/stage/extent_groups.h"
#include "server/tier/extent_key.h"

namespace forebay::bench {
namespace {

struct Memory {
  std::uint64_t anonymous_bytes = 0;
  std::uint64_t resident_bytes = 0;
  std::uint64_t peak_bytes = 0;  // of resident_bytes
};

Memory ReadMemory() {
  std::ifstream status("/proc/self/status");
  Memory memory;
  for (std::string word; status >> word;) {
    std::uint64_t kib = 0;
    if (word == "RssAnon:" && status >> kib) memory.anonymous_bytes = kib * limits::kKiB;
    if (word == "VmRSS:" && status >> kib) memory.resident_bytes = kib * limits::kKiB;
    if (word == "VmHWM:" && status >> kib) memory.peak_bytes = kib * limits::kKiB;
  }
  return memory;
}

std::uint64_t Growth(std::uint64_t before, std::uint64_t after) {
  return after > before ? after - before : 0;
}

// Gives every extent that this node reads a home in RAM, and publishes the catalog. Returns the
// number of these extents.
std::uint64_t Adopt(stage::Dataset& dataset, std::shared_ptr<const catalog::Catalog> catalog,
                    const plan::Membership& nodes, NodeState& state) {
  // The tiers are asked for each of these keys; here nothing is on them.
  std::vector<tier::ExtentKey> keys = tier::KeysOf(*catalog);
  const double began = NowSeconds();
  const std::vector<plan::GroupShare> shares = stage::GroupShares(*catalog, 0, nodes);
  state.shares_s = NowSeconds() - began;
  const std::size_t count = keys.size();
  std::vector<bool> remote(count);
  std::vector<plan::HomeTier> homes(count, plan::HomeTier::kNone);
  std::vector<std::uint64_t> group_keys;
  group_keys.reserve(count);
  std::uint64_t own = 0;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    remote[i] = !nodes.Reads(shares[i]);
    if (!remote[i]) homes[i] = plan::HomeTier::kRam;
    own += remote[i] ? 0 : 1;
    group_keys.push_back(shares[i].key);
  }
  dataset.SetRemote(std::move(remote));
  dataset.SetCatalog(std::move(catalog), std::move(keys), std::vector<bool>(count),
                     std::move(homes), std::move(group_keys));
  return own;
}

}  // namespace

std::uint64_t PrivateBytes() {
  ::malloc_trim(0);
  return ReadMemory().anonymous_bytes;
}

Result<NodeState> MeasureStart(const std::string& catalog_path, std::uint32_t node_count,
                               io::IoBackend& backend, const std::string& folder,
                               const std::function<Status(stage::Dataset&)>& visit) {
  FOREBAY_ASSIGN(std::unique_ptr<io::Directory> root, backend.OpenDirectory(folder));
  // Memory that earlier work of this process has freed must not be taken for this node's.
  ::malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << 5;  // the peak begins again
  const Memory before = ReadMemory();
  const double cpu = CpuSeconds();
  const double began = NowSeconds();
  NodeState state;
  stage::DatasetOptions options;
  options.source.name = "scale";
  options.root_path = folder;
  stage::Dataset dataset(options, backend, std::move(root));
  // All that grows with the number of nodes.
  const plan::Membership nodes(NodeRank(0), NodesOf(node_count));
  const probe::Prober prober({.self = NodeRank(0), .node_count = node_count});
  FOREBAY_ASSIGN(std::shared_ptr<const catalog::Catalog> catalog,
                 catalog::Catalog::Load(catalog_path));
  state.catalog_s = NowSeconds() - began;
  state.image_bytes = catalog->image().size();
  state.extents = catalog->extent_count();
  state.own_extents = Adopt(dataset, std::move(catalog), nodes, state);
  // Memory that was needed only during the start is freed by now. It counts in the peak.
  state.wall_s = NowSeconds() - began;
  state.cpu_s = CpuSeconds() - cpu;
  const Memory peak = ReadMemory();
  ::malloc_trim(0);
  const Memory after = ReadMemory();
  state.kept_bytes = Growth(before.anonymous_bytes, after.anonymous_bytes);
  state.peak_bytes = Growth(before.resident_bytes, peak.peak_bytes);
  state.resident_bytes = Growth(before.resident_bytes, after.resident_bytes);
  FOREBAY_TRY(visit(dataset));
  return state;
}

}  // namespace forebay::bench

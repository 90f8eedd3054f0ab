// All paths of a batch are asked for at the same time, so the infos behind the first error are
// known too. They are dropped: the builder stops at the first error in the order of names, and
// which calls had been answered by then depends on the GFS.
#include "server/catalog/object_stats.h"

#include <cstddef>
#include <vector>

#include "proto/contract/printable.h"
#include "server/catalog/stat_many.h"

namespace forebay::catalog {

StatOutcome RootStats::Stat(std::span<const std::string> paths) {
  StatOutcome outcome;
  outcome.infos.reserve(paths.size());
  const std::vector<Result<io::FileInfo>> infos = StatMany(root_, paths);
  for (std::size_t i = 0; i < infos.size(); ++i) {
    if (!infos[i].has_value()) {
      outcome.error = infos[i].error().WithContext(Quoted(paths[i]));
      break;
    }
    outcome.infos.push_back(*infos[i]);
  }
  return outcome;
}

}  // namespace forebay::catalog

// A node asks only nodes that are ranked before itself, and a node that is asked asks nobody but
// the GFS. So requests do not go round in circles, whatever the nodes believe about each other.
#include "server/stage/cataloguing/shared_stats.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "server/io/log.h"
#include "server/stage/extent_source.h"

namespace forebay::stage {
namespace {

// Batches that different nodes may ask the GFS for at the same time. Each takes a thread of the
// builder, and the bytes of its paths.
constexpr std::size_t kBatchesAtOnceMax = 8;
// A file for which the GFS does not answer silences one node after the other. Where requests for
// samples wait for the GFS, a request for sizes may wait behind them on this node. So this node
// does not wait until a deadline for more nodes than these.
constexpr std::size_t kSilentMax = 2;

}  // namespace

// As many as there are nodes: then each has one batch at a time on average, as a node alone.
std::size_t SharedStats::batches_at_once() const {
  return std::min(nodes_.nodes().size(), kBatchesAtOnceMax);
}

catalog::StatOutcome SharedStats::Stat(std::span<const std::string> paths) {
  paths_asked_ += paths.size();
  const std::uint64_t key = BatchKey(dataset_.hash(), paths);
  std::vector<NodeRank> asked;
  std::size_t silent = 0;
  while (silent < kSilentMax) {
    const std::optional<NodeRank> node = nodes_.FirstToAsk(key, asked);
    if (!node) break;
    asked.push_back(*node);
    Result<std::vector<io::FileInfo>> sent =
        others_.Stat({.node = *node, .dataset = dataset_, .paths = paths});
    if (sent.has_value() && sent->size() <= paths.size()) return Complete(paths, std::move(*sent));
    if (sent.has_value()) {
      sent = Error(ErrorCode::kInternal, "the answer has sizes of more files than asked for");
    }
    // This daemon is shutting down.
    if (sent.error().code() == ErrorCode::kCancelled) return {.infos = {}, .error = sent.error()};
    if (IsNoAnswer(sent.error())) {
      const bool is_late = sent.error().code() == ErrorCode::kDeadlineExceeded;
      if (!has_cap_ || !is_late) nodes_.SetLives(*node, false);
      ++silent;
    } else if (IsNotSent(sent.error())) {
      ++silent;  // waited for as long as a silent one, but it was not asked
    }
    NoteError(*node, sent.error());
  }
  return local_.Stat(dataset_, paths);
}

// Asks the GFS for the paths that another node has not supplied, because one failed there. It may
// be that node which has the trouble. If the path fails here, too, the error names it.
catalog::StatOutcome SharedStats::Complete(std::span<const std::string> paths,
                                           std::vector<io::FileInfo> infos) {
  catalog::RootStats gfs(dataset_.root());
  const auto ask_for = [&](std::size_t count) -> std::optional<Error> {
    const std::span<const std::string> missing = paths.subspan(infos.size(), count);
    dataset_.CountGfs(0, 0, 0, missing.size());
    catalog::StatOutcome found = gfs.Stat(missing);
    infos.insert(infos.end(), found.infos.begin(), found.infos.end());
    return found.error;
  };
  std::optional<Error> error;
  // First the path that failed, alone: if it is missing, the others are of no use.
  if (infos.size() < paths.size()) error = ask_for(1);
  if (!error && infos.size() < paths.size()) error = ask_for(paths.size() - infos.size());
  return {.infos = std::move(infos), .error = std::move(error)};
}

void SharedStats::NoteError(NodeRank node, const Error& error) {
  // A batch takes a fraction of a second, so one line for the whole build has to do.
  if (has_warned_.exchange(true)) return;
  log::Warn("data set '{}': node {} has not supplied sizes of files; the next node, or the GFS, is "
            "asked, now and whenever a node does not supply them: {}",
            dataset_.name(), node.value(), error.message());
}

}  // namespace forebay::stage

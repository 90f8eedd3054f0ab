// The file has the format of the list in a rendezvous directory. Whether the launch still runs
// cannot be seen here: the caller asks the other nodes.
#include "server/rendezvous/kept_list.h"

#include <utility>

#include "server/io/log.h"
#include "server/rendezvous/node_file.h"

namespace forebay::rendezvous {
namespace {

constexpr const char* kName = "forebayd.nodes";
constexpr const char* kTemporary = "forebayd.nodes.new";

}  // namespace

Result<KeptList> KeptList::Open(io::IoBackend& backend, const std::string& directory) {
  FOREBAY_ASSIGN(auto opened, backend.OpenDirectory(directory));
  FOREBAY_ASSIGN(auto queue, backend.CreateQueue({.depth = 1}));
  return KeptList(std::move(opened), std::move(queue));
}

std::optional<std::vector<NodeEntry>> KeptList::Find(const NodeEntry& own,
                                                     std::uint32_t node_count) {
  Result<std::optional<NodeFile>> read = ReadNodeFile(*directory_, *queue_, kName);
  if (!read.has_value()) {
    // A node without it finds the others as at the first start.
    log::Warn("the list of nodes that an earlier daemon has left cannot be used: {}",
              read.error().ToString());
    return std::nullopt;
  }
  if (!*read || (*read)->nodes.size() != node_count) return std::nullopt;
  std::vector<NodeEntry> nodes = std::move((*read)->nodes);
  // Its writer has made sure of this; another version of Forebay may not have.
  bool is_good = CheckNodeList(nodes, node_count).has_value();
  for (std::uint32_t rank = 0; is_good && rank < node_count; ++rank) {
    is_good = nodes[rank].rank == NodeRank(rank);
  }
  if (!is_good) return std::nullopt;
  NodeEntry kept = nodes[own.rank.value()];
  kept.address = own.address;
  kept.nonce = own.nonce;
  if (kept == own) return nodes;
  log::Info("the list of nodes that an earlier daemon has left is of {}, and not of {} with the "
            "same capacity of the tiers, versions, data sets and secret",
            kept.Text(), own.Text());
  return std::nullopt;
}

Status KeptList::Keep(const std::vector<NodeEntry>& nodes) {
  const Status kept = WriteNodeFile(*directory_, *queue_,
                                    {.kind = NodeFileKind::kComplete,
                                     .node_count = static_cast<std::uint32_t>(nodes.size()),
                                     .nodes = nodes},
                                    kName, kTemporary);
  if (!kept.has_value()) return kept.error().WithContext("keeping the list of nodes");
  return {};
}

void KeptList::Remove() {
  const Status removed = directory_->Unlink(kName);
  if (removed.has_value() || removed.error().code() == ErrorCode::kNotFound) return;
  log::Warn("{} could not be removed: {}", kName, removed.error().ToString());
}

}  // namespace forebay::rendezvous

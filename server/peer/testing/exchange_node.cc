// The same objects, in the same order, as the daemon makes them.
#include "server/peer/testing/exchange_node.h"

#include <utility>

namespace forebay::peer {

Status ExchangeNode::Start(NodeTransport& transport, stage::RigOptions options,
                           const stage::DatasetOptions& dataset, bool has_answers) {
  options.nodes = &nodes;
  options.peers = &transport;
  if (gives_first_reads) options.keepers = &transport;
  options.peer_parts = &transport;
  options.peer_stats = &transport;
  FOREBAY_TRY(rig.Start(dataset, options));
  if (!has_answers) return {};
  local = std::make_unique<stage::LocalExtents>(rig.cache(), rig.stager(), rig.clock());
  fetcher = std::make_unique<fetch::Fetcher>(rig.cache(), rig.stager(), nodes);
  FOREBAY_ASSIGN(executor, io::ThreadExecutor::Create(rig.backend(), 1, 4));
  rows = std::make_unique<fetch::LocalRows>(
      fetch::LocalRowsParts{.stager = rig.stager(), .fetcher = *fetcher, .decoded = decoded,
                            .executor = *executor, .clock = rig.clock()});
  first_reads = std::make_unique<stage::LocalFirstReads>(nodes.self(), rig.stager());
  transport.Add(nodes.self(), {.extents = local.get(),
                               .rows = rows.get(),
                               .first_reads = first_reads.get(),
                               .dataset = &rig.dataset(),
                               .backend = &rig.backend()});
  return {};
}

}  // namespace forebay::peer

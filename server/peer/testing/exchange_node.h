// ExchangeNode: one of several nodes of a job in one process, from the GFS to what it answers other
// nodes with. Part of forebay::peer_testing.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "proto/contract/ids.h"
#include "server/fetch/decoded_cache.h"
#include "server/fetch/fetcher.h"
#include "server/fetch/local_rows.h"
#include "server/io/executor.h"
#include "server/io/io_backend.h"
#include "server/peer/testing/node_transport.h"
#include "server/plan/membership.h"
#include "server/stage/local_extents.h"
#include "server/stage/local_first_reads.h"
#include "server/stage/testing/stage_rig.h"

namespace forebay::peer {

struct ExchangeNode {
  // `folder` has the files of the node, as StageRig says; on a memory back end, nodes may share it.
  ExchangeNode(io::IoBackend& backend, NodeRank self, const std::vector<plan::Node>& all,
               std::string folder = "")
      : nodes(self, all), rig(backend, std::move(folder)) {}

  // Starts the node's rooms, which ask other nodes by `transport`, and lets it answer them. Without
  // `has_answers`, the other nodes do not reach it.
  Status Start(NodeTransport& transport, stage::RigOptions options,
               const stage::DatasetOptions& dataset, bool has_answers = true);

  bool gives_first_reads = true;  // to be set before Start
  plan::Membership nodes;
  stage::StageRig rig;
  std::unique_ptr<stage::LocalExtents> local;
  std::unique_ptr<fetch::Fetcher> fetcher;
  std::unique_ptr<io::ThreadExecutor> executor;
  fetch::DecodedCache decoded{/*capacity_bytes=*/0, /*next_use=*/nullptr};
  std::unique_ptr<fetch::LocalRows> rows;
  std::unique_ptr<stage::LocalFirstReads> first_reads;
};

}  // namespace forebay::peer

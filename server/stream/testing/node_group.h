// NodeGroup: several daemons' rooms in one process, from the GFS to the sinks of their streams, as
// one job. Part of forebay::stream_testing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "server/io/testing/fault_injector.h"
#include "server/io/testing/faulty_backend.h"
#include "server/io/testing/memory_backend.h"
#include "server/peer/testing/node_transport.h"
#include "server/plan/membership.h"
#include "server/stage/local_extents.h"
#include "server/stage/local_first_reads.h"
#include "server/stream/testing/serve_fixture.h"

namespace forebay::stream {

// The nodes share one back end, which is their GFS, and has an SSD folder for each.
class NodeGroup {
 public:
  // Makes nodes 0 to count - 1, which have not staged anything; `options` are those of each.
  static Result<std::unique_ptr<NodeGroup>> Create(
      io::MemoryBackend& backend, std::uint32_t count, std::size_t record_bytes,
      ServeOptions options, peer::TransportKind transport = peer::TransportKind::kInProcess);
  // The nodes may be waiting for each other.
  ~NodeGroup();

  std::uint32_t size() const { return static_cast<std::uint32_t>(members_.size()); }
  ServeFixture& node(std::uint32_t rank) { return *members_[rank]->serve; }
  plan::Membership& membership(std::uint32_t rank) { return members_[rank]->nodes; }
  peer::NodeTransport& transport() { return *transport_; }
  // Injects faults into the I/O of node 0: of the GFS, and of its SSD.
  io::FaultInjector& faults() { return faults_; }
  // The owner of an extent, then its substitutes.
  std::vector<NodeRank> Ranked(ExtentId extent);
  // Bytes that all nodes together have read from the GFS.
  std::uint64_t GfsBytes();

 private:
  struct Member {
    Member(NodeRank self, const std::vector<plan::Node>& all) : nodes(self, all) {}
    plan::Membership nodes;
    std::unique_ptr<ServeFixture> serve;
    std::unique_ptr<stage::LocalExtents> extents;
    std::unique_ptr<stage::LocalFirstReads> first_reads;
  };

  io::FaultInjector faults_;
  std::unique_ptr<io::FaultyBackend> faulty_;
  std::unique_ptr<peer::NodeTransport> transport_;
  std::vector<std::unique_ptr<Member>> members_;
};

}  // namespace forebay::stream

// InProcessNodes: a transport between nodes that live in one process, so that a test can run a job
// of several nodes, silence one of them, and count what is asked. Part of forebay::peer_testing.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "proto/contract/ids.h"
#include "server/fetch/local_rows.h"
#include "server/fetch/row_source.h"
#include "server/io/io_backend.h"
#include "server/stage/extent_source.h"
#include "server/stage/local_extents.h"

namespace forebay::peer {

// All nodes of a job share one. Bytes are copied by the node that is asked, straight to where the
// asking node wants them. Thread-safe.
class InProcessNodes final : public stage::ExtentSource, public fetch::RowSource {
 public:
  // The rooms that answer for one node; borrowed. A node that was not added does not answer.
  struct Node {
    stage::LocalExtents* extents = nullptr;
    fetch::LocalRows* rows = nullptr;   // null: no rows are asked of it
    stage::Dataset* dataset = nullptr;  // the node has no other
    io::IoBackend* backend = nullptr;   // of its SSD
  };
  void Add(NodeRank rank, const Node& node);
  // From now on every request to the node fails with kUnavailable, or no longer. Requests that it
  // has begun to answer are finished.
  void SetAnswers(NodeRank rank, bool answers);
  // From now on one bit of each extent that the node sends is wrong.
  void SetFlipsBits(NodeRank rank);

  Result<stage::SuppliedExtent> Read(const stage::ExtentRequest& request,
                                     const stage::AllocateImage& allocate,
                                     io::IoQueue& queue) override;
  void Read(std::shared_ptr<const fetch::RowRequest> request, Done done) override;

  // Requests that were sent to the node, answered or not.
  std::uint64_t extents_asked(NodeRank rank) const;
  std::uint64_t row_requests(NodeRank rank) const;

 private:
  struct State {
    Node node;
    bool answers = true;
    bool flips_bits = false;
    std::uint64_t extents_asked = 0;
    std::uint64_t row_requests = 0;
  };
  // Counts a request to the node. Returns its state, or nothing if it does not answer.
  std::optional<State> Ask(NodeRank rank, std::uint64_t State::*counter);

  mutable std::mutex mutex_;
  std::map<NodeRank, State> nodes_;
};

}  // namespace forebay::peer

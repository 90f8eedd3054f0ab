// InProcessNodes: a transport between nodes in one process, so that a test can run a job of several
// nodes, silence one of them, and count requests. Part of forebay::peer_testing.
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

// All nodes of a job share one object. The node that is asked copies the bytes, straight to the
// memory of the request. Thread-safe.
class InProcessNodes final : public stage::ExtentSource, public fetch::RowSource {
 public:
  // The objects that answer for one node; borrowed. A node that was not added does not answer.
  struct Node {
    stage::LocalExtents* extents = nullptr;
    fetch::LocalRows* rows = nullptr;   // null: the node must not be asked for rows
    stage::Dataset* dataset = nullptr;  // the only data set of the node
    io::IoBackend* backend = nullptr;   // of its SSD
  };
  void Add(NodeRank rank, const Node& node);
  // `answers` false: from now on every request to the node fails with kUnavailable. Requests that
  // it has begun to answer are finished.
  void SetAnswers(NodeRank rank, bool answers);
  // From now on one bit of each extent that the node sends is inverted.
  void SetFlipsBits(NodeRank rank);

  Result<stage::SuppliedExtent> Read(const stage::ExtentRequest& request,
                                     const stage::AllocateImage& allocate,
                                     io::IoQueue& queue) override;
  void Read(std::shared_ptr<const fetch::RowRequest> request, Done done) override;

  // The number of requests that were sent to the node, answered or not.
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
  // Counts a request to the node. Returns its state, or nullopt if it does not answer.
  std::optional<State> Ask(NodeRank rank, std::uint64_t State::*counter);

  mutable std::mutex mutex_;
  std::map<NodeRank, State> nodes_;
};

}  // namespace forebay::peer

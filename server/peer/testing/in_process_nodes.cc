// A request is a call of the other node's LocalExtents or LocalRows, on the caller's thread. The
// mutex guards only the table of nodes and is released before the call, because nodes ask each
// other.
#include "server/peer/testing/in_process_nodes.h"

#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

namespace forebay::peer {
namespace {

Error Silent(NodeRank rank) {
  return Error(ErrorCode::kUnavailable, fmt::format("node {} does not answer", rank.value()));
}

}  // namespace

void InProcessNodes::Add(NodeRank rank, const Node& node) {
  std::lock_guard lock(mutex_);
  nodes_[rank] = {.node = node};
}

void InProcessNodes::SetAnswers(NodeRank rank, bool answers) {
  std::lock_guard lock(mutex_);
  nodes_.at(rank).answers = answers;
}

void InProcessNodes::SetFlipsBits(NodeRank rank) {
  std::lock_guard lock(mutex_);
  nodes_.at(rank).flips_bits = true;
}

std::optional<InProcessNodes::State> InProcessNodes::Ask(NodeRank rank,
                                                         std::uint64_t State::*counter) {
  std::lock_guard lock(mutex_);
  const auto found = nodes_.find(rank);
  if (found == nodes_.end()) return std::nullopt;
  State& state = found->second;
  ++(state.*counter);
  return state.answers ? std::optional(state) : std::nullopt;
}

Result<stage::SuppliedExtent> InProcessNodes::Read(const stage::ExtentRequest& request,
                                                   const stage::AllocateImage& allocate,
                                                   io::IoQueue&) {
  const std::optional<State> asked = Ask(request.node, &State::extents_asked);
  if (!asked) return Silent(request.node);
  // The node that is asked reads its own SSD.
  FOREBAY_ASSIGN(const auto queue, asked->node.backend->CreateQueue({.depth = 4}));
  FOREBAY_ASSIGN(stage::SuppliedExtent supplied,
                 asked->node.extents->Read(*asked->node.dataset, request.catalog.fingerprint(),
                                           request.extent, allocate, *queue));
  if (asked->flips_bits) supplied.image.bytes()[0] ^= std::byte{1};
  return supplied;
}

void InProcessNodes::Read(std::shared_ptr<const fetch::RowRequest> request, Done done) {
  const std::optional<State> asked = Ask(request->node, &State::row_requests);
  if (!asked) return done(Silent(request->node));
  asked->node.rows->Read(*asked->node.dataset, request->dataset->catalog()->fingerprint(),
                         request->rows, std::move(done));
}

std::uint64_t InProcessNodes::extents_asked(NodeRank rank) const {
  std::lock_guard lock(mutex_);
  return nodes_.at(rank).extents_asked;
}

std::uint64_t InProcessNodes::row_requests(NodeRank rank) const {
  std::lock_guard lock(mutex_);
  return nodes_.at(rank).row_requests;
}

}  // namespace forebay::peer

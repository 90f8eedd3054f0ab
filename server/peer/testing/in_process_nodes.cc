// A request is a call of the other node's LocalExtents, LocalRows or LocalFirstReads, on the
// caller's thread.
#include "server/peer/testing/in_process_nodes.h"

#include <future>
#include <utility>

#include <fmt/format.h>

namespace forebay::peer {
namespace {

Error Silent(NodeRank rank) {
  return Error(ErrorCode::kUnavailable, fmt::format("node {} does not answer", rank.value()));
}

}  // namespace

void InProcessNodes::Begin(NodeRank rank, const Node& node) {
  std::lock_guard lock(mutex_);
  nodes_[rank] = node;
}

void InProcessNodes::End(NodeRank rank) {
  std::lock_guard lock(mutex_);
  nodes_.erase(rank);
}

void InProcessNodes::Stop() {
  std::lock_guard lock(mutex_);
  nodes_.clear();
}

std::optional<NodeTransport::Node> InProcessNodes::Find(NodeRank rank) const {
  std::lock_guard lock(mutex_);
  const auto found = nodes_.find(rank);
  return found == nodes_.end() ? std::nullopt : std::optional(found->second);
}

Result<stage::SuppliedExtent> InProcessNodes::Carry(const stage::ExtentRequest& request,
                                                    const stage::AllocateImage& allocate,
                                                    io::IoQueue&) {
  const std::optional<Node> node = Find(request.node);
  if (!node) return Silent(request.node);
  // The node that is asked reads its own SSD.
  FOREBAY_ASSIGN(const auto queue, node->backend->CreateQueue({.depth = 4}));
  return node->extents->Read(*node->dataset, request.catalog.fingerprint(), request.extent,
                             allocate, *queue);
}

Result<stage::PartAnswer> InProcessNodes::Carry(const stage::PartRequest& request,
                                                catalog::TableSpool& part) {
  const std::optional<Node> node = Find(request.node);
  if (!node) return Silent(request.node);
  return node->extents->ReadPart(*node->dataset, request.object,
                                 catalog::HashOf(request.planned), part);
}

Result<std::vector<io::FileInfo>> InProcessNodes::Carry(const stage::StatRequest& request) {
  const std::optional<Node> node = Find(request.node);
  if (!node) return Silent(request.node);
  FOREBAY_TRY(stage::CheckBatch(request.paths));
  const auto told = std::make_shared<std::promise<Result<stage::LocalStats::Outcome>>>();
  node->extents->Stat(*node->dataset, request.paths,
                      [told](const Result<stage::LocalStats::Outcome>& outcome) {
                        told->set_value(outcome);
                      });
  FOREBAY_ASSIGN(const stage::LocalStats::Outcome outcome, told->get_future().get());
  return outcome->infos;
}

void InProcessNodes::Carry(std::shared_ptr<const fetch::RowRequest> request, Done done) {
  const std::optional<Node> node = Find(request->node);
  if (!node) return done(Silent(request->node));
  node->rows->Read(*node->dataset,
                   {.fingerprint = request->dataset->catalog()->fingerprint(),
                    .rows = request->rows,
                    .need = request->reader.need,
                    .has_substitutes = true},
                   std::move(done));
}

void InProcessNodes::Carry(stage::KeepRequest request, Kept kept) {
  const std::optional<Node> node = Find(request.node);
  if (!node) return kept(Silent(request.node));
  const auto catalog = request.dataset.catalog();
  kept(node->first_reads->Keep(*node->dataset, catalog ? catalog->fingerprint() : 0, request.from,
                               request.reads));
}

}  // namespace forebay::peer

// The nodes are asked in the order of plan::Membership: the object's owner, then its substitutes. A
// node that has no answer yet, or could not be asked in time, is asked again in the next round; one
// that is silent, or whose answer is wrong, is replaced by the next one, in the end by this node.
#include "server/stage/cataloguing/part_collector.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/printable.h"
#include "server/catalog/catalog_part.h"
#include "server/catalog/storage/table_spool.h"
#include "server/io/log.h"
#include "server/stage/extent_source.h"

namespace forebay::stage {

namespace {

// The error if another node has listed another object in the place of `planned`, or none. `error`
// is its answer, which can only name its own object.
Error ListedOtherwise(const catalog::PlannedObject& planned, NodeRank node, const Error& error) {
  return Error(ErrorCode::kFailedPrecondition,
               fmt::format("object {} with {} bytes is not what node {} has listed: {}",
                           Quoted(planned.path), planned.bytes, node.value(), error.message()));
}

}  // namespace

// Returns the objects whose parts are missing. Each node begins with those of the node that follows
// it in the list of nodes, so that not all nodes ask the same one at the same time. Objects of one
// node stay in order.
std::vector<ObjectId> PartCollector::MissingByNode(ObjectScans& scans) const {
  std::vector<ObjectId> missing = scans.Missing();
  const std::size_t count = nodes_.nodes().size();
  const NodeRank self = nodes_.self();
  std::vector<std::pair<std::size_t, ObjectId>> by_distance;
  by_distance.reserve(missing.size());
  for (const ObjectId object : missing) {
    const std::optional<NodeRank> node =
        nodes_.FirstToAsk(scans.group_key(object), scans.asked(object));
    by_distance.emplace_back((node.value_or(self).value() + count - self.value()) % count, object);
  }
  std::ranges::sort(by_distance);
  std::ranges::transform(by_distance, missing.begin(),
                         &std::pair<std::size_t, ObjectId>::second);
  return missing;
}

// One round over the objects whose parts are missing. Nodes scan their objects in order, so a node
// that does not have the first part yet is not asked for others in the same round.
Status PartCollector::AskOnce(const Dataset& dataset, ObjectScans& scans,
                              const ScanHere& scan_here) {
  std::vector<NodeRank> behind;
  for (const ObjectId object : MissingByNode(scans)) {
    for (;;) {
      const std::optional<NodeRank> node =
          nodes_.FirstToAsk(scans.group_key(object), scans.asked(object));
      if (node && std::ranges::count(behind, *node) == 0) {
        FOREBAY_ASSIGN(const bool has_answered, Ask(dataset, scans, object, *node));
        if (has_answered) {
          scans.ShortenPauses();
          break;
        }
        // Either the next node is to be asked now, or this one later.
        const std::vector<NodeRank>& asked = scans.asked(object);
        if (std::ranges::count(asked, *node) > 0) continue;
        behind.push_back(*node);
      }
      // All nodes before this one are silent or have sent wrong parts, or a node that asks this one
      // takes it for the first. Nodes that have listed other sizes may take each other for the
      // first, and would wait for each other. So this node scans the object, which costs one more
      // read at most.
      if (!node || scans.IsWanted(object)) {
        FOREBAY_TRY(scan_here(object));
      }
      break;
    }
  }
  return {};
}

// A node that has scanned an object has the catalog soon after. So if the next node does not have
// the part, the job is still cataloguing, and nobody may have it.
Result<std::vector<ObjectId>> PartCollector::AskBehind(const Dataset& dataset, ObjectScans& scans,
                                                       std::span<const ObjectId> objects) {
  std::vector<ObjectId> left;
  for (const ObjectId object : objects) {
    bool has_answered = false;
    if (const auto node = nodes_.NextSubstitute(scans.group_key(object))) {
      FOREBAY_ASSIGN(has_answered, Ask(dataset, scans, object, *node));
    }
    if (!has_answered) left.push_back(object);
  }
  return left;
}

Result<bool> PartCollector::Ask(const Dataset& dataset, ObjectScans& scans, ObjectId object,
                                NodeRank node) {
  const catalog::ScanPlan& plan = scans.plan();
  const catalog::PlannedObject& planned = plan.objects[object.value()];
  catalog::TableSpool bytes(plan.scratch);
  // Before the request, so that a failure gets older on its way and not younger.
  const std::int64_t asked_ns = clock_.NowNs();
  const Result<PartAnswer> sent = peers_.ReadPart(
      {.node = node, .dataset = dataset, .object = object, .planned = planned}, bytes);
  if (!sent.has_value() && IsNoAnswer(sent.error())) {
    log::Warn("node {} does not answer; its substitutes are asked in its place: {}", node.value(),
              sent.error().message());
    nodes_.SetLives(node, false);
    scans.asked(object).push_back(node);
    return false;
  }
  // Wrong bytes, or an answer that is none, are no reason to think that the node is dead.
  const auto ask_the_next = [&](const Error& error) {
    log::Warn("data set '{}': from node {}: {}; the next node is asked", dataset.name(),
              node.value(), error.message());
    scans.asked(object).push_back(node);
    return false;
  };
  // The node may have the part, but was not asked: as if it did not have it yet.
  if (!sent.has_value() && IsTooBusy(sent.error())) {
    log::Warn("data set '{}': part of node {}: {}; it counts as not there yet", dataset.name(),
              node.value(), sent.error().message());
    return false;
  }
  if (!sent.has_value()) {
    if (sent.error().code() == ErrorCode::kInternal) return ask_the_next(sent.error());
    const bool is_other = sent.error().code() == ErrorCode::kOutOfRange;
    scans.Refuse(object, is_other ? ListedOtherwise(planned, node, sent.error())
                                  : ErrorFromOthers(sent.error()));
    return true;
  }
  // Whatever has failed there: if each node tried it itself, all nodes would read what that one
  // cannot read.
  if (sent->failure) {
    scans.Refuse(object, ErrorFromOthers(sent->failure->error),
                 asked_ns - sent->failure->age_ns);
    return true;
  }
  if (!sent->is_there) return false;
  const auto part = catalog::DecodePart(plan.format, planned, plan.scratch, bytes);
  if (part.has_value()) {
    FOREBAY_TRY(scans.Add(object, **part));
    return true;
  }
  if (part.error().code() == ErrorCode::kDataLoss) return ask_the_next(part.error());
  // This node has no memory for it, or the two nodes differ.
  scans.Refuse(object, part.error());
  return true;
}

}  // namespace forebay::stage

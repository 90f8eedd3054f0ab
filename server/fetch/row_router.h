// RowRouter: asks for the rows of a batch that are on no tier of this node. Each row goes to the
// owner of its group, all rows of one owner in one request, and all requests go out at the same
// time. If an owner does not answer, its substitutes are asked in the order in which
// plan/ownership.h ranks the nodes for that group. So only the first of them that lives reads the
// GFS, once, for all nodes. That may be this node: OwnRows then supplies the rows. A node that
// sends wrong bytes, or is too busy or cannot be asked until the deadline of the request, is
// alive, and is passed over for these rows alone. Chunks of packs (Row::chunk) are compared with
// this node's catalog first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "server/fetch/row_source.h"
#include "server/io/clock.h"
#include "server/plan/membership.h"
#include "server/stage/dataset.h"

namespace forebay::fetch {

// A row, and the key of the group whose owner is asked for it (Dataset::group_key).
struct RoutedRow {
  std::uint64_t group_key = 0;
  Row row;
};

// How many samples the rows are of. A sample may have several rows, one for each field.
std::size_t CountSamples(std::span<const RoutedRow> rows);

// Thread-safe; everything passed in is borrowed.
class RowRouter {
 public:
  // `own` supplies the rows whose groups this node reads itself, and those for which every node
  // that could be asked was passed over: it brings their extents here, which verifies them whole.
  RowRouter(RowSource& peers, RowSource& own, plan::Membership& nodes, io::Clock& clock)
      : peers_(peers), own_(own), nodes_(nodes), clock_(clock) {}

  // Calls `done` once, when no request is under way any more; perhaps within this call. Either all
  // rows are filled, those of `own_samples` samples from `own`, or it is the first error. The rows'
  // memory must stay in place until then. kUnavailable: an owner cannot read its extents now, or no
  // node has answered within limits::kPullDeadlineMs. kCancelled: nobody wants the rows any more,
  // which ends requests that are under way.
  struct Filled {
    std::size_t own_samples = 0;
  };
  using Done = std::function<void(Result<Filled>)>;
  // The rows are values of fields, or all of them are chunks.
  void Fill(stage::Dataset& dataset, std::vector<RoutedRow> rows, RowReader reader, Done done);

  // The node that is asked for the rows of a group now, the second member, as it sorts among all
  // nodes that are asked at the same time: those behind this one come first. In ascending order,
  // all nodes of a job would ask the same owner first, and the next one then, whenever they begin
  // at the same time. This node is the last.
  using Turn = std::pair<bool, NodeRank>;
  Turn TurnOf(std::uint64_t group_key, std::span<const NodeRank> passed_over = {}) const;

 private:
  struct Flight;
  using FlightRef = std::shared_ptr<Flight>;

  // Rows, and how they were asked for before.
  struct Wanted {
    std::vector<RoutedRow> rows;
    std::size_t tries = 0;
    std::vector<NodeRank> passed_over = {};  // nodes that are not asked for these rows again
  };
  void Ask(const FlightRef& flight, const Wanted& wanted);
  Status CheckChunks(const stage::Dataset& dataset, NodeRank node,
                     std::span<const RoutedRow> rows);
  void Answered(const FlightRef& flight, NodeRank node, Wanted& wanted, const Status& status);
  void AnsweredHere(const FlightRef& flight, Wanted& wanted, const Status& status);
  bool HasTime(const Flight& flight) const;
  bool AskAgain(const FlightRef& flight, Wanted& wanted);
  static void EndOne(const FlightRef& flight);

  RowSource& peers_;
  RowSource& own_;
  plan::Membership& nodes_;
  io::Clock& clock_;
};

}  // namespace forebay::fetch

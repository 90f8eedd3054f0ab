// One request per owner, all at the same time; this node may be one of the owners. A node without
// an answer is marked as not alive, and its rows are asked of the nodes that are first in the
// ranking then; so are the rows of a node that sent wrong bytes, was too busy, or yields, if enough
// time is left. No thread waits: the last answer calls `done`.
#include "server/fetch/row_router.h"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "proto/contract/limits.h"
#include "proto/contract/thread_annotations.h"
#include "server/fetch/packed/chunk_rows.h"
#include "server/io/log.h"
#include "server/stage/extent_source.h"

namespace forebay::fetch {
namespace {

Error NobodyWants() { return Error(ErrorCode::kCancelled, "nobody wants the rows any more"); }

constexpr std::int64_t kFlightNs = limits::kPullDeadlineMs * 1'000'000;
// With less time than that, a node that is asked next would be taken for silent.
constexpr std::int64_t kTryNsMin = 5'000'000'000;

}  // namespace

std::size_t CountSamples(std::span<const RoutedRow> rows) {
  std::vector<SampleId> samples;
  samples.reserve(rows.size());
  for (const RoutedRow& routed : rows) samples.push_back(routed.row.sample);
  std::ranges::sort(samples);
  return static_cast<std::size_t>(std::unique(samples.begin(), samples.end()) - samples.begin());
}

// One call of Fill. `under_way` counts requests, and one for each running call of Ask, so that
// `done` is not called before the last row was sent.
struct RowRouter::Flight {
  stage::Dataset* dataset = nullptr;
  RowReader reader;
  Done done;
  std::int64_t deadline_ns = 0;
  Mutex mutex;
  std::size_t under_way FOREBAY_GUARDED_BY(mutex) = 1;
  Filled filled FOREBAY_GUARDED_BY(mutex);
  std::optional<Error> error FOREBAY_GUARDED_BY(mutex);
};

void RowRouter::Fill(stage::Dataset& dataset, std::vector<RoutedRow> rows, RowReader reader,
                     Done done) {
  if (reader.unwanted.stop_requested()) return done(NobodyWants());
  auto flight = std::make_shared<Flight>();
  flight->dataset = &dataset;
  flight->reader = std::move(reader);
  flight->done = std::move(done);
  flight->deadline_ns = clock_.NowNs() + kFlightNs;
  Ask(flight, {.rows = std::move(rows)});
  EndOne(flight);
}

RowRouter::Turn RowRouter::TurnOf(std::uint64_t group_key,
                                  std::span<const NodeRank> passed_over) const {
  const NodeRank node = nodes_.FirstSupplier(group_key, passed_over).value_or(nodes_.self());
  return {!(nodes_.self() < node), node};
}

// Sends the rows to the nodes that are first in the ranking now, one request for each node.
void RowRouter::Ask(const FlightRef& flight, const Wanted& wanted) {
  std::unordered_map<std::uint64_t, Turn> turns;  // the ranking is computed once a group
  std::map<Turn, std::vector<RoutedRow>> of_nodes;
  for (const RoutedRow& row : wanted.rows) {
    const auto [entry, inserted] = turns.try_emplace(row.group_key);
    if (inserted) entry->second = TurnOf(row.group_key, wanted.passed_over);
    of_nodes[entry->second].push_back(row);
  }
  {
    MutexLock lock(flight->mutex);
    flight->under_way += of_nodes.size();
  }
  // Sent without the lock: a source may answer within the call.
  for (auto& [turn, rows] : of_nodes) {
    const NodeRank node = turn.second;
    const bool is_own = node == nodes_.self();
    auto request = std::make_shared<RowRequest>();
    request->node = node;
    request->dataset = flight->dataset;
    request->reader = flight->reader;
    // A node that waits for the GFS gets all the time that is left, because its substitutes would
    // wait, too. One that is silent is late long before that (peer/link_watch.h).
    request->deadline_ns = flight->deadline_ns;
    request->rows.reserve(rows.size());
    for (const RoutedRow& row : rows) request->rows.push_back(row.row);
    const auto asked = std::make_shared<Wanted>(
        Wanted{.rows = std::move(rows),
               .tries = wanted.tries,
               .passed_over = wanted.passed_over});
    if (is_own) {
      own_.Read(std::move(request), [this, flight, asked](const Status& status) {
        AnsweredHere(flight, *asked, status);
      });
      continue;
    }
    peers_.Read(std::move(request), [this, flight, asked, asked_node = node](const Status& status) {
      const Status checked =
          status.has_value() ? CheckChunks(*flight->dataset, asked_node, asked->rows) : status;
      Answered(flight, asked_node, *asked, checked);
    });
  }
}

// A chunk is compared with the checksum that this node's catalog has of it. Its sender's checksum
// only says that it came as it was sent.
Status RowRouter::CheckChunks(const stage::Dataset& dataset, NodeRank node,
                              std::span<const RoutedRow> rows) {
  // All rows of a request are of the same kind.
  if (rows.front().row.chunk == 0) return {};
  const std::shared_ptr<const catalog::Catalog> catalog = dataset.catalog();
  for (const RoutedRow& routed : rows) {
    const Status checked = CheckChunk(*catalog, routed.row);
    if (checked.has_value()) continue;
    peers_.ReportWrong(node);
    return checked;
  }
  return {};
}

// Whether enough time is left for another node.
bool RowRouter::HasTime(const Flight& flight) const {
  return clock_.NowNs() + kTryNsMin <= flight.deadline_ns;
}

// Sends the rows to the nodes that are next. Each try leaves out one more node, unless another
// thread marked that node as alive again. False: there were too many, or too little time is left.
bool RowRouter::AskAgain(const FlightRef& flight, Wanted& wanted) {
  const bool has_time = HasTime(*flight);
  if (++wanted.tries >= nodes_.nodes().size() || !has_time) return false;
  Ask(flight, wanted);
  return true;
}

void RowRouter::AnsweredHere(const FlightRef& flight, Wanted& wanted, const Status& status) {
  // This node has begun to yield.
  if (!status.has_value() && stage::IsAskNext(status.error())) {
    wanted.passed_over.push_back(nodes_.self());
    if (AskAgain(flight, wanted)) return EndOne(flight);
  }
  {
    const MutexLock lock(flight->mutex);
    if (status.has_value()) {
      flight->filled.own_samples += CountSamples(wanted.rows);
    } else if (!flight->error) {  // the first error is reported
      flight->error = stage::ErrorFromOthers(status.error());
    }
  }
  EndOne(flight);
}

void RowRouter::Answered(const FlightRef& flight, NodeRank node, Wanted& wanted,
                         const Status& status) {
  // The request was perhaps ended here, so its error says nothing about the node.
  if (flight->reader.unwanted.stop_requested()) {
    {
      const MutexLock lock(flight->mutex);
      flight->error = NobodyWants();
    }
    return EndOne(flight);
  }
  const bool is_silent = !status.has_value() && stage::IsNoAnswer(status.error());
  const bool is_passed_over =
      !status.has_value() && (status.error().code() == ErrorCode::kDataLoss ||
                              status.error().code() == ErrorCode::kInternal ||
                              stage::IsTooBusy(status.error()));
  // The node yields or lacks a rebuild, and says so in its own log.
  const bool asks_next = !status.has_value() && stage::IsAskNext(status.error());
  if (is_silent) {
    if (nodes_.Lives(node)) {  // logged once, not by every batch that waits for it
      log::Warn("node {} does not answer; its substitutes are asked in its place: {}",
                node.value(), status.error().message());
    }
    // Marked before the rows are asked again, so that the ranking leaves this node out. If it was
    // only slow, an extent is read twice and no byte is wrong.
    nodes_.SetLives(node, false);
  }
  if (is_passed_over) {
    // Neither wrong bytes, nor an answer that nobody can read, nor a node that is too busy or could
    // not be asked in time, are a reason to think that the node is dead.
    log::Warn("data set '{}': from node {}: {}; {}", flight->dataset->name(), node.value(),
              status.error().message(),
              HasTime(*flight) ? "the next node is asked"
                               : "no time is left to ask the next node");
  }
  if (is_passed_over || asks_next) wanted.passed_over.push_back(node);
  if ((is_silent || is_passed_over || asks_next) && AskAgain(flight, wanted)) {
    return EndOne(flight);
  }
  if (!status.has_value()) {
    MutexLock lock(flight->mutex);
    if (!flight->error) {  // the first error is reported
      flight->error = stage::ErrorFromOthers(status.error())
                          .WithContext(fmt::format("data set '{}': node {}",
                                                   flight->dataset->name(), node.value()));
    }
  }
  EndOne(flight);
}

// Ends one request, or one call of Ask. The last one calls `done`, without the lock, because `done`
// may destroy what the request belongs to.
void RowRouter::EndOne(const FlightRef& flight) {
  Result<Filled> outcome = Filled();
  {
    MutexLock lock(flight->mutex);
    if (--flight->under_way > 0) return;
    outcome = flight->filled;
    if (flight->error) outcome = *flight->error;
  }
  flight->done(outcome);
}

}  // namespace forebay::fetch

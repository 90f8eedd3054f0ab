// Fuzz target: the requests of other nodes. What is parsed is within the limits, and is written and
// read again the same.
#include <cmath>
#include <cstdint>
#include <string>

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include "proto/contract/check.h"
#include "proto/contract/limits.h"
#include "server/peer/member_requests.h"
#include "server/peer/peer_requests.h"

namespace {

bool IsSame(const forebay::peer::PeerRequest& a, const forebay::peer::PeerRequest& b) {
  return a.identity == b.identity && a.dataset == b.dataset &&
         a.catalog_fingerprint == b.catalog_fingerprint && a.rebuilds == b.rebuilds;
}

void CheckProbeRequest(const grpc::ByteBuffer& message, std::size_t node_count) {
  using namespace forebay;
  const auto asked = peer::ParseProbeAsked(message, node_count);
  if (!asked.has_value()) return;
  FOREBAY_CHECK(asked->from.value() < node_count);
  FOREBAY_CHECK(!asked->target || asked->target->value() < node_count);
  FOREBAY_CHECK(asked->gossip.news.size() <= limits::kGossipNewsMax);
  for (const probe::News& news : asked->gossip.news) {
    FOREBAY_CHECK(news.node.value() < node_count && news.incarnation <= limits::kIncarnationMax);
  }
  const auto again = peer::ParseProbeAsked(peer::WriteRequest(*asked), node_count);
  FOREBAY_CHECK(again.has_value() && again->identity == asked->identity);
  FOREBAY_CHECK(again->from == asked->from && again->target == asked->target);
  FOREBAY_CHECK(again->gossip.news == asked->gossip.news);
}

void CheckBorrowAsked(const grpc::ByteBuffer& message, std::size_t node_count) {
  using namespace forebay;
  const auto asked = peer::ParseBorrowAsked(message, node_count);
  if (!asked.has_value()) return;
  FOREBAY_CHECK(asked->from.value() < node_count);
  if (asked->ask.lease) FOREBAY_CHECK(asked->ask.lease->value() < node_count);
  for (const double rate : asked->ask.wanted) FOREBAY_CHECK(std::isfinite(rate) && rate >= 0);
  const auto again = peer::ParseBorrowAsked(peer::WriteRequest(*asked), node_count);
  FOREBAY_CHECK(again.has_value() && again->identity == asked->identity);
  FOREBAY_CHECK(again->from == asked->from && again->ask == asked->ask);
}

void CheckLeaveRequest(const grpc::ByteBuffer& message, std::size_t node_count) {
  using namespace forebay;
  const auto asked = peer::ParseLeaveAsked(message, node_count);
  if (!asked.has_value()) return;
  FOREBAY_CHECK(asked->node.value() < node_count);
  FOREBAY_CHECK(asked->time_ms >= 1 && asked->time_ms <= limits::kLeaveMsMax);
  const auto again = peer::ParseLeaveAsked(peer::WriteRequest(*asked), node_count);
  FOREBAY_CHECK(again.has_value() && again->identity == asked->identity);
  FOREBAY_CHECK(again->node == asked->node && again->time_ms == asked->time_ms);
}

void CheckJoinRequest(const grpc::ByteBuffer& message) {
  using namespace forebay;
  const auto asked = peer::ParseJoinAsked(message);
  if (!asked.has_value()) return;
  FOREBAY_CHECK(!asked->entry.empty() && asked->entry.size() <= 64 * limits::kKiB);
  FOREBAY_CHECK(asked->first < limits::kNodeCountMax);
  FOREBAY_CHECK(!asked->node.address.empty());
  FOREBAY_CHECK(asked->node.address.size() <= limits::kPeerAddressBytesMax);
  FOREBAY_CHECK(asked->node.job_id.size() <= limits::kJobIdBytesMax);
  const auto again = peer::ParseJoinAsked(peer::WriteRequest(*asked));
  FOREBAY_CHECK(again.has_value() && again->entry == asked->entry);
  FOREBAY_CHECK(again->takes_place == asked->takes_place && again->first == asked->first);
  FOREBAY_CHECK(peer::CheckSameIdentity(again->node, asked->node).has_value());
  FOREBAY_CHECK(again->node.address == asked->node.address);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace forebay;
  const grpc::Slice slice(data, size);
  const grpc::ByteBuffer message(&slice, 1);
  if (const auto rows = peer::ParseRowsAsked(message); rows.has_value()) {
    FOREBAY_CHECK(!rows->rows.empty() && rows->rows.size() <= limits::kPeerRowsMax);
    const auto again = peer::ParseRowsAsked(peer::WriteRequest(*rows));
    FOREBAY_CHECK(again.has_value() && IsSame(again->request, rows->request));
    // A place in no order is not sent.
    FOREBAY_CHECK(rows->place.order == 0 || again->place == rows->place);
    FOREBAY_CHECK(again->rows.size() == rows->rows.size());
    FOREBAY_CHECK(again->slow_nodes == rows->slow_nodes);
    FOREBAY_CHECK(again->payload == rows->payload && again->from == rows->from);
    for (std::size_t i = 0; i < rows->rows.size(); ++i) {
      FOREBAY_CHECK(again->rows[i].sample == rows->rows[i].sample);
      FOREBAY_CHECK(again->rows[i].field == rows->rows[i].field);
      FOREBAY_CHECK(again->rows[i].chunk == rows->rows[i].chunk);
    }
  }
  if (const auto extent = peer::ParseExtentAsked(message); extent.has_value()) {
    const auto again = peer::ParseExtentAsked(peer::WriteRequest(*extent));
    FOREBAY_CHECK(again.has_value() && IsSame(again->request, extent->request));
    FOREBAY_CHECK(again->extent == extent->extent);
  }
  if (const auto given = peer::ParseFirstReadsGiven(message); given.has_value()) {
    FOREBAY_CHECK(!given->reads.empty() && given->reads.size() <= limits::kPeerFirstReadsMax);
    const auto again = peer::ParseFirstReadsGiven(peer::WriteRequest(*given));
    FOREBAY_CHECK(again.has_value() && IsSame(again->request, given->request));
    FOREBAY_CHECK(again->from == given->from && again->reads.size() == given->reads.size());
    for (std::size_t i = 0; i < given->reads.size(); ++i) {
      FOREBAY_CHECK(again->reads[i].key == given->reads[i].key);
      FOREBAY_CHECK(again->reads[i].checksum == given->reads[i].checksum);
    }
  }
  // Any numbers are a request for a part; LocalExtents compares them with the data set.
  if (const auto part = peer::ParsePartAsked(message); part.has_value()) {
    const auto again = peer::ParsePartAsked(peer::WriteRequest(*part));
    FOREBAY_CHECK(again.has_value() && IsSame(again->request, part->request));
    FOREBAY_CHECK(part->request.catalog_fingerprint == 0);
    FOREBAY_CHECK(again->object == part->object && again->object_hash == part->object_hash);
  }
  constexpr std::size_t kNodes = 300;  // so that ranks of two bytes occur, good and bad ones
  CheckProbeRequest(message, kNodes);
  CheckBorrowAsked(message, kNodes);
  CheckLeaveRequest(message, kNodes);
  CheckJoinRequest(message);
  if (const auto stats = peer::ParseStatsAsked(message); stats.has_value()) {
    FOREBAY_CHECK(!stats->paths.empty() && stats->paths.size() <= limits::kStatPathsMax);
    for (const std::string& path : stats->paths) {
      // None leads out of the root, or to the root itself.
      FOREBAY_CHECK(!path.empty() && path.front() != '/' && path.back() != '/');
      FOREBAY_CHECK(("/" + path + "/").find("/../") == path.npos);
    }
    const auto again =
        peer::ParseStatsAsked(peer::WriteStatsRequest(stats->request, stats->paths));
    FOREBAY_CHECK(again.has_value() && IsSame(again->request, stats->request));
    FOREBAY_CHECK(again->batch == stats->batch && again->paths == stats->paths);
  }
  return 0;
}

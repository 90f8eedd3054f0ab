// Fuzz target: the answers of another node, as messages each behind its length (protobuf's
// delimited form), to a request for rows, to one for an extent, to first reads, to a request for
// sizes of files, to a probe, to a request to borrow and to a node that joins. Whatever they are,
// only memory that was meant for them is written, an answer is complete only if it has that many
// bytes, only first reads that were given are named, there are no more sizes than files, news and
// free places are about nodes of the job, and what is lent is a number.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include "proto/contract/check.h"
#include "proto/contract/limits.h"
#include "server/peer/extent_messages.h"
#include "server/peer/member_requests.h"
#include "server/peer/peer_requests.h"
#include "server/peer/row_receiver.h"
#include "server/peer/testing/delimited_messages.h"

namespace forebay::peer {
namespace {

constexpr std::uint64_t kDataset = 77;
constexpr std::size_t kGuardBytes = 64;
constexpr std::byte kGuard{0xEE};

// Memory with a guard on both sides, which must not change.
class Guarded {
 public:
  explicit Guarded(std::size_t bytes) : memory_(bytes + 2 * kGuardBytes, kGuard) {}
  std::span<std::byte> bytes() {
    return std::span(memory_).subspan(kGuardBytes, memory_.size() - 2 * kGuardBytes);
  }
  void Check() const {
    const std::span<const std::byte> all(memory_);
    const auto is_guard = [](std::byte byte) { return byte == kGuard; };
    FOREBAY_CHECK(std::ranges::all_of(all.first(kGuardBytes), is_guard));
    FOREBAY_CHECK(std::ranges::all_of(all.last(kGuardBytes), is_guard));
  }

 private:
  std::vector<std::byte> memory_;
};

// The message in slices of a few bytes, as it may come from a socket.
grpc::ByteBuffer InSlices(const std::string& message) {
  std::vector<grpc::Slice> slices;
  for (std::size_t at = 0; at < message.size(); at += 13) {
    slices.emplace_back(message.substr(at, 13));
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

// `may_be_carried`: the bytes may have come by a PayloadCarrier.
void ReceiveRows(const std::vector<std::string>& messages, bool may_be_carried) {
  // Rows of 0, 1 and 40 bytes.
  Guarded first(0);
  Guarded second(1);
  Guarded third(40);
  const std::vector<fetch::Row> rows = {
      {.sample = SampleId(1), .field = FieldId(0), .memory = first.bytes()},
      {.sample = SampleId(2), .field = FieldId(0), .memory = second.bytes()},
      {.sample = SampleId(2), .field = FieldId(1), .memory = third.bytes()},
  };
  RowReceiver receiver(kDataset, rows, may_be_carried);
  std::size_t bytes = 0;
  for (const std::string& message : messages) {
    bytes += message.size();
    grpc::ByteBuffer buffer = InSlices(message);
    if (!receiver.Take(buffer).has_value()) break;
  }
  FOREBAY_CHECK(may_be_carried || !receiver.is_carried());
  FOREBAY_CHECK(!receiver.Finish().has_value() || receiver.is_carried() || bytes > 41);
  // Nobody has written the rows, so only the outcome of the first, which has no bytes, is open.
  if (receiver.is_carried()) static_cast<void>(receiver.VerifyCarried(0, rows.size()));
  for (const Guarded* memory : {&first, &second, &third}) memory->Check();
}

void ReceiveExtent(const std::vector<std::string>& messages) {
  if (messages.empty()) return;
  grpc::ByteBuffer head = InSlices(messages.front());
  const Result<ExtentHead> announced = ExtentReceiver::TakeHead(head);
  // The bound of an extent is checked by TakeHead; a fuzzer must not spend its time on memory.
  if (!announced.has_value() || announced->image_bytes > 4096) return;
  Guarded image(announced->image_bytes);
  ExtentReceiver receiver;
  receiver.SetImage(image.bytes());
  std::size_t payload_max = 0;
  for (std::size_t i = 1; i < messages.size(); ++i) {
    payload_max += messages[i].size();
    grpc::ByteBuffer buffer = InSlices(messages[i]);
    if (!receiver.Take(buffer).has_value()) break;
  }
  FOREBAY_CHECK(!receiver.Finish().has_value() || payload_max >= announced->image_bytes);
  image.Check();
}

void ReceiveFirstReadsReply(const std::vector<std::string>& messages) {
  constexpr std::size_t kGiven = 9;
  for (const std::string& message : messages) {
    const auto differing = ParseFirstReadsReply(InSlices(message), kGiven);
    if (!differing.has_value()) continue;
    FOREBAY_CHECK(differing->size() <= kGiven);
    FOREBAY_CHECK(differing->empty() || differing->back() < kGiven);
  }
}

void ReceiveStatsReply(const std::vector<std::string>& messages) {
  // The batch of the seeds, so that their digest is right.
  constexpr std::uint64_t kBatch = 99;
  constexpr std::size_t kFiles = 3;
  for (const std::string& message : messages) {
    const auto infos = ParseStatsReply(InSlices(message), kBatch, kFiles);
    if (!infos.has_value()) continue;
    FOREBAY_CHECK(infos->size() <= kFiles);
    const auto again = ParseStatsReply(WriteStatsReply(kBatch, *infos), kBatch, kFiles);
    FOREBAY_CHECK(again.has_value() && again->size() == infos->size());
  }
}

void ReceiveProbeReply(const std::vector<std::string>& messages) {
  constexpr std::size_t kNodes = 300;
  for (const std::string& message : messages) {
    const auto answer = ParseProbeReply(InSlices(message), kNodes);
    if (!answer.has_value()) continue;
    FOREBAY_CHECK(answer->gossip.news.size() <= limits::kGossipNewsMax);
    FOREBAY_CHECK(answer->gossip.incarnation <= limits::kIncarnationMax);
    const auto again = ParseProbeReply(WriteProbeReply(*answer), kNodes);
    FOREBAY_CHECK(again.has_value() && again->has_answered == answer->has_answered);
    FOREBAY_CHECK(again->gossip.news == answer->gossip.news);
  }
}

void ReceiveBorrowReply(const std::vector<std::string>& messages) {
  for (const std::string& message : messages) {
    const auto answer = ParseBorrowReply(InSlices(message));
    if (!answer.has_value()) continue;
    for (const double rate : answer->lent) FOREBAY_CHECK(std::isfinite(rate) && rate >= 0);
    FOREBAY_CHECK(ParseBorrowReply(WriteBorrowReply(*answer)) == *answer);
  }
}

void ReceiveJoinReply(const std::vector<std::string>& messages) {
  for (const std::string& message : messages) {
    const auto answer = ParseJoinReply(InSlices(message));
    if (!answer.has_value()) continue;
    FOREBAY_CHECK(answer->node_count <= limits::kNodeCountMax);
    FOREBAY_CHECK(answer->nodes.empty() == (answer->node_count == 0));
    FOREBAY_CHECK(answer->free.size() <= answer->node_count);
    FOREBAY_CHECK(answer->free.empty() || answer->free.back().value() < answer->node_count);
    FOREBAY_CHECK(ParseJoinReply(WriteJoinReply(*answer)) == *answer);
  }
}

}  // namespace
}  // namespace forebay::peer

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::vector<std::string> messages = forebay::peer::DelimitedMessages(data, size);
  forebay::peer::ReceiveRows(messages, /*may_be_carried=*/false);
  forebay::peer::ReceiveRows(messages, /*may_be_carried=*/true);
  forebay::peer::ReceiveExtent(messages);
  forebay::peer::ReceiveFirstReadsReply(messages);
  forebay::peer::ReceiveStatsReply(messages);
  forebay::peer::ReceiveProbeReply(messages);
  forebay::peer::ReceiveBorrowReply(messages);
  forebay::peer::ReceiveJoinReply(messages);
  return 0;
}

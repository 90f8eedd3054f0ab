// A request is answered in three steps without a thread that waits: the rows are found, their turn
// comes, and they are sent. Whatever a step needs is owned by its callback.
#include "server/peer/row_answers.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "proto/contract/limits.h"
#include "server/io/log.h"
#include "server/peer/carried_rows.h"
#include "server/peer/row_sender.h"

namespace forebay::peer {
namespace {

// Bytes of rows that are sent to a node at the same time. They are enough that gRPC always has a
// chunk to send, also of short answers. They are few, because they delay an answer that is needed
// earlier and is found later.
constexpr std::uint64_t kRowBytesAtOnce = 2 * limits::kPeerChunkBytes;
// The next answer begins when the carrier has less than this left of one. This is more than with
// gRPC, because a message waits for the thread of MPI at the other end, which may sleep.
constexpr std::uint64_t kCarriedBytesLeft = 8 * limits::kMiB;

std::uint64_t BytesOf(const fetch::FoundRows& rows, std::size_t count) {
  std::uint64_t bytes = 0;
  for (std::size_t row = 0; row < count; ++row) bytes += rows.error(row) ? 0 : rows.bytes(row);
  return bytes;
}

struct SentRows {
  std::uint64_t dataset;  // hash of its name
  std::vector<fetch::Row> rows;
  std::shared_ptr<const fetch::FoundRows> found;
  std::uint64_t bytes;
};

// Sends the bytes by the carrier and their checksums by the stream. The carrier may still send them
// when the call has ended, so they are held until it is done.
void SendCarried(const SentRows& sent, PayloadCarrier& carrier, NodeRank node,
                 const PayloadPlace& place, SlicePins& pins, const std::shared_ptr<HeldTurn>& turn,
                 ReplyStream& stream) {
  // A call that was cancelled has a receive that was cancelled, too. It may be cancelled after this
  // line as well: then its turn is held until the carrier is done, and the receiver throws away
  // what comes.
  if (stream.has_ended() || !turn->TryHold()) return;
  const grpc::ByteBuffer answer = CarriedAnswer(sent.dataset, sent.rows, *sent.found);
  const Payload payload = BytesToSend(*sent.found).payload;
  const auto left = std::make_shared<std::atomic<std::size_t>>(payload.ends.size());
  const std::size_t left_at_end =
      std::min<std::size_t>(payload.ends.size() - 1,
                            kCarriedBytesLeft * payload.ends.size() / sent.bytes);
  carrier.Send(node, place, payload,
               [held = pins.Hold(sent.found), left, left_at_end, turn, node,
                has_warned = std::make_shared<std::atomic<bool>>(false)](std::size_t,
                                                                         const Status& status) {
                 if (--*left == left_at_end) turn->Release();
                 // The node that asks finds its rows missing with the connection, or at its
                 // deadline.
                 if (!status.has_value() && !has_warned->exchange(true)) {
                   log::Warn("rows could not be sent to node {} beside gRPC: {}", node.value(),
                             status.error().message());
                 }
               });
  stream.Send([answer](grpc::ByteBuffer& chunk) {
    chunk = answer;
    return true;
  });
}

}  // namespace

RowAnswers::RowAnswers(std::shared_ptr<SlicePins> pins)
    : pins_(std::move(pins)),
      buffers_(std::make_shared<ChunkBuffers>()),
      turns_(std::make_shared<SendTurns>(kRowBytesAtOnce)) {}

std::shared_ptr<HeldTurn> RowAnswers::TakeTurn(const std::string& connection) {
  return std::make_shared<HeldTurn>(turns_, turns_->Take(connection));
}

void RowAnswers::Answer(fetch::LocalRows& rows, PayloadCarrier* carrier, stage::Dataset& dataset,
                        RowsAsked asked, const Call& call) {
  const bool is_awaited = carrier != nullptr && asked.payload.tag != 0 &&
                          carrier->CanSend(asked.from, asked.payload);
  // Copied before the rows are moved away.
  std::vector<fetch::Row> wanted = asked.rows;
  // The callback may run after the server was destroyed, so it owns all that it refers to. The
  // stream has ended by then, and Send does nothing.
  rows.Find(
      dataset,
      {.fingerprint = asked.request.catalog_fingerprint,
       .rows = std::move(asked.rows),
       .need = asked.need,
       .bytes_max = limits::kPeerCallBytesMax,
       .is_wanted = [stream = call.stream] { return !stream->has_ended(); },
       .waits = [stream = call.stream,
                 &context = call.context] { stream->SayThatItWaits(context); },
       .has_substitutes = true},
      [hash = dataset.hash(), rows = std::move(wanted), stream = call.stream, slices = pins_,
       copies = buffers_, turn = call.turn, carrier = is_awaited ? carrier : nullptr,
       from = asked.from,
       place = asked.payload](Result<std::shared_ptr<const fetch::FoundRows>> found) {
        if (!found.has_value()) return stream->End(found.error());
        const std::uint64_t bytes = BytesOf(**found, rows.size());
        if (carrier != nullptr && bytes > 0 && AreAllFound(**found)) {
          const SentRows sent{.dataset = hash, .rows = rows, .found = *found, .bytes = bytes};
          return turn->Await(bytes, [=] {
            SendCarried(sent, *carrier, from, place, *slices, turn, *stream);
          });
        }
        const auto sender =
            std::make_shared<RowSender>(hash, rows, std::move(*found), slices, copies);
        turn->Await(bytes, [stream, sender] {
          stream->Send([sender](grpc::ByteBuffer& chunk) { return sender->Next(chunk); });
        });
      });
}

}  // namespace forebay::peer

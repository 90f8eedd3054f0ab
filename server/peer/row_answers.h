// RowAnswers: answers requests of other nodes for rows. LocalRows finds them; then they are sent,
// by the stream of the call or by a PayloadCarrier, when it is the turn of the answer (SendTurns).
#pragma once

#include <memory>
#include <string>

#include <grpcpp/server_context.h>

#include "server/fetch/local_rows.h"
#include "server/peer/chunk_buffers.h"
#include "server/peer/payload_carrier.h"
#include "server/peer/peer_requests.h"
#include "server/peer/reply_stream.h"
#include "server/peer/send_turns.h"
#include "server/peer/slice_pins.h"
#include "server/stage/dataset.h"

namespace forebay::peer {

// Thread-safe. Answers that are under way do not need this object.
class RowAnswers {
 public:
  // `pins` has what gRPC still sends.
  explicit RowAnswers(std::shared_ptr<SlicePins> pins);

  // The turn of an answer among those of its connection. Take it in the order of the calls. The
  // call releases it at its end.
  std::shared_ptr<HeldTurn> TakeTurn(const std::string& connection);

  // The call that is answered. Until the stream has ended, its context exists.
  struct Call {
    grpc::CallbackServerContext& context;
    std::shared_ptr<ReplyStream> stream;
    std::shared_ptr<HeldTurn> turn;
  };
  // Sends the rows, or ends the stream with an error. Returns at once. `rows` and `carrier` are
  // borrowed; `carrier` may be null.
  void Answer(fetch::LocalRows& rows, PayloadCarrier* carrier, stage::Dataset& dataset,
              RowsAsked asked, const Call& call);

 private:
  const std::shared_ptr<SlicePins> pins_;
  const std::shared_ptr<ChunkBuffers> buffers_;
  const std::shared_ptr<SendTurns> turns_;
};

}  // namespace forebay::peer

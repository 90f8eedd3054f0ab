// RowsCall: asks another node for rows, in one call of limits::kPeerRowsMax rows at most. With a
// PayloadCarrier, it first posts a receive for their bytes, so that they land where they belong;
// the answer then has only checksums. The call has ended when both have. A call that the node
// refuses because it is too busy makes another call, which takes its place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <vector>

#include <grpcpp/alarm.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/client_callback.h>

#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/fetch/row_source.h"
#include "server/io/clock.h"
#include "server/peer/busy_retry.h"
#include "server/peer/payload_carrier.h"
#include "server/peer/peer_call.h"
#include "server/peer/peer_link.h"
#include "server/peer/peer_requests.h"
#include "server/peer/row_receiver.h"

namespace forebay::peer {

// What brings the bytes of rows, and from where. If there is no carrier, gRPC brings them.
struct RowsCarrier {
  PayloadCarrier* carrier = nullptr;  // borrowed
  NodeRank node = NodeRank(0);        // that is asked
};

// What a call is to bring.
struct RowsWanted {
  RowsAsked asked;
  std::uint64_t bytes = 0;        // of all rows
  std::int64_t deadline_ns = 0;   // by io::Clock
  std::stop_token unwanted = {};  // requested: the call is cancelled
  // Called once, when nothing is written to the rows any more.
  fetch::RowSource::Done done;
  RowsCarrier carrier = {};
  BusyRetry retry = {};  // what earlier calls for the same rows have met
};

class RowsCall final : public PeerCall,
                       public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // Link and clock are borrowed.
  RowsCall(PeerLink& link, io::Clock& clock, RowsWanted wanted);

  void Begin(const std::shared_ptr<grpc::Channel>& channel) override;
  void Fail(const Error& error) override { wanted_.done(wanted_.retry.Outcome(error)); }
  void Cancel() override;

  void OnReadInitialMetadataDone(bool ok) override;
  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  void PostReceive();
  void Arrived(std::size_t message, const Status& status);
  void DeadlineAlarmEnded(bool has_gone_off);
  Status VerifyLocked(std::size_t message) FOREBAY_REQUIRES(mutex_);
  Status NoteWrongLocked(Status taken) FOREBAY_REQUIRES(mutex_);
  void SetErrorLocked(const Error& error) FOREBAY_REQUIRES(mutex_);
  bool TakeCancelLocked() FOREBAY_REQUIRES(mutex_);
  Error WhyCancelled() const;
  void EndPart();
  void End();

  PeerLink& link_;
  io::Clock& clock_;
  RowsWanted wanted_;
  grpc::ClientContext context_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer chunk_;

  Mutex mutex_;
  RowReceiver receiver_ FOREBAY_GUARDED_BY(mutex_);
  std::optional<Error> error_ FOREBAY_GUARDED_BY(mutex_);  // the first one
  bool has_wrong_rows_ FOREBAY_GUARDED_BY(mutex_) = false;  // that do not match their checksums
  bool has_lost_carrier_ FOREBAY_GUARDED_BY(mutex_) = false;  // which is the error
  // What has to end before the call has: gRPC's call, each message, and the alarm if it is set.
  std::size_t parts_ FOREBAY_GUARDED_BY(mutex_) = 1;
  // These belong to the messages of the carrier.
  std::vector<std::size_t> row_ends_ FOREBAY_GUARDED_BY(mutex_);  // as CarriedRows::ends
  std::size_t messages_left_ FOREBAY_GUARDED_BY(mutex_) = 0;
  std::vector<std::size_t> unverified_ FOREBAY_GUARDED_BY(mutex_);  // came before the checksums
  bool has_cancelled_ FOREBAY_GUARDED_BY(mutex_) = false;
  bool is_cancelled_ FOREBAY_GUARDED_BY(mutex_) = false;  // Cancel was called
  bool has_alarm_ FOREBAY_GUARDED_BY(mutex_) = false;
  grpc::Alarm alarm_;  // at the deadline, for messages that come after the end of gRPC's call

  // Last: it is destroyed first, and waits until the function that it calls has returned.
  std::stop_callback<std::function<void()>> withdraw_;
};

}  // namespace forebay::peer

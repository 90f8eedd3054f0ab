// StreamReactor: one Stream call. Reads requests one at a time, gathers whatever is ready into
// one reply per write. The data service owns it until gRPC is done with the call.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>

#include "proto/contract/thread_annotations.h"
#include "server/stream/rpc/data_service.h"

namespace forebay::stream {

// Callbacks come from gRPC's threads, Deliver from workers; all state is under one lock.
class StreamReactor final : public grpc::ServerBidiReactor<v1::StreamRequest, v1::StreamReply>,
                            public BatchSink,
                            public std::enable_shared_from_this<StreamReactor> {
 public:
  StreamReactor(DataService& service, ClientIdentity client);
  // Begins reading; once after construction.
  void Begin();
  const ClientIdentity& client() const { return client_; }

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  void Deliver(std::span<const AnsweredBatch> batches) override;
  void Closed() override;

  // Ends the call with `error`, once. Thread-safe.
  void End(const Error& error);

 private:
  // A batch whose payload goes inline, chunk by chunk, after its message.
  struct InlinePayload {
    std::uint64_t batch_id = 0;
    std::span<const std::byte> bytes;  // of the slot that the reader holds
    std::uint64_t sent = 0;
  };

  void Open(const v1::OpenStream& open);
  void OpenCatalogued(stage::Dataset& dataset, const StreamRequestSpec& request);
  void OpenResolved(Result<StreamSpec> spec);
  void SayOpenedLocked() FOREBAY_REQUIRES(mutex_);
  Status Serve(const v1::StreamRequest& request);
  Status CheckReleaseLocked(std::span<const std::uint64_t> ids) const FOREBAY_REQUIRES(mutex_);
  void ContinueReading();
  void MaybeFinishLocked() FOREBAY_REQUIRES(mutex_);
  void PumpLocked() FOREBAY_REQUIRES(mutex_);
  void EndLocked(const grpc::Status& status) FOREBAY_REQUIRES(mutex_);
  // After the trailer, when the reader needs nothing any more.
  void EndWell();

  DataService& service_;
  const ClientIdentity client_;
  v1::StreamRequest request_;

  Mutex mutex_;
  std::shared_ptr<StreamSession> session_ FOREBAY_GUARDED_BY(mutex_);
  std::shared_ptr<void> while_open_ FOREBAY_GUARDED_BY(mutex_);  // DataServiceParts::opened
  bool writing_ FOREBAY_GUARDED_BY(mutex_) = false;
  bool ended_ FOREBAY_GUARDED_BY(mutex_) = false;  // Finish has been called
  bool finish_asked_ FOREBAY_GUARDED_BY(mutex_) = false;  // the reader wants the trailer
  bool trailer_queued_ FOREBAY_GUARDED_BY(mutex_) = false;
  bool trailer_sent_ FOREBAY_GUARDED_BY(mutex_) = false;
  // The reader has said that it needs nothing any more.
  bool closed_by_reader_ FOREBAY_GUARDED_BY(mutex_) = false;
  // After `finish`: the reader will release nothing more.
  bool half_closed_ FOREBAY_GUARDED_BY(mutex_) = false;
  std::uint64_t asked_ FOREBAY_GUARDED_BY(mutex_) = 0;  // batches pulled
  std::uint64_t answered_ FOREBAY_GUARDED_BY(mutex_) = 0;  // of them, delivered or failed
  v1::StreamReply pending_ FOREBAY_GUARDED_BY(mutex_);  // gathered while a write is under way
  std::size_t pending_bytes_ FOREBAY_GUARDED_BY(mutex_) = 0;
  v1::StreamReply sending_ FOREBAY_GUARDED_BY(mutex_);
  std::deque<InlinePayload> inline_ FOREBAY_GUARDED_BY(mutex_);
  std::uint64_t last_delivered_id_ FOREBAY_GUARDED_BY(mutex_) = 0;  // ids grow
  std::deque<v1::Batch> overflow_ FOREBAY_GUARDED_BY(mutex_);  // batches beyond one message's size
};

}  // namespace forebay::stream

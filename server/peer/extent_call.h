// ExtentCall: asks another node for a whole extent, for a thread that waits for it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/client_callback.h>

#include "proto/contract/result.h"
#include "proto/contract/thread_annotations.h"
#include "server/io/clock.h"
#include "server/peer/extent_messages.h"
#include "server/peer/peer_call.h"
#include "server/peer/peer_link.h"
#include "server/peer/peer_requests.h"
#include "server/stage/extent_source.h"

namespace forebay::peer {

// Thread-safe; one thread calls Await.
class ExtentCall final : public PeerCall,
                         public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // Link and clock are borrowed.
  ExtentCall(PeerLink& link, io::Clock& clock, const ExtentAsked& asked,
             std::int64_t deadline_ns);

  // To be called after PeerLink::Start: waits until the image is in memory from `allocate`, or the
  // call has failed. Nothing is written to that memory afterwards. `allocate` may block.
  Result<stage::SuppliedExtent> Await(const stage::AllocateImage& allocate);

  void Begin(const std::shared_ptr<grpc::Channel>& channel) override;
  void Fail(const Error& error) override;
  void Cancel() override { context_.TryCancel(); }

  void OnReadInitialMetadataDone(bool ok) override;
  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  // Takes a message, and starts the next read unless `Await` has to allocate memory first.
  Status TakeLocked() FOREBAY_REQUIRES(mutex_);
  // The memory for the image is there, or there will be none.
  void EndHold();

  PeerLink& link_;
  io::Clock& clock_;
  const ExtentAsked asked_;
  grpc::ClientContext context_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer message_;

  Mutex mutex_;
  CondVar changed_;
  std::optional<ExtentHead> head_ FOREBAY_GUARDED_BY(mutex_);
  ExtentReceiver receiver_ FOREBAY_GUARDED_BY(mutex_);
  bool is_held_ FOREBAY_GUARDED_BY(mutex_) = false;  // gRPC waits for Await's read
  bool has_ended_ FOREBAY_GUARDED_BY(mutex_) = false;
  std::optional<Error> error_ FOREBAY_GUARDED_BY(mutex_);
};

}  // namespace forebay::peer

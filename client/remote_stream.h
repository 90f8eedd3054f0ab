// RemoteStream: BatchStream over a daemon's data service.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "client/connection/connection_source.h"
#include "client/connection/home_look.h"
#include "client/delivery_log.h"
#include "client/stream/stream_core.h"
#include "client/transform_pool.h"
#include "forebay/batch_stream.h"
#include "forebay/client.h"
#include "forebay/stream_options.h"
#include "proto/contract/thread_annotations.h"

namespace forebay::internal {

// The order that the options name over a described data set; to be validated.
OrderSpec MakeOrder(const StreamOptions& options, const DatasetInfo& info);

class RemoteStream final : public BatchStream {
 public:
  // Opens the stream; the catalog has been described already, in `info`.
  static Result<std::unique_ptr<BatchStream>> Open(std::shared_ptr<ConnectionSource> source,
                                                   const StreamOptions& options,
                                                   const DatasetInfo& info);
  ~RemoteStream() override;

  using BatchStream::Next;
  Result<std::optional<Batch>> Next(Deadline deadline) override;
  Result<Batch> Pull(const BatchName& name) override;
  PositionToken token() const override;
  std::span<const FieldSpec> fields() const override { return schema_->fields; }
  std::uint64_t selected_count() const override { return begin_.order.sample_count; }
  std::uint64_t steps_per_epoch() const override { return plan_.steps(); }
  std::uint64_t catalog_fingerprint() const override { return begin_.catalog_fingerprint; }
  StreamStats stats() const override;
  Status Finish() override;
  void Cancel() override;

 private:
  RemoteStream(std::shared_ptr<ConnectionSource> source, const StreamOptions& options,
               const PositionToken& begin, const StepPlan& plan);
  Status Start(const StreamOptions& options);
  Status OpenLog(const StreamOptions& options);
  Status Log(const Batch& batch, const DeliveryLog::MicroName& micro);
  Deadline ConnectEnd() const;  // connect_timeout_ms from now on
  Status Reconnect(Deadline deadline);
  // The core has opened the stream on connection_.
  void OnAttached();
  // Ends the call to another node if the daemon of this node is back, so that the next wait
  // reconnects. Does not wait for that daemon. Does nothing if `until` is over, because the caller
  // has no time to reconnect.
  void LookHome(Deadline until);
  // Calls `wait`, one of the core's, until it has an outcome for the caller: reconnects where the
  // call ended, and asks again, for `retry_for_`, where the daemon has no batch yet. Waits until
  // `until` at most. Counts the time that it waits, also where it gives up in the end.
  template <typename Wait>
  Result<StreamCore::Outcome> WaitPatiently(Wait wait, Deadline until);
  void CountWait(std::uint64_t ns);
  // Counts and logs a batch that has arrived, and returns it.
  Result<Batch> Take(StatePtr state, const DeliveryLog::MicroName& micro);

  std::shared_ptr<ConnectionSource> source_;
  Interrupt interrupt_;  // raised by Cancel
  std::shared_ptr<const DaemonConnection> connection_;
  PositionToken begin_;
  StepPlan plan_;
  std::shared_ptr<const StreamSchema> schema_;
  const std::string dataset_;
  const std::chrono::milliseconds retry_for_;
  std::chrono::steady_clock::time_point opened_at_;
  std::shared_ptr<StreamCore> core_;
  std::unique_ptr<TransformPool> transforms_;  // before core_ in destruction
  std::optional<DeliveryLog> log_;
  std::optional<Status> finished_;
  int reconnects_without_batch_ = 0;
  // Only the caller's deadline has ended the last Attach to connection_, which is tried again.
  bool keeps_connection_ = false;
  Deadline keep_until_;

  // The last batch of Next's order: token() moves past it when it has been let go of.
  std::weak_ptr<const void> last_;
  PositionToken before_last_;
  PositionToken after_last_;

  mutable Mutex stats_mutex_;
  StreamStats stats_ FOREBAY_GUARDED_BY(stats_mutex_);

  Mutex home_look_mutex_;
  // While the stream reads from another node; null otherwise. Last: its thread uses members above.
  std::unique_ptr<HomeLook> home_look_ FOREBAY_GUARDED_BY(home_look_mutex_);
};

}  // namespace forebay::internal

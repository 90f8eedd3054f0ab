// BatchStream as the caller sees it. StreamCore handles one gRPC call and the batches on it; this
// class makes the order and the position token, and decides what happens when a wait of the core
// ends without a batch: it reconnects when the call has ended, asks again when the daemon has
// refused a batch, and gives up when the caller's deadline or its own time for retries is over.
#include "client/remote_stream.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <string>
#include <thread>
#include <utility>

#include "client/batch_retry.h"
#include "proto/contract/check.h"
#include "proto/contract/limits.h"

namespace forebay::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kLookHomePeriodMin(1000);

// Whether a checkpoint's token continues the stream that the options describe. If it does
// not, the error names the first difference.
Status CheckToken(const PositionToken& token, const PositionToken& fresh) {
  // The token comes from a checkpoint file. The checks go from the likely mistake to the general
  // one, so that the message names the option that differs; the order's fingerprint covers the
  // rest.
  FOREBAY_TRY(token.Validate());
  const auto differs = [](const std::string& what, std::uint64_t then, std::uint64_t now) {
    return Error(ErrorCode::kFailedPrecondition,
                 "the position token was made with " + what + " " + std::to_string(then) +
                     ", this stream has " + std::to_string(now));
  };
  if (token.catalog_fingerprint != fresh.catalog_fingerprint) {
    return differs("catalog fingerprint", token.catalog_fingerprint, fresh.catalog_fingerprint);
  }
  if (token.global_batch != fresh.global_batch) {
    return differs("global batch", token.global_batch, fresh.global_batch);
  }
  if (token.order.seed != fresh.order.seed) {
    return differs("seed", token.order.seed, fresh.order.seed);
  }
  if (token.order.sample_count != fresh.order.sample_count) {
    return differs("a selection of size", token.order.sample_count, fresh.order.sample_count);
  }
  if (token.order != fresh.order) {
    return differs("order fingerprint", token.order.Fingerprint(), fresh.order.Fingerprint());
  }
  return {};
}

Status CheckOptions(const StreamOptions& options) {
  if (options.rank >= options.ranks) {
    return Error(ErrorCode::kInvalidArgument, "rank " + std::to_string(options.rank) +
                                                  " of " + std::to_string(options.ranks) +
                                                  " does not exist");
  }
  // A stream has prefetch_depth + 1 credits: those that are fetched ahead, and the one in the
  // caller's hands.
  if (options.prefetch_depth >= limits::kCreditsMax) {
    return Error(ErrorCode::kOutOfRange,
                 "prefetch_depth " + std::to_string(options.prefetch_depth) +
                     " exceeds kCreditsMax - 1 = " + std::to_string(limits::kCreditsMax - 1));
  }
  if (options.global_batch / options.ranks > limits::kLocalBatchMax) {
    return Error(ErrorCode::kOutOfRange, "a rank's batch exceeds kLocalBatchMax");
  }
  if (options.retry_for_ms < 0 || options.retry_for_ms > limits::kStreamRetryMsMax) {
    return Error(ErrorCode::kOutOfRange, "retry_for_ms " + std::to_string(options.retry_for_ms) +
                                             " is not between 0 and kStreamRetryMsMax = " +
                                             std::to_string(limits::kStreamRetryMsMax));
  }
  // The order ends at epoch first_epoch + epochs, exclusive, which has to exist as a number.
  if (options.epochs > std::numeric_limits<std::uint32_t>::max() - options.first_epoch) {
    return Error(ErrorCode::kOutOfRange, "the last epoch exceeds 2^32 - 2");
  }
  // By division, so that no product of the caller's numbers can overflow.
  if (options.transform && options.transform_bytes > limits::kSlotBytesMax /
                                                         std::max(1U, options.global_batch)) {
    return Error(ErrorCode::kOutOfRange, "the transform's output exceeds kSlotBytesMax a batch");
  }
  return {};
}

// The first step to read. A token that was taken after the last step of an epoch names the step
// behind it, which does not exist.
StepCursor CursorOf(const PositionToken& token, std::uint64_t steps) {
  if (token.next_step.value() < steps) return {token.next_epoch, token.next_step};
  return {EpochId(token.next_epoch.value() + 1), StepId(0)};
}

v1::OpenStream OpenRequest(const StreamOptions& options, const PositionToken& begin,
                           bool shared_memory) {
  v1::OpenStream open;
  open.set_dataset(options.dataset);
  open.set_stream_name(options.stream_name);
  open.set_selection(options.selection);
  const auto spec = begin.order.Encode();
  open.set_order_spec(spec.data(), spec.size());
  open.set_global_batch(options.global_batch);
  open.set_ranks(options.ranks);
  open.set_rank(options.rank);
  open.set_delivery(static_cast<std::uint32_t>(options.delivery));
  open.set_credits(options.prefetch_depth + 1);
  // The daemon refuses the stream if its catalog has another fingerprint: a data set that changed
  // between Describe and here would change the order under a run.
  open.set_catalog_fingerprint(begin.catalog_fingerprint);
  open.set_wait_for_catalog(options.wait_for_catalog);
  open.set_inline_payload(!shared_memory);
  open.set_end_epoch(options.first_epoch + options.epochs);
  return open;
}

Deadline PullDeadline() { return steady_clock::now() + milliseconds(limits::kPullDeadlineMs); }

}  // namespace

OrderSpec MakeOrder(const StreamOptions& options, const DatasetInfo& info) {
  const auto shape = [&](OrderMode mode) {
    OrderShape made = {.mode = mode};
    if (mode == OrderMode::kBlock) {
      made.block_samples = options.block_samples;
      made.window_runs = options.window_runs;
    } else if (mode == OrderMode::kPartial) {
      made.block_samples = options.block_samples;
      made.canonical_nodes = options.canonical_nodes;
      made.exchange_millionths = options.exchange_millionths;
      made.global_batch = options.global_batch;
    }
    return made;
  };
  OrderSpec order;
  order.seed = options.seed;
  order.sample_count = info.selected_count;
  // The counts and the selection are the daemon's, the rest the caller's: all ranks that give the
  // same options get the same order, without talking to each other.
  order.selection_fingerprint = info.selection_fingerprint;
  order.tail = options.tail;
  order.shape = shape(options.mode);
  if (options.epoch0_mode) order.first_epoch_shape = shape(*options.epoch0_mode);
  return order;
}

Result<std::unique_ptr<BatchStream>> RemoteStream::Open(std::shared_ptr<ConnectionSource> source,
                                                        const StreamOptions& options,
                                                        const DatasetInfo& info) {
  FOREBAY_TRY(CheckOptions(options));
  FOREBAY_ASSIGN(const StepPlan plan, StepPlan::Create({.sample_count = info.selected_count,
                                                        .global_batch = options.global_batch,
                                                        .ranks = options.ranks,
                                                        .tail = options.tail}));
  PositionToken begin = {.catalog_fingerprint = info.catalog_fingerprint,
                         .order = MakeOrder(options, info),
                         .global_batch = options.global_batch,
                         .next_epoch = EpochId(options.first_epoch),
                         .next_step = StepId(0)};
  // Before the token is compared: an order that cannot exist should be reported as such.
  FOREBAY_TRY(begin.order.Validate());
  if (options.resume) {
    FOREBAY_TRY(CheckToken(*options.resume, begin));
    begin = *options.resume;
  }
  // The object is complete before Start, so that its destructor ends threads and call if Start
  // fails.
  std::unique_ptr<RemoteStream> stream(new RemoteStream(std::move(source), options, begin, plan));
  FOREBAY_TRY(stream->Start(options));
  return std::unique_ptr<BatchStream>(std::move(stream));
}

RemoteStream::RemoteStream(std::shared_ptr<ConnectionSource> source,
                           const StreamOptions& options, const PositionToken& begin,
                           const StepPlan& plan)
    : source_(std::move(source)),
      begin_(begin),
      plan_(plan),
      dataset_(options.dataset),
      retry_for_(options.retry_for_ms),
      opened_at_(steady_clock::now()),
      before_last_(begin),
      after_last_(begin) {
  const StepCursor end = {EpochId(options.first_epoch + options.epochs), StepId(0)};
  // An epoch without steps (fewer samples than a global batch, tail dropped) has no order.
  const StepCursor first = plan.steps() == 0 ? end : CursorOf(begin, plan.steps());
  core_ = StreamCore::Create(
      {.open = OpenRequest(options, begin, source_->options().shared_memory),
       .order = begin.order,
       .plan = plan,
       .range = {.steps_per_epoch = plan.steps(), .begin = first, .end = end},
       .prefetch_depth = options.prefetch_depth});
}

RemoteStream::~RemoteStream() {
  // The pool's workers call the core through a plain pointer. Closing the core first lets them find
  // nothing to do; joining them here, with the core still alive, makes that pointer safe.
  core_->Close();
  transforms_.reset();
}

Status RemoteStream::Start(const StreamOptions& options) {
  // The first replies may arrive while Attach waits, so the pool is there before.
  if (options.transform) {
    StreamCore* core = core_.get();
    transforms_ = std::make_unique<TransformPool>(TransformPool::Options{
        .transform = options.transform,
        .output_bytes = options.transform_bytes,
        .threads = options.transform_threads,
        .seed = options.seed,
        .done = [core](const Batch::State* state, Status status) {
          core->OnTransformed(state, std::move(status));
        }});
    core_->UseTransforms(transforms_.get());
  }
  source_->SpreadBy(options.rank);
  connection_ = source_->current();
  Status attached =
      core_->Attach(connection_, steady_clock::now() + milliseconds(limits::kCallDeadlineMs));
  if (attached) OnAttached();
  // The connection may be hours old, and the daemon may have been restarted since.
  if (!attached && attached.error().retryable()) attached = Reconnect(ConnectEnd());
  FOREBAY_TRY(attached);
  schema_ = core_->schema();
  return options.delivery_log.empty() ? Status() : OpenLog(options);
}

Status RemoteStream::OpenLog(const StreamOptions& options) {
  // Only now: a header says that the stream was opened.
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const DeliveryLogHeader header = {
      .dataset = options.dataset,
      .stream = options.stream_name,
      .selection = options.selection,
      .order = begin_.order,
      .catalog_fingerprint = begin_.catalog_fingerprint,
      .global_batch = options.global_batch,
      .ranks = options.ranks,
      .rank = options.rank,
      .epochs = options.first_epoch + options.epochs,
      .first_epoch = begin_.next_epoch,
      .first_step = begin_.next_step,
      .opened_unix_ns = std::chrono::nanoseconds(now).count()};
  FOREBAY_ASSIGN(log_, DeliveryLog::Open(options.delivery_log, header));
  return {};
}

Status RemoteStream::Log(const Batch& batch, const DeliveryLog::MicroName& micro) {
  if (!log_) return {};
  Status logged = log_->Append(batch, micro);
  // The batch is lost to the caller: going on would leave a gap.
  if (!logged) core_->Abandon(logged.error());
  return logged;
}

Deadline RemoteStream::ConnectEnd() const {
  return steady_clock::now() + milliseconds(source_->options().connect_timeout_ms);
}

Status RemoteStream::Reconnect(Deadline deadline) {
  // A daemon that takes connections but ends every call is given up, until the caller calls again.
  if (reconnects_without_batch_ >= limits::kReconnectsWithoutBatchMax) {
    reconnects_without_batch_ = 0;
    return Error(ErrorCode::kUnavailable,
                 "the daemon ends every call of this stream: " + core_->call_error().message());
  }
  Backoff backoff(static_cast<std::uint64_t>(deadline.time_since_epoch().count()));
  for (;;) {
    if (!keeps_connection_) {
      // Returns the connection that another stream of this client has made meanwhile, if there is
      // one.
      FOREBAY_ASSIGN(connection_, source_->Replace(connection_.get(), deadline, &interrupt_));
      keep_until_ = steady_clock::now() + milliseconds(limits::kHandshakeDeadlineMs);
    }
    Status attached = core_->Attach(connection_, deadline);
    // A caller with short deadlines would otherwise go from node to node and attach nowhere.
    keeps_connection_ = !attached && attached.error().code() == ErrorCode::kDeadlineExceeded &&
                        steady_clock::now() < keep_until_;
    if (attached) {
      OnAttached();
      ++reconnects_without_batch_;
      MutexLock lock(stats_mutex_);
      ++stats_.reconnects;
      return attached;
    }
    if (attached.error().retryable() && core_->is_away()) source_->Refused(*connection_);
    // A daemon that accepts connections may refuse streams for a while, when it starts or drains.
    // The pause is the core's, because Cancel ends it.
    const Deadline resume_at = steady_clock::now() + backoff.Next();
    if (!attached.error().retryable() || resume_at >= deadline) return attached;
    core_->Pause(resume_at);
  }
}

void RemoteStream::OnAttached() {
  source_->Attached(*connection_);
  std::unique_ptr<HomeLook> look;
  if (connection_->is_other_node()) {
    const milliseconds period(source_->options().other_node_after_ms);
    look = std::make_unique<HomeLook>(
        std::max(period, kLookHomePeriodMin), [this](Interrupt& interrupt) {
          return source_->AskHome(dataset_, begin_.catalog_fingerprint, interrupt);
        });
  }
  const MutexLock lock(home_look_mutex_);
  home_look_.swap(look);
}

void RemoteStream::LookHome(Deadline until) {
  if (!connection_->is_other_node() || until <= steady_clock::now()) return;
  std::optional<HomeLook::Found> found;
  {
    const MutexLock lock(home_look_mutex_);
    // A stream that was cancelled before it came here has a look that nobody has cancelled.
    if (home_look_ != nullptr && !interrupt_.is_raised()) found = home_look_->Poll();
  }
  if (!found || !source_->GoHome(std::move(*found))) return;
  keeps_connection_ = false;
  core_->EndCall();
}

void RemoteStream::CountWait(std::uint64_t ns) {
  MutexLock lock(stats_mutex_);
  stats_.wait_ns += ns;
}

Result<Batch> RemoteStream::Take(StatePtr state, const DeliveryLog::MicroName& micro) {
  const std::uint64_t payload_bytes = state->payload_bytes;
  const bool is_of_other_node = state->is_of_other_node;
  Batch batch(std::move(state));
  reconnects_without_batch_ = 0;
  {
    MutexLock lock(stats_mutex_);
    if (stats_.batches == 0) {
      stats_.first_batch_ns = static_cast<std::uint64_t>(
          std::chrono::nanoseconds(steady_clock::now() - opened_at_).count());
    }
    stats_.batches += 1;
    stats_.samples += batch.sample_count();
    stats_.payload_bytes += payload_bytes;
    stats_.other_node_batches += is_of_other_node ? 1 : 0;
  }
  // The line is written before the caller has the batch: a killed process may have logged a batch
  // that it did not use, but has used none that is not logged.
  FOREBAY_TRY(Log(batch, micro));
  return batch;
}

template <typename Wait>
Result<StreamCore::Outcome> RemoteStream::WaitPatiently(Wait wait, Deadline until) {
  using Waited = StreamCore::Waited;
  LookHome(until);
  BatchRetry retry(steady_clock::now(), retry_for_, until);
  for (;;) {
    // An error here is final for the stream, or the caller's to mend; what can be waited out comes
    // as an outcome, and the branches below say how.
    FOREBAY_ASSIGN(StreamCore::Outcome outcome, wait(retry.Deadline(steady_clock::now())));
    CountWait(outcome.wait_ns);
    // The time to reconnect does not count as a retry: it has a limit of its own, after which the
    // error says that the daemon is gone, not that a batch is late.
    if (outcome.waited == Waited::kCallEnded) {
      const Deadline connect_end = ConnectEnd();
      const Status reconnected = Reconnect(std::min(connect_end, until));
      if (!reconnected && core_->is_cancelled()) continue;  // which the next wait says
      // The caller's deadline came first. To it the daemon is not lost yet, only late.
      if (!reconnected && reconnected.error().retryable() && until < connect_end) {
        return Error(ErrorCode::kDeadlineExceeded,
                     reconnected.error().message() +
                         "; it was looked for until the caller's deadline, the next call goes on");
      }
      FOREBAY_TRY(reconnected);
    } else if (outcome.waited == Waited::kLate) {
      if (!retry.MayWaitOn(steady_clock::now())) {
        return retry.LateError(*outcome.error, steady_clock::now());
      }
    } else if (outcome.waited == Waited::kRefused) {
      // The daemon cannot bring the batch now (a GFS that does not answer, a full tier). It is
      // asked for again by the same name after a pause, which counts as waiting in the statistics.
      const auto refused_at = steady_clock::now();
      const auto resume_at = retry.ResumeAfter(*outcome.error, refused_at);
      if (!resume_at) return retry.RefusedError(refused_at);
      core_->Pause(*resume_at);
      CountWait(static_cast<std::uint64_t>(
          std::chrono::nanoseconds(steady_clock::now() - refused_at).count()));
      MutexLock lock(stats_mutex_);
      ++stats_.retries;
    } else {
      return outcome;
    }
  }
}

Result<std::optional<Batch>> RemoteStream::Next(Deadline deadline) {
  FOREBAY_ASSIGN(
      StreamCore::Outcome outcome,
      WaitPatiently([this](Deadline until) { return core_->WaitNext(until); }, deadline));
  // A caller that asks for the next batch is done with the one before, even if it holds it still.
  // This is set only after a wait that succeeded: a failed Next may be repeated and changes
  // nothing.
  before_last_ = after_last_;
  if (outcome.waited == StreamCore::Waited::kEndOfOrder) {
    // An expired pointer makes token() answer with the end of the order.
    last_.reset();
    return std::optional<Batch>();
  }
  FOREBAY_ASSIGN(Batch batch, Take(std::move(outcome.state), {}));
  // Only now: a stream that is resumed from token() after an error gets this batch again.
  after_last_ = batch.token();
  last_ = batch.hold();
  return std::optional<Batch>(std::move(batch));
}

Result<Batch> RemoteStream::Pull(const BatchName& name) {
  // The slice itself is checked when the batch arrives; here the name must exist.
  // Rank 0 stands for every rank: whether the step exists does not depend on the rank.
  if (name.micro_size == 0) {
    FOREBAY_TRY(plan_.RankSlice(name.step, 0));
  } else {
    FOREBAY_TRY(plan_.MicroBatchSlice(
        {.step = name.step, .index = name.micro_index, .samples = name.micro_size}));
    if (name.micro_size > limits::kLocalBatchMax) {
      return Error(ErrorCode::kOutOfRange, "a micro-batch exceeds kLocalBatchMax");
    }
  }
  FOREBAY_ASSIGN(StreamCore::Outcome outcome,
                 WaitPatiently([&](Deadline until) { return core_->WaitNamed(name, until); },
                               Deadline::max()));
  return Take(std::move(outcome.state), {.size = name.micro_size, .index = name.micro_index});
}

// While the caller still holds the batch that Next returned last, it may not have used it yet, and
// a restart has to deliver it again. Once it has let go of it, a restart continues behind it.
PositionToken RemoteStream::token() const {
  return last_.expired() ? after_last_ : before_last_;
}

StreamStats RemoteStream::stats() const {
  MutexLock lock(stats_mutex_);
  return stats_;
}

void RemoteStream::Cancel() {
  core_->Cancel();
  interrupt_.Raise();
  source_->WakeInterrupted();
  const MutexLock lock(home_look_mutex_);
  if (home_look_ != nullptr) home_look_->Cancel();
}

Status RemoteStream::Finish() {
  if (finished_) return *finished_;
  // Ready or not, nobody takes what the hook would still see.
  core_->UseTransforms(nullptr);
  transforms_.reset();
  Status finished = core_->Finish(PullDeadline());
  const auto broke = [&finished] { return !finished && finished.error().retryable(); };
  // Every batch of the broken call was checked as it arrived; a new one shows that daemon and
  // order are still there.
  if (broke() && (Reconnect(ConnectEnd()) || core_->is_cancelled())) {
    finished = core_->Finish(PullDeadline());
  }
  if (broke()) {
    finished = Error(ErrorCode::kDataLoss, "the stream ended without a trailer: " +
                                               finished.error().ToString());
  }
  finished_ = std::move(finished);
  return *finished_;
}

}  // namespace forebay::internal

// BatchStream: one rank's view of a stream. Gives the minibatches of a data set in a shuffled order
// that is the same for every number of ranks, epoch after epoch; Client::Open makes one.
//
//   #include <functional>
//
//   // Gives every batch to `use`, until the stream has ended or another thread has called
//   // stream.Cancel(). Keeps in `resume` where a restart continues.
//   forebay::Status ReadAll(forebay::BatchStream& stream, forebay::PositionToken& resume,
//                           const std::function<void(const forebay::Batch&)>& use) {
//     for (;;) {
//       const forebay::Result<std::optional<forebay::Batch>> next = stream.Next();
//       if (!next && next.error().code() == forebay::ErrorCode::kCancelled) return {};
//       if (!next) return next.error();
//       if (!*next) return stream.Finish();   // the last epoch has ended
//       use(**next);
//       resume = (*next)->token();            // for StreamOptions::resume
//     }
//   }
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "forebay/batch.h"
#include "proto/contract/ids.h"
#include "proto/contract/result.h"
#include "proto/contract/tensor.h"

namespace forebay {

// Names any batch of an epoch, for BatchStream::Pull: this rank's share of a step; or, if
// micro_size is not 0, a micro-batch (for pipeline parallelism). A micro-batch has micro_size
// samples of the step's global batch, from micro_index * micro_size on, of whichever ranks.
struct BatchName {
  EpochId epoch = {};
  StepId step = {};
  std::uint32_t micro_size = 0;
  std::uint32_t micro_index = 0;
};

// What a stream has measured since Open.
struct StreamStats {
  std::uint64_t batches = 0;         // handed over
  std::uint64_t samples = 0;         // in them
  std::uint64_t payload_bytes = 0;   // in them
  std::uint64_t wait_ns = 0;         // time for which Next and Pull blocked
  std::uint64_t first_batch_ns = 0;  // from Open to the first batch
  std::uint64_t reconnects = 0;      // connections made again
  std::uint64_t retries = 0;         // batches asked for again after an error of the daemon
  // How many of the batches another node's daemon has sent, while this node's daemon was gone.
  std::uint64_t other_node_batches = 0;
};

// One reader: one thread calls Next (or Pull) until the stream ends, then Finish. Other threads may
// call stats() and Cancel() meanwhile, and nothing else. Batches outlive the stream.
//
// If the connection is lost or the daemon is restarted, the stream connects again and repeats its
// requests for batches that it has not handed out: the daemon keeps no record of deliveries. The
// reader sees a longer wait, and StreamStats::reconnects. In a job of several nodes, a stream whose
// daemon does not come back goes on at another node's (ClientOptions::other_node_after_ms).
class BatchStream {
 public:
  virtual ~BatchStream() = default;

  // The next batch in order; the stream fetches those behind it meanwhile. Blocks until the batch
  // is there. Returns:
  //
  // - A batch.
  // - nullopt: the stream has ended; every batch of the last epoch has been handed out. Every later
  //   call returns nullopt, too, whether Cancel() was called since or not.
  // - kCancelled: Cancel() was called before the end. Every later call returns it, too. The daemon
  //   never causes this code.
  // - kUnavailable, kDeadlineExceeded: either the daemon is gone, and neither it nor another node
  //   has answered within ClientOptions::connect_timeout_ms, or it could not bring the batch
  //   although the request was repeated for StreamOptions::retry_for_ms. The message names the
  //   daemon's address, or the object that it waits for. The stream stays usable: the next call
  //   asks for the same batch.
  // - kResourceExhausted: the caller holds every batch of the stream, so that waiting would never
  //   end. Let go of one, then call again.
  // - Any other error is final: every later call returns it.
  Result<std::optional<Batch>> Next() { return Next(Deadline::max()); }

  // As Next(), but waits no longer than until `deadline`, so that the caller can do other work
  // between two calls. A deadline that has passed makes the call return at once. kDeadlineExceeded:
  // the batch has not arrived by then. The stream goes on fetching it, and the next call asks for
  // the same batch.
  using Deadline = std::chrono::steady_clock::time_point;
  virtual Result<std::optional<Batch>> Next(Deadline deadline) = 0;

  // A batch by name, in any order, beside those of Next. Waits for it as Next does, and has its
  // errors. While it is held, it counts as one of the prefetch_depth + 1 batches.
  virtual Result<Batch> Pull(const BatchName& name) = 0;

  // The position at which a restart continues: after the last batch that Next handed out, or before
  // it while the caller still holds that batch. In checkpoints store Batch::token() of the last
  // batch that was consumed instead: it does not depend on what the caller holds.
  virtual PositionToken token() const = 0;

  // The fields of each sample, as FieldId numbers them. Valid as long as the stream.
  virtual std::span<const FieldSpec> fields() const = 0;
  virtual std::uint64_t selected_count() const = 0;  // samples of an epoch, before the tail policy
  virtual std::uint64_t steps_per_epoch() const = 0;
  virtual std::uint64_t catalog_fingerprint() const = 0;
  virtual StreamStats stats() const = 0;  // thread-safe

  // Ends the stream, wherever it stands: waits for what is under way and for the daemon's trailer,
  // and checks its counts and checksum against what arrived. kDataLoss where they differ, or no
  // trailer came. A stream that has failed, or was cancelled before its end, is not checked: the
  // error is that of Next. Batches still held stay readable. Afterwards the stream's name is free
  // for other options (another number of ranks, say), and so is its memory at the daemon as soon as
  // no batch is held.
  virtual Status Finish() = 0;

  // Stops a reader that runs on another thread. Thread-safe, and does not wait. A call of Next,
  // Pull or Finish that waits returns kCancelled at once (while it starts a lost private daemon
  // again, after ClientOptions::connect_timeout_ms at most), and so does every later one. Has no
  // effect on a stream that has failed, which keeps its error, nor on one whose last batch has been
  // handed out: Next still returns nullopt and Finish still checks the trailer.
  virtual void Cancel() = 0;
};

}  // namespace forebay

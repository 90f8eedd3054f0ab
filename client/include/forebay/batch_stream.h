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

// Names any batch of the epoch: this rank's share of a step, or, with micro_size set, samples
// [micro_index * micro_size, + micro_size) of the step's global batch.
struct BatchName {
  EpochId epoch = {};
  StepId step = {};
  std::uint32_t micro_size = 0;
  std::uint32_t micro_index = 0;
};

// Measured since Open.
struct StreamStats {
  std::uint64_t batches = 0;
  std::uint64_t samples = 0;
  std::uint64_t payload_bytes = 0;
  std::uint64_t wait_ns = 0;         // time Next and Pull blocked
  std::uint64_t first_batch_ns = 0;  // Open to the first batch
  std::uint64_t reconnects = 0;
  std::uint64_t retries = 0;         // batches asked for again after the daemon's error
};

// Not thread-safe, except where said. The daemon keeps no delivery state: a batch whose arrival
// is unknown (connection lost, daemon restarted) is asked for again by name; reconnecting is
// done below this interface within bounded retries.
class BatchStream {
 public:
  virtual ~BatchStream() = default;

  // The next batch in order; the stream fetches those behind it meanwhile. Blocks until the batch
  // is there. What is returned tells how the stream stands:
  //
  // - A batch: it goes on.
  // - nullopt: it has ended. Every batch of the last epoch has been handed out. Every later call
  //   returns nullopt, too, whether Cancel() was called since or not.
  // - kCancelled: Cancel() was called before that, and so says every later call. The daemon never
  //   causes this code.
  // - kUnavailable, kDeadlineExceeded: the daemon is gone and did not come back within
  //   ClientOptions::connect_timeout_ms, or it could not bring the batch, for which it was asked
  //   again for StreamOptions::retry_for_ms. The message names the daemon's address, or the object
  //   that it waits for. The stream stays usable: the next call asks for the same batch.
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

  // A batch by name, outside Next's order; waits for it as Next does, and has its errors. Uses a
  // credit while it is held.
  virtual Result<Batch> Pull(const BatchName& name) = 0;

  // Where a restart continues: after the last batch that Next handed out and the caller let go
  // of or asked past. Store Batch::token() of the last *consumed* batch in checkpoints.
  virtual PositionToken token() const = 0;

  virtual std::span<const FieldSpec> fields() const = 0;
  virtual std::uint64_t selected_count() const = 0;   // n of the order
  virtual std::uint64_t steps_per_epoch() const = 0;
  virtual std::uint64_t catalog_fingerprint() const = 0;
  virtual StreamStats stats() const = 0;               // thread-safe

  // Ends the stream, wherever it stands: waits for what is under way and for the daemon's trailer,
  // and checks its counts and checksum against what arrived. kDataLoss where they differ, or no
  // trailer came. A stream that has failed, or was cancelled before its end, is not checked: the
  // error is that of Next. Batches still held stay readable. Afterwards the stream's name is free
  // for other options (another number of ranks, say), and so is its memory at the daemon as soon as
  // no batch is held.
  virtual Status Finish() = 0;

  // Stops a reader that runs on another thread. Thread-safe, and does not wait. A call of Next,
  // Pull or Finish that waits returns kCancelled at once (while it looks for a lost daemon, after
  // ClientOptions::connect_timeout_ms at most), and so does every later one. Two streams are not
  // cancelled by it: one that has failed keeps its error; and of one whose last batch has been
  // handed out, Next still returns nullopt and Finish still checks the trailer.
  virtual void Cancel() = 0;
};

}  // namespace forebay

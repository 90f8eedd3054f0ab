// Feed: where the training loop's minibatches come from. forebay_feed.h is the real one; tests
// bring synthetic ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "proto/contract/order_token.h"
#include "proto/contract/result.h"
#include "proto/contract/tensor.h"

namespace forebay::train {

// Memory that feeds use from batch to batch; it is there as long as `hold` is.
struct FeedMapping {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> hold;
};

// Borrowed elements of one field of a batch, row major, each sample's contiguous.
struct FeedTensor {
  const std::byte* data = nullptr;
  std::uint64_t bytes = 0;  // of all samples
  Dtype dtype = Dtype::kU8;
  std::vector<std::uint64_t> shape;  // {samples, ...}
  std::uint64_t sample_stride = 0;   // bytes from one to the next, whole elements; 0: no gaps
  FeedMapping mapping = {};          // that `data` lies in, where there is one
};

// What is known of the training set before a batch is there. Same on every rank.
struct SampleFacts {
  std::vector<std::uint64_t> input_shape = {};  // of one sample, as it comes; empty: not known
  std::uint64_t classes = 0;                    // that the targets' field names; 0: none
};

// What a rank's place in the layout asks of its feeds. Streams have as many ranks as there are
// replicas, whose shares of a step are consecutive: replica r's share is part r of it, so that it
// has the canonical micro-batches from r times its number of them on.
struct FeedShare {
  std::uint32_t replica = 0;
  std::uint32_t replicas = 1;
  bool input = true;   // at the first stage of a pipeline
  bool target = true;  // at the last one

  bool any() const { return input || target; }
};

// What an engine has made of a batch before its step, if anything (Engine::Prepare).
class PreparedBatch {
 public:
  virtual ~PreparedBatch() = default;
};

// This rank's share of one step. The tensors point into memory that `hold` keeps alive (and
// that the daemon wants back): reset `hold` as soon as the bytes are consumed.
struct FeedBatch {
  std::uint32_t epoch = 0;
  std::uint64_t step = 0;          // within the epoch
  std::uint32_t sample_count = 0;  // 0 where a short last step leaves this rank nothing
  std::uint64_t step_samples = 0;  // over all replicas; 0: sample_count in each
  bool evaluates = false;
  FeedTensor input;   // these two: without bytes where the share is without them
  FeedTensor target;
  std::optional<PositionToken> token;  // where a restart continues once this batch is consumed
  std::shared_ptr<const void> hold;
  std::shared_ptr<PreparedBatch> prepared = nullptr;  // keeps memory, as `hold` does
};

// Not thread-safe, except where said.
class Feed {
 public:
  virtual ~Feed() = default;

  // The next batch in order; null after the last epoch. Blocks until it is there.
  virtual Result<std::unique_ptr<FeedBatch>> Next() = 0;
  virtual std::uint64_t steps_per_epoch() const = 0;
  virtual std::uint64_t sample_count() const = 0;  // of an epoch, over all ranks
  virtual std::uint64_t global_batch() const = 0;  // samples of a step, but for a short last one
  // Ends the feed, wherever it stands; only then another layout may open it. kDataLoss where what
  // was delivered does not match what was sent.
  virtual Status Finish() = 0;
  // From any thread: a call that waits for a batch, and every later one, returns kCancelled, at
  // once or when a limit of its own ends. Where feeds may be read ahead they must heed it.
  virtual void Cancel() {}
};

// Where a training feed starts. An empty token: at the beginning.
struct FeedPosition {
  std::uint32_t epoch = 0;
  std::uint64_t step = 0;
  std::vector<std::byte> token;
};

// Opens feeds. `epochs` counts from the position on and is at least 1. A share asks for one field
// at least.
class FeedSource {
 public:
  virtual ~FeedSource() = default;
  // Every replica gets equally many samples of each step; a last step that is short is not made.
  virtual Result<std::unique_ptr<Feed>> OpenTraining(const FeedShare& share,
                                                     const FeedPosition& from,
                                                     std::uint32_t epochs) = 0;
  // Every sample once per epoch; the last step may be short, or empty for some replicas.
  virtual Result<std::unique_ptr<Feed>> OpenValidation(const FeedShare& share,
                                                       std::uint32_t epochs) = 0;
  // How many batches training feeds may be read ahead, on another thread: one that is dropped
  // before its end has then handed out batches that nobody trained on.
  virtual std::uint32_t ReadAhead() const { return 0; }
};

}  // namespace forebay::train

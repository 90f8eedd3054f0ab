// Feed: supplies the training loop with minibatches. forebay_feed.h implements it over the client
// library; tests have synthetic feeds.
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

// Memory that a feed uses for many batches. It exists as long as `hold`.
struct FeedMapping {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> hold;
};

// Borrowed elements of one field of a batch, in row-major order; the elements of a sample are
// contiguous.
struct FeedTensor {
  const std::byte* data = nullptr;
  std::uint64_t bytes = 0;  // of all samples
  Dtype dtype = Dtype::kU8;
  std::vector<std::uint64_t> shape;  // {samples, ...}
  std::uint64_t sample_stride = 0;   // bytes from one to the next, whole elements; 0: no gaps
  FeedMapping mapping = {};          // that `data` lies in, where there is one
};

// What is known of the training set before the first batch. It is the same on every rank.
struct SampleFacts {
  std::vector<std::uint64_t> input_shape = {};  // of one sample, as it comes; empty: not known
  std::uint64_t classes = 0;                    // that the targets' field names; 0: none
};

// What a rank's place in the layout asks of its feeds. A stream has as many ranks as there are
// replicas, and replica r gets part r of each step, which is a run of consecutive canonical
// micro-batches.
struct FeedShare {
  std::uint32_t replica = 0;
  std::uint32_t replicas = 1;
  bool input = true;   // at the first stage of a pipeline
  bool target = true;  // at the last one

  bool any() const { return input || target; }
};

// What an engine has made of a batch ahead of its step (Engine::Prepare).
class PreparedBatch {
 public:
  virtual ~PreparedBatch() = default;
};

// This rank's share of one step. The tensors point into memory that `hold` keeps alive, and that
// the daemon wants back: reset `hold` as soon as the bytes are consumed.
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

// Not thread-safe, except for Cancel.
class Feed {
 public:
  virtual ~Feed() = default;

  // Returns the next batch in order; null after the last epoch. Blocks until the batch is there.
  virtual Result<std::unique_ptr<FeedBatch>> Next() = 0;
  virtual std::uint64_t steps_per_epoch() const = 0;
  virtual std::uint64_t sample_count() const = 0;  // of an epoch, over all ranks
  virtual std::uint64_t global_batch() const = 0;  // samples of a step, but for a short last one
  // Ends the feed, at any position. Another layout may open it only after that. kDataLoss if what
  // was delivered does not match what was sent.
  virtual Status Finish() = 0;
  // May be called from any thread. A call that waits for a batch, and every later one, then returns
  // kCancelled, at once or when a time limit of its own ends. Feeds that may be read ahead must
  // implement it.
  virtual void Cancel() {}
};

// The position at which a training feed starts. An empty token means the beginning.
struct FeedPosition {
  std::uint32_t epoch = 0;
  std::uint64_t step = 0;
  std::vector<std::byte> token;
};

// Opens feeds. `epochs`, at least 1, counts from the position on. A share asks for at least one
// field.
class FeedSource {
 public:
  virtual ~FeedSource() = default;
  // Every replica gets equally many samples of each step. A last step that would be short is left
  // out.
  virtual Result<std::unique_ptr<Feed>> OpenTraining(const FeedShare& share,
                                                     const FeedPosition& from,
                                                     std::uint32_t epochs) = 0;
  // Every sample comes once per epoch. The last step may be short, or empty for some replicas.
  virtual Result<std::unique_ptr<Feed>> OpenValidation(const FeedShare& share,
                                                       std::uint32_t epochs) = 0;
  // How many batches a training feed may be read ahead, on another thread. A feed that is dropped
  // before its end has then returned batches that nobody trained on.
  virtual std::uint32_t ReadAhead() const { return 0; }
};

}  // namespace forebay::train

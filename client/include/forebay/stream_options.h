// StreamOptions: what a reader asks of a data set.
//
//   // Rank `rank` of `ranks` reads 90 epochs, with 256 samples per step over all ranks. It goes on
//   // at the position `resume` of an earlier run. A hook on the library's threads doubles bytes.
//   forebay::StreamOptions OptionsOfRank(std::uint32_t rank, std::uint32_t ranks,
//                                        std::optional<forebay::PositionToken> resume) {
//     forebay::StreamOptions options;
//     options.dataset = "fashion-mnist";
//     options.global_batch = 256;
//     options.ranks = ranks;
//     options.rank = rank;
//     options.epochs = 90;
//     options.seed = 7;   // another seed, another order
//     options.resume = resume;
//     options.transform_bytes = 28 * 28;
//     options.transform = [](const forebay::TransformInput& input) -> forebay::Status {
//       FOREBAY_ASSIGN(const forebay::TensorView images, input.batch.Tensor("images"));
//       const std::byte* image = images.data + input.index * input.output.size();
//       for (std::size_t i = 0; i < input.output.size(); ++i) input.output[i] = image[i] << 1;
//       return {};
//     };
//     return options;
//   }
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "forebay/batch.h"
#include "proto/contract/delivery.h"
#include "proto/contract/ids.h"
#include "proto/contract/order_spec.h"
#include "proto/contract/order_token.h"
#include "proto/contract/result.h"

namespace forebay {

// One sample, for the transform hook. Everything in it is valid during the call only.
struct TransformInput {
  const Batch& batch;
  std::uint32_t index = 0;  // of the sample within the batch
  SampleId sample = {};
  // For random changes (augmentation). It depends on the stream's seed, the epoch and the sample
  // only (TransformSeed in proto/contract/order.h): it is the same for every number of ranks and
  // after every restart.
  std::uint64_t seed = 0;
  std::span<std::byte> output = {};  // this sample's `transform_bytes` bytes of the result
};

// A transform hook: decoding, cropping, augmentation. It runs once per sample on worker threads of
// the library, before Next hands the batch over, several samples at a time: it must be thread-safe.
// An error that it returns ends the stream with that error; kUnavailable and kAborted, by which a
// caller would try again, become kInternal.
using Transform = std::function<Status(const TransformInput&)>;

// Which samples a rank reads, in which order, and how they arrive. The defaults read a data set
// once in shuffled order; a training run sets `dataset`, `global_batch`, `ranks`, `rank` and
// `epochs`. All ranks of one stream give the same data set, selection, global batch and order.
struct StreamOptions {
  std::string dataset = {};
  // Ranks that read one stream give it the same name. Streams of different names are independent,
  // for example "train" and "validate".
  std::string stream_name = "train";
  // Which samples: "all", "range:FIRST:COUNT", "hash:BEGIN:END[:SALT]" (a pseudo-random part, such
  // as "hash:0:0.9"), or "list:NAME" (a split of the daemon's configuration).
  std::string selection = "all";
  std::uint32_t global_batch = 1;  // samples of a step, over all ranks
  std::uint32_t ranks = 1;         // divides global_batch
  std::uint32_t rank = 0;          // of this reader, below `ranks`
  std::uint32_t first_epoch = 0;
  // The stream ends after epoch first_epoch + epochs - 1, also where it resumes at a token. The
  // daemon reads the beginning of a next epoch ahead of need, if there is one.
  std::uint32_t epochs = 1;

  // The order of samples (docs/order.md). Each epoch has another one; the same options and seed
  // always give the same orders.
  std::uint64_t seed = 0;
  // kGlobal: one permutation of all samples. kSequential: as they are stored. kBlock: runs of
  // `block_samples` neighbours are permuted, then samples within windows of `window_runs` runs,
  // which reads in larger pieces where a data set does not fit on the node. kPartial: each of
  // `canonical_nodes` has a fixed share of the data set, made of runs of `block_samples`
  // neighbours, and in each epoch they exchange a random part of their shares, of
  // `exchange_millionths` (the fraction in millionths). Part c of each global batch is node c's,
  // so a node needs to store little more than its share.
  OrderMode mode = OrderMode::kGlobal;
  std::uint64_t block_samples = 1024;
  std::uint64_t window_runs = 16;
  // kPartial only; it must be given there, and divide global_batch. The order depends on it and not
  // on `ranks`, so choose the largest number of nodes that the run may have.
  std::uint32_t canonical_nodes = 0;
  std::uint32_t exchange_millionths = 100'000;
  // A mode for epoch 0 alone: with kSequential or kBlock the first epoch runs at the speed of the
  // GFS, while the data set is still being staged.
  std::optional<OrderMode> epoch0_mode = {};
  // The last samples of an epoch may be fewer than a global batch. kDrop leaves them out, kPad adds
  // samples from the start of the order, kShort makes the last step smaller.
  TailPolicy tail = TailPolicy::kDrop;

  // kContiguous: each field of fixed size arrives as one tensor (Batch::Tensor). kViews: samples
  // stay where they lie in the daemon's memory (Batch::Spans), without a copy; faster where the
  // reader takes samples one by one.
  Delivery delivery = Delivery::kContiguous;
  // Batches that are fetched while the reader works on others; at most limits::kCreditsMax - 1. The
  // reader may hold prefetch_depth + 1 batches at once.
  std::uint32_t prefetch_depth = 4;
  // Whether Open waits while the daemon builds the catalog. False: kUnavailable until it is there.
  bool wait_for_catalog = true;
  // How long one Next or Pull repeats its request if the daemon answers that it cannot bring the
  // batch now: the GFS fails for longer than the daemon waits (stage.retry_for), or memory is
  // short. Pauses between two tries grow to half a second. 0: the first such error is returned. If
  // the daemon does not answer at all, the call waits for this time too, but for at least
  // limits::kPullDeadlineMs. At most limits::kStreamRetryMsMax.
  std::int64_t retry_for_ms = 600'000;

  // Where to continue: Batch::token() of the last batch that the former run consumed. The number
  // of ranks may differ from that run's; if another option differs, Open names it and fails.
  std::optional<PositionToken> resume = {};

  // The transform hook, the bytes that it writes for a sample, and the threads that it runs on. Its
  // results are in Batch::transformed(). Without a hook, batches are handed over as they arrive.
  Transform transform = {};
  std::uint64_t transform_bytes = 0;
  std::uint32_t transform_threads = 1;

  // A file that gets one line for each batch that was handed over, for `forebay audit`
  // (docs/delivery_log.md). Each rank needs a file of its own. Empty: no log.
  std::string delivery_log = {};
};

}  // namespace forebay
